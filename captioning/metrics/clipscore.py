"""CLIPScore and RefCLIPScore (Hessel et al., 2021, section 3) in any image-text space.

Scores carry the name of their space, because scores of two spaces are not comparable:
papers report ``CLIPScore(ViT-B-32/openai)``, often times 100. In the small joint space the same
formulas give the ``joint-space score``, which is not a CLIPScore.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from captioning.metrics.coco import MetricResult, hash_references
from captioning.text.lengths import count_words
from captioning.text.sentence_spans import sentence_spans

Fits = Callable[[Sequence[str]], Sequence[bool]]

WEIGHT = 2.5  # stretches CLIP's cosines, which seldom pass .4, to [0, 1] (section 3)
PROMPT = "A photo depicts "
JOINT_SPACE = "joint-space"
log = logging.getLogger(__name__)


def clip_scores(images: Tensor, captions: Tensor, *, weight: float = WEIGHT) -> Tensor:
    """Compute ``weight * max(cos(caption, image), 0)`` for each pair (equation 1).

    Args:
        images: ``(N, D)`` nonzero embeddings.
        captions: ``(N, D)`` embeddings in the same space.
        weight: scale of the scores; 2.5 in the paper.

    Returns:
        ``(N,) float32`` in [0, weight].

    Raises:
        ValueError: wrong shapes, or an embedding that is 0 or not finite.
    """
    if images.ndim != 2 or images.shape != captions.shape:
        raise ValueError(
            "images and captions must be (N, D), one caption per image: got "
            f"{tuple(images.shape)} and {tuple(captions.shape)}"
        )
    return weight * (_unit(images, "images") * _unit(captions, "captions")).sum(1).clamp(min=0)


def reference_scores(captions: Tensor, references: Sequence[Tensor]) -> Tensor:
    """Compute ``max(0, max over r of cos(caption, r))``, the text half of RefCLIPScore.

    Args:
        captions: ``(N, D)`` embeddings.
        references: N tensors ``(r, D)`` with ``r >= 1``, in the same space.

    Returns:
        ``(N,) float32`` in [0, 1].

    Raises:
        ValueError: wrong number of references, an image without any, or a zero embedding.
    """
    if len(references) != len(captions):
        raise ValueError(f"references must be {len(captions)} tensors: got {len(references)}")
    units = _unit(captions, "captions")
    best = []
    for number, (caption, vectors) in enumerate(zip(units, references, strict=True)):
        if vectors.ndim != 2 or not len(vectors) or vectors.shape[1] != captions.shape[1]:
            raise ValueError(
                f"references[{number}] must be (r, {captions.shape[1]}) with r >= 1: got "
                f"{tuple(vectors.shape)}"
            )
        best.append((_unit(vectors, f"references[{number}]") @ caption).max())
    return torch.stack(best).clamp(min=0) if best else torch.zeros(0)


def harmonic_mean(first: Tensor, second: Tensor) -> Tensor:
    """Return ``2ab / (a + b)`` of non-negative scores; 0 where either is 0."""
    total = first + second
    return torch.where(total > 0, 2 * first * second / total.clamp(min=1e-12), 0.0)


def score_names(space: str) -> tuple[str, str]:
    """Return the names of the scores without and with references in a space."""
    if space == JOINT_SPACE:
        return "joint-space score", "joint-space reference score"
    return f"CLIPScore({space})", f"RefCLIPScore({space})"


def evaluate_similarity(
    candidates: Mapping[str, str],
    images: Mapping[str, Tensor],
    *,
    embed_texts: Callable[[Sequence[str]], Tensor],
    space: str,
    references: Mapping[str, Sequence[str]] | None = None,
    prompt: str | None = None,
    weight: float = WEIGHT,
    fits: Fits | None = None,
) -> MetricResult:
    """Score one caption per image by similarity to the photo, and optionally to references.

    An empty caption scores 0, as in every other metric here; its embedding, the prompt alone,
    would be slightly similar to every photo. A caption too long for the encoder gets the mean
    score of its sentences, weighted by their word counts; a too long reference counts as one
    reference per sentence. The papers truncate both.

    Args:
        candidates: raw caption of each image.
        images: embedding ``(D,)`` of at least these images.
        embed_texts: function from texts to ``(N, D)`` in the same space.
        space: name of the space, see `score_names`.
        references: captions of at least these images; empty captions are ignored.
        prompt: prefix of every caption and reference; None: the paper's ``"A photo depicts "``
            in a CLIP space, no prefix in the joint space.
        weight: see `clip_scores`.
        fits: function that tells whether texts fit the encoder; None: long texts are truncated.

    Returns:
        Means and per-image scores; the settings hold space, prompt, weight, and the numbers of
        captions and references that were split.

    Raises:
        ValueError: no candidates, an image without embedding, or one without references although
            ``references`` is set.
    """
    if not candidates:
        raise ValueError("candidates must hold at least one caption: got none")
    unknown = [image_id for image_id in candidates if image_id not in images]
    if unknown:
        raise ValueError(
            f"{len(unknown)} candidates have images without an embedding, such as "
            f"{unknown[0]!r}; "
            "do they belong to another dataset or split?"
        )
    if prompt is None:
        prompt = "" if space == JOINT_SPACE else PROMPT
    ids, texts = list(candidates), list(candidates.values())
    parts = _parted(texts, prompt, fits)
    captions = embed_texts([prompt + part for part in parts.texts])
    is_text = torch.tensor([bool(text.strip()) for text in texts])
    plain, with_references = score_names(space)
    pictures = torch.stack([images[ids[owner]] for owner in parts.owners])
    columns = {plain: parts.mean(clip_scores(pictures, captions, weight=weight)) * is_text}
    settings: dict[str, Any] = {"space": space, "prompt": prompt, "weight": weight, "missing": {}}
    settings |= {"num_images": len(ids), "num_empty_candidates": int((~is_text).sum())}
    by_parts = {"num_captions_by_parts": parts.num_parted}
    if references is not None:
        non_empty = _non_empty_references(ids, references)
        flat = _parted([text for texts in non_empty for text in texts], prompt, fits)
        by_parts["num_references_by_parts"] = flat.num_parted
        vectors = _embedded(flat.joined(non_empty), prompt, embed_texts)
        of_parts = reference_scores(captions, [vectors[owner] for owner in parts.owners])
        reference_likeness = parts.mean(of_parts) * is_text
        columns[with_references] = harmonic_mean(columns[plain], reference_likeness)
        settings["references_hash"] = hash_references(ids, non_empty)
    if fits is not None:
        settings |= by_parts
        if any(by_parts.values()):
            log.warning(
                f"{plain}: {parts.num_parted} of {len(texts)} captions and "
                f"{by_parts.get('num_references_by_parts', 0)} references are too long for its "
                "text encoder and are split into parts (long_texts=cut truncates them instead)"
            )
    return _result(ids, columns, settings)


class _Parts:
    """Texts split into parts that fit an encoder.

    Args:
        parts: parts of each text, one or more.

    Attributes:
        texts: all parts in order.
        owners: text number of each part.
        num_parted: number of texts with several parts.
    """

    def __init__(self, parts: Sequence[Sequence[str]]) -> None:
        self._parts = parts
        self.texts = [part for each in parts for part in each]
        self.owners = [number for number, each in enumerate(parts) for _ in each]
        self.num_parted = sum(len(each) > 1 for each in parts)
        weights = [[max(1, count_words(part)) for part in each] for each in parts]
        shares = [weight / sum(each) for each in weights for weight in each]
        self._shares = torch.tensor(shares)

    def mean(self, scores: Tensor) -> Tensor:
        """Average part scores ``(P,)`` to text scores ``(N,)``."""
        total = torch.zeros(len(self._parts))
        return total.index_add(0, torch.tensor(self.owners), scores * self._shares)

    def joined(self, groups: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return the parts of all texts in each group."""
        rest = iter(self._parts)
        return [[part for _ in group for part in next(rest)] for group in groups]


def _parted(texts: Sequence[str], prompt: str, fits: Fits | None) -> _Parts:
    """Keep texts that fit; split others into sentences, and too long sentences into halves."""
    parts = [[text] for text in texts]
    todo = list(range(len(parts))) if fits is not None else []
    while fits is not None and todo:
        asked = [(number, part) for number in todo for part in parts[number]]
        answers = fits([prompt + part for _, part in asked])
        smaller: dict[int, list[str]] = {number: [] for number in todo}
        again = set()
        for (number, part), does_fit in zip(asked, answers, strict=True):
            pieces = [part] if does_fit else _split(part)
            smaller[number] += pieces
            again |= {number} if len(pieces) > 1 else set()
        for number in todo:
            parts[number] = smaller[number]
        todo = sorted(again)
    return _Parts(parts)


def _split(text: str) -> list[str]:
    """Split a text into sentences, a sentence into halves; a single word stays whole."""
    spans = sentence_spans(text)
    if len(spans) > 1:
        return [text[start:stop] for start, stop in spans]
    words = text.split()
    middle = len(words) // 2
    halves = (words[:middle], words[middle:])
    return [" ".join(half) for half in halves] if middle else [text]


def _unit(vectors: Tensor, name: str) -> Tensor:
    values = vectors.float()
    lengths = values.norm(dim=1)
    wrong = int((~(values.isfinite().all(1) & (lengths > 0))).sum())
    if wrong:
        raise ValueError(f"{name}: {wrong} of {len(values)} embeddings are 0 or not finite")
    return nn.functional.normalize(values, dim=1)


def _non_empty_references(
    image_ids: Sequence[str], references: Mapping[str, Sequence[str]]
) -> list[list[str]]:
    non_empty = [[text for text in references.get(i, ()) if text.strip()] for i in image_ids]
    without = [image_id for image_id, texts in zip(image_ids, non_empty, strict=True) if not texts]
    if without:
        raise ValueError(
            f"{len(without)} candidates have images without references, such as "
            f"{without[0]!r}; "
            "leave out references to score without them"
        )
    return non_empty


def _embedded(
    references: Sequence[Sequence[str]],
    prompt: str,
    embed_texts: Callable[[Sequence[str]], Tensor],
) -> list[Tensor]:
    """Embed all references in one call, then split the embeddings by image."""
    vectors = embed_texts([prompt + text for texts in references for text in texts])
    return list(vectors.split([len(texts) for texts in references]))


def _result(
    image_ids: Sequence[str], columns: Mapping[str, Tensor], settings: dict[str, Any]
) -> MetricResult:
    return MetricResult(
        corpus={name: float(scores.double().mean()) for name, scores in columns.items()},
        per_image={
            image_id: {name: float(scores[row]) for name, scores in columns.items()}
            for row, image_id in enumerate(image_ids)
        },
        settings=settings,
    )
