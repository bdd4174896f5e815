"""Two runs on one test set, and any captioner on one's own photos."""

from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from PIL import Image

from captioning.commands.evaluation import METRIC_NAMES
from captioning.commands.main import main
from captioning.config.compose import compose_config
from captioning.data.data_record import photos_of
from captioning.evaluation import compare
from captioning.evaluation.compare import short, verdict
from captioning.export.export import export
from captioning.metrics.coco import ALL_METRICS, evaluate_captions
from tests.run_calls import train

NUM_PHOTOS = 24
THINGS = ("dog", "boat", "tree", "house")


def caption(number: int, place: int) -> str:
    thing = THINGS[number % 4]
    return f"a {thing} stands on hill {number}" if place else f"there is a {thing}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A set in two layouts, the second with other names and cleaned captions; a run of each."""
    root = tmp_path_factory.mktemp("compare")
    (root / "first").mkdir()
    (root / "second" / "pictures").mkdir(parents=True)
    rows, lines = [], []
    for number in range(NUM_PHOTOS):
        pixels = np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)
        Image.fromarray(pixels).resize((64, 48)).save(root / "first" / f"{number}.png")
        name = f"pictures/{100 - number}.png"
        shutil.copy(root / "first" / f"{number}.png", root / "second" / name)
        rows += [[f"{number}.png", caption(number, place)] for place in range(2)]
        lines.append({"image": name, "captions": [caption(number, 1), f"a nice {number}"]})
    with (root / "first" / "metadata.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["file_name", "text"], *rows])
    lines = [json.dumps(line) + "\n" for line in lines]
    (root / "second" / "captions.jsonl").write_text("".join(lines))
    for name in ("first", "second"):
        small_run(root, name, cache)
    return root


def small_run(root: Path, name: str, cache: Path, *further: str, folder: str = "seed0") -> None:
    settings = (
        "data=own",
        f"data.root={root / name}",
        "data.held_out=0.25",
        "data.seed=3",
        "num_epochs=1",
    )
    settings += ("model=updown_tiny", "features.backbone.name=test_resnet.r160_in1k")
    settings += ("features.backbone.weights=random", "features.backbone.image_size=64")
    settings += ("tokenizer.min_count=1", "search.beam_size=2", "search.max_length=8")
    settings += ("metrics.test=[BLEU,CIDEr-D]", "metrics.tokenizer=python", "logger=none")
    own = (f"paths.cache={cache}", f"run_dir={root / 'runs' / name / folder}", "report=false")
    config = compose_config(
        "train", [*settings, *own, "trainer.accelerator=cpu", f"run_name={name}", *further]
    )
    OmegaConf.resolve(config)
    train(config)


@pytest.fixture
def runs(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies of both runs, to be changed; the current folder is the one of their parents."""
    shutil.copytree(place / "runs", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def compared(*places: str, status: int = 0) -> dict[str, Any]:
    assert main(["compare", *(places or ("runs/first", "runs/second"))]) == status
    return json.loads(Path("compared.json").read_text()) if not status else {}


def say(run: Path, text: Callable[[str], str]) -> None:
    """Let a run's test have said something else."""
    path = run / "predictions.json"
    entries = json.loads(path.read_text())
    entries = [{**entry, "caption": text(str(entry["image_id"]))} for entry in entries]
    path.write_text(json.dumps(entries))


@pytest.mark.long
def test_photos_of_two_layouts_are_matched_by_their_content(runs: Path) -> None:
    facts = compared()
    keys = [set(photos_of(runs / name / "seed0", "test")) for name in ("first", "second")]
    assert keys[0] == keys[1]
    assert facts["num_photos"] == facts["num_test"] == len(keys[0])
    assert (facts["left_out"], len(keys[0])) == ({}, len(facts["images"]))
    for side in facts["runs"]:
        assert [run["of_its_test"] for run in side["seeds"]] == [len(keys[0])]
        assert [run["generated"] for run in side["seeds"]] == [0]
    # the second run's captions, which its test has under other names, stand at the first's
    own = {v: k for k, v in photos_of(runs / "first" / "seed0", "test").items()}
    theirs = photos_of(runs / "second" / "seed0", "test")
    path = runs / "second" / "seed0" / "predictions.json"
    said = {str(e["image_id"]): e["caption"] for e in json.loads(path.read_text())}
    for image_id, entry in facts["images"].items():
        assert entry["captions"][1] == [said[theirs[own[image_id]]]]


def test_both_are_scored_against_the_same_captions_original_and_cleaned(runs: Path) -> None:
    facts = compared()
    number = {image_id: int(image_id.partition(".")[0]) for image_id in facts["images"]}
    texts = {
        "original": {i: [caption(n, 0), caption(n, 1)] for i, n in number.items()},
        "cleaned": {i: [caption(n, 1), f"a nice {n}"] for i, n in number.items()},
    }
    assert facts["scores"].keys() == texts.keys()
    for name, references in texts.items():
        row = {row["metric"]: row for row in facts["scores"][name]["rows"]}["CIDEr-D"]
        for side in range(2):
            said = {i: entry["captions"][side][0] for i, entry in facts["images"].items()}
            result = evaluate_captions(said, references, metrics=["CIDEr-D"], tokenizer="python")
            assert row["means"][side] == result.corpus["CIDEr-D"]
        assert row["difference"] == pytest.approx(row["means"][1] - row["means"][0])
    assert "Against the captions of runs/second's data, which differ: " in facts["sentences"][1]
    assert ["data.root", *(str(Path("first")), str(Path("second")))] == [
        cell if at == 0 else Path(cell).name
        for row in facts["settings"]
        if row[0] == "data.root"
        for at, cell in enumerate(row)
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("better", "text"),
    [
        ("second", "runs/second is better than runs/first: \\+"),
        ("first", "runs/second is worse than runs/first: -"),
        ("", "no difference can be told between runs/first and runs/second: .000"),
    ],
)
def test_the_result_is_one_sentence_and_the_same_each_time(
    runs: Path, better: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("first", "second"):
        say(runs / name / "seed0", lambda _: "nothing at all")
    if better:
        kept = photos_of(runs / better / "seed0", "test").values()
        numbers = {i: int(re.findall(r"\d+", i)[-1]) for i in kept}
        if better == "second":
            numbers = {i: 100 - n for i, n in numbers.items()}
        by_stem = {k: n for i, n in numbers.items() for k in (i, str(Path(i).stem))}
        say(runs / better / "seed0", lambda image_id: caption(by_stem[image_id], 1))
    facts = compared()
    told = capsys.readouterr().out
    pattern = rf"{text}.*CIDEr-D \(95% -?\.?[\d.]+ to -?[\d.]+, 6 photos; one seed each: "
    assert re.match(pattern, facts["sentences"][0]), facts["sentences"][0]
    assert told.startswith(facts["sentences"][0])
    assert "Train both with seed=0,1,2" in told
    groups = {group["name"]: group["number"] for group in facts["changed"]}
    assert groups == {"better": 6 * (better == "second"), "worse": 6 * (better == "first")}
    page = Path("compared.html").read_bytes()
    again = compared()
    assert {**again, "versions": 0} == {**facts, "versions": 0}
    assert Path("compared.html").read_bytes() == page


def seen(run: Path, split: str, keys: list[str]) -> None:
    """Let a run have seen photos."""
    path = run / "data_rows.jsonl.gz"
    rows = gzip.decompress(path.read_bytes()).decode()
    rows += "".join(json.dumps([split, f"more{k}", "more", k, "0"]) + "\n" for k in keys)
    path.write_bytes(gzip.compress(rows.encode()))
    record = json.loads((run / "data.json").read_text())
    record["splits"][split]["captions"] += len(keys)
    (run / "data.json").write_text(json.dumps(record))


def test_photos_that_a_run_has_seen_are_left_out_by_number(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = sorted(photos_of(runs / "first" / "seed0", "test"))
    seen(runs / "second" / "seed0", "train", keys[:2])
    seen(runs / "first" / "seed0", "val", keys[1:3])
    facts = compared()
    assert (facts["num_photos"], facts["num_test"]) == (3, 6)
    assert facts["left_out"] == {"runs/second train": 2, "runs/first val": 2}
    told = "3 of 6 test photos of runs/first are left out, as a run has seen them: 2 in"
    assert told in capsys.readouterr().out
    seen(runs / "second" / "seed0", "train", keys[2:])
    compared(status=1)
    told = capsys.readouterr().err
    assert "no test photo of runs/first is new to both runs: of 6, 2 are in runs/first val" in told
    assert "same splits" in told


def test_an_older_run_has_seen_the_photos_of_its_data(runs: Path, monkeypatch) -> None:
    folder = runs / "first" / "seed0"
    kept = [compare._seen_by(folder, split) for split in ("train", "val")]
    assert all(kept)
    monkeypatch.setattr(compare, "photos_of", lambda folder, split: {})
    assert [compare._seen_by(folder, split) for split in ("train", "val")] == kept


def test_what_a_run_began_with_has_seen_photos_too(runs: Path) -> None:
    base = runs / "base"
    shutil.copytree(runs / "second" / "seed0", base)
    seen(base, "train", sorted(photos_of(runs / "first" / "seed0", "test"))[:2])
    path = runs / "second" / "seed0" / "config.yaml"
    config = OmegaConf.load(path)
    config.start_from = str(base)
    OmegaConf.save(config, path)
    assert compared()["left_out"] == {"runs/second train": 2}


@pytest.mark.long
def test_captions_that_no_test_left_are_generated_as_it_would(runs: Path) -> None:
    before = compared()
    path = runs / "second" / "seed0" / "predictions.json"
    path.write_text(json.dumps(json.loads(path.read_text())[:2]))
    facts = compared()
    assert [facts["runs"][1]["seeds"][0][key] for key in ("of_its_test", "generated")] == [2, 4]
    assert facts["images"] == before["images"]
    path.with_name("data.json").unlink()  # of an older version: which photos it saw is read anew
    older = compared()
    assert older["runs"][1]["seeds"][0]["generated"] == 6
    assert older["images"] == before["images"]


@pytest.mark.long
def test_seeds_are_pooled_and_others_refused(
    runs: Path, place: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("first", "second"):
        other = runs / name / "seed1"
        shutil.copytree(runs / name / "seed0", other)
        config = OmegaConf.load(other / "config.yaml")
        OmegaConf.save(OmegaConf.merge(config, {"seed": 1}), other / "config.yaml")
        (runs / name / "seed0.old1").mkdir()
        (runs / name / "seed0.old1" / "config.yaml").touch()
    say(runs / "second" / "seed1", lambda _: "a nice dog stands on hill")
    pooled = compared()
    row = pooled["scores"]["original"]["rows"][-1]
    assert [len(seeds) for seeds in row["seeds"]] == [2, 2]
    assert row["means"][1] == pytest.approx(np.mean(row["seeds"][1]))
    assert row["spreads"][1] == pytest.approx(np.std(row["seeds"][1], ddof=1))
    assert "2 seeds each: " in pooled["sentences"][0]
    assert " ± " in pooled["sentences"][0]
    typed = [f"runs/{name}/seed{seed}" for name in ("first", "second") for seed in (0, 1)]
    assert {**compared(*typed), "versions": 0} == {**pooled, "versions": 0}
    path = runs / "first" / "seed1" / "config.yaml"
    OmegaConf.save(OmegaConf.merge(OmegaConf.load(path), {"num_epochs": 7}), path)
    compared(status=1)
    assert "not seeds of one run (num_epochs: 1, 7)" in capsys.readouterr().err


def test_data_that_have_changed_are_refused(
    runs: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(place / "second", "moved")
    path = runs / "second" / "seed0" / "config.yaml"
    path.write_text(path.read_text().replace(str(place / "second"), str(Path("moved").resolve())))
    assert compared()["num_photos"] == 6
    lines = Path("moved/captions.jsonl").read_text()
    Path("moved/captions.jsonl").write_text(lines.replace("a nice", "a bad"))
    compared(status=1)
    assert "its data have changed since it began: 6 captions have" in capsys.readouterr().err


WRONG = [
    (("nowhere", "runs/first"), "nowhere: no such folder; give a run folder"),
    (("runs", "runs/first"), "runs: no config.yaml in it or in its folders: not a run folder"),
    (("runs/first", "runs/first/seed0"), "is on both sides: give two different runs"),
    (("runs/first",), "give two runs, or two folders of seeds; got 1: runs"),
    (("runs/first", "exported"), "exported is an export: give the run folder"),
    (("runs/first", "half"), "half is not finished: repeat its training command"),
    (("runs/first", "runs/second", "--out", "a.json"), "--out a.json names the page: give PAGE"),
]


@pytest.mark.parametrize(("arguments", "told"), WRONG, ids=lambda value: str(value)[:40])
def test_wrong_arguments_are_said_in_a_line_before_slow_imports(
    runs: Path, arguments: tuple[str, ...], told: str
) -> None:
    for name in ("exported", "half"):
        Path(name).mkdir()
        Path(name, "config.yaml").touch()
    Path("exported/captioner.json").touch()
    program = (
        "import sys; from captioning.commands.main import main; status = main(sys.argv[1:]); "
        "print(sorted({'torch', 'numpy', 'hydra'} & set(sys.modules))); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "compare", *arguments], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "[]\n")
    assert done.stderr.startswith("compare: ")
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not Path("compared.html").exists()


@pytest.mark.parametrize(
    ("low", "high", "p_value", "expected"),
    [
        (0.012, 0.05, 0.002, 1),
        (-0.05, -0.012, 0.002, -1),
        (-0.001, 0.05, 0.06, 0),
        (0.0, 0.0, 1.0, 0),
        (0.1, 0.2, 0.0625, 0),  # of five photos nothing can be told
    ],
)
def test_no_difference_is_told_where_the_interval_holds_0(low, high, p_value, expected) -> None:
    row = {"difference": (low + high) / 2, "low": low, "high": high, "p_value": p_value}
    assert verdict(row) == expected


def test_numbers_are_short() -> None:
    assert [short(v, sign=True) for v in (0.0312, -0.5, 0.0001)] == ["+.031", "-.500", ".000"]
    assert [short(v) for v in (1.25, 0.71, -0.012)] == ["1.250", ".710", "-.012"]


def test_the_command_knows_the_metrics() -> None:
    assert set(METRIC_NAMES) == set(ALL_METRICS)


def test_any_captioner_is_scored_without_training(
    runs: Path, place: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An export, and the run folder as a captioner, say what the run's own test said."""
    run = runs / "first" / "seed0"
    export(run, Path("exported"))
    data = (
        "data=own",
        f"data.root={place / 'first'}",
        "data.held_out=0.25",
        "data.seed=3",
        "metrics=fast",
    )
    own = (f"paths.cache={cache}", "metrics.test=[BLEU,CIDEr-D]")
    said = json.loads((run / "predictions.json").read_text())
    before = json.loads((run / "metrics.json").read_text())["test"]["corpus"]
    for model, folder in (("exported", "exported"), ("runs/first/seed0", "first-seed0")):
        assert main(["evaluate", f"model={model}", *data, *own, "paths.runs=runs"]) == 0
        out = Path("runs/evaluation", folder, "first-test")
        assert json.loads((out / "predictions.json").read_text()) == said
        written = json.loads((out / "metrics.json").read_text())
        assert written["test"]["corpus"] == pytest.approx(before)
        assert written["evaluated"]["captioner"] == model
        assert (out / "per_caption.csv").is_file()
    capsys.readouterr()
    other = [*data, *own, f"data.root={place / 'second'}", f"out={out}"]
    with pytest.raises(SystemExit, match="holds the scores of another captioner or set: give out="):
        main(["evaluate", "model=exported", *other])
    with pytest.raises(SystemExit, match="model=nowhere: no such folder; give shipped, or the"):
        main(["evaluate", "model=nowhere", *data])
    with pytest.raises(SystemExit, match="give one of predictions=FILE with data=NAME, run="):
        main(["evaluate", "model=exported", "run=runs/first/seed0"])
    with pytest.raises(SystemExit, match="rerank= is for run=FOLDER: leave it out with model="):
        main(["evaluate", "model=exported", *data, "rerank=consensus"])
    with pytest.raises(SystemExit, match="data=NAME is missing"):
        main(["evaluate", "model=exported"])
