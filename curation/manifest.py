"""Record the training set of a user's own loop, so that commands can read its run folder.

Such a folder has no ``config.yaml`` from which to read the data again. ``curation/manifest.json``
names data, policy and seed; ``curation/roster.jsonl`` holds the samples, as ``captioning curate
apply`` reads them, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from types import NoneType
from typing import Any

from captioning.data.roster import Roster, build_roster, planted_origin
from captioning.results.folder_config import mark_started
from captioning.runtime.files import read_json, write_json, write_lines
from captioning.types import Sample
from captioning.vision.photo_places import photo_exists
from curation.loop.planted_faults import load_truth

FORMAT = "curation-loop"
VERSION = 1
FILE_NAME = Path("curation") / "manifest.json"
ROSTER_NAME = Path("curation") / "roster.jsonl"
TRUTH_NAME = "noise_truth.json"
KINDS = {
    **dict.fromkeys(("roster", "fingerprint", "policy"), str),
    "settings": dict,
    "seed": int,
    "signals": list,
}
PLAIN = (str, int, float, bool, NoneType)  # what a setting is
DEEPEST = 5  # parts within parts that are looked into
TEXTS = ("sample_id", "image_id", "image_path", "caption", "origin")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Data, policy and seed of a user's own training loop.

    Attributes:
        roster: name of the training set.
        fingerprint: `Roster.fingerprint`.
        policy: its name.
        settings: settings of the policy, see `settings_of`.
        seed: the run's seed.
        signals: names of measurements beside the losses.
    """

    roster: str
    fingerprint: str
    policy: str
    settings: Mapping[str, Any]
    seed: int
    signals: tuple[str, ...] = ()

    def check(self, saved: Manifest, folder: Path, *, restart: bool) -> None:
        """Raise ValueError if the folder belongs to another run.

        Args:
            saved: the folder's manifest.
            folder: folder for the message.
            restart: whether the run starts from scratch: then only the samples must be the same.

        Raises:
            ValueError: the runs differ; the message names the difference.
        """
        if saved.fingerprint != self.fingerprint:
            raise ValueError(
                f"{folder} holds a run on other samples ({saved.roster!r}, fingerprint "
                f"{saved.fingerprint}; now {self.roster!r}, {self.fingerprint}): choose another "
                "folder, or give the samples that it was started with, in the same order"
            )
        before, now = _flat(asdict(saved)), _flat(asdict(self))
        changed = [key for key in sorted(before | now) if before.get(key) != now.get(key)]
        if changed and not restart:
            shown = ", ".join(f"{key}: {before.get(key)} -> {now.get(key)}" for key in changed[:4])
            raise ValueError(
                f"{folder} holds a run with another curation ({shown}): choose another folder, "
                "repeat those settings, or start from scratch with first_epoch=0"
            )


def write_manifest(folder: Path, manifest: Manifest, roster: Roster) -> None:
    """Write the manifest, after the samples.

    Saved samples are rewritten where something has changed, such as the paths of photos. A photo
    that is now missing keeps its former path. Paths that the caller names are not reported, see
    `captioning.results.folder_config`.
    """
    path = folder / ROSTER_NAME
    before = path.read_bytes() if path.is_file() else b""
    lines = list(_lines(roster, cache(partial(_photo_places, before))))
    if before != "".join(f"{line}\n" for line in lines).encode():
        write_lines(path, lines)
    value = {"format": FORMAT, "version": VERSION, **asdict(manifest)}
    write_json(folder / FILE_NAME, value)
    places = dict.fromkeys(sample.image_path.parent.absolute() for sample in roster.samples)
    mark_started(folder, ((str(ROSTER_NAME), str(place)) for place in places))


def _photo_places(text: bytes) -> dict[str, str]:
    """Paths of photos by ``sample_id`` from a roster's lines; empty if a line is damaged."""
    try:
        lines = text.decode().split("\n")
        return {s.sample_id: s.image_path.as_posix() for s in map(_sample, filter(None, lines))}
    except ValueError:
        return {}


def is_run_folder(folder: Path) -> bool:
    """Return whether a folder belongs to a run or to a user's own loop."""
    return (folder / "config.yaml").is_file() or (folder / FILE_NAME).is_file()


def is_loop_folder(folder: Path) -> bool:
    """Return whether a run folder belongs to a user's own loop."""
    return (folder / FILE_NAME).is_file() and not (folder / "config.yaml").is_file()


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a run folder.

    Raises:
        FileNotFoundError: the folder has no manifest.
        ValueError: the manifest is damaged, or has another version.
    """
    path = folder / FILE_NAME
    value = read_json(path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ValueError(
            f"{path} is not the manifest of a curated loop (format must be {FORMAT!r})"
        )
    if value.get("version") != VERSION:
        raise ValueError(
            f"{path} has version {value.get('version')!r}, but this program reads version {VERSION}"
        )
    for name, kind in KINDS.items():
        if type(value.get(name)) is not kind:
            raise ValueError(f"{path}: {name!r} must be a {kind.__name__}; restore the file")
    return Manifest(
        roster=value["roster"],
        fingerprint=value["fingerprint"],
        policy=value["policy"],
        settings=value["settings"],
        seed=value["seed"],
        signals=tuple(map(str, value["signals"])),
    )


def read_loop_roster(folder: Path) -> Roster:
    """Read a loop's training set before curation, with planted faults as origins.

    Raises:
        FileNotFoundError: the folder has no ``roster.jsonl``.
        ValueError: a line is not a sample, or the samples differ from the manifest's.
    """
    manifest, path = read_manifest(folder), folder / ROSTER_NAME
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: restore it, or run again")
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged: not UTF-8 ({error}); restore the file") from error
    samples = [_sample(line, f"{path} line {n}") for n, line in enumerate(lines, 1) if line]
    if not samples:
        raise ValueError(f"{path} holds no sample and was cut off; restore the file")
    truth_path = folder / TRUTH_NAME
    truth = load_truth(truth_path if truth_path.is_file() else None)
    try:
        roster = _with_truth(build_roster(manifest.roster, samples), truth)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if roster.fingerprint != manifest.fingerprint:
        raise ValueError(
            f"{path} was changed: its samples have fingerprint {roster.fingerprint}, but the run "
            f"had {manifest.fingerprint}; restore the file"
        )
    return roster


def _with_truth(roster: Roster, truth: Mapping[str, str]) -> Roster:
    """Return the roster with fault kinds as origins; an origin that names the kind is kept.

    Such an origin may tell more, as which word is wrong.
    """
    unnamed = {k: kind for k, kind in truth.items() if roster.planted.get(k) != kind}
    if not unnamed:
        return roster
    samples = [
        replace(sample, origin=planted_origin(unnamed[sample.sample_id]))
        if sample.sample_id in unnamed
        else sample
        for sample in roster.samples
    ]
    return build_roster(roster.name, samples)


def settings_of(part: Any, prefix: str = "") -> dict[str, Any]:
    """Plain settings of a policy and of its parts, by dotted name.

    Only public attributes count, so a part keeps its settings in public attributes: plain values,
    lists and mappings of them, and its own parts. Attributes derived from them are private.
    """
    settings: dict[str, Any] = {f"{prefix}class": type(part).__name__}
    for name in sorted(_attributes(part)):
        settings |= _settings(getattr(part, name), f"{prefix}{name}")
    return settings


def _settings(value: Any, key: str) -> dict[str, Any]:
    if isinstance(value, PLAIN):
        return {key: value}
    if isinstance(value, Mapping):
        items = value.items()
        return {k: v for name, item in items for k, v in _settings(item, f"{key}.{name}").items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)
        return {key: items} if all(isinstance(item, PLAIN) for item in items) else {}
    if type(value).__module__.partition(".")[0] in ("builtins", "torch", "numpy"):
        return {}
    return settings_of(value, f"{key}.") if key.count(".") < DEEPEST else {}


def _attributes(part: Any) -> list[str]:
    names = [field.name for field in fields(part)] if hasattr(part, "__dataclass_fields__") else []
    return [name for name in {*names, *getattr(part, "__dict__", {})} if not name.startswith("_")]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat |= _flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat


def _lines(roster: Roster, places: Callable[[], Mapping[str, str]]) -> Iterator[str]:
    """Yield the samples as JSON, one per line.

    Args:
        roster: roster of the samples.
        places: gives paths by ``sample_id`` of photos, for those that are not where the roster has
            them.
    """
    quoted = json.encoder.encode_basestring  # beyond ASCII as it is
    paths: dict[Path, str] = {}
    for sample in roster.samples:
        path = sample.image_path
        if path not in paths:
            # one that was relative to somewhere else would mean nothing to a later command
            there = photo_exists(path)
            place = path.absolute().as_posix() if there else places().get(sample.sample_id)
            paths[path] = quoted(place or path.as_posix())
        texts = (sample.sample_id, sample.image_id, sample.caption, sample.origin)
        sample_id, image_id, caption, origin = map(quoted, texts)
        yield (
            f'{{"sample_id": {sample_id}, "image_id": {image_id}, "image_path": {paths[path]}, '
            f'"caption": {caption}, "origin": {origin}}}'
        )


def _sample(line: str, where: str = str(ROSTER_NAME)) -> Sample:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON ({error})") from error
    if not isinstance(record, dict) or not all(isinstance(record.get(k), str) for k in TEXTS):
        raise ValueError(f"{where} must be an object with the texts {', '.join(TEXTS)}")
    return Sample(
        row=0,
        sample_id=record["sample_id"],
        image_id=record["image_id"],
        image_path=Path(record["image_path"]),
        caption=record["caption"],
        origin=record["origin"],
    )
