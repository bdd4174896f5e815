"""Record a training's settings and data in its checkpoint, and compare them before resuming."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from augmentation.set_folder import CARD, data_identity
from captioning.data.roster import Roster
from captioning.runtime.model_folder import local_folder, weights_identity

# Keys that change no weight: places, machines, and how often something is looked at or saved.
# The data are known by their fingerprint, wherever they lie. A training may be made longer.
LEFT_OUT = {
    *("paths", "plugins", "out", "checkpoint", "data", "corpus", "threads", "device"),
    *("gradient_checkpointing", "log_every", "val_every", "checkpoint_every"),
    *("val_batches", "num_val", "sheet", "num_steps", "num_epochs"),
}
MAX_NAMED = 3  # differing keys in an error
WEIGHTS = "starting weights"


def training_identity(
    settings: Mapping[str, Any], rosters: Mapping[str, Roster], *, starts: Mapping[str, str | None]
) -> dict[str, Any]:
    """Settings, data and models that the trained weights depend on, as plain values.

    Args:
        settings: settings of the command, plain.
        rosters: the data by split, whose digests become ``photos and captions``.
        starts: models that the training starts from, by their keys in ``settings``. Digests of
            those in folders become ``starting weights``; a name on the hub has its commit.
    """
    data = {split: data_identity(roster) for split, roster in rosters.items()}
    folders = {key: local_folder(name) for key, name in starts.items() if name is not None}
    digests = {
        key: weights_identity(folder, without=CARD)
        for key, folder in folders.items()
        if folder is not None
    }
    added = {"photos and captions": data, WEIGHTS: digests}
    return json.loads(json.dumps(_without(dict(settings)) | added))


def _without(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _without(content) for key, content in value.items() if key not in LEFT_OUT}


def refuse_other_training(checkpoint: Path, kept: Any, identity: Mapping[str, Any]) -> None:
    """Raise ValueError with the differences if a checkpoint belongs to another training.

    Args:
        checkpoint: checkpoint for the error.
        kept: the identity in the file; None where it has none.
        identity: the identity of the training that would resume from it.
    """
    remedy = "give another out=, or remove the folder"
    if not isinstance(kept, Mapping):
        raise ValueError(
            f"{checkpoint} comes from an earlier version that did not record its settings, so "
            f"they may differ: {remedy}"
        )
    if WEIGHTS not in kept:  # of a version that did not look at them
        identity = {key: value for key, value in identity.items() if key != WEIGHTS}
    before, now = dict(_flat(kept)), dict(_flat(identity))
    keys = [key for key in {**now, **before} if before.get(key) != now.get(key)]
    if not keys:
        return
    named = [f"{key} was {before.get(key)}, is {now.get(key)}" for key in keys[:MAX_NAMED]]
    more = [f"and {len(keys) - MAX_NAMED} more"] if len(keys) > MAX_NAMED else []
    raise ValueError(
        f"{checkpoint} belongs to a training with other settings or data "
        f"({'; '.join([*named, *more])}): {remedy}"
    )


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested values to dotted keys."""
    if isinstance(value, Mapping) and value:
        for name, content in value.items():
            yield from _flat(content, f"{key}.{name}" if key else name)
    else:
        yield key, value
