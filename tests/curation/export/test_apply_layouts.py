"""The edits of a journal, made on every layout that data=own reads."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from captioning.commands.main import main
from captioning.data.readers.own.kinds import Kind
from captioning.data.readers.own.layout import recognise
from captioning.data.readers.own.own import own_splits, read_own
from captioning.data.readers.split_words import Split
from captioning.types import Edit
from curation.check import check
from curation.check.check_files import export_cleaned
from curation.check.folder_check import read_all
from curation.export.export import FORMATS, HOLD_PHOTOS
from curation.journal.journal import Header, encode, write_journal
from tests.packed_files import photo

NUMBER = 6
Captions = dict[str, tuple[str, str]]  # caption and image id by sample id


def caption(n: int, k: int = 0) -> str:
    return f"a dog runs over field number {n}, {k}"


def photos(folder: Path, number: int = NUMBER, name: str = "p{}.jpg") -> list[str]:
    names = [name.format(n) for n in range(number)]
    for n, one in enumerate(names):
        (folder / one).parent.mkdir(parents=True, exist_ok=True)
        (folder / one).write_bytes(photo(n, 64))
    return names


def rows_of(names: list[str]) -> list[list[str]]:
    return [[name, caption(n, k)] for n, name in enumerate(names) for k in range(2)]


def write_table(path: Path, rows: list[list[str]], delimiter: str = ",") -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)


def a_csv(root: Path) -> None:
    write_table(root / "captions.csv", [["file_name", "text"], *rows_of(photos(root))])


def a_csv_of_a_subfolder(root: Path) -> None:
    rows = rows_of(photos(root, name="images/day 1/p{}.jpg"))
    rows = [[name.removeprefix("images/"), text] for name, text in rows]
    write_table(root / "captions.csv", [["file_name", "text"], *rows])


def a_tsv(root: Path) -> None:
    write_table(root / "c.tsv", [["image", "caption"], *rows_of(photos(root))], "\t")


def a_table_with_bars(root: Path) -> None:
    lines = [f"{name}| {k}| {caption(n, k)}" for n, name in enumerate(photos(root)) for k in (0, 1)]
    (root / "results.csv").write_text("\n".join(["image_name| comment_number| comment", *lines]))


def a_table_with_splits(root: Path) -> None:
    parts = ["train", "train", "train", "train", "val", "test"]
    rows = [[*row, parts[int(row[0][1])]] for row in rows_of(photos(root))]
    write_table(root / "captions.csv", [["file_name", "text", "split"], *rows])


def tables_in_folders_of_splits(root: Path) -> None:
    for split, name in (("train", "a{}.jpg"), ("val", "b{}.jpg"), ("test", "c{}.jpg")):
        rows = rows_of(photos(root / split, 3, name))
        rows = [[name, f"{text} of {split}"] for name, text in rows]
        write_table(root / split / "captions.csv", [["file_name", "text"], *rows])


def metadata_csv(root: Path) -> None:
    write_table(root / "metadata.csv", [["file_name", "text"], *rows_of(photos(root))])


def metadata_jsonl(root: Path) -> None:
    lines = [{"file_name": name, "text": caption(n)} for n, name in enumerate(photos(root))]
    (root / "metadata.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def text_files(root: Path) -> None:
    for n, name in enumerate(photos(root)):
        text = f"{caption(n)}\n{caption(n, 1)}\n"
        (root / name).with_suffix(".txt").write_text(text)


def concepts(root: Path) -> None:
    text_files(root / "photos")
    concept = {
        "path": "/srv/set/photos",
        "type": "STANDARD",
        "enabled": True,
        "include_subdirectories": False,
        "image": {},
        "text": {"prompt_source": "sample", "prompt_path": ""},
    }
    (root / "concepts.json").write_text(json.dumps([concept]))


def file_names(root: Path) -> None:
    for n in range(NUMBER):
        (root / f"{caption(n).replace(',', '')}.jpg").write_bytes(photo(n, 64))


def line_pairs(root: Path) -> None:
    names = photos(root)
    (root / "train.txt").write_text("".join(f"{name}\n" for name in names))
    (root / "train.en").write_text("".join(f"{caption(n)}\n" for n in range(NUMBER)))


def token_file(root: Path) -> None:
    lines = [f"{name}#{k}\t{caption(n, k)}" for n, name in enumerate(photos(root)) for k in (0, 1)]
    (root / "x.token.txt").write_text("\n".join([*lines, ""]))


def json_lines(root: Path) -> None:
    lines = [
        {"image": p, "captions": [caption(n), caption(n, 1)]} for n, p in enumerate(photos(root))
    ]
    (root / "captions.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def json_list(root: Path) -> None:
    rows = [{"image": name, "caption": caption(n)} for n, name in enumerate(photos(root))]
    (root / "captions.json").write_text(json.dumps(rows))


def json_chats(root: Path) -> None:
    def turns(n: int) -> list[dict[str, str]]:
        asked = {"from": "human", "value": "<image>\nWhat is seen?"}
        return [asked, {"from": "gpt", "value": caption(n)}]

    chats = [{"image": name, "conversations": turns(n)} for n, name in enumerate(photos(root))]
    (root / "chats.json").write_text(json.dumps(chats))


def coco(root: Path, name: str = "captions.json", photo_name: str = "p{}.jpg") -> None:
    names = photos(root / "images", name=photo_name)
    images = [{"id": 70 + n, "file_name": one} for n, one in enumerate(names)]
    annotations = [
        {"id": 10 * n + k, "image_id": 70 + n, "caption": f"{caption(n, k)} {photo_name[0]}"}
        for n in range(NUMBER)
        for k in range(2)
    ]
    (root / name).write_text(json.dumps({"images": images, "annotations": annotations}))


def coco_by_split(root: Path) -> None:
    coco(root, "captions_train.json", "p{}.jpg")
    coco(root, "captions_val.json", "q{}.jpg")


def karpathy(root: Path) -> None:
    images = [
        {
            "filename": name,
            "split": ["train", "train", "train", "restval", "val", "test"][n],
            "sentences": [{"raw": caption(n, k)} for k in range(2)],
        }
        for n, name in enumerate(photos(root))
    ]
    (root / "dataset.json").write_text(json.dumps({"images": images}))


def exported(format: str) -> Callable[[Path], None]:
    """A layout as exports have it."""

    def write(root: Path) -> None:
        root.rmdir()
        source = root.with_name("source")
        source.mkdir()
        a_csv(source)
        result = check(source, space="none", skip=("duplicate_photo",), quiet=True)
        export_cleaned(result, root, format=format, photos="copy")
        (root / "curation.jsonl").unlink()

    write.__name__ = format
    return write


READ_AS: dict[Callable[[Path], None], dict[str, Any]]
READ_AS = {file_names: {"layout": "file_names"}}  # which is not recognised
WRITERS = [
    a_csv, a_csv_of_a_subfolder, a_tsv, a_table_with_bars, a_table_with_splits,
    tables_in_folders_of_splits, metadata_csv, metadata_jsonl, text_files, concepts, file_names,
    token_file,
    json_lines, json_list, json_chats, coco, coco_by_split, karpathy,
    *(exported(name) for name in FORMATS if name != "journal"), line_pairs,
]  # fmt: skip


def make(tmp_path: Path, write: Callable[[Path], None]) -> Path:
    root = tmp_path / "set"
    root.mkdir()
    write(root)
    return root


def captions_of(folder: Path, **reading: Any) -> Captions:
    samples = read_own(name="x", folder=folder, **reading).samples
    return {s.sample_id: (s.caption, s.image_id) for s in samples}


def journal_of(tmp_path: Path, root: Path, **reading: Any) -> tuple[Path, Captions]:
    """A journal that removes the second caption and replaces the fourth, and what is then left."""
    roster = read_own(name="x", folder=root, **reading) if reading else read_all(root)
    ids = [sample.sample_id for sample in roster.samples]
    edits = [
        Edit(sample_id=ids[1], action="remove", policy="check"),
        Edit(sample_id=ids[3], action="replace_caption", value="Something new.", policy="check"),
    ]
    header = Header(roster="set", fingerprint=roster.fingerprint)
    write_journal(tmp_path / "curation.jsonl", header, map(encode, edits))
    left = {s.sample_id: (s.caption, s.image_id) for s in roster.samples if s.sample_id != ids[1]}
    left[ids[3]] = ("Something new.", left[ids[3]][1])
    return tmp_path / "curation.jsonl", left


def names_of_splits(folder: Path, **reading: Any) -> dict[str, Split]:
    by_path = own_splits(folder, **reading)
    samples = read_own(name="x", folder=folder, **reading).samples
    return {s.sample_id: by_path[s.image_path] for s in samples if by_path}


def run(*words: str | Path) -> None:
    assert main(["curate", "apply", *map(str, words)]) == 0


def test_every_layout_is_tried(tmp_path: Path) -> None:
    kinds = set()
    for number, write in enumerate(WRITERS):
        (tmp_path / str(number)).mkdir()
        root = make(tmp_path / str(number), write)
        kinds.add(recognise(root, kind=READ_AS.get(write, {}).get("layout")).kind)
    assert kinds == {*get_args(Kind)}


@pytest.mark.parametrize("write", WRITERS)
def test_a_folder_becomes_a_new_one(tmp_path: Path, monkeypatch, capsys, write) -> None:
    monkeypatch.chdir(tmp_path)
    root = make(tmp_path, write)
    reading = READ_AS.get(write, {})
    journal, left = journal_of(tmp_path, root, **reading)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    splits = {
        name: split for name, split in names_of_splits(root, **reading).items() if name in left
    }
    layout = [word for name in reading.values() for word in ("--layout", name)]
    run(journal, root, "--photos", "copy", "--held-out", "0", *layout)
    out = tmp_path / "set-curated"
    done = f"{out.name}: {len(left)} captions; 2 edits made to {len(left) + 1} captions"
    assert done in capsys.readouterr().out.splitlines()
    assert captions_of(out) == left
    found = names_of_splits(out)
    assert found == splits or (not splits and {*found.values()} == {"train"})  # of Karpathy's
    assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    card = (out / "README.md").read_text()
    assert "before training | `check` | removed | 1" in card
    if recognise(out).kind == "coco":
        assert len(list((out / "images").iterdir())) == len({image for _, image in left.values()})


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "journal"])
def test_the_format_can_be_chosen(tmp_path: Path, format: str) -> None:
    root = make(tmp_path, a_table_with_splits)
    journal, left = journal_of(tmp_path, root)
    options = [] if format in HOLD_PHOTOS else ["--photos", "copy"]
    run(journal, root, "--out", tmp_path / "new", "--format", format, *options)
    found = captions_of(tmp_path / "new")
    if format == "text_files":  # without a place for ids
        assert sorted(text for text, _ in found.values()) == sorted(t for t, _ in left.values())
    else:
        assert found == left
        expected = {name: s for name, s in names_of_splits(root).items() if name in left}
        assert names_of_splits(tmp_path / "new") == expected


@pytest.mark.parametrize("write", [a_csv, a_csv_of_a_subfolder, a_tsv, a_table_with_splits])
def test_a_table_becomes_a_table(tmp_path: Path, write) -> None:
    root = make(tmp_path, write)
    journal, left = journal_of(tmp_path, root)
    [path] = [path for path in root.iterdir() if path.suffix in (".csv", ".tsv")]
    splits = {name: split for name, split in names_of_splits(root).items() if name in left}
    run(journal, path)
    path.unlink()
    assert (root / f"{path.stem}.curated.csv").is_file()
    assert captions_of(root) == left
    assert names_of_splits(root) == splits


def test_a_file_of_karpathy_is_made_whole_again(tmp_path: Path) -> None:
    root = make(tmp_path, karpathy)
    journal, left = journal_of(tmp_path, root)
    splits = names_of_splits(root)
    run(journal, root / "dataset.json")
    (root / "dataset.json").unlink()
    assert captions_of(root) == left
    assert names_of_splits(root) == {name: splits[name] for name in left}


@pytest.mark.parametrize("write", [a_csv, a_table_with_splits, text_files, exported("webdataset")])
@pytest.mark.parametrize("reading", [{}, {"seed": 3, "held_out": 0.2}])
def test_the_journal_of_a_training_split_keeps_the_others(tmp_path: Path, write, reading) -> None:
    root = make(tmp_path, write)
    parts = {part: {"part": part, "split_by": "content", **reading} for part in ("val", "test")}
    others = {part: captions_of(root, **own) for part, own in parts.items()}
    journal, left = journal_of(tmp_path, root, part="train", split_by="content", **reading)
    options = ["--seed", "3", "--held-out", "0.2"] if reading else []
    run(journal, root, "--out", tmp_path / "new", "--format", "jsonl", "--photos", "copy", *options)
    assert captions_of(tmp_path / "new", part="train") == left
    for part, captions in others.items():
        assert captions_of(tmp_path / "new", part=part) == captions


def test_photos_that_are_gone_are_needed_by_none(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = make(tmp_path, metadata_csv)
    journal, left = journal_of(tmp_path, root)
    for path in root.glob("*.jpg"):
        path.unlink()
    run(journal, root)
    assert captions_of(tmp_path / "set-curated", missing_photos="keep") == left


@pytest.mark.parametrize(
    ("write", "words", "message"),
    [
        (exported("parquet"), ["{set}/data/data-00000-of-00001.parquet"], "give {set}/data"),
        (a_csv, ["{set}", "--images", "x.txt"], "--images and several input files work only"),
        (a_csv, ["{set}/captions.csv", "--images", "x.txt"], "--images works only with COCO JSON"),
        (a_csv, ["{set}/captions.csv", "--photos", "copy"], "choose a folder with --format"),
        (a_csv, ["{set}", "--out", "{set}"], "is not empty"),
        (a_csv, ["{set}", "--split", "train"], "but not all captions are those"),
        (a_table_with_splits, ["{set}/captions.csv", "--out", "x.token.txt"], "choose --format"),
        (a_csv, ["{set}/none.csv"], "none.csv does not exist"),
        (a_csv, ["{set}", "--layout", "coco"], "no captions are found"),
        (a_csv, ["{set}", "--held-out", "0.7"], "--held-out must be"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, monkeypatch, capsys, write, words, message):
    monkeypatch.chdir(tmp_path)
    root = make(tmp_path, write)
    journal, _ = journal_of(tmp_path, root)
    told = [word.replace("{set}", str(root)) for word in words]
    assert main(["curate", "apply", str(journal), *told]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert message.replace("{set}", str(root)) in lines[-1]
    assert len(lines) == 1
    assert not (tmp_path / "set-curated").exists()


def test_another_set_is_refused_with_the_difference(tmp_path: Path, capsys) -> None:
    root = make(tmp_path, a_csv)
    journal, _ = journal_of(tmp_path, root)
    path = root / "captions.csv"
    path.write_text(path.read_text().replace(caption(5), "other words"))
    assert main(["curate", "apply", str(journal), str(root), "--out", str(tmp_path / "o")]) == 1
    assert "all 2 edited samples are among these 12, but not all" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
