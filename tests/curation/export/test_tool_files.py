"""Chats, CSV, Karpathy's JSON and text files: what they say beside captions and splits."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from captioning.commands.main import main
from captioning.data.readers.own.own import read_own
from captioning.data.roster import CurationView
from captioning.types import Edit
from curation.check import check
from curation.check.check_files import export_cleaned
from curation.export.export import export
from curation.export.tool_files import QUESTION, Style
from curation.journal.journal import Header, encode, write_journal
from curation.record import RunRecord
from tests.packed_files import photo

SKIP = ("duplicate_photo", "too_short", "same_caption", "tiny_photo", "file_name")
PARTS = ("train", "val", "test")
ASKED = ("What is it?", "Is it a dog, and where?")


def make(root: Path, rows: list[tuple[str, str]]) -> Path:
    """Photos with the captions of rows in a table."""
    root.mkdir()
    for number, name in enumerate(dict.fromkeys(name for name, _ in rows)):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(photo(number, 64))
    with (root / "captions.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("file_name", "text"), *rows])
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = ("a.png", "a.png", "sub/b.png", "c.png")
    return make(tmp_path / "set", [(n, f"A dog, {i}, runs.") for i, n in enumerate(names)])


def written(folder: Path, out: Path, format: str, **style) -> Path:
    result = check(folder, space="none", skip=SKIP, quiet=True)
    export_cleaned(result, out, format=format, photos="copy", style=Style(**style))
    return out


def run_command(*arguments: str) -> int:
    return main([*arguments])


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("mark", "keys"),
    [("", ("messages", "role", "content")), ("<image>\n", ("conversations", "from", "value"))],
)
def test_the_questions_of_a_set_are_kept(folder, tmp_path, mark, keys) -> None:
    turns, role, text = keys
    (folder / "captions.csv").unlink()
    chats = []
    for number, (name, question) in enumerate(
        (("a.png", ASKED[0]), ("a.png", ASKED[1]), ("sub/b.png", ASKED[1]), ("c.png", ""))
    ):
        said = [("user", mark + question), ("assistant", f"A dog,  {number}, runs.")]
        chats.append({"image": name, turns: [{role: who, text: what} for who, what in said]})
    (folder / "chats.jsonl").write_text("".join(f"{json.dumps(chat)}\n" for chat in chats))
    plain = written(folder, tmp_path / "plain", "messages")
    found = {
        row["messages"][1]["content"]: row["messages"][0]["content"]
        for row in lines(plain / "messages.jsonl")
    }
    expected = (*ASKED, ASKED[1], QUESTION)
    assert found == {f"A dog, {n}, runs.": text for n, text in enumerate(expected)}
    again = written(plain, tmp_path / "again", "messages", form="llava", question="Where?")
    rows = json.loads((again / "conversations.json").read_text())
    assert [row["conversations"][0]["value"] for row in rows] == [
        f"<image>\n{question}" for question in expected
    ]


def test_the_questions_of_a_run_are_kept_in_each_split(tmp_path) -> None:
    """Folders of splits, whose photos and captions have the same names and ids."""
    data, target = tmp_path / "set", "captioning.data.readers.own.own.read_own"
    for number, part in enumerate(PARTS):
        (data / part).mkdir(parents=True)
        rows = []
        for name in "ab":
            (data / part / f"{name}.jpg").write_bytes(photo(number, 64 + ord(name)))
            asked, said = f"What is {name} of {part}?", f"A dog is in {name}."
            turns = [{"from": "human", "value": asked}, {"from": "gpt", "value": said}]
            rows.append({"image": f"{name}.jpg", "conversations": turns})
        (data / part / "chats.json").write_text(json.dumps(rows))
    splits = {
        part: {"_target_": target, "name": f"own/{part}", "folder": str(data), "part": part}
        for part in PARTS
    }
    run = tmp_path / "run"
    run.mkdir()
    config = {
        "data": {"name": "own", **splits},
        "curation": {"name": "by hand"},
        "monitor": "last",
        "seed": 0,
        "paths": {"cache": str(tmp_path / "cache")},
    }
    OmegaConf.save(OmegaConf.create(config), run / "config.yaml")
    roster = read_own(name="own/train", folder=data, part="train")
    edit = Edit(sample_id=roster.samples[0].sample_id, action="replace_caption", value="A cat.")
    header = Header(roster=roster.name, fingerprint=roster.fingerprint, seed=0)
    write_journal(run / "curation.jsonl", header, [encode(edit)])
    (tmp_path / "tasks.json").write_text("[]")
    for words in (("export", str(run)), ("corrections", str(tmp_path / "tasks.json"), str(run))):
        out = tmp_path / words[0]
        assert run_command("curate", *words, str(out), "--format", "messages") == 0
        for part, name in zip(PARTS, ("train", "validation", "test"), strict=True):
            found = [
                [message["content"] for message in row["messages"]]
                for row in lines(out / f"messages_{name}.jsonl")
            ]
            first = "A cat." if part == "train" else "A dog is in a."
            assert found == [
                [f"What is a of {part}?", first],
                [f"What is b of {part}?", "A dog is in b."],
            ]


def test_the_questions_of_a_parquet_file_are_kept(tmp_path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [
        {
            "image": {"bytes": photo(number, 64), "path": path},
            "messages": [
                {"role": "user", "content": question},
                {"role": "assistant", "content": f"A dog, {number}, runs."},
            ],
        }
        for number, (path, question) in enumerate((("a.png", ASKED[0]), (None, ASKED[1])))
    ]
    (tmp_path / "set").mkdir()
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "set" / "data.parquet")
    out = written(tmp_path / "set", tmp_path / "out", "messages")
    found = [row["messages"][0]["content"] for row in lines(out / "messages.jsonl")]
    assert found == [*ASKED]


def test_a_set_that_asks_nothing_gets_a_question(folder, tmp_path) -> None:
    for name, style, expected in (("a", {}, QUESTION), ("b", {"question": "Where?"}, "Where?")):
        out = written(folder, tmp_path / name, "messages", **style)
        rows = lines(out / "messages.jsonl")
        assert {row["messages"][0]["content"] for row in rows} == {expected}
        assert len(rows) == 4


def test_photos_that_stay_where_they_are_keep_their_names(folder, tmp_path) -> None:
    result = check(folder, space="none", skip=SKIP, quiet=True)
    export_cleaned(result, tmp_path / "out", format="messages", photos="none")
    rows = lines(tmp_path / "out" / "messages.jsonl")
    assert [row["images"] for row in rows] == [["a.png"], ["a.png"], ["sub/b.png"], ["c.png"]]


@pytest.mark.parametrize("form", ["sharegpt", "llava"])
def test_a_caption_that_names_the_place_of_photos_is_refused(tmp_path, form) -> None:
    odd = make(tmp_path / "set", [("a.png", "A dog <image> runs."), ("b.png", "A dog runs.")])
    roster = read_own(name="x", folder=odd, part="all")
    record = RunRecord(policy="p", seed=0, view=CurationView(roster=roster))
    style = Style(form=form)
    with pytest.raises(ValueError, match=r"a\.png#0: the caption has <image> in it"):
        export(record, None, tmp_path / "out", format="messages", photos="copy", style=style)
    assert not (tmp_path / "out").exists()


def test_llama_factory_finds_the_files_of_splits(folder, tmp_path) -> None:
    rows = [*csv.reader((folder / "captions.csv").read_text().splitlines())]
    splits = ("split", "train", "train", "val", "test")
    with (folder / "captions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([*row, split] for row, split in zip(rows, splits, strict=True))
    out = written(folder, tmp_path / "out", "messages", form="sharegpt")
    index = json.loads((out / "dataset_info.json").read_text())
    names = {name: about["file_name"] for name, about in index.items()}
    assert names == {name: f"conversations_{name}.json" for name in ("train", "validation", "test")}
    plain = written(folder, tmp_path / "plain", "messages", form="llava")
    assert not (plain / "dataset_info.json").exists()


def test_a_text_file_has_a_caption_a_line(folder, tmp_path) -> None:
    result = check(folder, space="none", skip=SKIP, quiet=True)
    edit = Edit(sample_id="c.png#0", action="replace_caption", value="A cat\r\n sits.\u2028Yes.")
    view = CurationView(roster=result.roster).apply([edit])
    record = RunRecord(policy="p", seed=0, view=view)
    for form, text in ((None, "a.txt"), ("kohya", "7_photos/a.txt")):
        out = tmp_path / f"out-{form}"
        style = Style(form=form, repeats=1 if form is None else 7)
        export(record, None, out, format="text_files", photos="link", style=style)
        assert (out / text).read_text() == "A dog, 0, runs.\nA dog, 1, runs.\n"
        assert (out / text.replace("a.", "c.")).read_text() == "A cat sits.\u2028Yes.\n"
        assert (out / text).with_suffix(".png").is_symlink()
    card = (tmp_path / "out-kohya" / "README.md").read_text()
    assert "4 photos have other names" not in card
    assert "3 photos have other names than in the set" in card


def test_what_is_said_of_captions_is_in_csv_and_karpathys_json(folder, tmp_path) -> None:
    result = check(folder, space="none", skip=SKIP, quiet=True)
    edits = [
        Edit(sample_id="a.png#1", action="down_weight", value="0.25"),
        Edit(sample_id="c.png#0", action="mask_words", value="2-5"),
        Edit(sample_id="sub/b.png#0", action="set_bucket", value="2"),
    ]
    record = RunRecord(policy="p", seed=0, view=CurationView(roster=result.roster).apply(edits))
    for format in ("csv", "karpathy"):
        export(record, None, tmp_path / format, format=format, photos="none")
    rows = [*csv.DictReader((tmp_path / "csv" / "captions.csv").read_text().splitlines())]
    assert [row["weight"] for row in rows] == ["1.0", "0.25", "1.0", "1.0"]
    assert [row["masked_words"] for row in rows] == ["", "", "", "2-5"]
    assert [row["bucket"] for row in rows] == ["0", "0", "2", "0"]
    assert "split" not in rows[0]
    images = json.loads((tmp_path / "karpathy" / "dataset_captions.json").read_text())["images"]
    assert [image.get("weights") for image in images] == [[1.0, 0.25], None, None]
    assert images[1]["filepath"] == "sub"
    assert images[0]["sentences"][0]["tokens"] == ["a", "dog", "0", "runs"]


@pytest.mark.parametrize("numbers", [("7", "42", "1000"), ("7", "042", "1000")])
def test_numbers_are_karpathys_coco_ids_if_they_all_are(folder, tmp_path, numbers) -> None:
    result = check(folder, space="none", skip=SKIP, quiet=True)
    ids = dict(zip(result.roster.rows_by_image, numbers, strict=True))
    samples = [
        replace(s, image_id=ids[s.image_id], sample_id=f"{ids[s.image_id]}#{s.row}")
        for s in result.roster.samples
    ]
    roster = replace(result.roster, samples=tuple(samples))
    record = RunRecord(policy="p", seed=0, view=CurationView(roster=roster))
    export(record, None, tmp_path / "out", format="karpathy", photos="copy")
    images = json.loads((tmp_path / "out" / "dataset_captions.json").read_text())["images"]
    expected = [7, 42, 1000] if "042" not in numbers else [None] * 3
    assert [image.get("cocoid") for image in images] == expected
    back = read_own(name="x", folder=tmp_path / "out", part="train").samples
    assert {s.image_id for s in back} <= {*numbers}


def test_names_with_marks_of_tables_come_back_from_csv(tmp_path) -> None:
    rows = [
        ('a,"b";c.png', 'He says: "Stop", and; runs.'),
        ("d|e.png", "A dog\tbarks|loudly."),
        ("=f.png", "=A dog, twice."),
    ]
    odd = make(tmp_path / "set", rows)
    out = written(odd, tmp_path / "out", "csv")
    back = {s.image_id: s.caption for s in read_own(name="x", folder=out, part="all").samples}
    assert back == {name: " ".join(caption.split()) for name, caption in rows}


@pytest.mark.parametrize(
    ("format", "style", "text"),
    [
        ("csv", {"form": "llava"}, "csv does not support --form llava"),
        ("messages", {"form": "kohya"}, "messages does not support --form kohya"),
        ("coco", {"question": "Where?"}, "coco does not support --question"),
        ("messages", {"question": " "}, "--question must be a text without <image>: got ' '"),
        ("messages", {"question": "<image> Where?"}, "must be a text without <image>"),
        ("text_files", {"repeats": 3}, "works only with --form kohya: got 3"),
        (
            "text_files",
            {"form": "kohya", "repeats": 0},
            "--repeats must be at least 1 and works only with --form kohya: got 0",
        ),
    ],
)
def test_a_form_that_a_format_has_not_is_refused(folder, tmp_path, format, style, text) -> None:
    with pytest.raises(ValueError) as raised:
        written(folder, tmp_path / "out", format, **style)
    assert text in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_the_command_writes_forms(folder, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    plain = ("check", str(folder), "--space", "none")
    skips = [part for name in SKIP for part in ("--skip", name)]
    llava = ("--export", "messages", "--form", "llava", "--question", "Where?", "--photos", "copy")
    assert run_command(*plain, *skips, *llava, "--out", "one") == 0
    rows = json.loads((tmp_path / "one" / "cleaned" / "conversations.json").read_text())
    assert rows[0]["conversations"][0]["value"] == "<image>\nWhere?"
    kohya = ("--export", "text_files", "--form", "kohya", "--repeats", "10")
    assert run_command(*plain, *skips, *kohya, "--out", "two") == 0
    assert (tmp_path / "two" / "cleaned" / "10_photos" / "sub_b.txt").is_file()
    capsys.readouterr()
    assert run_command(*plain, "--form", "kohya", "--out", "three") != 0
    assert "--form, --question and --repeats need --export" in capsys.readouterr().err
    assert run_command(*plain, "--export", "csv", "--form", "kohya", "--out", "three") != 0
    assert "csv does not support --form kohya" in capsys.readouterr().err
    assert not (tmp_path / "three").exists()
