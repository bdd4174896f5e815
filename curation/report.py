"""What was changed and why, as a page of Markdown."""

from __future__ import annotations

from collections import Counter
from typing import Any

from captioning.types import Edit
from curation.curator import Curator
from curation.truth import count_kinds

NUM_WORST = 20
COUNTS = (
    ("live before", "num_live_before"),
    ("seen", "num_seen"),
    ("selected", "num_selected"),
    ("removed", "num_removed"),
    ("captions replaced", "num_caption_replaced"),
    ("images replaced", "num_image_replaced"),
    ("kept", "num_kept"),
    ("live after", "num_live_after"),
)


def report(curator: Curator) -> str:
    """The report of a run, from its curator's state."""
    roster = curator.view.roster
    parts = [
        f"# Curation of {_cell(roster.name)}",
        f"Policy `{curator.policy.name}`, seed {curator.seed}, {len(roster)} samples, fingerprint "
        f"`{roster.fingerprint}`. The edits are in `curation.jsonl`, each epoch's losses in "
        "`curation/losses.npz`.",
        _epochs(curator.records),
        _policies(curator.view.journal),
        _vanished(curator),
        _detection(curator),
        _worst(curator),
    ]
    return "\n\n".join(part for part in parts if part)


def _epochs(records: list[dict[str, Any]]) -> str:
    rows = [
        [str(record["epoch"]), *(str(record[key]) for _, key in COUNTS), _number(record)]
        for record in records
    ]
    head = ["epoch", *(title for title, _ in COUNTS), "mean loss"]
    note = "Kept: found bad, but there was nothing left to put in its place."
    return f"## By epoch\n\n{_table(head, rows)}\n\n{note}"


def _number(record: dict[str, Any]) -> str:
    return "" if record["loss_mean"] is None else f"{record['loss_mean']:.3f}"


def _policies(journal: tuple[Edit, ...]) -> str:
    counts = Counter((edit.policy, edit.action) for edit in journal)
    rows = [[policy, action, str(count)] for (policy, action), count in sorted(counts.items())]
    return f"## By policy\n\n{_table(['policy', 'action', 'edits'], rows)}" if rows else ""


def _vanished(curator: Curator) -> str:
    left = {sample.image_id for sample in curator.view.samples()}
    gone = [image_id for image_id in curator.view.roster.rows_by_image if image_id not in left]
    if not gone:
        return "## Images that vanished\n\nNone: every image still has a caption."
    named = ", ".join(f"`{_cell(image_id)}`" for image_id in gone[:NUM_WORST])
    more = f" and {len(gone) - NUM_WORST} more" if len(gone) > NUM_WORST else ""
    return f"## Images that vanished\n\n{len(gone)} images lost their last caption: {named}{more}."


def _detection(curator: Curator) -> str:
    if not curator.truth:
        return ""
    keys = ("noise_rate", "auc", "precision_at_noise_rate", "precision", "recall")
    rows = [
        [str(record["epoch"]), *(_share(record["detection"][key]) for key in keys)]
        for record in curator.records
    ]
    head = ["epoch", "noise rate", "AUC of loss", "precision at noise rate"]
    table = _table([*head, "precision of selection", "recall of selection"], rows)
    planted = count_kinds(curator.truth, list(curator.truth))
    edited = {edit.sample_id for edit in curator.view.journal}
    caught = count_kinds(curator.truth, sorted(edited))
    kinds = [
        [kind, str(total), str(caught.get(kind, 0)), _share(caught.get(kind, 0) / total)]
        for kind, total in planted.items()
    ]
    return (
        f"## Planted faults\n\n{table}\n\n"
        f"{_table(['fault', 'planted', 'edited by the policy', 'share'], kinds)}"
    )


def _worst(curator: Curator) -> str:
    final = {sample.sample_id: sample.caption for sample in curator.view.samples()}
    first_edits: dict[str, Edit] = {}
    for edit in curator.view.journal:
        first_edits.setdefault(edit.sample_id, edit)
    if not first_edits:
        return ""
    # within an epoch the journal is written worst first, so heads of epochs are the worst
    by_epoch: Counter[int] = Counter()
    rows = []
    for edit in first_edits.values():
        by_epoch[edit.epoch] += 1
        if by_epoch[edit.epoch] > NUM_WORST:
            continue
        sample = curator.view.roster.by_id[edit.sample_id]
        after = final.get(edit.sample_id, "(removed)")
        planted, photo = curator.truth.get(edit.sample_id, ""), str(sample.image_path)
        row = [str(edit.epoch), edit.sample_id, sample.caption, after, edit.reason, planted, photo]
        rows.append(row)
    head = ["epoch", "sample", "before", "now", "reason", "planted", "photo"]
    return f"## The worst {NUM_WORST} of each epoch\n\n{_table(head, rows)}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    """Text of a data set, made harmless for a Markdown table and the HTML made from it."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("\r", " ")
