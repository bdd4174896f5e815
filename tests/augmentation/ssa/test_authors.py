"""Published captions of SSA are joined to the photos whose boxes they have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from augmentation.captions.caption_set import write_captions
from augmentation.ssa.authors import NO_BOX, NOTHING, OTHER_BOX, AuthorsCaptions
from captioning.commands.main import main
from captioning.data.annotated_boxes import sample_size
from captioning.data.roster import Roster, build_roster
from captioning.data.steps.added_captions import focus, read_added_captions
from captioning.types import Phrase, Region, Sample

REGIONS = (
    Region(box=(11, 1, 31, 41), label="people"),
    Region(box=(61, 51, 91, 81), label="animals"),
    Region(box=(62, 52, 92, 82), label="animals"),
)


def thing(number: int | str, name: str, box: tuple[float, ...] | None = None) -> dict[str, Any]:
    sides = dict(zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)) if box else {}
    return {"object_id": number, "name": name, "attributes": ["red"], **sides}


def entry(phrase: str, *objects: dict[str, Any]) -> dict[str, Any]:
    return {"objects": list(objects), "relationships": [], "phrase": phrase}


MAN, DOG = thing(4, "man", (10, 0, 30, 40)), thing(7, "dog", (61, 51, 91, 81))
BOTH_DOGS = thing(7, "dog", (62.4, 52, 92, 82.3))
CAPTIONS = {
    "5_0": entry("A man  walks.\n", MAN),
    "5_1": entry("Two dogs beside a Man", DOG, BOTH_DOGS, MAN),
    "5_2": entry("a man is outside", MAN, thing("scene", "outside")),
    "5_3": entry("a man has a hat", MAN, thing("unknown", "hat")),
    "5_4": entry("a cat", thing(9, "cat", (1, 1, 5, 5))),
    "5_5": entry("it rains"),
}


@pytest.fixture
def roster(tmp_path: Path) -> Roster:
    samples = []
    for number in (5, 12):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (100, 90), (number, 0, 0)).save(path)
        samples.append(
            Sample(row=0, sample_id=f"{number}#0", image_id=str(number), image_path=path,
                   caption="A man and two dogs.", regions=REGIONS,
                   phrases=(Phrase(start=0, text="A man", chain_id="4", regions=(0,)),))
        )  # fmt: skip
    return build_roster("toy/train", samples)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As an archive is unpacked, with a photo that the data do not have."""
    below = tmp_path / "published" / "flickr-ssa"
    below.mkdir(parents=True)
    (below / "0005.json").write_text(json.dumps(CAPTIONS))
    (below / "99.json").write_text(json.dumps(CAPTIONS))
    return below.parent


def test_captions_have_the_regions_of_their_boxes(
    folder: Path, roster: Roster, tmp_path: Path
) -> None:
    method = AuthorsCaptions(folder=folder)
    counts = write_captions(method, folder=tmp_path / "out", roster=roster, settings={})
    assert counts["left out"] == {NO_BOX: 1, OTHER_BOX: 1, NOTHING: 1}
    walks, dogs, outside = read_added_captions(tmp_path / "out", roster)
    assert {sample.image_id for sample in (walks, dogs, outside)} == {"5"}
    assert walks.caption == "A man walks."
    assert walks.phrases == (Phrase(start=2, text="man", chain_id="4", regions=(0,)),)
    # "dog" is no word of it: it stands for the whole caption, after the others
    assert [(p.text, p.start, p.regions) for p in dogs.phrases] == [
        ("Man", 18, (0,)),
        (dogs.caption, 0, (1, 2)),
    ]
    assert [(p.text, p.kinds, p.regions) for p in outside.phrases] == [
        ("man", (), (0,)),
        ("outside", ("scene",), ()),
    ]
    width, height = sample_size(roster.samples[0])
    assert focus(walks) == pytest.approx(20 * 40 / (width * height))


def test_two_things_of_one_name_have_two_places(folder: Path, roster: Roster) -> None:
    other = thing(8, "man", (61, 51, 91, 81))
    content = {"12_0": entry("A man beside a man", other, MAN)}
    (folder / "12.json").write_text(json.dumps(content))
    _, photo = AuthorsCaptions(folder=folder).captions(roster)
    (caption,) = photo.captions
    found = [(phrase.start, phrase.text, phrase.regions) for phrase in caption.phrases]
    assert found == [(2, "man", (1,)), (15, "man", (0,))]


def test_captions_do_not_depend_on_photos_that_are_skipped(folder: Path, roster: Roster) -> None:
    method = AuthorsCaptions(folder=folder)
    (folder / "12.json").write_text(json.dumps({"12_0": CAPTIONS["5_0"]}))
    both = list(method.captions(roster))
    assert [len(photo.captions) for photo in both] == [3, 1]
    assert list(method.captions(roster, skip=1)) == both[1:]


def test_what_is_no_such_set_is_named(folder: Path, roster: Roster, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"method\.folder=.*none does not exist; unpack"):
        AuthorsCaptions(folder=tmp_path / "none")
    (tmp_path / "other").mkdir()
    with pytest.raises(
        ValueError, match=r"other has no file for any photo of toy/train, such as 5"
    ):
        list(AuthorsCaptions(folder=tmp_path / "other").captions(roster))
    broken = {"5_0": entry("a man", thing(4, "man", (0, 0, 1, 1)) | {"xmax": "wide"})}
    (folder / "flickr-ssa" / "0005.json").write_text(json.dumps(broken))
    with pytest.raises(ValueError, match=r"0005\.json: '?5_0'?: objects\[0\]: 'xmin' must be num"):
        list(AuthorsCaptions(folder=folder).captions(roster))
    (folder / "flickr-ssa" / "0005.json").write_text('{"5_0": {"objects": []')
    with pytest.raises(ValueError, match=r"0005\.json"):
        list(AuthorsCaptions(folder=folder).captions(roster))


@pytest.mark.long
def test_the_command_writes_a_set(tmp_path: Path) -> None:
    data = ["data=miniworld", "first_images=3", f"paths.cache={tmp_path}/cache"]
    made = tmp_path / "made"
    assert main(["augment", "method=ssa", *data, f"out={made}"]) == 0
    lines = [json.loads(line) for line in (made / "captions.jsonl").read_text().splitlines()]
    published = tmp_path / "published"
    published.mkdir()
    for number, line in enumerate(lines):
        boxes = [thing(box["region"], "it", tuple(box["box"])) for box in line["boxes"]]
        (published / f"{line['image_id']}.json").write_text(
            json.dumps({str(number): entry(line["caption"], *boxes)})
        )
    out = tmp_path / "set"
    asked = [*data, f"method.folder={published}", f"out={out}"]
    assert main(["augment", "method=ssa_authors", *asked]) == 0
    card = json.loads((out / "statistics.json").read_text())
    assert card["captions"] == len({line["image_id"] for line in lines})
    with pytest.raises(SystemExit, match=r"method\.folder"):
        main(["augment", "method=ssa_authors", *data, f"out={tmp_path}/x"])
