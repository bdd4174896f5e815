"""Write the dataset card of a curated dataset: ``README.md`` beside its files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from captioning.data.roster import CurationView
from captioning.types import Sample
from curation.export.curated_set import captioned
from curation.journal.journal import Header
from curation.review.edit_report import count_words

NAMES = {
    "remove": "removed",
    "replace_caption": "caption replaced",
    "replace_image": "image replaced",
    "down_weight": "weighted down",
    "mask_words": "words masked",
    "set_bucket": "put into a bucket by how far it is to be trusted",
}
HOW = {
    "training": "that a policy made while a captioner was trained on them",
    "checks": "that checks of photos and captions asked for",
    "people": "that people made, or left as a program had made them",
}
_BY_PROGRAM = (
    "The edits are a program's choices, not people's: captions may have been removed, and words "
    "replaced, that were right."
)
LIMITS = {
    "training": _BY_PROGRAM,
    "checks": _BY_PROGRAM,
    "people": "People judged the captions that a program suspected; nobody looked at the others.",
}


def card(
    view: CurationView,
    header: Header,
    *,
    files: Mapping[str, str],
    versions: Mapping[str, Any] | None = None,
    truth: Mapping[str, str] | None = None,
    decider: Literal["training", "checks", "people"] = "training",
    loaded: Mapping[str, Any] | None = None,
    splits: str = "",
) -> str:
    """Return the dataset card as Markdown: edits, policy, date, and the command to repeat them.

    Args:
        view: the roster and all edits.
        header: the journal's header.
        files: content of each file of the set.
        versions: ``versions.json`` of the run, where it is known.
        truth: planted faults, which the reader must be warned of.
        decider: maker of the edits: a policy during training, checks, or people afterwards.
        loaded: data files for ``datasets.load_dataset``, if it needs their names.
        splits: text on the splits; empty: the set has none.
    """
    roster, live = view.roster, captioned(view.samples())
    front: dict[str, Any] = {
        "pretty_name": f"{roster.name}, curated",
        "task_categories": ["image-to-text"],
    }
    if loaded:
        front["configs"] = [{"config_name": "default", **loaded}]
    parts = [
        "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in front.items()), "---"]),
        f"# {_plain(roster.name)}, curated\n\nThe captions of {_code(roster.name)} after "
        f"{len(view.journal)} edits {HOW[decider]}.",
        _sizes(view),
        _changes(view),
        f"## Where it comes from\n\n{_origin(header, len(live), versions or {})}",
        "## Files\n\n"
        + "\n".join(f"- `{name}`: {description}" for name, description in files.items()),
    ]
    if splits:
        parts.append(f"## Splits\n\n{splits}")
    if waiting := len(view.samples()) - len(live):
        parts.append(
            f"## Photos without captions\n\n**{waiting} samples still wait for a caption** by a "
            "model. They are not part of these files."
        )
    if any(sample.masks for sample in live):
        parts.append(_masked(live))
    if truth:
        kinds = ", ".join(f"{n} x {_plain(kind)}" for kind, n in Counter(truth.values()).items())
        parts.append(
            f"## Planted faults\n\n**{len(truth)} samples were spoilt on purpose** ({kinds}) "
            "before the run, to score the policy. Not for training a model to be used."
        )
    parts.append(
        f"## Limits\n\n{LIMITS[decider]} Boxes and groundings of the original are not part of "
        "these files. Photos and captions stay under the licences of the original dataset."
    )
    return "\n\n".join(parts) + "\n"


def _masked(live: Sequence[Sample]) -> str:
    """Text about masked words, which the exported files cannot store."""
    spans = [mask for sample in live for mask in sample.masks]
    captions = sum(bool(sample.masks) for sample in live)
    return (
        f"## Masked words\n\n**{captions} captions have {len(spans)} masked words that these files "
        "do not mask**: words that are likely wrong, which training left out of its loss. "
        "Annotations have no place for them, so the captions stand here in full, and a model that "
        "is trained on them learns these words. `masked_words` beside the captions, and the "
        "journal, have their characters as START-STOP."
    )


def _sizes(view: CurationView) -> str:
    before, after = captioned(view.roster.samples), captioned(view.samples())
    words = [count_words(sample.caption for sample in before)] * 2
    if edited := {edit.sample_id for edit in view.journal}:  # skips the unedited captions
        parts = [[s.caption for s in part if s.sample_id in edited] for part in (before, after)]
        gone, come = map(count_words, parts)
        words[1] = words[0] - gone + come
    rows = [
        ("captions", len(before), len(after)),
        ("images", *(len({sample.image_id for sample in part}) for part in (before, after))),
        ("words", *(len(counts) for counts in words)),
    ]
    lines = [f"| {name} | {first} | {last} |" for name, first, last in rows]
    return "\n".join(["| | before | after |", "|---|---:|---:|", *lines])


def _changes(view: CurationView) -> str:
    counts = Counter((edit.epoch, edit.policy, edit.action) for edit in view.journal)
    rows = [
        f"| {'before training' if epoch < 0 else epoch} | {_code(policy)} | "
        f"{NAMES.get(action, action)} | {count} |"
        for (epoch, policy, action), count in sorted(counts.items())
    ]
    head = ["| after epoch | policy | what | edits |", "|---|---|---|---:|"]
    return "## What was changed\n\n" + "\n".join([*head, *rows])


def _origin(header: Header, num_live: int, versions: Mapping[str, Any]) -> str:
    lines = [
        f"- annotations: {_code(header.roster)}, fingerprint `{header.fingerprint}`",
        f"- seed of the run: {header.seed}",
        f"- captions left: {num_live}",
    ]
    lines += [
        f"- {key}: {_code(str(versions[key]))}" for key in ("commit", "date") if key in versions
    ]
    lines.append(
        "- again from the original file or folder: `captioning curate apply curation.jsonl "
        "ORIGINAL --out NEW`"
    )
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Escape a text so that Markdown shows it unchanged."""
    marks = {ord(mark): f"&#{ord(mark)};" for mark in "\\`*_{}[]<>#|&!"}
    return " ".join(text.split()).translate(marks)


def _code(text: str) -> str:
    return f"`{' '.join(text.split()).replace('`', chr(39)).replace('|', '/')}`"
