"""What the demonstration prints: one screen, finished runs, and folders that cannot be written."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from captioning.commands import training
from captioning.commands.main import main
from captioning.evaluation.compare import Comparison, Side
from captioning.runtime.files import write_json
from captioning.training import demo

SCORES = {f"BLEU-{n}": 0.5 for n in range(1, 5)} | {"METEOR": 0.2, "ROUGE-L": 0.4, "CIDEr-D": 0.1}
ROW = {"metric": "CIDEr-D", "means": [0.683, 0.772], "difference": 0.089, "p_value": 0.002}


def test_table_of_all_metrics_fits_into_80_columns():
    console = Console(width=80, record=True)
    console.print(demo.score_table(dict.fromkeys(demo.POLICIES, SCORES)))
    text = console.export_text()
    assert "…" not in text
    assert all(name in text for name in SCORES)


def compared(*sides: Side, metrics: list[str]) -> Comparison:
    """What `compare_runs` gives of two runs."""
    table = {"rows": [{**ROW, "low": 0.034, "high": 0.146}], "num_photos": 500}
    return Comparison(facts={"sentences": [], "scores": {"original": table}}, photos={})


def write_epochs(run_dir: str) -> dict[str, float]:
    """What a run leaves of what it removed before training."""
    found = {"precision": 0.92, "recall": 0.9, "num_faulty": 1500}
    epochs = [{"num_removed": 1492, "detection": found}]
    (Path(run_dir) / "curation").mkdir(parents=True)
    write_json(Path(run_dir) / "curation" / "epochs.json", epochs)
    return SCORES


@pytest.fixture
def scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenes and their features, which need not be there."""
    rosters = [SimpleNamespace(rows_by_image=range(n)) for n in (300, 500)]

    class Train:
        rows_by_image = range(1500)

        def __len__(self) -> int:
            return 7500

    splits = SimpleNamespace(train=Train(), val=rosters[0], test=rosters[1], pictured=[])
    steps = SimpleNamespace(truth=dict.fromkeys(range(1500), "swap"))
    monkeypatch.setattr(demo, "read_splits", lambda settings: (splits, steps))
    monkeypatch.setattr(demo, "load_pictures", lambda features, rosters: None)
    monkeypatch.setattr(demo, "compare_runs", compared)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"num_removed": 7, "detection": None}, "Curation removed 7 captions"),
        (
            {"num_removed": 0, "detection": {"precision": None, "recall": 0.0, "num_faulty": 9}},
            "Curation removed 0 captions",
        ),
    ],
)
def test_without_planted_or_removed_captions_no_share_is_told(tmp_path: Path, entry, told):
    (tmp_path / "curation").mkdir()
    write_json(tmp_path / "curation" / "epochs.json", [entry])
    assert demo.removed(tmp_path) == told


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.034, 0.146, "raises"), (-0.01, 0.2, "does not clearly change"), (-0.2, -0.1, "lowers")],
)
def test_the_gain_is_said_with_its_interval(low: float, high: float, said: str):
    row = {**ROW, "low": low, "high": high, "difference": (low + high) / 2}
    table = {"rows": [row], "num_photos": 500}
    text = demo.gain(Comparison(facts={"scores": {"original": table}}, photos={}))
    assert text.startswith(f"Curation {said} test CIDEr-D: .683 without it, .772 with it.\n")
    assert f"95% interval {demo.short(low, sign=True)} to {demo.short(high, sign=True)}" in text
    assert all(len(line) < 80 for line in text.splitlines())


def test_one_screen_tells_what_happens_and_ends_with_the_page(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    scenes: None,
):
    monkeypatch.chdir(tmp_path)
    trained = []

    def train(settings, finished) -> dict[str, float]:
        trained.append(settings.curation.name)
        return write_epochs(settings.run_dir)

    monkeypatch.setattr(demo, "train", train)
    pages = []
    monkeypatch.setattr(training, "_write_demo_page", lambda *given: pages.append(given))
    assert main(["demo", "seed=7", "paths.runs=runs", "paths.cache=cache"]) == 0
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert sum(-(-max(1, len(line)) // 80) for line in lines) <= 24
    text = "\n".join(lines)
    for part in (
        "1,500 training images with 7,500 captions, 800 images held out",
        "1,500 of the training captions (20%) are swapped",
        "Curation removed 1,492 captions: 92% of them were really wrong, which is",
        "  90% of the 1,500 wrong captions.",
        "Curation raises test CIDEr-D: .683 without it, .772 with it.",
        "95% interval +.034 to +.146 over 500 images",
        "runs/demo/recommended/seed7/curation/report.html",
        *SCORES,
    ):
        assert part in text
    assert lines[-1] == "runs/demo/compared_seed7.html"
    assert trained == ["track", "recommended"]
    (found, summary, path) = pages[0]
    assert found.facts["sentences"] == [demo.gain(found)]
    assert summary.startswith("Curation removed 1,492")
    assert path == Path("runs/demo/compared_seed7.html")


def test_second_demo_says_that_it_is_finished_and_trains_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    scenes: None,
):
    trained = []

    def train(config, finished=None) -> dict[str, float]:
        folder = Path(config.run_dir)
        if not (folder / "metrics.json").is_file():
            trained.append(folder.parent.name)
            write_epochs(config.run_dir)
            write_json(folder / "metrics.json", {"test": {"corpus": SCORES}})
        return SCORES

    monkeypatch.setattr(demo, "train", train)
    overrides = [f"paths.runs={tmp_path}", f"paths.cache={tmp_path}/cache"]
    demo.main(overrides, page=lambda *given: None)
    first = capsys.readouterr().out
    demo.main(overrides, page=lambda *given: None)
    second = capsys.readouterr().out
    assert trained == ["track", "recommended"]
    assert "finished" not in first
    assert second.count("finished before") == 2
    assert "CIDEr-D" in second


@pytest.mark.parametrize("key", ["runs", "cache"])
def test_a_folder_that_cannot_be_written_is_named_before_any_work(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    closed = tmp_path / "closed"
    closed.mkdir()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != closed and access(path, mode))
    places = {"runs": tmp_path / "runs", "cache": tmp_path / "cache", key: closed / "below"}
    assert main(["demo", *(f"paths.{name}={place}" for name, place in places.items())]) == 1
    told = capsys.readouterr()
    assert told.err == (
        f"demo: {closed} cannot be written, and the demo saves images, features and runs: start it "
        f"in another folder, or set paths.{key}=FOLDER\n"
    )
    assert told.out == ""


def test_ctrl_c_says_how_to_resume(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "main", interrupted)
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == "demo: interrupted; the same command resumes\n"


@pytest.mark.parametrize(
    ("is_terminal", "display", "opens"),
    [(True, ":0", True), (True, "", False), (False, ":0", False)],
)
def test_the_page_is_opened_where_a_person_has_a_display(
    is_terminal: bool, display: str, opens: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    opened = []
    monkeypatch.setattr(training, "webbrowser", SimpleNamespace(open=opened.append))
    monkeypatch.setattr(
        training,
        "sys",
        SimpleNamespace(platform="linux", stdout=SimpleNamespace(isatty=lambda: is_terminal)),
    )
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    training.open_in_browser(tmp_path / "page.html")
    assert opened == ([(tmp_path / "page.html").as_uri()] if opens else [])
