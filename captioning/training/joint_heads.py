"""Train the heads of the small joint space: ``captioning train-space``.

Photos and sentences go once through their frozen networks; only the two heads of
`captioning.vision.joint_space` are trained, on the pooled features and sentence vectors. Settings
are in ``configs/joint_space.yaml``; the validation photos choose them, and the test photos are used
once, at the end.
"""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Gt, Lt
from torch import Tensor, nn

from captioning.config.build import build_part
from captioning.config.ranges import (
    AbstractSettings,
    DropRate,
    Name,
    NonNegativeFloat,
    NumThreads,
    PositiveInt,
    Seed,
)
from captioning.config.tasks import plain
from captioning.data.features.store import FeatureStore
from captioning.data.roster import Roster, build_roster
from captioning.metrics.detection import area_under_roc
from captioning.results.versions import versions
from captioning.runtime.extras import write_sums
from captioning.runtime.files import write_json
from captioning.text.sentences import SentenceEncoder
from captioning.training.inputs import cached_features
from captioning.training.optim import cosine
from captioning.training.rosters import read_roster
from captioning.training.settings import CachedFeatures, Data, DataSettings, Part, Paths
from captioning.vision.joint_space import JointSpace, Pooling, save_heads

log = logging.getLogger(__name__)
RANKS = (1, 5, 10)


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Photos and their captions as inputs of the joint-space heads.

    Attributes:
        pooled: ``(I, P) float16``, features from `JointSpace.pool`.
        sentences: ``(N, S) float32``, vectors of the captions.
        image_index: ``(N,) int64`` in [0, I), the photo of each caption.
    """

    pooled: Tensor
    sentences: Tensor
    image_index: Tensor


def read_pairs(
    roster: Roster, *, store: FeatureStore, sentences: SentenceEncoder, heads: JointSpace
) -> Pairs:
    """Read the features and sentence vectors of a roster.

    Args:
        roster: photos with captions.
        store: store of the grid features of the roster's photos.
        sentences: the frozen sentence encoder.
        heads: the heads, which pool the grid features.
    """
    rows = list(roster.rows_by_image.values())
    positions = store.positions([roster.samples[first].image_path for first, *_ in rows])
    parts = [
        heads.pool(store.read(positions[start : start + 128])[0]).half()
        for start in range(0, len(rows), 128)
    ]
    image_index = torch.empty(len(roster), dtype=torch.int64)
    for number, of_image in enumerate(rows):
        image_index[list(of_image)] = number
    vectors = sentences.embed_texts([sample.caption for sample in roster.samples])
    return Pairs(pooled=torch.cat(parts), sentences=vectors, image_index=image_index)


def read_rosters(settings: DataSettings, more: Data | None, *, num_more: int) -> dict[str, Roster]:
    """Read the splits ``train``, ``val`` and ``test`` of a dataset, and two splits of another.

    Args:
        settings: settings of the data set.
        more: another dataset, whose first photos become ``train_more``, the others ``test_more``.
        num_more: number of photos in ``train_more``.

    Raises:
        ValueError: ``more`` has no more than ``num_more`` photos.
    """
    rosters = {split: read_roster(settings, split) for split in ("train", "val", "test")}
    if more is not None:
        roster = read_roster(replace(settings, data=more), "train")
        first = set(list(roster.rows_by_image)[:num_more])
        parts = {"train_more": True, "test_more": False}
        for split, is_first in parts.items():
            samples = [s for s in roster.samples if (s.image_id in first) == is_first]
            if not samples:
                raise ValueError(
                    f"more={more.name} has {len(roster.rows_by_image)} photos, and "
                    f"num_more={num_more} takes all for training, so the test has no photos; lower "
                    "num_more"
                )
            rosters[split] = build_roster(f"{more.name}/{split}", samples, roster.dropped)
    return rosters


def join_pairs(parts: Sequence[Pairs]) -> Pairs:
    """Join photos and captions of several rosters into one set."""
    starts = torch.tensor([0] + [len(part.pooled) for part in parts[:-1]]).cumsum(0)
    return Pairs(
        pooled=torch.cat([part.pooled for part in parts]),
        sentences=torch.cat([part.sentences for part in parts]),
        image_index=torch.cat(
            [part.image_index + start for part, start in zip(parts, starts, strict=True)]
        ),
    )


def first_captions(roster: Roster, number: int) -> Roster:
    """First ``number`` captions of every photo."""
    rows_of_first = {row for rows in roster.rows_by_image.values() for row in rows[:number]}
    samples = [sample for sample in roster.samples if sample.row in rows_of_first]
    return build_roster(roster.name, samples, roster.dropped)


def contrastive_loss(
    images: Tensor, captions: Tensor, image_index: Tensor, scale: Tensor
) -> Tensor:
    """Contrastive loss (InfoNCE) of photos and captions in a batch, mean of both directions.

    See van den Oord et al., 2018. Other captions of the same photo do not count as negatives.

    Args:
        images: ``(I, D)`` unit vectors of different photos.
        captions: ``(C, D)`` unit vectors.
        image_index: ``(C,) int64`` in [0, I).
        scale: scalar, 1 / temperature.
    """
    logits = scale * captions @ images.T
    of_caption = nn.functional.cross_entropy(logits, image_index)
    matched_logits = logits.gather(1, image_index[:, None])[:, 0]
    is_match = nn.functional.one_hot(image_index, len(images)).bool()
    mismatched = logits.masked_fill(is_match, -torch.inf).logsumexp(0)[image_index]
    of_image = (torch.logaddexp(matched_logits, mismatched) - matched_logits).mean()
    return (of_caption + of_image) / 2


def batches(
    image_index: Tensor, *, batch_size: int, captions_per_image: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield batches of one pass over the photos in random order, each with some of its captions.

    Args:
        image_index: ``(N,) int64``, the photo of each caption.
        batch_size: photos in a batch; a last batch of less than half this size is skipped.
        captions_per_image: maximum number of captions of a photo, drawn again in each pass.
        generator: draws the order and the captions.

    Yields:
        Photos ``(I,)``, captions ``(C,)``, and each caption's position ``(C,)`` among the photos.
    """
    num_images = int(image_index.max()) + 1
    order = torch.randperm(len(image_index), generator=generator)
    order = order[image_index[order].argsort(stable=True)]  # by photo, its captions shuffled
    counts = torch.bincount(image_index, minlength=num_images)
    first = (counts.cumsum(0) - counts)[image_index[order]]
    chosen = order[torch.arange(len(order)) - first < captions_per_image]
    for photos in torch.randperm(num_images, generator=generator).split(batch_size):
        if len(photos) < min(batch_size, num_images) / 2:
            continue
        position = torch.full((num_images,), -1)
        position[photos] = torch.arange(len(photos))
        batch_position = position[image_index[chosen]]
        yield photos, chosen[batch_position >= 0], batch_position[batch_position >= 0]


@dataclass(frozen=True, kw_only=True)
class HeadsTraining(AbstractSettings):
    """Settings in ``training``: the training loop of the joint-space heads.

    Attributes:
        num_epochs: passes over the photos.
        batch_size: photos per batch.
        captions_per_image: maximum number of captions of a photo in a pass.
        lr, weight_decay: learning rate and weight decay of AdamW.
        ema_decay: decay of the averaged weights per update.
        val_every: passes between two validations.
    """

    num_epochs: PositiveInt
    batch_size: PositiveInt
    captions_per_image: PositiveInt
    lr: NonNegativeFloat
    weight_decay: NonNegativeFloat
    ema_decay: Annotated[float, Gt(0), Lt(1)]
    val_every: PositiveInt


@dataclass(frozen=True, kw_only=True)
class HeadsSettings(AbstractSettings):
    """Settings in ``heads``: sizes of the joint-space heads; see `JointSpace`."""

    width: PositiveInt
    size: PositiveInt
    dropout: DropRate
    input_dropout: DropRate
    pooling: Pooling


def fit(
    heads: JointSpace, train: Pairs, val: Pairs, *, settings: HeadsTraining, seed: int
) -> tuple[JointSpace, list[dict[str, float]]]:
    """Train the joint-space heads and return their averaged weights with validation scores.

    Args:
        heads: heads with new weights; trained in place.
        train: training data.
        val: scored every ``settings.val_every`` passes and at the end.
        settings: see `HeadsTraining`.
        seed: seed of batches and dropout.

    Returns:
        Heads with averaged weights, and the validation scores with their ``epoch`` (from 1).
    """
    torch.manual_seed(seed)  # dropout draws from the global generator
    generator = torch.Generator().manual_seed(seed)
    averaged = copy.deepcopy(heads).eval()
    optimizer = torch.optim.AdamW(
        heads.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
    )
    sampling = {name: getattr(settings, name) for name in ("batch_size", "captions_per_image")}
    per_epoch = sum(1 for _ in batches(train.image_index, generator=generator, **sampling))
    schedule = cosine(optimizer, horizon=settings.num_epochs * per_epoch, warmup=0.05)
    history: list[dict[str, float]] = []
    loss = heads.log_scale.new_zeros(())
    for epoch in range(1, settings.num_epochs + 1):
        for photos, captions, place in batches(train.image_index, generator=generator, **sampling):
            loss = _loss(heads.train(), train, photos, captions, place)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                heads.log_scale.clamp_(max=4.6)  # 1 / temperature at most 100, as for CLIP
                for mean, value in zip(averaged.parameters(), heads.parameters(), strict=True):
                    mean.lerp_(value, 1 - settings.ema_decay)
        if epoch % settings.val_every == 0 or epoch == settings.num_epochs:
            history.append({"epoch": epoch, "loss": loss.item(), **score(averaged, val)})
            log.info(" ".join(f"{name} {value:.3f}" for name, value in history[-1].items()))
    return averaged, history


def _loss(
    heads: JointSpace, pairs: Pairs, photos: Tensor, captions: Tensor, place: Tensor
) -> Tensor:
    images = heads.embed_pooled(pairs.pooled[photos].float())
    texts = heads.embed_sentences(pairs.sentences[captions])
    return contrastive_loss(images, texts, place, heads.log_scale.exp())


@torch.inference_mode()
def score(heads: JointSpace, pairs: Pairs) -> dict[str, float]:
    """Retrieval scores of the heads, and the mean cosine of matched pairs."""
    images = heads.eval().embed_pooled(pairs.pooled.float())
    texts = heads.embed_sentences(pairs.sentences)
    matched_cosine = (texts * images[pairs.image_index]).sum(1).mean()
    scores = retrieval_scores(images, texts, pairs.image_index)
    return scores | {"matched cosine": float(matched_cosine)}


def train_joint_space(
    *,
    data: Data,
    more: Data | None = None,
    paths: Paths,
    features: CachedFeatures,
    seed: Seed = 0,
    threads: NumThreads | None = None,
    first_images: PositiveInt | None = None,
    num_more: PositiveInt = 4000,
    limit_captions: PositiveInt | None = None,
    sentences: Part,
    heads: HeadsSettings,
    training: HeadsTraining,
    out: Name,
) -> dict[str, Any]:
    """Train the heads of the joint space; write them and a model card.

    Args:
        data: photos with captions.
        more: another data set, see `read_rosters`.
        paths: folders.
        features: grid features of the photos.
        seed: seed of all draws.
        threads: threads of torch; None: its own choice.
        first_images: photos of a split that are read; None: all.
        num_more: number of photos of ``more`` to train on.
        limit_captions: maximum number of training captions per photo, from the first; None: all.
        sentences: encoder of the captions.
        heads: their sizes.
        training: settings of the loop.
        out: file of the heads.

    Returns:
        The card: settings, data, versions and scores.

    Raises:
        ValueError: wrong settings, or photos without captions.
        OSError: files that cannot be read or written.
    """
    torch.manual_seed(seed)
    if threads:
        torch.set_num_threads(threads)
    source = DataSettings(data=data, paths=paths, seed=seed, first_images=first_images)
    rosters = read_rosters(source, more, num_more=num_more)
    trained_on = [split for split in rosters if split.startswith("train")]
    if limit_captions is not None:
        for split in trained_on:
            rosters[split] = first_captions(rosters[split], limit_captions)
    backbone, encoder = build_part(features.own_backbone), build_part(sentences)
    samples = {s.image_path: s for roster in rosters.values() for s in roster.samples}
    store = cached_features(features, backbone, samples)
    space = JointSpace(image_size=store.dim, sentence_size=encoder.dim, **plain(heads))
    parts = {"store": store, "sentences": encoder, "heads": space}
    pairs = {split: read_pairs(roster, **parts) for split, roster in rosters.items()}
    train = join_pairs([pairs[split] for split in trained_on])
    trained, history = fit(space, train, pairs["val"], settings=training, seed=seed)
    names = {"backbone": backbone.identity, "sentences": encoder.identity}
    file = Path(out)
    save_heads(trained, file, **names)
    write_sums(file.with_suffix(".sha256"), [file])
    card = {
        "what": "heads of the small joint space over a frozen backbone and sentence encoder",
        **names,
        "data": {split: _described(roster) for split, roster in rosters.items()},
        "heads": space.settings,
        "training": plain(training) | {"seed": seed},
        "versions": versions() | {"command": " ".join(["captioning", *sys.argv[1:]])},
        "val": history,
    }
    card |= {split: score(trained, pairs[split]) for split in pairs if split.startswith("test")}
    write_json(file.with_suffix(".json"), card)
    return card


def _described(roster: Roster) -> dict[str, Any]:
    return {
        "name": roster.name,
        "photos": len(roster.rows_by_image),
        "captions": len(roster),
        "fingerprint": roster.fingerprint,
    }


def retrieval_scores(
    images: Tensor, captions: Tensor, image_index: Tensor, *, seed: int = 0
) -> dict[str, float]:
    """Retrieval recall at 1, 5 and 10 in both directions, and the AUC of matched pairs.

    A tie counts against the right answer, so equal embeddings find nothing.

    Args:
        images: ``(I, D)`` unit vectors, I > 1.
        captions: ``(N, D)`` unit vectors, one or more an image.
        image_index: ``(N,) int64`` in [0, I), the image of each caption.
        seed: seed of the shuffled pairs: each caption beside another image, drawn evenly.

    Returns:
        ``text-to-image R@k``: share of captions whose image is among the k nearest; ``image-to-text
        R@k``: share of images with a caption among the k nearest; ``AUC``: probability that a
        matched pair is nearer than a shuffled one.

    Raises:
        ValueError: an image without captions, less than two images, or embeddings that are not
            finite.
    """
    if not (images.isfinite().all() and captions.isfinite().all()):
        raise ValueError("images and captions must be finite: some embeddings hold NaN or infinity")
    num_images, num_captions = len(images), len(captions)
    counts = torch.bincount(image_index, minlength=num_images)
    if num_images < 2 or len(counts) > num_images or not counts.all():
        raise ValueError(
            f"image_index must name each of at least 2 images: got {num_images} images, "
            f"{int((counts > 0).sum())} of them named"
        )
    cosines = captions @ images.T
    matched_cosines = cosines[torch.arange(num_captions), image_index]
    image_ranks = (cosines >= matched_cosines[:, None]).sum(
        1
    )  # from 1, the right one counts itself
    best = matched_cosines.new_full((num_images,), -torch.inf).scatter_reduce(
        0, image_index, matched_cosines, "amax"
    )
    is_other = torch.ones_like(cosines, dtype=torch.bool)
    is_other[torch.arange(num_captions), image_index] = False
    caption_ranks = 1 + ((cosines >= best) & is_other).sum(0)
    scores = {}
    for name, ranks in (("text-to-image", image_ranks), ("image-to-text", caption_ranks)):
        for k in RANKS:
            scores[f"{name} R@{k}"] = float((ranks <= k).double().mean())
    shift = np.random.default_rng(seed).integers(1, num_images, num_captions)
    wrong = (image_index + torch.from_numpy(shift)) % num_images
    shuffled_cosines = cosines[torch.arange(num_captions), wrong]
    matched = np.arange(2 * num_captions) < num_captions
    return scores | {
        "AUC": area_under_roc(torch.cat([matched_cosines, shuffled_cosines]).numpy(), matched)
    }
