"""Similarity of a corpus to another: ``captioning augment compare out=FOLDER``.

Settings are in ``configs/compare_texts.yaml``; docs/toca.md says what is written.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from augmentation.plane import two_dimensions
from augmentation.toca.corpus_similarity import compare_corpora, draw_neighbourhoods
from augmentation.toca.method import corpus_statistics
from augmentation.training.card import write_card
from captioning.config.build import build_part
from captioning.training.rosters import read_corpus


def compare(config: DictConfig) -> dict[str, Any]:
    """Write a card with Table 7's measures, and Figure 3.

    Returns:
        The card.

    Raises:
        ValueError, OSError: a corpus cannot be read, or something cannot be written.
    """
    rosters = {group: read_corpus(config, group) for group in ("corpus", "target")}
    tagger, folder = build_part(config.tagger), Path(config.out)
    statistics = {
        group: corpus_statistics(roster, tagger, Path(config.cache_folder))
        for group, roster in rosters.items()
    }
    similarities = compare_corpora(statistics["corpus"], statistics["target"])
    texts = {
        group: [sample.caption for sample in roster.samples] for group, roster in rosters.items()
    }
    figure_counts = None
    if config.figure.ratios:
        figure_counts = draw_neighbourhoods(
            folder / "tsne.png",
            synthetic=texts["corpus"],
            target=texts["target"],
            embed=build_part(config.similarity.encoder).embed_texts,
            ratios=config.figure.ratios,
            num_target=config.figure.num_target,
            project=partial(two_dimensions, seed=config.seed),
            generator=np.random.default_rng(config.seed),
        )
    return write_card(
        folder,
        description="how near a corpus is to another (precision and recall are of the corpus)",
        rosters=rosters,
        config=config,
        statistics={group: value.summary() for group, value in statistics.items()},
        likeness={name: asdict(value) for name, value in similarities.items()},
        figure=figure_counts,
    )
