"""Commands that evaluate finished runs, captions and images."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.commands.command import HydraCommand, PlainCommand, add_format, places, print_json
from captioning.commands.quick_imports import quick_imports

if TYPE_CHECKING:
    from captioning.evaluation.run import Evaluation

COMPARED = "compared.html"
METRIC_NAMES = ("BLEU", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE", "CIDEr")
_SET_ASIDE = re.compile(r"\.old\d+$")  # as resume=never names the folder of a former run


def _evaluate(config: Any) -> Evaluation:
    _check_model(config.get("captioner"))
    with quick_imports():
        from captioning.evaluation.run import evaluate, settings_of

    return evaluate(settings_of(config))


def _show_evaluated(evaluation: Evaluation, arguments: Mapping[str, Any]) -> None:
    from captioning.evaluation.run import show_evaluation

    show_evaluation(evaluation)


def _check_model(name: str | None) -> None:
    """Raise an error for a captioner that does not exist, before slow imports."""
    if name is None or name == "shipped" or "@" in name or Path(name).is_dir():
        return
    raise FileNotFoundError(
        f"model={name}: no such folder; give shipped, or the folder of an export, of a run or of a "
        "model of transformers"
    )


def _show_distance(result: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    numbers = " and ".join(str(number) for number in result["num_images"])
    print(f"{result['name']} {result['value']:.4f} ({numbers} images)")


def _show_exported(folder: Path, arguments: Mapping[str, Any]) -> None:
    print(f"exported to {folder}")


def _metrics_named(names: Sequence[str]) -> list[str]:
    """Settings for names of metrics: standard metrics in any letter case, then all others."""
    known = {name.lower(): name for name in METRIC_NAMES}
    standard = [known[name.lower()] for name in names if name.lower() in known]
    further = [name for name in names if name.lower() not in known]
    extra = [f"extra_metrics=[{','.join(further)}]"] if further else []
    return [f"scores=[{','.join(standard)}]", *extra]


def _show_assessed(result: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    published = result["published"]
    names = {"tau_b": "tau-b", "tau_c": "tau-c"}
    shown = f"{names[published]} is the variant that papers report; all values times 100"
    table = Table(title=f"{result['data']}: {result['judgements']} judgements", caption=shown)
    table.add_column("metric")
    for name in names.values():
        table.add_column(name, justify="right")
    table.add_column(f"95% interval of {names[published]} over photos")
    for metric, found in result["agreement"].items():
        ends = found.get(f"{published}_interval")
        spread = f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}" if ends else ""
        table.add_row(metric, *(f"{100 * found[name]:.1f}" for name in names), spread)
    console = Console()
    console.print(table)
    for metric, found in result["agreement"].items():
        if "captions" in found:
            scored = f"{found['captions']} of {result['captions']} captions have a score"
            console.print(f"{metric}: {scored}; the other captions are left out", markup=False)
    for metric, reason in result["missing"].items():
        console.print(f"{metric} is missing: {reason}", markup=False, soft_wrap=True)
    if arguments["out"] is not None:
        console.print(f"written: {arguments['out']}", markup=False, soft_wrap=True)


def _compare_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "runs", nargs="+", metavar="RUN",
        help="two runs, each as a run folder or a folder of several seeds; or the folders of all "
             "seeds of both runs",
    )  # fmt: skip
    add("--out", type=Path, default=Path(COMPARED), help=f"the page ({COMPARED}), JSON beside it")
    add(
        "--metrics", nargs="+", choices=METRIC_NAMES, metavar="NAME",
        help=f"of {', '.join(METRIC_NAMES)}; default: those of the first run's test but SPICE",
    )  # fmt: skip
    add_format(parser)
    add("--device", default="auto", help="cpu, cuda or auto (a GPU if there is one)")
    add("--plugins", nargs="+", default=[], metavar="PACKAGE", help="your own packages to import")


def _compare(options: Namespace) -> None:
    sides = _sides(options.runs)
    if options.out.suffix != ".html":
        raise ValueError(f"--out {options.out} names the page: give PAGE.html; JSON goes beside it")
    with quick_imports():
        from captioning.config.plugins import import_plugins
        from captioning.evaluation.compare import Side, compare_runs
        from captioning.results.versions import versions
        from captioning.runtime.files import write_json
        from curation.review.runs.runs_page import write_compared_page

    import_plugins(options.plugins)
    first, second = (Side(name=name, folders=folders) for name, folders in sides.items())
    compared = compare_runs(first, second, metrics=options.metrics, device=options.device)
    write_compared_page(compared.facts, compared.photos, options.out)
    data = options.out.with_suffix(".json")
    write_json(data, compared.facts | {"versions": versions(options.plugins)})
    if options.format == "json":
        print_json(compared.facts)
        return
    for line in (*compared.facts["sentences"], *compared.facts["notes"]):
        print(line)
    print(f"{options.out}, and {data}")


def _sides(places: Sequence[str]) -> dict[str, list[Path]]:
    """Run folders of both sides by name, checked before slow imports.

    Raises:
        FileNotFoundError: a folder does not exist or is not a run.
        ValueError: there are not two sides, or a run is unfinished.
    """
    if len(places) == 2:
        sides = {place.rstrip("/"): _runs_in(Path(place)) for place in places}
    else:
        sides = defaultdict[str, list[Path]](list)
        for place in places:
            sides[str(Path(place).parent)] += _runs_in(Path(place))
    if len(sides) != 2:
        found = ", ".join(sides)
        raise ValueError(f"give two runs, or two folders of seeds; got {len(sides)}: {found}")
    first, second = ({folder.resolve() for folder in folders} for folders in sides.values())
    if both := first & second:
        raise ValueError(f"{sorted(both)[0]} is on both sides: give two different runs")
    return dict(sides)


def _runs_in(place: Path) -> list[Path]:
    if not place.is_dir():
        raise FileNotFoundError(f"{place}: no such folder; give a run folder, or one of its seeds")
    inside = sorted(path for path in place.iterdir() if not _SET_ASIDE.search(path.name))
    folders = [path for path in (place, *inside) if (path / "config.yaml").is_file()]
    folders = [place] if place in folders else folders
    if not folders:
        raise FileNotFoundError(
            f"{place}: no config.yaml in it or in its folders: not a run folder"
        )
    for folder in folders:
        if (folder / "captioner.json").is_file():
            raise ValueError(f"{folder} is an export: give the run folder that it was made of")
        ended = any((folder / name).is_file() for name in ("metrics.json", "untested.json"))
        if not ended or not any((folder / "checkpoints").glob("*.ckpt")):
            raise ValueError(f"{folder} is not finished: repeat its training command")
    return folders


EVALUATE = HydraCommand(
    name="evaluate",
    summary="Caption a dataset with a run or captioner and score it, or score a file.",
    examples=(
        "evaluate runs/my_run/seed0 split=val",
        "evaluate captions.json data=flickr8k",
    ),
    config="evaluate",
    task=_evaluate,
    show=_show_evaluated,
    typed={"model": "captioner", "data.accept_changes": "accept_changes"},
    words=places("run", file="predictions"),
)
CONTROLLABILITY = HydraCommand(
    name="controllability",
    summary="Score how well a run follows control signals.",
    examples=(
        "controllability runs/my_run/seed0",
        "controllability runs/my_run/seed0 split=val max_images=100",
    ),
    config="controllability",
    task="captioning.evaluation.controllability.evaluate_control",
    words=places("run"),
)
DIVERSE_CAPTIONS = HydraCommand(
    name="diverse-captions",
    summary="Generate many captions per photo; score oracle, consensus and diversity.",
    examples=(
        "diverse-captions runs/my_run/seed0",
        "diverse-captions runs/my_run/seed0 split=val numbers=[20]",
    ),
    config="diverse_captions",
    task="captioning.evaluation.diverse_captions.evaluate_draws",
    words=places("run"),
)
COMPARE = PlainCommand(
    name="compare",
    summary="Test whether one run is better than another, on photos unseen by both.",
    examples=(
        "compare runs/tracked runs/curated",
        "compare runs/tracked runs/curated --format json --metrics CIDEr-D",
    ),
    add_arguments=_compare_arguments,
    call=_compare,
)
ASSESS = HydraCommand(
    name="assess",
    summary="Correlate metrics with human judgements of captions.",
    examples=(
        "assess CIDEr-D data=flickr8k_expert",
        "assess BLEU CIDEr-D clipscore data=composite out=agreement.json",
    ),
    config="assess",
    task="captioning.evaluation.assess.assess_metrics",
    show=_show_assessed,
    typed={"data": "judgements"}
    | {
        f"data.{key}": f"judgements.{key}"
        for key in ("annotations", "captions", "photos", "folder")
    },
    words=_metrics_named,
)
IMAGE_DISTANCE = HydraCommand(
    name="image-distance",
    summary="Compare two folders of images by Fréchet distance.",
    examples=(
        "image-distance photos generated",
        "image-distance photos generated inception=true",
    ),
    config="image_distance",
    task="captioning.evaluation.image_distance.image_distance",
    show=_show_distance,
    words=places("real", "other"),
)
EXPORT = HydraCommand(
    name="export",
    summary="Export a finished run's captioner: safetensors, a model card, ONNX.",
    examples=(
        "export runs/my_run/seed0 my_captioner",
        "export runs/my_run/seed0 my_captioner onnx=true",
    ),
    config="export",
    task="captioning.export.export.export",
    show=_show_exported,
    words=places("run", "to"),
)
