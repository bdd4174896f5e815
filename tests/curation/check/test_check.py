"""``captioning check``: from a folder to a table, a page and a cleaned set."""

from __future__ import annotations

import argparse
import base64
import csv
import gzip
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.commands import check as command
from captioning.commands.main import main
from captioning.data.readers.own.own import read_own
from captioning.served.client import Reply
from captioning.served.judge import ServedJudge
from captioning.vision import clip, joint_space
from curation.check import check, folder_check
from curation.check.check_files import check_place, export_cleaned, write_result
from curation.check.checks import CHECKS, TELLING, THRESHOLDS
from curation.check.evidence import Scores
from curation.check.result import CheckResult
from tests.served_model import Body, asked, chat, photo_of, served

EVIL = "<script>alert(1)</script> a dog"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten photos with a caption each, some of which are bad."""
    root = tmp_path / "dogs"
    root.mkdir()
    rng = np.random.default_rng(0)
    for number in range(10):
        pixels = rng.integers(0, 256, (12, 16, 3), np.uint8)
        Image.fromarray(pixels).resize((160, 120)).save(root / f"{number}.jpg", quality=95)
    Image.open(root / "0.jpg").resize((130, 100)).save(root / "8.jpg")  # a copy
    Image.new("RGB", (160, 120), "grey").save(root / "6.jpg")
    (root / "7.jpg").write_bytes(b"no photo")
    captions = [f"A dog runs over field number {number}." for number in range(10)]
    captions[2], captions[3], captions[4] = EVIL, "IMG_0003", "As an AI model, I cannot see images."
    rows = [[f"{number}.jpg", caption] for number, caption in enumerate(captions)]
    rows += [["9.jpg", " "], ["11.jpg", "A dog that is not there."]]
    with (root / "metadata.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["file_name", "text"], *rows])
    return root


BAD = {
    "2.jpg": "code", "3.jpg": "file_name;too_short", "4.jpg": "refusal", "6.jpg": "blank_photo",
    "7.jpg": "broken_photo", "8.jpg": "duplicate_photo",
}  # fmt: skip


def test_a_table_a_page_and_a_summary(folder: Path, tmp_path: Path, capsys) -> None:
    result = check(folder, space="none", quiet=True)
    found = {Path(row["file"]).name: row for row in result.issues if row["sample_id"]}
    faults = {name: set(row["issues"].split(";")) - TELLING for name, row in found.items()}
    bad = {name: set(issues.split(";")) for name, issues in BAD.items()}
    assert {name: names for name, names in faults.items() if names - {""}} == bad
    assert {name for name, row in found.items() if row["flag"]} == set(BAD)
    left_out = [row for row in result.issues if row["issues"] == "left_out"]
    assert {row["reason"] for row in left_out} == {"caption empty", "photo missing"}
    assert "As an AI" in result.issues[4]["reason"]
    paths = write_result(result, tmp_path / "out")
    assert [path.name for path in paths] == ["report.html", "issues.csv", "issues.parquet"]
    with (tmp_path / "out" / "issues.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(result.issues) == 12
    assert rows[2]["caption"] == EVIL
    assert rows[2]["flag"] == "True"
    assert rows[0]["tiny_photo"] == "120"
    frame = result.issues.to_pandas()
    assert list(frame.columns) == list(result.issues.columns)
    assert frame.flag.sum() == len(BAD) + 2
    result.report()
    assert "6 flagged" in capsys.readouterr().out


NAMES = {  # of a layout, what its file says of a photo
    "metadata.csv": "file_name,text\n{}\n",
    "captions.jsonl": "{}\n",
    "captions.json": "[{}]",
}


@pytest.mark.parametrize(
    ("layout", "given"),
    [
        ("metadata.csv", "a b/{}.png"),
        ("metadata.csv", "./a b/{}.png"),
        ("metadata.csv", "/srv/set/a b/{}.png"),
        ("metadata.csv", "C:\\set\\a b\\{}.png"),
        ("captions.jsonl", "a b\\{}.png"),
        ("captions.jsonl", "a b/{}"),
        ("captions.json", "/data/local-files/?d=a%20b/{}.png"),
    ],
)
def test_the_table_names_photos_as_the_annotations_do(tmp_path, layout: str, given: str) -> None:
    root = tmp_path / "set"
    (root / "a b").mkdir(parents=True)
    names = [given.format(number) for number in range(3)]
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (96, 96, 3), np.uint8)
        Image.fromarray(pixels).save(root / "a b" / f"{number}.png")
    caption = "A dog runs."
    rows = [f"{name},{caption}" for name in names]
    if layout != "metadata.csv":
        rows = [json.dumps({"image": name, "caption": caption}) for name in names]
    joined = ("," if layout == "captions.json" else "\n").join(rows)
    (root / layout).write_text(NAMES[layout].replace("{}", joined))
    result = check(root, space="none", quiet=True)
    write_result(result, tmp_path / "out")
    with (tmp_path / "out" / "issues.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == names
    assert [Path(row["file"]) for row in rows] == [root / "a b" / f"{n}.png" for n in range(3)]


@pytest.mark.parametrize("num_photos", [3, 10])
def test_parquet_has_types_where_nothing_is_measured(
    folder: Path, tmp_path: Path, num_photos: int
) -> None:
    """Small sets have columns without a value: their types are those of large sets."""
    parquet = pytest.importorskip("pyarrow.parquet")
    lines = (folder / "metadata.csv").read_text().splitlines()[: num_photos + 1]
    (folder / "metadata.csv").write_text("\n".join(lines))
    result = check(folder, space="none", quiet=True)
    nothing = Scores(values=np.full(num_photos, np.nan))
    scores = {**result.scores, "fit": nothing, "wrong_word": nothing}
    write_result(replace(result, scores=scores), tmp_path / "out")
    table = parquet.read_table(tmp_path / "out" / "issues.parquet")
    kinds = dict.fromkeys([*scores, "suspicion"], "double")
    kinds |= dict.fromkeys(["file", "name", "sample_id", "caption", "issues", "reason"], "string")
    kinds |= {"flag": "bool", "word": "string", "word_start": "int64", "replacement": "string"}
    assert {field.name: str(field.type) for field in table.schema} == kinds
    with (tmp_path / "out" / "issues.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    texts = [{key: _as_csv(value) for key, value in row.items()} for row in table.to_pylist()]
    assert texts == rows
    assert all(row["fit"] == row["word_start"] == "" for row in rows)


def _as_csv(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def test_the_page_holds_no_text_of_the_set_as_markup(folder: Path, tmp_path: Path) -> None:
    result = check(folder, space="none", quiet=True)
    write_result(result, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "alert(1)" not in page
    assert "script-src 'sha256-" in page
    block = re.search(r'data-kind="facts">([^<]+)<', page)
    assert block is not None
    facts = json.loads(gzip.decompress(base64.b64decode(block[1])))
    groups = {group["name"]: group for group in facts["groups"]}
    assert groups["code"]["items"][0]["caption"] == EVIL
    assert groups["code"]["items"][0]["photo"] >= 0
    assert groups["broken_photo"]["items"][0]["photo"] == -1
    assert [rule for _, rule in facts["left_out"]] == ["caption empty", "photo missing"]


def facts_of(page: Path) -> dict:
    block = re.search(r'data-kind="facts">([^<]+)<', page.read_text())
    assert block is not None
    return json.loads(gzip.decompress(base64.b64decode(block[1])))


def several(tmp_path: Path) -> CheckResult:
    """Fifteen photos with two captions each, whose chances of a fault rise by row."""
    root = tmp_path / "my photos"
    root.mkdir()
    rows = ["file_name,text"]
    for number in range(15):
        pixels = np.random.default_rng(number).integers(0, 256, (96, 128, 3), np.uint8)
        Image.fromarray(pixels).save(root / f"a #{number}.png")
        rows += [f"a #{number}.png,The {word} caption of {number}." for word in ("first", "second")]
    (root / "metadata.csv").write_text("\n".join(rows))
    result = check(root, space="none", skip=["duplicate_photo"], quiet=True)
    chances = np.linspace(0, 0.6, 30, dtype=np.float32)
    return replace(result, scores={"fit": Scores(values=chances), **result.scores})


def test_the_next_ten_below_the_threshold_are_told_as_less_sure(tmp_path: Path) -> None:
    result = several(tmp_path)
    write_result(result, tmp_path / "out")
    fit = next(
        g for g in facts_of(tmp_path / "out" / "report.html")["groups"] if g["name"] == "fit"
    )
    numbers = [item["caption"].split()[-1] for item in fit["less_sure"]]
    assert len(fit["items"]) == fit["count"] == 5
    assert numbers == ["12.", "11.", "11.", "10.", "10.", "9.", "9.", "8.", "8.", "7."]
    assert "10  less sure of fit: just below the threshold, probability 0.31 to 0.50" in (
        result.summary()
    )
    assert not any(result.issues[row]["flag"] for row in range(25))
    flagged = replace(result, scores={**result.scores, "code": Scores(values=np.ones(30))})
    assert "less sure" not in flagged.summary()  # what another check flags is shown there


def test_cards_have_the_other_captions_a_link_and_the_next_step(tmp_path: Path) -> None:
    result = several(tmp_path)
    write_result(result, tmp_path / "out")
    facts = facts_of(tmp_path / "out" / "report.html")
    item = next(g for g in facts["groups"] if g["name"] == "fit")["items"][0]
    assert item["caption"] == "The second caption of 14."
    assert item["others"] == ["The first caption of 14."]
    assert (tmp_path / "out" / unquote(item["link"])).samefile(tmp_path / "my photos" / "a #14.png")
    folders = f"'{tmp_path / 'my photos'}'", str(tmp_path / "out")
    assert [command for _, command in facts["next"]] == [
        f"captioning app {folders[1]} --photos {folders[0]}",
        f"captioning check {folders[0]} --out {folders[1]} --export imagefolder",
    ]


@pytest.mark.parametrize("format", ["coco", "imagefolder", "parquet", "datasets", "webdataset"])
def test_the_cleaned_set_can_be_read_again(folder: Path, tmp_path: Path, format: str) -> None:
    result = check(folder, space="none", quiet=True)
    count = export_cleaned(result, tmp_path / "clean", format=format, photos="copy")
    assert count == 10 - len(BAD)
    roster = read_own(name="clean", folder=tmp_path / "clean")
    expected = [s.caption for s in result.roster.samples if s.image_path.name not in BAD]
    assert [sample.caption for sample in roster.samples] == expected
    card = (tmp_path / "clean" / "README.md").read_text()
    assert "that checks of photos and captions asked for" in card
    assert "before training | `check` | removed | 6" in card
    journal = (tmp_path / "clean" / "curation.jsonl").read_text()
    assert "speaks as a language model" in journal


def test_a_folder_of_datasets_is_one(folder: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    result = check(folder, space="none", quiet=True)
    export_cleaned(result, tmp_path / "clean", format="datasets")
    loaded = datasets.load_from_disk(str(tmp_path / "clean"))
    assert loaded[0]["captions"] == ["A dog runs over field number 0."]
    assert loaded[0]["image"].size == (160, 120)


def test_the_command(folder: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["check", str(folder), "--space", "none", "--skip", "too_short"]
    assert main([*options, "--threshold", "tiny_photo=110", "--export", "coco"]) == 0
    out = capsys.readouterr().out
    assert "dogs-check/report.html" in out
    assert re.search(r"\n +1  tiny_photo", out)  # the copy
    assert "too_short" not in out
    assert "the photos are not in it: --photos copy" in out
    assert (tmp_path / "dogs-check" / "cleaned" / "captions.json").is_file()
    assert main([*options, "--export", "coco"]) == 1
    assert "is there already; remove it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--threshold", "fits=1"], "unknown check 'fits'; choose from fit, wrong_photo"),
        (["--threshold", "fit=high"], "'high' is not a number"),
        (["--threshold", "tiny_photo=-1"], "tiny_photo must be at least 0"),
        (["--fit-threshold", "1.5"], r"--fit-threshold must be in \[0, 1\]"),
        (["--chance", "2"], r"--chance must be in \[0, 1\]: got 2.0"),
        (["--shown", "0"], "--shown must be at least 1"),
        (["--layout", "coco"], "needs the layout 'coco'"),
        (["--annotations", "x.json"], "x.json: no such file; correct --annotations$"),
        (["--image-folder", "none"], "which does not read image_folder; it is for token_file"),
    ],
)
def test_wrong_options_are_refused(
    folder: Path, capsys, monkeypatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(folder.parent)
    assert main(["check", str(folder), "--space", "none", *options]) == 1
    assert re.search(message, capsys.readouterr().err)


def test_the_answer_for_scripts_is_one_object(folder: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    options = ["--space", "none", "--cache", str(tmp_path), "--out", str(out), "--format", "json"]
    assert main(["check", str(folder), *options, "--export", "jsonl"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["flagged"], answer["left_out"]) == (len(BAD), 2)
    assert answer["checks"]["file_name"] == {"captions": 1, "removes": True}
    assert all(Path(file).is_file() for file in answer["files"])
    assert (answer["kept"], answer["cleaned"]) == (
        answer["captions"] - len(BAD),
        str(out / "cleaned"),
    )


def test_the_help_lists_every_check_with_its_default() -> None:
    lines = {
        name: float(value)
        for name, value in re.findall(r"^  (\w+)=([\d.]+)\s", command._ABOUT, re.MULTILINE)
    }
    assert lines == THRESHOLDS


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ["--chance", "0.6"],
            {"fit": 0.6, "wrong_photo": 0.6, "wrong_sentence": 0.6, "wrong_word": 0.7},
        ),
        (
            ["--chance", "0.95"],
            dict.fromkeys(("fit", "wrong_photo", "wrong_sentence", "wrong_word"), 0.95),
        ),
        (["--fit-threshold", "0.8"], {"fit": 0.8}),
        (
            ["--chance", "0.95", "--threshold", "wrong_word=0.5", "--fit-threshold", "0.6"],
            {"fit": 0.6, "wrong_photo": 0.95, "wrong_sentence": 0.95, "wrong_word": 0.5},
        ),
    ],
)
def test_one_chance_is_the_threshold_of_all_that_measure_one(options, expected) -> None:
    parser = argparse.ArgumentParser()
    command.CHECK.add_arguments(parser)
    assert command._thresholds(parser.parse_args(["set", *options])) == expected
    assert THRESHOLDS["wrong_word"] == command.WORD_CHANCE
    assert {c.name for c in CHECKS if c.is_chance} == {
        *("fit", "wrong_photo", "wrong_sentence", "wrong_word"),
    }


@pytest.mark.parametrize(
    ("space", "built"),
    [
        ("open_clip:ViT-B-32", ("ViT-B-32", "openai")),
        ("open_clip:ViT-B-32/openai@0123", ("ViT-B-32", "openai@0123")),
        ("open_clip:hf-hub:owner/name@0123", ("hf-hub:owner/name@0123", None)),
    ],
)
def test_a_space_of_open_clip_has_its_weights_and_their_commit(monkeypatch, space, built) -> None:
    monkeypatch.setattr(clip, "build_clip", lambda *, name, weights: (name, weights))
    assert folder_check.build_encoders(space, None) == (built, None)


@pytest.mark.long
def test_the_packaged_space_and_word_networks_import_nothing_slow() -> None:
    program = """
import sys, torch
from curation.check.folder_check import build_encoders
from captioning.text.masked_words import FusedAdamW
assert build_encoders("joint_space", None)[0].space == "joint-space"
weights = [torch.nn.Parameter(torch.ones(2))]
FusedAdamW(weights, weight_decay=0.0).step([torch.ones(2)], 0.1)
slow = {"timm", "torchvision", "transformers", "torch._dynamo", "sympy", "pandas"}
print(sorted(slow & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_a_space_may_be_a_file_of_heads(monkeypatch) -> None:
    monkeypatch.setattr(
        joint_space, "build_joint_space", lambda *, weights, **parts: (weights, parts)
    )
    (weights, parts), sentences = folder_check.build_encoders("mine.safetensors", None)
    assert weights == "mine.safetensors"
    assert parts["sentences"] is sentences
    assert folder_check.build_encoders("joint_space", None)[0][0] is None


def test_a_caption_of_another_photo_is_found_by_a_space(tmp_path: Path) -> None:
    root = tmp_path / "set"
    root.mkdir()
    rows = ["file_name,text"]
    colours = np.random.default_rng(0).integers(30, 226, (80, 3))
    for number, colour in enumerate(colours):
        pixels = np.random.default_rng(number).normal(0, 12, (72, 96, 3)) + colour
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(root / f"{number}.png")
        named = 255 - colour if number == 7 else colour
        rows.append(f"{number}.png,A wall painted in {' '.join(map(str, named))}.")
    (root / "metadata.csv").write_text("\n".join(rows))
    result = check(root, space=ToySpace(), skip=["duplicate_photo"], quiet=True)
    scores = result.scores["fit"].values
    assert [s.row for s in result.roster.samples if result.flags["fit"][s.row]] == [7]
    assert result.expected_precision() == pytest.approx(float(scores[7]))
    assert {check.name for check in CHECKS} - set(result.scores) == {"duplicate_photo"}


class ToySpace:
    """Colours of walls, and the numbers that name them."""

    space, identity, dim = "toy", "toy", 3

    def embed_photos(self, photos):
        means = [np.asarray(photo.convert("RGB")).mean((0, 1)) for photo in photos]
        return self._unit(np.stack(means))

    def embed_texts(self, texts):
        return self._unit(np.array([[int(n) for n in re.findall(r"\d+", t)] for t in texts]))

    def _unit(self, colours):
        return torch.nn.functional.normalize(torch.tensor(colours / 128 - 1).float(), dim=1)


def test_files_of_a_check_take_the_place_of_nothing_else(folder: Path, tmp_path: Path) -> None:
    result = check(folder, space="none", quiet=True)
    out = tmp_path / "out"
    for place in (tmp_path / "new" / "below", out):
        check_place(place)  # nothing is there
    write_result(result, out)
    (out / "decisions.json").write_text("[]")
    check_place(out)  # an earlier check, with what people decided
    with pytest.raises(ValueError, match=r"holds .* and no check; choose another --out"):
        check_place(folder)
    other = tmp_path / "mine"
    other.mkdir()
    (other / "issues.csv").write_text("number,title\n1,a bug\n")
    with pytest.raises(ValueError, match=r"mine: holds issues\.csv and no check"):
        check_place(other)
    with pytest.raises(ValueError, match=r"issues\.csv: a file; choose another --out"):
        check_place(other / "issues.csv")


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    with pytest.raises(OSError, match=r"cannot write to .*a/b; choose another folder with --out"):
        check_place(tmp_path / "a" / "b")


def test_the_page_lists_what_was_found_and_names_the_rest_in_a_line(
    folder: Path, tmp_path: Path, browser
) -> None:
    result = check(folder, space="none", quiet=True)
    write_result(result, tmp_path)
    browser.open((tmp_path / "report.html").as_uri())
    browser.wait("document.body.dataset.ready === 'yes'")
    rows = "[...document.querySelectorAll('#counts tr')].slice(1).map((row) => row.textContent)"
    found = browser.run(f"return {rows}")
    kinds = {kind for issues in BAD.values() for kind in issues.split(";")}
    assert len(found) == len(kinds)
    assert not any(row.startswith("0") for row in found)
    rest = browser.text("#unflagged")
    assert rest.startswith("Nothing flagged: ")
    assert "Tiny photos" in rest
    assert "Blank photos" not in rest


def grades(body: Body) -> object:
    """Two captions fit, one gets no number, and the others do not fit."""
    answers = {"number 6": "80", "IMG_0003": "It depends.", "number 8": "50"}
    text = asked(body)
    found = next((answer for part, answer in answers.items() if part in text), "10")
    return chat(found, tokens=50 if photo_of(body) else 5)


def judged_rows(out: Path) -> dict[str, tuple[str, str]]:
    with (out / "issues.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["sample_id"]]
    return {Path(row["file"]).stem: (row["judge"], row["judge_said"]) for row in rows}


def test_a_judge_takes_a_second_look_at_suspects_alone(
    folder: Path, tmp_path: Path, capsys
) -> None:
    out = tmp_path / "out"
    with served(grades) as server:
        arguments = ["check", str(folder), "--space", "none", "--out", str(out)]
        arguments += ["--cache", str(tmp_path / "cache"), "--judge", f"{server.address}#m"]
        assert main(arguments) == 0
        shown = capsys.readouterr().out
        assert "judge grade (m): 6 flagged captions, at most 6 requests" in shown
        assert "grade (m): of 6 suspects 2 do not fit, 2 fit, 2 not judged" in shown
        found = judged_rows(out)
        assert found["6"] == ("0.8", "fits")
        assert found["8"] == ("0.5", "fits")
        assert found["2"] == ("0.1", "does not fit")
        assert found["3"] == ("", "not judged: no score could be read: 'It depends.'")
        assert found["7"][1].startswith("not judged: ")  # a broken photo, which is not sent
        assert found["5"] == ("", "")  # no suspect
        asked_about = {asked(body) for body in server.bodies if photo_of(body)}
        assert not any("number 5" in text for text in asked_about)
        assert len(server.bodies) == 5 + 3  # and two unlike photos and none, as a check
        assert "does not fit (0.10)" in json.dumps(facts_of(out / "report.html"))
        assert main(arguments) == 0
        assert (
            "6 flagged captions, at most 1 requests; 5 answers are cached"
            in capsys.readouterr().out
        )
        assert len(server.bodies) == 8


@pytest.mark.parametrize("fault", ["interrupt", "server"])
def test_a_judge_that_stops_leaves_the_table_and_asks_for_the_rest_later(
    folder: Path, tmp_path: Path, capsys, monkeypatch, fault: str
) -> None:
    out, broken = tmp_path / "out", {"is": True}

    def answer(body: Body) -> object:
        if broken["is"] and photo_of(body) and "number 8" in asked(body):
            return 401, {}, b"no key"
        return grades(body)

    read = ServedJudge.read

    def interrupted(self: ServedJudge, reply: Reply) -> tuple[float | None, str]:
        if broken["is"] and reply.text == "80":
            raise KeyboardInterrupt
        return read(self, reply)

    if fault == "interrupt":
        monkeypatch.setattr(ServedJudge, "read", interrupted)
    with served(answer if fault == "server" else grades) as server:
        arguments = ["check", str(folder), "--space", "none", "--out", str(out), "--parallel", "1"]
        arguments += ["--cache", str(tmp_path / "cache"), "--judge", f"{server.address}#m"]
        assert main(arguments) == (130 if fault == "interrupt" else 1)
        shown = capsys.readouterr().out
        assert "what it said is kept, and the same command asks for the rest" in shown
        found = judged_rows(out)
        assert found["2"] == ("0.1", "does not fit")
        assert found["8"] == ("", "not judged: not asked")
        num = len(server.bodies)
        broken["is"] = False
        assert main(arguments) == 0
        assert judged_rows(out)["8"] == ("0.5", "fits")
        again = {asked(body) for body in server.bodies[num:]}
        assert not any(EVIL in text for text in again)


def test_a_place_that_is_none_is_refused_before_the_work(folder: Path, capsys) -> None:
    assert main(["check", str(folder), "--judge", "http://h/v1"]) == 1
    assert "--judge: http://h/v1 names no model" in capsys.readouterr().err
