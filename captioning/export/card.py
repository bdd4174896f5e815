"""The card of an exported captioner: what it is, what it was trained on, and how good it is."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioning.export.energy import CardFacts, energy
from captioning.inference.building import Model
from captioning.runtime.files import read_json, written_lines
from captioning.training.settings import Data, TrainSettings

USE = """```python
from captioning import Captioner

captioner = Captioner.load("{folder}")  # from the hub: load("OWNER/NAME@COMMIT")
captioner.caption(["photo.jpg"], beam_size=5)[0].caption
```"""
LICENCE = (
    "This card grants no licence. The weights were learnt from the captions and photos named above"
    "{pretrained}: their terms hold for what is done with them. Ask their owners, and write the "
    "licence here before you pass the weights on."
)

# Names that the hub takes for a model.
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_CACHED = re.compile(r"models--([\w.-]+?)--([\w.-]+)/snapshots/([0-9a-f]{40})/?$", re.ASCII)
_FOLDERS = re.compile(r"""(?<![\w./])~?/(?!/)[^\s,\[\]{}()'"]*""")


@dataclass(frozen=True, kw_only=True)
class BaseModel:
    """The pretrained model that a run began with.

    Attributes:
        name: on the hub, or of its folder; no folder of the run's owner.
        commit: on the hub; None: not known.
    """

    name: str
    commit: str | None = None


def base_model(model: Model) -> BaseModel | None:
    """The pretrained model of a run's captioner; None: its weights began at random."""
    place = model.further.get("pretrained") or model.module.get("pretrained")
    if not place:
        return None
    place = str(place)
    if cached := _CACHED.search(place):
        return BaseModel(name=f"{cached[1]}/{cached[2]}", commit=cached[3])
    name, _, commit = place.partition("@")
    if commit and _HUB_NAME.fullmatch(name):
        return BaseModel(name=name, commit=commit)
    is_hub_name = place.count("/") == 1 and _HUB_NAME.fullmatch(place) and not Path(place).exists()
    return BaseModel(name=place if is_hub_name else Path(place).resolve().name)


def write_card(
    folder: Path,
    *,
    run: Path,
    settings: TrainSettings,
    num_weights: int,
    of_transformers: bool,
    extra: Sequence[str],
    facts: CardFacts,
) -> str:
    """The text of ``README.md``.

    Args:
        folder: of the export.
        run: the folder of the run.
        settings: of the run.
        num_weights: numbers in the model's weights.
        of_transformers: whether the export is a model of transformers, too.
        extra: further sections, as lines.
        facts: see `CardFacts`.
    """
    name = f"{settings.model.name} on {settings.data.name}"
    lines = ["---", *_front(settings, of_transformers=of_transformers), "---"]
    lines += [f"# {name}", "", "A captioner: a photo in, a sentence out.", ""]
    lines += [USE.format(folder=folder.name), ""]
    lines += ["## Training", "", *_facts(run, settings, num_weights), ""]
    lines += ["## Curation", "", *_curation(run), ""]
    lines += ["## Scores", "", *_scores(run), ""]
    lines += ["## Energy", "", energy(run, settings.trainer, facts), ""]
    lines += [*extra, "## Versions", "", *_versions(run), ""]
    terms = f"The data: {' '.join(facts.terms.split())}. " if facts.terms else ""
    lines += ["## Licence", "", terms + LICENCE.format(pretrained=_pretrained(settings.model))]
    return "\n".join(lines) + "\n"


def _front(settings: TrainSettings, *, of_transformers: bool) -> list[str]:
    """Front matter by which the hub knows model and task."""
    task = "image-text-to-text" if of_transformers else "image-to-text"
    library = "transformers" if of_transformers else "caption-curation"
    front: dict[str, Any] = {"library_name": library, "pipeline_tag": task}
    base = base_model(settings.model)
    if base is not None and _HUB_NAME.fullmatch(base.name):
        front |= {"base_model": base.name, "base_model_relation": "finetune"}
    data = str(settings.data.root or "").partition("@")
    if data[1] and _HUB_NAME.fullmatch(data[0]):
        front["datasets"] = [data[0]]
    front["tags"] = ["image-captioning"]
    return [f"{key}: {json.dumps(value)}" for key, value in front.items()]


def _facts(run: Path, settings: TrainSettings, num_weights: int) -> list[str]:
    objective = (settings.objective or {}).get("_target_", "likelihood")
    facts = {
        "data": _data(run, settings.data),
        "corpus": settings.corpus.name,
        "steps on the data": ", ".join(settings.steps) or "none",
        "left out": _dropped(run),
        "features": settings.features.name,
        "weights": f"{num_weights:,} numbers",
        "objective": str(objective).rpartition(".")[2],
        "begun with": _begun_with(settings),
        "fine-tuned": _tuned(settings),
        "prompt": _prompt(settings.model),
        "epochs, seed": f"{settings.num_epochs}, {settings.seed}",
    }
    return [f"- {name}: {value}" for name, value in facts.items()]


def _data(run: Path, data: Data) -> str:
    """Name of the data set, and of the user's folder where the name says nothing; and its size."""
    root, name = str(data.root or ""), data.name
    hub = root.partition("@")[0] if _HUB_NAME.fullmatch(root.partition("@")[0]) else ""
    shown = hub if "@" in root and hub else Path(root).name
    name = f"{name} ({shown})" if shown and shown != name else name
    path = run / "data.json"
    splits: Mapping[str, Any] = read_json(path).get("splits", {}) if path.is_file() else {}
    sizes = [f"{s['captions']:,} captions of {s['photos']:,} photos for {n}"
             for n, s in splits.items() if {"captions", "photos"} <= s.keys()]  # fmt: skip
    return "; ".join([name, *sizes])


def _begun_with(settings: TrainSettings) -> str:
    start, base = settings.start_from, base_model(settings.model)
    if start:
        of = "" if base is None else f", of the pretrained model {_named(base)}"
        return f"{Path(start).name}{of}"
    return "new weights" if base is None else f"the pretrained model {_named(base)}"


def _named(base: BaseModel) -> str:
    return base.name if base.commit is None else f"{base.name} (commit {base.commit})"


def _tuned(settings: TrainSettings) -> str:
    """Which weights were trained, if they were not new."""
    if not (settings.start_from or base_model(settings.model)):
        return "no: trained from new weights"
    if lora := settings.model.lora:
        return f"yes, by low-rank additions of rank {lora.rank}, which are merged"
    frozen = settings.model.frozen
    return f"yes, without {', '.join(frozen)}" if frozen else "yes"


def _prompt(model: Model) -> str:
    prompt = model.further.get("prompt") or model.module.get("prompt")
    return f"`{' '.join(str(prompt).split())}`" if prompt else "none"


def _dropped(run: Path) -> str:
    path = run / "dropped.json"
    rosters = read_json(path) if path.is_file() else {}
    return ", ".join(f"{len(items)} of {name}" for name, items in rosters.items()) or "nothing"


def _curation(run: Path) -> list[str]:
    path = run / "curation.jsonl"
    if not path.is_file():
        return ["None: the captions are those of the data set."]
    _, *edits = map(json.loads, written_lines(path))
    if not edits:
        return ["Losses were recorded, and nothing was changed."]
    counts = Counter((edit.get("policy", ""), edit["action"]) for edit in edits)
    rows = [f"| {policy} | {action} | {count} |" for (policy, action), count in counts.items()]
    return ["| policy | action | edits |", "|---|---|---|", *rows]


def _scores(run: Path) -> list[str]:
    path = run / "metrics.json"
    test: Mapping[str, Any] = read_json(path).get("test", {}) if path.is_file() else {}
    if not test:
        return ["The run was not tested."]
    settings = test.get("settings", {})
    tokenizer = settings.get("tokenizer", "unknown")
    rows = [f"| {name} | {value:.4f} |" for name, value in test["corpus"].items()]
    return [
        f"On {len(test.get('per_image', {}))} test photos; tokenizer of the scores: {tokenizer}.",
        "",
        "| metric | score |",
        "|---|---|",
        *rows,
    ]


def _versions(run: Path) -> list[str]:
    path = run / "versions.json"
    versions: Mapping[str, Any] = read_json(path) if path.is_file() else {}
    kept = {
        name: value
        for name, value in versions.items()
        if name not in ("command", "resumed", "machine", "threads", "plugins") and value is not None
    }
    command = without_folders(str(versions.get("command", "")))
    return [f"- {name}: {value}" for name, value in kept.items()] + ["", "```", command, "```"]


def without_folders(command: str) -> str:
    """A command without folders of the machine that it ran on: their last parts stay."""
    return _FOLDERS.sub(lambda match: Path(match[0]).name or "/", command)


def _pretrained(model: Model) -> str:
    base = base_model(model)
    return "" if base is None else f", and from the pretrained model {base.name}"
