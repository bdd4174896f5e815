"""Papers' files: every published number is counted, and every command of every run is understood.

`CELLS` was counted in the papers' texts, apart from the files.
"""

from __future__ import annotations

import functools
import re
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from captioning.commands.command import HydraCommand
from captioning.commands.main import find_command
from captioning.config.compose import compose_config
from captioning.papers.cells import Cells, Results
from captioning.papers.paper import SCALES, Paper
from captioning.papers.paper_file import load_paper, paper_folder, paper_names
from captioning.papers.paper_report import page_lines, record_folders
from captioning.papers.steps import tasks_of
from captioning.training.optim import linear

# Published numbers by paper and item.
CELLS: dict[str, dict[str, int]] = {
    "cic_bart_ssa": {
        "table1": 58,
        "table2": 36,
        "table3": 8,
        "figure4": 0,
        "figure10": 0,
        "figure11": 0,
        "table4": 48,
        "table5": 42,
        "table6": 48,
        "table7": 42,
        "figure12": 0,
        "figure13": 0,
        "table8": 10,
        "table9": 75,
        "table10": 16,
        "shares": 0,
        "gruen": 3,
        "one_caption": 0,
    },
    "cutswap": {
        "table4.1": 3,
        "figure4.2": 0,
        "table4.2": 3,
        "figure4.4": 3,
        "figure4.7": 0,
        "table4.3": 13,
        "table4.4": 16,
        "table4.5": 48,
        "table4.6": 12,
        "figure4.8": 28,
        "table4.7": 61,
        "table4.8": 64,
        "table4.9": 144,
        "table4.10": 36,
        "tableA1": 125,
        "tableA2": 128,
        "tableA3": 288,
        "tableA4": 72,
        "own_pairs": 0,
        "long_cos": 0,
    },
    "data_curation": {
        "table1": 18,
        "table2": 56,
        "figure2": 0,
        "figure5": 0,
        "retrieval": 0,
        "figure7": 0,
        "figure8": 0,
        "figure9": 0,
        "figure10": 12,
    },
    "novel_objects": {
        "table1": 28,
        "table2": 63,
        "table3": 105,
        "table4": 63,
        "table5": 14,
        "true_labels": 0,
        "coco_photos": 0,
        "seen_classes": 0,
        "counts": 3,
    },
    "toca": {
        "table2": 93,
        "table3": 0,
        "table4": 23,
        "table5": 75,
        "table6": 35,
        "figure1": 0,
        "table7": 20,
        "epochs": 0,
    },
}
VARYING = re.compile(r"=\d+(\.\d+)?$|runs/papers/[^\s\]]+")
CONFIGS = paper_folder().parent / "configs"
PAGES = Path(__file__).resolve().parents[2] / "docs" / "papers"
RECORDS = record_folders()

load = functools.cache(load_paper)


@pytest.mark.parametrize("name", paper_names())
def test_every_published_number_is_there(name: str) -> None:
    assert {item.id: item.num_cells for item in load(name).items.values()} == CELLS[name]


@pytest.mark.parametrize("name", paper_names())
def test_every_scale_says_what_it_is(name: str) -> None:
    paper = load(name)
    used = {scale for run in paper.runs.values() for scale in run.ways}
    assert used <= set(paper.scales)


def commands() -> list[tuple[str, str, tuple[str, ...]]]:
    """All different commands, with the first of their runs.

    Of those that differ by numbers and folders of runs alone, one stands for all.
    """
    results = Results(Path("runs"))
    first: dict[tuple[str, ...], tuple[str, str, tuple[str, ...]]] = {}
    for name in paper_names():
        for scale in SCALES:
            for task in tasks_of(load(name), load(name).runs, scale, [0], results):
                for command in task.commands:
                    form = tuple(VARYING.sub("", argument) for argument in command)
                    first.setdefault(form, (f"{name}-{scale}", task.run.id, command))
    return list(first.values())


COMMANDS = commands()


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "run", "command"), COMMANDS, ids=[f"{w}-{r}-{c[0]}" for w, r, c in COMMANDS]
)
def test_a_command_is_understood(where: str, run: str, command: tuple[str, ...]) -> None:
    known, arguments = find_command(command)
    assert known is not None, f"{where}: {run}: no such command: {command[0]}"
    if isinstance(known, HydraCommand):
        compose_config(known.config, arguments)
        return
    parser = ArgumentParser(exit_on_error=False)
    known.add_arguments(parser)
    _, unknown = parser.parse_known_args(arguments)
    assert not unknown, f"{where}: {run}: {unknown}"


@pytest.mark.parametrize("name", paper_names())
def test_what_was_recorded_is_there(name: str) -> None:
    paper, results = load(name), Results(Path("nowhere"), RECORDS)
    for run in paper.runs.values():
        for scale, way in run.ways.items():
            for recorded in way.recorded:
                seeds = Counter(found.setting("seed") for found in results.recorded(recorded))
                assert seeds, f"{run.id}, {scale}: nothing in {recorded.file} is {recorded.values}"
                assert max(seeds.values()) == 1, f"{run.id}, {scale}: {recorded} is several runs"


@pytest.mark.parametrize("name", paper_names())
def test_every_published_cell_has_a_state(name: str) -> None:
    paper: Paper = load(name)
    for scale in paper.scales:
        counts = Cells(paper, scale, Results(Path("nowhere"), RECORDS)).counts
        assert sum(counts.values()) == sum(CELLS[name].values())


@pytest.mark.parametrize("name", paper_names())
def test_the_page_is_built_from_the_records(name: str) -> None:
    paper, results = load(name), Results(Path("nowhere"), RECORDS)
    scales = [Cells(paper, scale, results) for scale in SCALES if scale in paper.scales]
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert page == "\n".join(page_lines(paper, scales)).rstrip() + "\n", "run make tables"
    sources = page.partition("| scale | run | seeds | commit | date | machine |")[2].splitlines()
    facts = [line.split(" | ")[3:] for line in sources if line.startswith(("| flickr", "| mini"))]
    assert facts
    assert all(len(of_run) == 3 and "—" not in of_run for of_run in facts)


def test_all_files_are_papers() -> None:
    assert set(paper_names()) == {path.name for path in paper_folder().iterdir()} == set(CELLS)


@pytest.mark.parametrize("name", paper_names())
def test_every_need_is_of_a_run_and_every_file_of_others_is_a_need(name: str) -> None:
    paper = load_paper(name)
    for scale in SCALES:
        ways = [run.ways[scale] for run in paper.runs.values() if scale in run.ways]
        steps = [step for way in ways for step in way.steps]
        needs = [need for need in paper.needs if need.scale == scale]
        for need in needs:
            for text in need.named:
                assert any(text in step for step in steps), f"{need.path}: no run has {text!r}"
        named = [text for need in needs for text in (need.path, *need.named)]
        found = (re.findall(r"\{(?:data|models)\}[\w./-]+", step) for step in steps)
        assert {path for paths in found for path in paths if path not in named} == set()


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("augment method=toca_published", ("{models}/mistralai/", "{models}/meta-llama/")),
        (" data=nocaps", "{data}/vinvl/"),
        (" data=flickr30k_karpathy", "{data}/vinvl/"),
        ("corpus=flickr30k_karpathy", "{data}/flickr30k/"),
        ("similarity=clip", "{models}/timm/"),
        ("evaluate run=", "{models}/timm/"),
    ],
)
def test_runs_of_toca_say_what_their_configs_read(
    command: str, file: str | tuple[str, ...]
) -> None:
    paper = load("toca")
    for run in paper.runs.values():
        text = " ".join(run.ways["full"].steps) if "full" in run.ways else ""
        if command in text:
            needs = [n for n in paper.needs if n.scale == "full" and n.path.startswith(file)]
            assert any(name in text for need in needs for name in need.named), run.id


KARPATHY_CAPTIONS, STYLE_CAPTIONS = 566_747, 6_000  # of training


def num_captions(step: str, paper: Paper) -> int:
    """Captions that a training of the ToCa paper reads in an epoch."""
    made = re.search(r"\{run:([\w.]+_set[\w.]*)\}/captions", step)
    if made:
        steps = " ".join(paper.runs[made[1]].ways["full"].steps)
        return int(steps.partition("num_captions=")[2].split()[0])
    if "flickrstyle10k" in step:
        return STYLE_CAPTIONS
    share = re.search(r"corpus\.share=(\S+)", step)
    return round(KARPATHY_CAPTIONS * float(share[1] if share else 1))


def test_no_training_of_toca_ends_while_its_rate_rises() -> None:
    settings_of = config("experiment", "viecap/coco")
    paper, seen = load("toca"), 0
    for run in paper.runs.values():
        for step in run.ways["full"].steps if "full" in run.ways else ():
            if not step.startswith("train ") or "viecap/flickr30k_to_coco" in step:
                continue  # Flickr30k's 145,000 captions are more than enough
            size = settings_of["loader"]["batch_size"]
            updates = settings_of["num_epochs"] * -(-num_captions(step, paper) // size)
            settings = dict(settings_of["schedule"])
            for key, value in re.findall(r"schedule\.(\w+)=(\S+)", step):
                settings[key] = yaml.safe_load(value)
            optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
            schedule = linear(optimizer, horizon=updates, **settings)
            factor = schedule.lr_lambdas[0]
            highest = max(factor(update) for update in range(0, updates, max(1, updates // 1000)))
            assert highest > 0.9, f"{run.id}: the rate of {updates} updates reaches {highest:.3f}"
            seen += 1
    assert seen > 30


@functools.cache
def config(group: str, name: str) -> dict[str, Any]:
    path = CONFIGS / group / f"{name}.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def chosen(experiment: str, group: str) -> str:
    """The choice that an experiment makes in a config group, or one that it is made of."""
    defaults = config("experiment", experiment)["defaults"]
    for entry in defaults:
        if isinstance(entry, dict) and f"override /{group}" in entry:
            return entry[f"override /{group}"]
    bases = [entry.removeprefix("/experiment/") for entry in defaults if isinstance(entry, str)]
    return next((c for base in bases if base != "_self_" if (c := chosen(base, group))), "")


def data_set(step: str) -> tuple[str, bool]:
    """Data set that a step names, and whether it needs no photos, such as with their features."""
    given, experiment = (re.search(rf" {key}=(\S+)", step) for key in ("data", "experiment"))
    features = chosen(experiment[1], "features") if experiment else ""
    without = any(word in step for word in ("imported=", "missing_photos=keep"))
    without = without or features == "bottom_up"
    if given:
        return given[1], without
    return (chosen(experiment[1], "data"), without) if experiment else ("", without)


@pytest.mark.parametrize("name", paper_names())
@pytest.mark.parametrize("scale", ["full", "flickr8k"])
def test_a_run_needs_all_files_of_its_data_set(name: str, scale: str) -> None:
    paper, seen = load(name), set()
    for run in paper.runs.values():
        for step in run.ways[scale].steps if scale in run.ways else ():
            data, without_photos = data_set(step)
            if data in ("", "jsonl", "coco_train2014", "miniworld"):
                continue  # named one by one, or nobody's to bring
            needs = [n for n in paper.needs if n.scale == scale and any(t in step for t in n.named)]
            for file in config("data", data)["files"]:
                end, is_photos = file["path"].removeprefix(".."), bool(file.get("photos"))
                found = [n for n in needs if n.path.endswith(end)]
                if not (is_photos and without_photos):
                    assert found, f"{run.id}, {scale}: {step}: {file['path']} is no need"
                    assert (found[0].num_photos or 0) > 1 or not is_photos
            seen.add(data)
    assert seen


def test_object_words_of_cutswap_at_full_size_are_those_that_come_nearest_to_the_thesis() -> None:
    """Some 550 classes of 325 lemmas; the thesis has 510 of 332, Visual Genome's list 2,600."""
    paper = load("cutswap")
    ways = [run.ways["full"] for run in paper.runs.values() if "full" in run.ways]
    making = [
        (step, way)
        for way in ways
        for step in way.steps
        if step.startswith("augment method=cutswap")
    ]
    assert len(making) == 3
    for step, way in making:
        assert "neural_baby_talk/coco_class_name.txt' method.min_mentions=5" in step
        assert any("method.objects=FILE method.min_mentions=1" in text for text in way.differs)


def test_main_rows_of_ssa_have_captions_that_this_package_makes() -> None:
    """The method is to be reproduced; the authors' captions are rows of our own beside them."""
    paper = load("cic_bart_ssa")
    for item in paper.items.values():
        for row in item.rows:
            if row.run is None or "full" not in paper.runs[row.run].ways:
                continue
            way = paper.runs[row.run].ways["full"]
            steps = [*way.steps, *(s for n in way.needs for s in paper.runs[n].ways["full"].steps)]
            takes_theirs = any("method=ssa_authors" in step for step in steps)
            assert takes_theirs == ("as the authors published them" in row.name), row.name


@pytest.mark.parametrize("name", paper_names())
def test_a_set_is_made_by_the_first_step_of_its_run(name: str) -> None:
    # it takes no folder that holds something else already, such as a language model that was taught
    for run in load_paper(name).runs.values():
        for scale, way in run.ways.items():
            making = [
                n for n, step in enumerate(way.steps) if re.search(r"^augment .*out={run}$", step)
            ]
            assert making in ([], [0]), f"{run.id}, {scale}"
