"""CapFilt of a training set outside training: ``captioning curate capfilt data=NAME out=FOLDER``.

Settings are in ``configs/capfilt.yaml``; docs/capfilt.md says what is written.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from augmentation.set_folder import claim_folder
from captioning.config.build import build_part
from captioning.results.versions import versions
from captioning.runtime.files import write_json
from captioning.spread.choice import chosen_spread
from captioning.spread.local import Local
from captioning.training.rosters import read_with_steps
from curation.capfilt.merge import merge
from curation.capfilt.shards import Judge, Shard, read_shards, write_shard

CARD = "card.json"
MERGE = "merge"
WHOLE = Shard(number=1, total=1)


def capfilt(config: DictConfig) -> dict[str, Any] | None:
    """Caption and score the photos of a shard, or of all; then decide and write the set.

    Returns:
        The card, with counts; None after a single shard.

    Raises:
        ValueError: wrong settings or data, or shards that do not belong together.
        OSError: files that cannot be read or written.
    """
    folder = Path(config.out)
    shard = None if config.shard in (None, MERGE) else Shard.parse(config.shard)
    roster, _ = read_with_steps(config, config.split)
    data = {"roster": roster.name, "fingerprint": roster.fingerprint}
    claim_folder(folder, {"data": data, "parts": config.parts, "per_photo": config.per_photo})
    spread = chosen_spread(config)
    if shard is not None and not isinstance(spread, Local):
        raise ValueError(
            "shard=I/N is for a process that is started by hand; with another spread than local "
            "leave it out, or give shard=merge"
        )
    if config.shard != MERGE:
        settings = _parts(config)
        write_shard(
            shard or WHOLE,
            folder=folder,
            roster=roster,
            build=partial(build_judge, **settings),
            spread=spread,
            photos_at_once=config.photos_at_once,
            settings=settings,
            plugins=list(config.get("plugins") or []),
        )
    if shard is not None:
        return None
    head, records = read_shards(folder, roster)
    options = {"parts": config.parts, "threshold": config.threshold, "seed": config.seed}
    counts = merge(roster, records, head, folder=folder, **options)
    card = {"what": "a training set after CapFilt", "data": data, "counts": counts, **options}
    card |= {"judged by": head, "versions": versions(), "config": _plain(config)}
    write_json(folder / CARD, card)
    return card


def _parts(config: DictConfig) -> dict[str, dict[str, Any] | None]:
    """The configs of captioner and filter as plain values; None where there is none."""
    without = {"captioner": "filter", "filter": "captioner"}
    return {
        name: None
        if config.parts == alone
        else cast("dict[str, Any]", OmegaConf.to_container(config[name], resolve=True))
        for name, alone in without.items()
    }


def build_judge(*, captioner: dict[str, Any] | None, filter: dict[str, Any] | None) -> Judge:
    """A judge of plain values, in any process."""
    source, pairs = (
        None if config is None else build_part(OmegaConf.create(config))
        for config in (captioner, filter)
    )
    return Judge(source=source, pairs=pairs)


def _plain(config: DictConfig) -> dict[str, Any]:
    """Settings of captioner and filter, as they were."""
    keys = ("split", "first_images", "steps", "per_photo", "captioner", "filter")
    values = {key: config[key] for key in keys}
    return {
        key: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        for key, value in values.items()
    }


def summary(card: dict[str, Any]) -> str:
    """What became of the captions, in a line."""
    counts = card["counts"]
    return (
        f"{counts['written kept']:,} of {counts['written']:,} written captions kept, "
        f"{counts['made accepted']:,} of {counts['made']:,} made ones added"
    )
