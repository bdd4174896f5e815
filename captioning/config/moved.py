"""Map former names of classes to present names, for run folders and users' older configs."""

from __future__ import annotations

import re
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict, read_write

_INFERENCE = ("bundle", "captioner", "live_features", "loading", "photo_batches")
_CONFIG = ("loadable", "plugins", "ranges", "run_names", "setting_error")
_RUNTIME = (
    *("allocator", "cores", "devices", "extras", "files", "model_folder", "processors"),
    *("sample_dropout", "sharing", "slurm", "tensor_files", "work_ahead"),
)
_REPLACED = ("both", "caption", "image")
_NOVEL = ("candidates", "held_out", "novel_captions", "novel_class")
_CRITICAL = "captioning.training.objectives.self_critical"
_REWARDS = ("BleuReward", "CiderReward", "SimilarityReward", "WeightedReward")
# Former package, module or class -> next name; `present_name` follows the chain to its end.
MOVED = {
    **{f"captioning.{name}": f"captioning.runtime.{name}" for name in _RUNTIME},
    **{f"captioning.{name}": f"captioning.config.{name}" for name in _CONFIG},
    **{f"captioning.exports.{name}": f"captioning.inference.{name}" for name in _INFERENCE},
    "captioning.exports": "captioning.export",
    "captioning.parts": "captioning.config.build",
    "captioning.configuration": "captioning.config.compose",
    "captioning.figures": "captioning.results.figures",
    "captioning.lengths": "captioning.text.lengths",
    "captioning.data.miniworld": "captioning.miniworld",
    "augmentation.captions.paraphrase": "augmentation.ssa.paraphrase",
    "augmentation.captions.ssa": "augmentation.ssa",
    "augmentation.captions.ssa_authors": "augmentation.ssa.authors",
    "augmentation.captions.toca": "augmentation.toca",
    "augmentation.captions.writing": "augmentation.writing",
    "augmentation.captioned": "augmentation.regions.captioned",
    "augmentation.images": "augmentation.image_replacement",
    "augmentation.pictures": "augmentation.image_replacement.made_ahead",
    "augmentation.regions.cutswap": "augmentation.cutswap",
    "augmentation.regions.novel_objects": "augmentation.novel_objects.method",
    **{f"augmentation.regions.{name}": f"augmentation.novel_objects.{name}" for name in _NOVEL},
    "augmentation.novel_objects.held_out": "augmentation.novel_objects.novel_class",
    "augmentation.novel_objects.candidates": "augmentation.novel_objects.method",
    "curation.loop.budget": "curation.loop.policy",
    "captioning.text.word_vectors": "captioning.text.word_tables",
    "captioning.inference.live_features": "captioning.inference.loading",
    "augmentation.image_replacement.prompts": "augmentation.image_replacement.picture_prompts",
    "augmentation.toca.prompts": "augmentation.toca.prompt_writer",
    "augmentation.regions.ranking": "augmentation.regions.reranking",
    "captioning.decoding.held": "captioning.decoding.published_beam",
    "captioning.training.loggers.csv_logger": "captioning.training.loggers",
    "captioning.training.loggers.tracking": "captioning.training.loggers",
    "captioning.training.averaging": "captioning.training.trainer",
    "captioning.training.checkpoint_io": "captioning.training.trainer",
    "captioning.data.steps.share_of_photos": "captioning.data.steps.add_pairs",
    "captioning.decoding.normalisation": "captioning.decoding.settings",
    "captioning.models.layers.low_rank": "captioning.models.adapt",
    "captioning.vision.image_text": "captioning.runtime.processors",
    "augmentation.regions.sources": "augmentation.novel_objects.method",
    "augmentation.ssa.selection": "augmentation.ssa.method",
    "augmentation.image_replacement.picture_prompts": "augmentation.image_replacement.generated",
    "captioning.decoding.latent_draws_published": "captioning.decoding.latent_draws",
    **{
        f"{_CRITICAL}.{name}": f"captioning.training.objectives.rewards.{name}" for name in _REWARDS
    },
    "curation.amend.capfilt": "curation.amend.model_caption",
    **{f"curation.amend.replace_{what}": "curation.amend.replace" for what in _REPLACED},
    "curation.score.visual_gain": "curation.loop.visual_gain_probe",
    **{f"curation.score.words.{name}": "curation.score.words" for name in ("score", "second_look")},
    "captioning.data.steps.caption_slots": "captioning.data.steps.hold_out",
    "curation.select.origin": "curation.select.unmatched",
    "captioning.runtime.allocator": "captioning.runtime.cores",
    "curation.loop.policy.CurationPolicy": "curation.loop.policy.Policy",
}
_TARGET = "_target_"
_EARLIER = re.compile(
    f"(?:{'|'.join(map(re.escape, sorted(MOVED, key=len, reverse=True)))})(?=\\.|$)"
)


def present_name(name: str) -> str:
    """Return the present dotted name for a former name; other names stay unchanged."""
    while earlier := _EARLIER.match(name):
        name = MOVED[earlier[0]] + name[earlier.end() :]
    return name


def rename_targets(config: Any) -> dict[str, str]:
    """Replace former names in each ``_target_`` of a config, in place and at any depth.

    References are not resolved.

    Returns:
        Former names that were found, mapped to present names.
    """
    if not isinstance(config, DictConfig | ListConfig) or config._is_none():
        return {}
    if config._is_interpolation() or config._is_missing():
        return {}
    renamed: dict[str, str] = {}
    if isinstance(config, DictConfig) and _TARGET in config:
        plain: Any = OmegaConf.to_container(config, resolve=False)
        name = plain[_TARGET]
        if isinstance(name, str) and (present := present_name(name)) != name:
            renamed[name] = present
            with read_write(config), open_dict(config):
                config[_TARGET] = present
    keys: Any = config if isinstance(config, DictConfig) else range(len(config))
    for key in list(keys):
        renamed |= rename_targets(config._get_node(key))
    return renamed
