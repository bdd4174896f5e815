"""Likelihood of human captions of the test photos, and of their words, by a finished run.

Metrics of generated captions vary between seeds as much as by wrong words. Losses of the same 2,500
or more captions vary much less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from captioning.evaluation.predict import LoadedRun, load_run
from captioning.interfaces import AbstractTokenizer
from captioning.models.base import AbstractCaptioner
from captioning.text.word_rows import row_words, word_rows
from captioning.types import Batch, Sample

TOPICS = ("color", "object", "number")
AT_ONCE = 125
AWAY = 7  # samples; more than a photo has


def word_losses(folder: Path) -> dict[str, float]:
    """Mean losses in nats per token of the test photos' captions: all tokens, and each topic's.

    Args:
        folder: folder of the run.
    """
    run = load_run(folder)
    return _losses(run, run.roster.samples)


def photo_gain(folder: Path) -> float:
    """Reduction of the mean loss by the right photo, compared with another test photo.

    Args:
        folder: folder of the run.
    """
    run = load_run(folder)
    samples = run.roster.samples
    others = [*samples[AWAY:], *samples[:AWAY]]
    swapped = [
        replace(sample, image_id=other.image_id, image_path=other.image_path)
        for sample, other in zip(samples, others, strict=True)
    ]
    return round(_losses(run, swapped, ())["all"] - _losses(run, samples, ())["all"], 5)


def _losses(
    run: LoadedRun, samples: Sequence[Sample], topics: Sequence[str] = TOPICS
) -> dict[str, float]:
    model = run.model
    model.label_smoothing = 0.0
    data = run.datamodule.dataset(samples, "eval")
    sums = dict.fromkeys(("all", *topics), 0.0)
    counts = dict.fromkeys(sums, 0.0)
    for start in range(0, len(samples), AT_ONCE):
        batch = data[list(range(start, min(start + AT_ONCE, len(samples))))]
        rows = {sample.sample_id: sample for sample in samples[start : start + AT_ONCE]}
        own = [rows[sample_id] for sample_id in batch.sample_ids]
        weights_of = token_weights(own, model.tokenizer, batch)
        for name in sums:
            weights = weights_of[name]
            number = float(weights[:, 1:].sum())
            sums[name] += _mean(model, replace(batch, token_weights=weights)) * number
            counts[name] += number
    return {name: round(sums[name] / counts[name], 5) for name in sums if counts[name]}


@torch.no_grad()
def _mean(model: AbstractCaptioner, batch: Batch) -> float:
    return float(model.losses(batch).total)


def token_weights(
    samples: Sequence[Sample], tokenizer: AbstractTokenizer, batch: Batch
) -> dict[str, Tensor]:
    """Weights ``(B, T)``, 1 for the tokens that count: all tokens, or the words of a topic."""
    tokens, exist = batch.caption_tokens()
    weights = {name: torch.zeros(tokens.shape) for name in TOPICS}
    rows = word_rows()
    for number, sample in enumerate(samples):
        topics = {word.start: rows[word.row].topic for word in row_words(sample.caption)}
        for place, (start, stop) in enumerate(tokenizer.token_spans(sample.caption)):
            topic = topics.get(start) if stop > start else None
            if topic in weights:
                weights[topic][number, place] = 1
    return {"all": exist.float(), **weights}
