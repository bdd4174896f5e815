"""Trainings on fewer devices than their papers had: the same updates, in several parts each."""

from __future__ import annotations

from collections.abc import Sequence

DEVICES, BATCH, PARTS = (
    f"{key}=" for key in ("trainer.devices", "loader.batch_size", "trainer.accumulate_grad_batches")
)


def num_devices(command: Sequence[str]) -> int:
    """Devices that a command asks for; one where it does not say."""
    return _number(command, DEVICES)


def on_devices(command: Sequence[str], number: int) -> tuple[str, ...]:
    """A command for so many devices at most; an update is of as many captions as before.

    Raises:
        ValueError: what it asks for is no multiple of them, or it does not say its batches.
    """
    asked = num_devices(command)
    if asked <= number:
        return tuple(command)
    batch, parts_before = _number(command, BATCH), _number(command, PARTS)
    parts = asked // number
    if asked % number or batch % parts:
        raise ValueError(
            f"--devices {number}: a training is for {asked} devices and batches of {batch} "
            "captions, which cannot be shared out evenly"
        )
    rest = [word for word in command if not word.startswith((DEVICES, BATCH, PARTS))]
    sizes = (f"{BATCH}{batch // parts}", f"{PARTS}{parts * parts_before}")
    return (*rest, f"{DEVICES}{number}", *sizes)


def work_of(command: Sequence[str]) -> tuple[str, ...]:
    """A command without how its updates are shared out among devices."""
    batch = _number(command, BATCH) * _number(command, PARTS)
    rest = (word for word in command if not word.startswith((DEVICES, BATCH, PARTS)))
    return (*rest, str(batch))


def _number(command: Sequence[str], key: str) -> int:
    return int(next((word.removeprefix(key) for word in command if word.startswith(key)), 1))
