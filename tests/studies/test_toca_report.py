"""The page of ToCa's small trainings, from made-up runs, and which commands the study gives."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path

import pytest

from captioning.configuration import compose_config

STUDIES = Path(__file__).resolve().parents[2] / "studies"
PLAIN = {"tau": None, "use_relations": True, "use_structures": True, "complete_first": True}


@pytest.fixture
def report(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(STUDIES))
    module = importlib.import_module("toca_report")
    monkeypatch.setattr(module, "RECORDS", tmp_path / "records")
    return module


def captions(folder: Path, number: int = 1000, share: float | None = 0.01, **method) -> Path:
    """A set of synthetic captions, as far as its card tells."""
    folder.mkdir(parents=True)
    card = {"config": {"method": PLAIN | method}, "counts": {"captions": number}}
    (folder / "card.json").write_text(json.dumps(card | {"share": {"corpus": share}}))
    return folder / "captions.txt"


def run(folder: Path, name: str, *, seed: int = 0, score: float = 0.5, **settings) -> Path:
    """A finished run, by ``share``, ``path``, ``start_from``, ``epochs`` and ``own_words``."""
    data = settings.get("data", "flickr8k")
    place = folder / data / f"viecap_small-toca_{name}" / f"seed{seed}"
    place.mkdir(parents=True)
    config = {
        "seed": seed,
        "data": {"name": data},
        "corpus": {"share": settings.get("share", 1), "train": {"path": str(settings.get("path"))}},
        "vocabulary": {"train": None if settings.get("own_words") else {"path": "T"}},
        "num_epochs": settings.get("epochs", 4),
        "start_from": settings.get("start_from") and str(settings["start_from"]),
    }
    (place / "config.yaml").write_text(json.dumps(config))
    scores = {"METEOR": 0.2, "CIDEr-D": score}
    (place / "metrics.json").write_text(json.dumps({"test": {"corpus": scores}}))
    return place


def add_test(folder: Path, score: float) -> None:
    """Give a run what evaluate.py writes of Flickr8k's photos."""
    (folder / "flickr8k").mkdir()
    scores = {"corpus": {"METEOR": 0.1, "CIDEr-D": score}, "per_image": {}}
    (folder / "flickr8k" / "metrics.json").write_text(json.dumps({"test": scores}))


def lines_of(report, runs: list[Path]) -> list[str]:
    for folder in runs:
        report.keep(folder)
    return report.page(report.read_table([report.RECORDS]))


def test_rows_by_what_was_trained_on(report, tmp_path):
    path = captions(tmp_path / "plain")
    without = captions(tmp_path / "r_wo", 800, use_relations=False)
    passing = captions(tmp_path / "any", complete_first=False)
    first = run(tmp_path, "d-lines-1", path=path, score=0.1)
    runs = [
        first,
        run(tmp_path, "d-lines-1", path=path, seed=1, score=0.2),
        run(tmp_path, "dt-coco-0.01", share=0.01, start_from=first, score=0.4),
        run(tmp_path, "t-coco-0.01", share=0.01, score=0.3),
        run(tmp_path, "tt-coco-0.01", share=0.01, score=0.35),
        run(tmp_path, "d-r_wo-1", path=without, score=0.05),
        run(tmp_path, "d-any-1", path=passing, own_words=True, score=0.02),
        run(tmp_path, "t-coco-0.01", share=0.01, score=0.6, data="coco"),
    ]
    lines = lines_of(report, runs)
    table = lines.index("## Flickr8k's photos")
    different = "slots passed over, words of D alone"
    assert lines[table + 4 : table + 10] == [
        "| T alone | 0.01 | - | 4 | 1 | - | 0.2000 | - | 0.3000 |",
        "| T alone, longer | 0.01 | - | 4 | 1 | - | 0.2000 | - | 0.3500 |",
        "| D alone | 0.01 | 1,000 | 4 | 2 | - | 0.2000 ± 0.0000 | - | 0.1500 ± 0.0707 |",
        "| D, then T | 0.01 | 1,000 | 4 | 1 | - | 0.2000 | - | 0.4000 |",
        "| D alone (R w/o) | 0.01 | 800 | 4 | 1 | - | 0.2000 | - | 0.0500 |",
        f"| D alone ({different}) | 0.01 | 1,000 | 4 | 1 | - | 0.2000 | - | 0.0200 |",
    ]
    photos = lines.index("## COCO's photos")
    assert photos > table
    assert "| T alone | 0.01 | - | 4 | 1 | - | 0.2000 | - | 0.6000 |" in lines[photos:]
    assert not any(line.startswith("###") for line in lines)  # one share and one volume


def test_shares_and_volumes(report, tmp_path):
    runs = []
    for share, score in ((0.01, 0.3), (0.1, 0.5)):
        path = captions(tmp_path / f"of{share}", share=share)
        all_captions = run(tmp_path, f"d-{share}-1", path=path, score=score)
        runs += [all_captions, run(tmp_path, f"t-coco-{share}", share=share, score=score + 0.01)]
        later = run(
            tmp_path, f"dt-{share}", share=share, start_from=all_captions, score=score + 0.02
        )
        runs.append(later)
    part = run(tmp_path, "d-0.1-0.25", path=path, share=0.25, score=0.4)
    runs += [part, run(tmp_path, "dt-0.1-0.25", share=0.1, start_from=part, score=0.45)]
    lines = lines_of(report, runs)
    table = lines.index("### By share of T (Table 5)")
    assert lines[table + 4 : table + 6] == [
        "| 0.01 | 0.3100 | 0.3000 | 0.3200 |",
        "| 0.1 | 0.5100 | 0.5000 | 0.5200 |",
    ]
    table = lines.index("### By volume (Figure 1)")
    assert lines[table + 2] == "Share of T: 0.1"
    assert lines[table + 6 : table + 8] == [
        "| 250 | 0.4000 | 0.4500 |",
        "| 1,000 | 0.5000 | 0.5200 |",
    ]


def test_cards_with_older_names_of_settings_are_read(report, tmp_path):
    current = captions(tmp_path / "current", complete_first=True, max_given_words=3)
    older = captions(tmp_path / "older")
    card = json.loads((older.parent / "card.json").read_text())
    del card["config"]["method"]["complete_first"]
    card["config"]["method"] |= {"whole_first": True, "most_given": 3}
    (older.parent / "card.json").write_text(json.dumps(card))
    facts = [
        report.synthetic_captions(run(tmp_path, f"d-{path.parent.name}-1", path=path))
        for path in (current, older)
    ]
    assert facts[0] == facts[1]
    assert (facts[0]["whole_first"], facts[0]["most_given"]) == (True, 3)


def test_what_a_taught_model_wrote_has_tables_of_its_own(report, tmp_path):
    taught = {"prompts": {"instruct": False}}
    runs = [run(tmp_path, "t-coco-0.01", share=0.01, score=0.3)]
    for name, max_given, score in (("few", 3, 0.5), ("whole", None, 0.4)):
        path = captions(tmp_path / name, max_given_words=max_given, **taught)
        runs.append(run(tmp_path, f"d-{name}-1", path=path, score=score))
        if max_given is not None:
            runs.append(run(tmp_path, f"d-{name}-0.25", path=path, share=0.25, score=0.45))
    plain = captions(tmp_path / "plain", prompts={"instruct": True}, max_given_words=None)
    runs.append(run(tmp_path, "d-plain-1", path=plain, score=0.1))
    lines = lines_of(report, runs)
    assert [line[:34] for line in lines if line.startswith("| D alone")] == [
        "| D alone | 0.01 | 1,000 | 4 | 1 |",
        "| D alone (taught) | 0.01 | 1,000 ",
        "| D alone (taught) | 0.01 | 250 | ",
        "| D alone (taught, whole templates",
    ]
    assert [line for line in lines if line.startswith("###")] == [
        "### By volume (Figure 1), taught"
    ]
    table = lines.index("### By volume (Figure 1), taught")
    assert lines[table + 6 :] == ["| 250 | 0.4500 |", "| 1,000 | 0.5000 |"]


def test_longer_trainings_are_rows_of_their_own(report, tmp_path):
    path = captions(tmp_path / "set")
    first = run(tmp_path, "d-a", path=path, score=0.1)
    runs = [
        first,
        run(tmp_path, "t-0.01", share=0.01, score=0.3, epochs=8),
        run(tmp_path, "tt-0.01", share=0.01, score=0.35, epochs=16),
        run(tmp_path, "t-0.1", share=0.1, score=0.5),
        run(tmp_path, "dt-a", share=0.01, start_from=first, score=0.4, epochs=12),
        run(tmp_path, "dt-b", share=0.01, start_from=first, score=0.35, epochs=16),
    ]
    lines = lines_of(report, runs)
    shown = [line for line in lines if line.startswith(("| T alone | 0.01", "| D, then"))]
    assert shown == [
        "| T alone | 0.01 | - | 8 | 1 | - | 0.2000 | - | 0.3000 |",
        "| D, then T | 0.01 | 1,000 | 12 | 1 | - | 0.2000 | - | 0.4000 |",
        "| D, then T | 0.01 | 1,000 | 16 | 1 | - | 0.2000 | - | 0.3500 |",
    ]
    assert "| 0.01 | 0.3000 | 0.3500 | 0.1000 | 0.4000 |" in lines  # the highest counts


def test_other_photos_have_a_section_of_their_own(report, tmp_path):
    runs = [
        run(tmp_path, "t-coco-0.01", share=0.01, seed=seed, score=score, data="coco")
        for seed, score in enumerate((0.6, 0.7))
    ]
    add_test(runs[0], 0.1)
    add_test(runs[1], 0.2)
    more = run(tmp_path, "t-coco-0.1", share=0.1, score=0.8, data="coco")  # not tested there
    run_on_t = run(tmp_path, "t-coco-0.01", share=0.01, score=0.3)
    lines = lines_of(report, [*runs, more, run_on_t])
    titles = [
        "## Flickr8k's photos",
        "## COCO's photos",
        "## Flickr8k's photos, by the runs of COCO's photos",
    ]
    assert [line for line in lines if line.startswith("## ")] == titles
    flickr8k, coco, also = (lines.index(title) for title in titles)
    assert [line for line in lines[flickr8k:coco] if line.startswith("| T alone")] == [
        "| T alone | 0.01 | - | 4 | 1 | - | 0.2000 | - | 0.3000 |"
    ]
    assert [line for line in lines[coco:also] if line.startswith("| T alone")] == [
        "| T alone | 0.01 | - | 4 | 2 | - | 0.2000 ± 0.0000 | - | 0.6500 ± 0.0707 |",
        "| T alone | 0.1 | - | 4 | 1 | - | 0.2000 | - | 0.8000 |",
    ]
    assert "`--data flickr8k` are others" in lines[also + 2]
    assert lines[also + 6 :] == [
        "| T alone | 0.01 | - | 4 | 2 | - | 0.1000 ± 0.0000 | - | 0.1500 ± 0.0707 |"
    ]


def test_runs_that_say_too_little_are_refused(report, tmp_path):
    path = captions(tmp_path / "plain")
    folder = run(tmp_path, "d-lines-1", path=path)
    again = run(tmp_path, "d-other-1", path=path)
    with pytest.raises(ValueError, match="the same row and seed: keep one of them"):
        lines_of(report, [folder, again])
    card = json.loads(path.with_name("card.json").read_text())
    del card["share"]
    path.with_name("card.json").write_text(json.dumps(card))
    with pytest.raises(ValueError, match="no 'share': give the command of the synthesis again"):
        report.keep(folder)
    path.with_name("card.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"its synthetic captions have no .*card\.json"):
        report.keep(folder)
    with pytest.raises(ValueError, match="must have -toca_t-, -toca_tt-, -toca_d- or -toca_dt-"):
        report.keep(run(tmp_path, "flickr30k-lines-1"))


@pytest.fixture
def study(report, monkeypatch, tmp_path):
    """The study with programs that leave what it looks for, and a list of them."""
    module = importlib.import_module("study_toca")
    module.programs = []

    def fake(program: list[str]) -> None:
        module.programs.append(program)
        arguments = dict(argument.split("=", 1) for argument in program if "=" in argument)
        trains = program[0] == "train.py"
        out = (
            tmp_path / arguments["run_name"] / f"seed{arguments['seed']}"
            if trains
            else arguments["out"]
        )
        name = "card.json" if program[0] == "-m" else "metrics.json"
        Path(out).mkdir(parents=True)
        (Path(out) / name).write_text("{}")
        if trains:
            config = "metrics: {test: [BLEU, CIDEr-D], tokenizer: python}"
            (out / "config.yaml").write_text(config)

    monkeypatch.setattr(module, "run", fake)
    monkeypatch.setattr(module.toca_report, "main", lambda arguments: None)
    monkeypatch.setenv("CAPTIONING_RUNS", str(tmp_path))
    return module


def test_the_study_makes_what_is_missing_in_order(study, tmp_path):
    options = ["--seeds", "0", "1", "--rows", "t", "r_wo_dt", "dt_10"]
    study.main([*options, "--", "threads=1", "method.writer.precision=bfloat16"])
    kinds = [
        next(argument for argument in program if argument.startswith(("method=", "experiment=")))
        for program in study.programs
    ]
    trained = [f"experiment=toca/flickr8k_{kind}_small" for kind in ("t", "d", "dt", "d", "dt")]
    assert kinds == [
        trained[0],
        "method=toca",
        *trained[1:3],
        "method=toca",
        *trained[3:],
        *trained,
    ]
    synthesis = study.programs[1]
    assert "method.use_relations=false" in synthesis
    assert "method.writer.precision=bfloat16" in synthesis
    assert "threads=1" not in synthesis
    assert "threads=1" in study.programs[2]
    assert not any(argument.startswith("method.") for argument in study.programs[2])
    first = tmp_path / "flickr8k/viecap_small-toca_d-10000of0.01_r_wo-1/seed0"
    assert f"start_from={first}" in study.programs[3]
    assert {"corpus.share=0.1", "vocabulary.share=0.01"} <= set(study.programs[5])
    assert (
        len(
            {argument for p in study.programs for argument in p if argument.startswith("run_name=")}
        )
        == 5
    )
    number = len(study.programs)
    study.main(options)
    assert len(study.programs) == number


def test_a_language_model_is_taught_once(study, tmp_path):
    options = ["--data", "coco", "--seeds", "0", "--rows", "taught_dt", "taught_whole_d"]
    study.main([*options, "--", "data.tested=ids.txt", "teaching.num_epochs=1", "threads=1"])
    commands = [program[2:4] for program in study.programs if program[0] == "-m"]
    names = [" ".join(word for word in words if "=" not in word) for words in commands]
    assert names == ["augment teach", "augment", "augment"]
    teaching = compose_config("teaching", study.programs[0][4:])
    few, whole = (
        compose_config("augmentation", program[3:])
        for program in study.programs
        if program[:3] == ["-m", "captioning", "augment"] and program[3] != "teach"
    )
    assert all(
        compose_config("train", program[1:]).threads == 1
        for program in study.programs
        if program[0] == "train.py"
    )
    assert (teaching.num_epochs, teaching.threads) == (1, None)
    assert teaching.corpus == few.corpus == whole.corpus
    assert few.corpus.train.exclude_ids == "ids.txt"
    assert few.method.writer.name == whole.method.writer.name == teaching.out
    assert (few.method.max_given_words, whole.method.max_given_words) == (3, None)


@pytest.mark.parametrize("data", ["flickr8k", "coco"])
def test_its_commands_are_what_hydra_reads(study, data, tmp_path):
    photos = ["data.tested=ids.txt"] if data == "coco" else []
    study.main(["--data", data, "--seeds", "0", "--rows", "t", "tt", "dt_25", "--", *photos])
    alone, longer, part, both = (
        compose_config("train", [argument for argument in program if "=" in argument])
        for program in study.programs
        if program[0] == "train.py"
    )
    plain = compose_config("train", [f"experiment=toca/{data}_t_small"])
    synthesis = compose_config("augmentation", study.programs[2][3:])
    assert longer.corpus == alone.corpus
    ratio = 10_000 / 6_168  # captions of D and of T
    assert longer.num_epochs == both.num_epochs + math.ceil(part.num_epochs * ratio)
    assert longer.run_name == alone.run_name.replace("toca_t-", "toca_tt-")
    assert alone.run_name == plain.run_name
    assert alone.num_epochs == part.num_epochs + both.num_epochs
    assert part.corpus.train.path == f"{synthesis.out}/captions.txt"
    assert part.vocabulary == both.corpus
    assert both.vocabulary.train is None
    assert (part.corpus.share, both.corpus.share) == (0.25, synthesis.corpus.share)
    assert both.start_from == str(tmp_path / part.run_name / "seed0")
    assert both.corpus.train == alone.corpus.train
    left_out = "ids.txt" if photos else None
    assert both.corpus.train.exclude_ids == synthesis.corpus.train.exclude_ids == left_out


def test_on_coco_the_tested_captions_are_left_out(study, capsys):
    with pytest.raises(SystemExit):
        study.main(["--data", "coco"])
    assert "data.tested=FILE" in capsys.readouterr().err
    study.main(["--data", "coco", "--rows", "d", "--seeds", "0", "--", "data.tested=ids.txt"])
    assert "corpus.train.exclude_ids=ids.txt" in study.programs[0]
    assert "data.tested=ids.txt" not in study.programs[0]
    assert "data.tested=ids.txt" in study.programs[1]


def test_finished_runs_are_tested_on_other_photos_once(study, capsys, tmp_path):
    options = ["--data", "coco", "--rows", "dt", "--seeds", "0"]
    extra = ["--", "data.tested=ids.txt", "threads=1", "paths.data=photos"]
    study.main([*options, *extra])
    assert not any(program[0] == "evaluate.py" for program in study.programs)
    study.programs.clear()
    study.main([*options, "--also", "flickr8k", *extra])
    run = tmp_path / "coco/viecap_small-toca_dt-10000of0.01-1/seed0"
    (program,) = study.programs  # the run itself is there
    assert program[0] == "evaluate.py"
    config = compose_config("evaluate", program[1:])
    assert (config.run, config.out, config.split) == (str(run), str(run / "flickr8k"), "test")
    assert (config.data.name, config.paths.data) == ("flickr8k", "photos")
    assert (config.metrics.test, config.metrics.tokenizer) == (["BLEU", "CIDEr-D"], "python")
    study.main([*options, "--also", "flickr8k", *extra])
    assert len(study.programs) == 1
    study.main(["--data", "coco", "--rows", "t", "--seeds", "0", "--also", "flickr8k", *extra])
    assert [program[0] for program in study.programs[1:]] == ["train.py", "evaluate.py"]
    with pytest.raises(SystemExit):
        study.main(["--also", "flickr8k"])
    assert "--data flickr8k are tested on it" in capsys.readouterr().err


def test_small_shares_are_read_more_often(study):
    options = ["--data", "coco", "--seeds", "0", "--shares", "0.001", "--captions", "2000"]
    rows = ["--rows", "t", "tt", "dt", "dt_10"]
    study.main([*options, *rows, "--read", "30000", "60000", "--", "data.tested=ids.txt"])
    trained = [program for program in study.programs if program[0] == "train.py"]
    epochs = [
        argument
        for program in trained
        for argument in program
        if argument.startswith("num_epochs=")
    ]
    # 617 captions of T, 2,000 of D and then T, 200 of D and then T
    assert epochs == [f"num_epochs={number}" for number in (97, 146, 15, 97, 150, 97)]
    named = [
        argument for program in trained for argument in program if argument.startswith("run_name=")
    ]
    assert [name.rpartition("-")[2] for name in named] == [f"{e[11:]}epochs" for e in epochs]
