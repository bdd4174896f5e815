"""Figures about MiniWorld: ``captioning miniworld facts``."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from captioning.miniworld.actions import ACTIONS
from captioning.miniworld.build import make_captions
from captioning.miniworld.captions import Caption
from captioning.miniworld.places import PLACES
from captioning.miniworld.sample import sample_scene
from captioning.miniworld.vocabulary import CLASSES, families, held_out
from captioning.text.word_forms import words_of


def describe(*, split: str, num_scenes: int, seed: int = 0) -> dict[str, Any]:
    """Figures of a split's captions and scenes; nothing is drawn.

    Args:
        split: one of ``sample.SPLITS``.
        num_scenes: how many of its first scenes to look at, at least 1.
        seed: of the data set.
    """
    scenes = [sample_scene(seed=seed, split=split, index=index) for index in range(num_scenes)]
    captions = [
        caption
        for index, scene in enumerate(scenes)
        for caption in make_captions(scene, seed=seed, split=split, index=index)
    ]
    return {
        "classes": len(CLASSES),
        "families": len(families()),
        "held_out_classes": len(held_out()),
        "places": len(PLACES),
        "actions": len(ACTIONS),
        "objects_per_scene": _shares(len(scene.objects) for scene in scenes),
        "relations": _shares(relation.name for scene in scenes for relation in scene.relations),
        **_wording(captions),
    }


def _shares(values: Any) -> dict[str, float]:
    counts = Counter(values)
    total = sum(counts.values())
    return {str(key): round(count / total, 3) for key, count in counts.most_common()}


def _wording(captions: list[Caption]) -> dict[str, Any]:
    words = [words_of(caption.text) for caption in captions]
    lengths = np.array([len(caption_words) for caption_words in words])
    counts = Counter(word for caption_words in words for word in caption_words)
    return {
        "captions": len(captions),
        "distinct_captions": round(len({caption.text for caption in captions}) / len(captions), 3),
        "vocabulary": len(counts),
        "vocabulary_at_least_5": sum(count >= 5 for count in counts.values()),
        "words_mean": round(float(lengths.mean()), 2),
        "words_quantiles_0_25_50_75_100": [
            int(value) for value in np.quantile(lengths, (0, 0.25, 0.5, 0.75, 1))
        ],
        "focus": _shares(caption.focus for caption in captions),
        "mentions_per_caption": round(float(np.mean([len(c.mentions) for c in captions])), 2),
    }
