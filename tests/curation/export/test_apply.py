"""Journals made good on annotations alone, in every format that is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioning.commands.main import main
from captioning.data.readers.own.own import own_splits, read_own
from captioning.data.roster import Roster
from captioning.types import Edit
from curation.export.apply import read_annotations
from curation.journal.journal import Header, append_lines, encode, write_journal

IMAGES = ("1.jpg", "2.jpg", "3.jpg")


def caption(image: str, k: int) -> str:
    return f"caption {k} of {image[0]}"


def write_coco(folder: Path) -> list[str]:
    images = [{"id": int(name[0]), "file_name": name} for name in IMAGES]
    annotations = [
        {"id": 10 * image["id"] + k, "image_id": image["id"], "caption": caption(name, k)}
        for image, name in zip(images, IMAGES, strict=True)
        for k in range(2)
    ]
    value = {"images": images, "annotations": annotations}
    (folder / "captions.json").write_text(json.dumps(value))
    return [str(folder / "captions.json")]


def write_karpathy(folder: Path) -> list[str]:
    images = [
        {
            "filename": name,
            "split": "test" if name == "3.jpg" else "train",
            "sentences": [{"raw": caption(name, k)} for k in range(2)],
        }
        for name in IMAGES
    ]
    (folder / "dataset.json").write_text(json.dumps({"images": images}))
    return [str(folder / "dataset.json"), "--split", "train"]


def write_tokens(folder: Path) -> list[str]:
    lines = [f"{name}#{k}\t{caption(name, k)}\n" for name in IMAGES for k in range(2)]
    (folder / "x.token.txt").write_text("".join(lines))
    (folder / "train.txt").write_text("1.jpg\n2.jpg\n")
    return [str(folder / "x.token.txt"), "--images", str(folder / "train.txt")]


def write_jsonl(folder: Path) -> list[str]:
    lines = [
        json.dumps({"image": name, "captions": [caption(name, k) for k in range(2)]})
        for name in IMAGES
    ]
    (folder / "captions.jsonl").write_text("\n".join(lines) + "\n")
    return [str(folder / "captions.jsonl")]


def write_samples(folder: Path) -> list[str]:
    lines = [
        json.dumps(
            {
                "sample_id": f"{name}#{k}",
                "image_id": name,
                "image_path": name,
                "caption": caption(name, k),
            }
        )
        for name in IMAGES
        for k in range(2)
    ]
    (folder / "samples.jsonl").write_text("\n".join(lines) + "\n")
    return [str(folder / "samples.jsonl")]


FORMATS = [write_coco, write_karpathy, write_tokens, write_jsonl, write_samples]


def read(arguments: list[str]) -> Roster:
    options = dict(zip([name[2:] for name in arguments[1::2]], arguments[2::2], strict=True))
    return read_annotations(arguments[:1], **options)


def edits_of(roster: Roster) -> list[Edit]:
    ids = [sample.sample_id for sample in roster.samples]
    return [
        Edit(sample_id=ids[0], action="remove", policy="p", epoch=0),
        Edit(
            sample_id=ids[2],
            action="replace_caption",
            value="new\nwords",
            origin="sibling:x",
            policy="p",
            epoch=0,
        ),
        Edit(sample_id=ids[3], action="replace_image", value="made/7.png", policy="p", epoch=1),
    ]


def make_journal(folder: Path, roster: Roster, edits: list[Edit]) -> Path:
    header = Header(roster="toy/train", fingerprint=roster.fingerprint, seed=1)
    write_journal(folder / "curation.jsonl", header, map(encode, edits))
    return folder / "curation.jsonl"


@pytest.mark.parametrize("write", FORMATS)
@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".token.txt"])
def test_each_format_is_read_and_each_is_written(tmp_path, capsys, write, suffix):
    arguments = write(tmp_path)
    roster = read(arguments)
    journal = make_journal(tmp_path, roster, edits_of(roster))
    out = tmp_path / "out" / f"curated{suffix}"
    assert main(["curate", "apply", str(journal), *arguments, "--out", str(out)]) == 0, (
        capsys.readouterr().err
    )
    written = read_annotations([out])
    assert [sample.caption for sample in written.samples][:3] == [
        caption("1.jpg", 1),
        "new words",
        caption("2.jpg", 1),
    ]
    assert len(written) == len(roster) - 1
    assert [str(sample.image_path) for sample in written.samples][:3] == [
        "1.jpg",
        "2.jpg",
        "replaced/7.png",
    ]
    card = (tmp_path / "out" / f"{out.stem}.README.md").read_text()
    assert "# toy/train, curated" in card


@pytest.mark.parametrize("write", [write_coco, write_jsonl])
@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".token.txt"])
def test_splits_that_a_file_says_are_written(tmp_path, capsys, write, suffix):
    [path] = write(tmp_path)
    split_of = dict(zip(IMAGES, ("train", "train", "test"), strict=True))
    if write is write_coco:
        value = json.loads(Path(path).read_text())
        images = [{**image, "split": split_of[image["file_name"]]} for image in value["images"]]
        Path(path).write_text(json.dumps({**value, "images": images}))
    else:
        rows = map(json.loads, Path(path).read_text().splitlines())
        lines = [json.dumps({**row, "split": split_of[row["image"]]}) for row in rows]
        Path(path).write_text("\n".join(lines))
    roster = read([path])
    journal = make_journal(tmp_path, roster, edits_of(roster))
    out = tmp_path / "out" / f"curated{suffix}"
    code = main(["curate", "apply", str(journal), path, "--out", str(out)])
    if suffix == ".token.txt":
        assert code == 1
        assert "holds one split, but the dataset has train, test" in capsys.readouterr().err
        return
    assert code == 0
    for name in IMAGES:
        (out.parent / name).write_bytes(b"")
    (out.parent / "replaced").mkdir()
    (out.parent / "replaced" / "7.png").write_bytes(b"")
    found = own_splits(out.parent)
    expected = {**split_of, "replaced/7.png": "train"}
    assert {path.relative_to(out.parent).as_posix(): s for path, s in found.items()} == expected
    captions = [sample.caption for sample in read_own(name="o", folder=out.parent).samples]
    assert captions[:2] == [caption("1.jpg", 1), "new words"]


def test_the_default_place_is_beside_the_annotations(tmp_path, capsys):
    for write, name in (
        (write_coco, "captions.curated.json"),
        (write_tokens, "x.curated.token.txt"),
    ):
        arguments = write(tmp_path)
        journal = make_journal(tmp_path, read(arguments), [])
        assert main(["curate", "apply", str(journal), *arguments]) == 0
        assert (tmp_path / name).is_file()
        # what is there is not written over
        assert main(["curate", "apply", str(journal), *arguments]) == 1
        assert "exists already" in capsys.readouterr().err


def test_a_second_time_is_refused(tmp_path, capsys):
    arguments = write_coco(tmp_path)
    roster = read(arguments)
    journal = make_journal(tmp_path, roster, edits_of(roster))
    once = tmp_path / "once.json"
    assert main(["curate", "apply", str(journal), *arguments, "--out", str(once)]) == 0
    before = once.read_bytes()
    assert (
        main(["curate", "apply", str(journal), str(once), "--out", str(tmp_path / "twice.json")])
        == 1
    )
    message = capsys.readouterr().err
    assert "or was the journal applied before" in message
    assert not (tmp_path / "twice.json").exists()
    assert once.read_bytes() == before


def test_other_annotations_and_unknown_ids_are_told_apart(tmp_path, capsys):
    arguments = write_tokens(tmp_path)
    roster = read(arguments)
    journal = make_journal(tmp_path, roster, edits_of(roster))
    # without the list of the split there are more images
    assert (
        main(["curate", "apply", str(journal), arguments[0], "--out", str(tmp_path / "o.json")])
        == 1
    )
    message = capsys.readouterr().err
    assert "all 3 edited samples are among these 6, but not all captions" in message
    assert "--images" in message
    (tmp_path / "train.txt").write_text("3.jpg\n")
    assert (
        main(["curate", "apply", str(journal), *arguments, "--out", str(tmp_path / "o.json")]) == 1
    )
    assert "0 of the 3 edited samples are among these 2" in capsys.readouterr().err
    (tmp_path / "train.txt").write_text("1.jpg\n2.jpg\n")
    unknown = Edit(sample_id="9.jpg#0", action="remove")
    append_lines(journal, [encode(unknown)])
    assert (
        main(["curate", "apply", str(journal), *arguments, "--out", str(tmp_path / "o.json")]) == 1
    )
    assert "edit 4: unknown sample_id '9.jpg#0'" in capsys.readouterr().err
    assert not (tmp_path / "o.json").exists()


def test_a_cut_journal_loses_nothing(tmp_path, capsys):
    arguments = write_coco(tmp_path)
    roster = read(arguments)
    journal = make_journal(tmp_path, roster, edits_of(roster))
    journal.write_bytes(content := journal.read_bytes()[:-20])
    assert main(["curate", "apply", str(journal), *arguments]) == 1
    assert "line 4 is cut off" in capsys.readouterr().err
    assert journal.read_bytes() == content
    assert not (tmp_path / "captions.curated.json").exists()


def test_the_annotations_are_never_written_over(tmp_path, capsys):
    arguments = write_coco(tmp_path)
    journal = make_journal(tmp_path, read(arguments), [])
    before = Path(arguments[0]).read_bytes()
    assert main(["curate", "apply", str(journal), *arguments, "--out", arguments[0]]) == 1
    assert "is one of the inputs" in capsys.readouterr().err
    assert main(["curate", "apply", str(journal), *arguments, "--out", str(journal)]) == 1
    assert Path(arguments[0]).read_bytes() == before


@pytest.mark.parametrize(
    ("write", "change", "message"),
    [
        (write_karpathy, [], "say which with --split"),
        (write_coco, ["--split", "train"], "remove --split"),
        (write_jsonl, ["--images", "list.txt"], "was read as JSON Lines: remove --images"),
        (write_coco, ["--out", "x.xml"], "the suffix sets the format: .json"),
    ],
)
def test_wrong_options_name_the_remedy(tmp_path, capsys, write, change, message):
    arguments = write(tmp_path)
    journal = make_journal(tmp_path, read(arguments), [])
    assert main(["curate", "apply", str(journal), arguments[0], *change]) == 1
    assert message in capsys.readouterr().err


def test_missing_files_are_named(tmp_path, capsys):
    assert main(["curate", "apply", str(tmp_path), str(tmp_path / "none.json")]) == 1
    assert "none.json does not exist" in capsys.readouterr().err
    arguments = write_samples(tmp_path)
    assert main(["curate", "apply", str(tmp_path / "nowhere"), *arguments]) == 1
    assert "does not exist; was the run trained" in capsys.readouterr().err
    (tmp_path / "samples.jsonl").write_text('{"sample_id": 3}\n')
    assert main(["curate", "apply", str(tmp_path / "nowhere"), *arguments]) == 1
    assert "samples.jsonl line 1 must be an object" in capsys.readouterr().err


@pytest.mark.long
def test_real_annotations(shared_data, tmp_path, capsys):
    folder = shared_data / "flickr8k"
    if not (folder / "Flickr8k.token.txt").is_file():
        pytest.skip(f"needs {folder}/Flickr8k.token.txt")
    arguments = [
        str(folder / "Flickr8k.token.txt"),
        "--images",
        str(folder / "Flickr_8k.trainImages.txt"),
    ]
    roster = read(arguments)
    edits = [Edit(sample_id=sample.sample_id, action="remove") for sample in roster.samples[::10]]
    journal = make_journal(tmp_path, roster, edits)
    assert (
        main(["curate", "apply", str(journal), *arguments, "--out", str(tmp_path / "o.json")]) == 0
    )
    assert len(json.loads((tmp_path / "o.json").read_text())["annotations"]) == 27_000
