"""The card of an exported captioner: what it is, what it was trained on, and how good it is."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from captioning.exports.energy import CardFacts, energy
from captioning.files import read_json, written_lines

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

_FOLDERS = re.compile(r"""(?<![\w./])~?/(?!/)[^\s,\[\]{}()'"]*""")


def write_card(
    folder: Path,
    *,
    run: Path,
    config: DictConfig,
    num_weights: int,
    extra: Sequence[str],
    facts: CardFacts,
) -> str:
    """The text of ``README.md``.

    Args:
        folder: of the export.
        run: the folder of the run.
        config: of the run.
        num_weights: numbers in the model's weights.
        extra: further sections, as lines.
        facts: see `CardFacts`.
    """
    name = f"{config.model.name} on {config.data.name}"
    lines = ["---", "pipeline_tag: image-to-text", "tags:", "- image-captioning", "---"]
    lines += [f"# {name}", "", "A captioner: a photo in, a sentence out.", ""]
    lines += [USE.format(folder=folder.name), ""]
    lines += ["## Training", "", *_facts(run, config, num_weights), ""]
    lines += ["## Curation", "", *_curation(run), ""]
    lines += ["## Scores", "", *_scores(run), ""]
    lines += ["## Energy", "", energy(run, config, facts), ""]
    lines += [*extra, "## Versions", "", *_versions(run), ""]
    terms = f"The data: {' '.join(facts.terms.split())}. " if facts.terms else ""
    lines += ["## Licence", "", terms + LICENCE.format(pretrained=_pretrained(config))]
    return "\n".join(lines) + "\n"


def _facts(run: Path, config: DictConfig, num_weights: int) -> list[str]:
    objective = (config.get("objective") or {}).get("_target_", "likelihood")
    start = config.get("start_from")
    facts = {
        "data": config.data.name,
        "corpus": (config.get("corpus") or {}).get("name", "none"),
        "steps on the data": ", ".join(config.get("steps") or {}) or "none",
        "left out": _dropped(run),
        "features": config.features.name,
        "weights": f"{num_weights:,} numbers",
        "objective": str(objective).rpartition(".")[2],
        "begun with": Path(start).name if start else "new weights",
        "epochs, seed": f"{config.num_epochs}, {config.seed}",
    }
    return [f"- {name}: {value}" for name, value in facts.items()]


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


def _pretrained(config: DictConfig) -> str:
    name = config.model.get("pretrained") or config.model.module.get("pretrained")
    return f", and from the pretrained model {Path(str(name)).name}" if name else ""
