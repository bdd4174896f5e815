"""CapFilt of a training set outside training: ``captioning curate capfilt data=NAME out=FOLDER``.

Settings are in ``configs/capfilt.yaml``; docs/capfilt.md says what is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from augmentation.set_folder import claim_folder
from captioning.files import write_json
from captioning.results.run_folder import versions
from captioning.training.parts import build_part
from captioning.training.rosters import read_with_steps
from curation.capfilt.merge import merge
from curation.capfilt.shards import Shard, read_shards, write_shard

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
    if config.shard != MERGE:
        source = build_part(config.captioner) if config.parts != "filter" else None
        pairs = build_part(config.filter) if config.parts != "captioner" else None
        identity = {
            "captioner": source and source.name,
            "captioner identity": source and source.captioner.identity,
            "filter identity": pairs and pairs.scorer.identity,
        }
        write_shard(
            shard or WHOLE,
            folder=folder,
            roster=roster,
            source=source,
            pairs=pairs,
            identity=identity,
            photos_at_once=config.photos_at_once,
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
