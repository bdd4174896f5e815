"""Exports name photos as the original does, whether these come along or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioning.commands.main import main
from captioning.data.readers.own.own import read_own
from curation.check import check
from curation.check.check_files import export_cleaned
from tests.packed_files import photo

SKIP = ("duplicate_photo", "too_short")
NAMES = ("day 1/a.jpg", "day 1/b 2.jpeg", "day 1/more/c.jpg")
FOLDERS = ("copy", "link")
TEXT_FORMATS = ("coco", "jsonl", "csv", "karpathy", "messages")


def make(root: Path, layout: str) -> None:
    """Photos below ``photos``, all of them in one folder there."""
    for n, name in enumerate(NAMES):
        (root / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "photos" / name).write_bytes(photo(n, 64))
    texts = {name: f"A dog runs over field {n}." for n, name in enumerate(NAMES)}
    if layout == "coco":
        images = [{"id": 100 + n, "file_name": name} for n, name in enumerate(NAMES)]
        annotations = [
            {"id": n, "image_id": 100 + n, "caption": text} for n, text in enumerate(texts.values())
        ]
        whole = {"images": images, "annotations": annotations}
        (root / "captions.json").write_text(json.dumps(whole))
    elif layout == "jsonl":
        lines = [{"image": name, "captions": [text]} for name, text in texts.items()]
        (root / "captions.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    elif layout == "imagefolder":
        lines = [{"file_name": name, "text": text} for name, text in texts.items()]
        path = root / "photos" / "metadata.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    else:
        rows = [f"{name},{text}" for name, text in texts.items()]
        (root / "captions.csv").write_text("\n".join(["file_name,text", *rows]))


@pytest.mark.parametrize("layout", ["coco", "jsonl", "imagefolder", "table"])
@pytest.mark.parametrize("format", TEXT_FORMATS)
def test_captions_alone_fit_the_photos_where_they_lie(tmp_path: Path, layout, format) -> None:
    root = tmp_path / "set"
    make(root, layout)
    folder = root / "photos" if layout == "imagefolder" else root
    result = check(folder, space="none", skip=SKIP, quiet=True)
    for photos in ("none", "copy", "link"):
        export_cleaned(result, tmp_path / photos, format=format, photos=photos)
    # beside the original photos, without another word
    found = read_own(name="x", folder=tmp_path / "none", image_folder=root / "photos")
    expected = read_own(name="x", folder=folder)
    assert [(s.caption, s.sample_id, s.image_id, s.image_path) for s in found.samples] == [
        (s.caption, s.sample_id, s.image_id, s.image_path) for s in expected.samples
    ]
    for photos in FOLDERS:
        samples = read_own(name="x", folder=tmp_path / photos).samples
        places = [s.image_path.relative_to(tmp_path / photos / "images") for s in samples]
        assert [path.as_posix() for path in places] == list(NAMES)
    # chats name photos from the file's own folder where these are there
    copied = [[line.replace('"images/', '"') for line in _files(tmp_path / f)] for f in FOLDERS]
    assert _files(tmp_path / "none") == copied[0] == copied[1]


def _files(folder: Path) -> list[str]:
    """What the files of captions say, line by line."""
    paths = [p for p in sorted(folder.iterdir()) if p.is_file() and p.name != "README.md"]
    return [line for path in paths for line in path.read_text().splitlines()]


def test_a_table_with_edits_names_photos_as_before(tmp_path: Path, capsys) -> None:
    root = tmp_path / "set"
    make(root, "table")
    result = check(root, space="none", skip=SKIP, quiet=True)
    export_cleaned(result, tmp_path / "out", format="journal")
    table = root / "captions.csv"
    words = ["curate", "apply", str(tmp_path / "out"), str(table), "--out", str(tmp_path / "n.csv")]
    assert main(words) == 0, capsys.readouterr().err
    named = [line.split(",")[0] for line in (tmp_path / "n.csv").read_text().splitlines()]
    assert named == ["file_name", *NAMES]
