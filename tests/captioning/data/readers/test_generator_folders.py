"""Folders of kohya's scripts, ai-toolkit, OneTrainer and diffusers, as people have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from captioning.data.readers.generator_folders import repeated_folders, repeats_in
from captioning.data.readers.own.own import own_splits, read_own
from captioning.data.roster import Roster


def photos(root: Path, *names: str) -> None:
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 64), (number, 90, 30)).save(root / name)


def texts(root: Path, **captions: str) -> None:
    for name, caption in captions.items():
        (root / f"{name}.txt").write_text(caption)


def read(root: Path, **options: str) -> Roster:
    return read_own(name="set", folder=root, bad_captions="drop", **options)


def captions_of(roster: Roster, root: Path) -> dict[str, str]:
    assert len(roster.rows_by_image) == len(roster)
    return {str(s.image_path.relative_to(root)): s.caption for s in roster.samples}


def test_kohyas_repeats_are_no_copies_of_captions(tmp_path: Path) -> None:
    photos(tmp_path, "10_sks dog/a.png", "10_sks dog/b.png", "1_dog/c.png", "1_dog/d.png")
    texts(tmp_path / "10_sks dog", a="sks dog, sitting", b="sks dog, on grass")
    assert captions_of(read(tmp_path), tmp_path) == {
        "10_sks dog/a.png": "sks dog, sitting",
        "10_sks dog/b.png": "sks dog, on grass",
        "1_dog/c.png": "dog",  # the folder has no text at all
        "1_dog/d.png": "dog",
    }


def test_a_photo_without_text_beside_others_is_left_out(tmp_path: Path) -> None:
    photos(tmp_path, "10_sks dog/a.png", "10_sks dog/b.png")
    texts(tmp_path / "10_sks dog", a="sks dog, sitting")
    roster = read(tmp_path)
    assert [s.caption for s in roster.samples] == ["sks dog, sitting"]
    assert [d.item for d in roster.dropped] == ["10_sks dog/b.png"]


def test_a_folder_without_any_text_is_read_by_its_name(tmp_path: Path) -> None:
    photos(tmp_path, "25_ohwx man/a.png", "25_ohwx man/b.jpg")
    assert set(captions_of(read(tmp_path), tmp_path).values()) == {"ohwx man"}


@pytest.mark.parametrize(
    "folders",
    [
        ("1_cats", "2_dogs"),  # counted classes
        ("10_cats", "11_dogs", "12_birds"),
        ("2024_holiday",),
        ("01_face",),
        ("cats",),
    ],
)
def test_other_numbers_are_no_repeats(tmp_path: Path, folders: tuple[str, ...]) -> None:
    assert repeated_folders([tmp_path / name for name in folders]) == {}
    photos(tmp_path, *(f"{name}/a.png" for name in folders))
    with pytest.raises(FileNotFoundError, match="no captions are found"):
        read(tmp_path)


def test_numbers_and_words_of_a_folder() -> None:
    assert repeats_in("10_sks dog") == (10, "sks dog")
    assert repeats_in("3_old_car") == (3, "old_car")
    assert repeats_in("10_") is repeats_in("10 dogs") is repeats_in("_dog") is None
    found = repeated_folders([Path("1_dog"), Path("40_sks dog"), Path("other")])
    assert {str(path): said.number for path, said in found.items()} == {
        "1_dog": 1,
        "40_sks dog": 40,
    }


def test_the_default_caption_is_of_photos_without_text(tmp_path: Path) -> None:
    photos(tmp_path, "img/a.png", "img/b.png", "img/near/c.png", "d.png")
    texts(tmp_path, default_caption="ohwx woman")
    texts(tmp_path / "img", a="ohwx woman, smiling")
    texts(tmp_path / "img" / "near", default_caption="ohwx woman, portrait")
    assert captions_of(read(tmp_path), tmp_path) == {
        "d.png": "ohwx woman",
        "img/a.png": "ohwx woman, smiling",
        "img/b.png": "ohwx woman",
        "img/near/c.png": "ohwx woman, portrait",
    }


def test_masks_of_onetrainer_are_no_photos(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "a-masklabel.png", "b.jpg", "b-condlabel.png", "c-masklabel.png")
    texts(tmp_path, a="a red car", b="a blue car")
    roster = read(tmp_path)
    assert captions_of(roster, tmp_path) == {"a.jpg": "a red car", "b.jpg": "a blue car"}
    # a mask without photo is no mask that is known
    assert [Path(d.item).name for d in roster.dropped] == ["c-masklabel.png"]


@pytest.mark.parametrize("key", ["prompt", "text"])
def test_metadata_of_diffusers(tmp_path: Path, key: str) -> None:
    photos(tmp_path, "a.png", "b.png")
    rows = [{"file_name": f"{n}.png", key: f"sks dog {n}"} for n in "ab"]
    (tmp_path / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert captions_of(read(tmp_path), tmp_path) == {"a.png": "sks dog a", "b.png": "sks dog b"}


def test_a_prompt_beside_a_caption_or_an_answer_is_none(tmp_path: Path) -> None:
    photos(tmp_path, "a.png")
    (tmp_path / "metadata.csv").write_text("file_name,prompt,text\na.png,Describe it.,A red car.\n")
    assert captions_of(read(tmp_path), tmp_path) == {"a.png": "A red car."}
    (tmp_path / "metadata.csv").write_text("file_name,prompt,response\na.png,What?,A red car.\n")
    with pytest.raises(ValueError, match="none of the columns"):
        read(tmp_path)


def concept(path: str, source: str, **more: object) -> dict[str, object]:
    text = {"prompt_source": source, "prompt_path": "C:\\sets\\prompts.txt"}
    return {"path": path, "text": text, "image": {"enable_crop_jitter": True}} | more


def test_concepts_of_onetrainer(tmp_path):
    for place in ("a/x.jpg", "a/deep/y.jpg", "b/A_dog_01.jpg", "c/z.jpg", "d.jpg"):
        path = tmp_path / "sets" / place
        photos(path.parent, path.name)
        path.with_suffix(".txt").write_text(f"Text of {path.stem}.")
    (tmp_path / "prompts.txt").write_text("A cat.\nCats.\n")
    values = [
        concept("D:\\sets\\a", "sample"),
        concept("/srv/sets/b/", "filename", type="VALIDATION"),
        concept("sets/c", "concept"),
        concept("gone", "sample", enabled=False),
    ]
    file = tmp_path / "training_concepts" / "concepts.json"
    file.parent.mkdir()
    file.write_text(json.dumps(values))
    roster = read_own(name="o", folder=tmp_path)
    said = {sample.image_path.name: [] for sample in roster.samples}
    for sample in roster.samples:
        said[sample.image_path.name].append(sample.caption)
    assert said == {
        "x.jpg": ["Text of x."],
        "A_dog_01.jpg": ["A dog"],
        "z.jpg": ["A cat.", "Cats."],
    }
    splits = {path.name: split for path, split in own_splits(tmp_path).items()}
    assert splits == {"x.jpg": "train", "z.jpg": "train", "A_dog_01.jpg": "val"}
    values[0]["include_subdirectories"] = True
    file.write_text(json.dumps(values))
    assert "y.jpg" in {s.image_path.name for s in read_own(name="o", folder=tmp_path).samples}
    file.write_text(json.dumps([*values, concept("/far/away", "sample")]))
    with pytest.raises(ValueError, match=r"concepts.json\[4\]: 'path': '/far/away' is not below"):
        read_own(name="o", folder=tmp_path)
    file.write_text(json.dumps([concept("sets/a", "tags")]))
    with pytest.raises(ValueError, match=r"'text': 'prompt_source' must be one of \['sample'"):
        read_own(name="o", folder=tmp_path)
