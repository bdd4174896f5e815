"""Further metrics for `evaluate.py`, such as ``extra_metrics=[diversity,joint_space]``.

Each class connects a module of this package with the dataset's annotations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, ClassVar, Literal

from annotated_types import MinLen
from torch import Tensor

from captioning.config.ranges import PositiveFloat, PositiveInt
from captioning.interfaces import JointEmbedder
from captioning.metrics.cider import CiderStatistics
from captioning.metrics.clipscore import WEIGHT, evaluate_similarity
from captioning.metrics.coco import METRICS, MetricName, MetricResult, TokenizerName
from captioning.metrics.diversity import evaluate_diversity, evaluate_oracle, tokenized
from captioning.metrics.evaluation import AbstractMetric, CaptionedImages, Captions
from captioning.metrics.novel import (
    HELD_OUT_FORMS,
    Forms,
    Frequencies,
    check_frequencies,
    score_nocaps,
    score_novel,
    word_forms,
)
from captioning.metrics.tokenizer import tokenize_ptb, tokenize_python
from captioning.metrics.well_formedness import WellFormedness
from captioning.runtime.devices import leave_device
from captioning.vision.photo_keys import loading_for, read_ahead
from captioning.vision.photos import load_rgb

MIN_G = 0.7  # GRUEN that CIC-BART-SSA requires (appendix C.2); here of another measure
TOKENIZERS = {"ptb": tokenize_ptb, "python": tokenize_python}


class Similarity(AbstractMetric):
    """CLIPScore and RefCLIPScore, or the same formulas in another space under its name."""

    def __init__(
        self,
        *,
        encoder: JointEmbedder,
        weight: PositiveFloat = WEIGHT,
        prompt: str | None = None,
        batch_size: PositiveInt = 64,
        long_texts: Literal["parts", "cut"] = "parts",
    ) -> None:
        """Set up `captioning.metrics.clipscore.evaluate_similarity`.

        Args:
            encoder: encoder of the space.
            weight, prompt: see `evaluate_similarity`.
            batch_size: number of photos opened at once.
            long_texts: handling of texts too long for the encoder: ``"parts"`` scores
                their sentences, ``"cut"`` truncates them, as papers do.

        Raises:
            ValueError: an unknown ``long_texts``.
        """
        if long_texts not in ("parts", "cut"):
            raise ValueError(f"long_texts must be 'parts' or 'cut': got {long_texts!r}")
        # a user's own encoder may not report its limit
        self._fits = getattr(encoder, "fits", None) if long_texts == "parts" else None
        self._encoder = encoder
        self._settings = {"weight": weight, "prompt": prompt}
        self._batch_size = batch_size

    def score(self, captions: Captions, images: CaptionedImages) -> MetricResult:
        """Score the first caption of every image."""
        paths = {s.image_id: s.image_path for s in images.samples if s.image_id in captions}
        result = evaluate_similarity(
            {image_id: group[0] for image_id, group in captions.items()},
            self._embed(paths),
            embed_texts=self._encoder.embed_texts,
            space=self._encoder.space,
            references=images.references(),
            fits=self._fits,
            **self._settings,
        )
        leave_device(self._encoder)
        return result

    def _embed(self, paths: Mapping[str, Path]) -> dict[str, Tensor]:
        vectors: dict[Path, Tensor] = {}
        files, load = list(dict.fromkeys(paths.values())), loading_for(self._encoder, load_rgb)
        for batch, photos in read_ahead(files, self._batch_size, load):
            vectors |= zip(batch, self._encoder.embed_photos(photos), strict=True)
        return {image_id: vectors[path] for image_id, path in paths.items()}


class Diversity(AbstractMetric):
    """Diversity of an image's captions, see `captioning.metrics.diversity`."""

    min_captions: ClassVar[int] = 2

    def __init__(
        self,
        *,
        tokenizer: TokenizerName = "python",
        variant: Literal["CIDEr-D", "CIDEr"] = "CIDEr-D",
        max_captions: PositiveInt | None = None,
        training: CaptionedImages | None = None,
    ) -> None:
        """Configure the diversity measures.

        Args:
            tokenizer: ``"ptb"`` or ``"python"``.
            variant: kernel of self-CIDEr.
            max_captions: number of captions per image, the first ones (papers: the best 5 by
                consensus); None: all captions.
            training: training captions, which give document frequencies for self-CIDEr and
                define novelty. None: frequencies of the references, and no novelty.
        """
        self._tokenize = TOKENIZERS[tokenizer]
        self._variant = variant
        self._max_captions = max_captions
        self._training = training

    def score(self, captions: Captions, images: CaptionedImages) -> MetricResult:
        """Measure the diversity of captions; every image needs at least two."""
        known = images if self._training is None else self._training
        source = "the references" if self._training is None else "the training captions"
        groups = list(known.references().values())
        rest = iter(tokenized([text for group in groups for text in group], self._tokenize))
        groups = [[next(rest) for _ in group] for group in groups]
        training = None if self._training is None else [s.caption for s in self._training.samples]
        return evaluate_diversity(
            {image_id: group[: self._max_captions] for image_id, group in captions.items()},
            statistics=CiderStatistics.count(groups, source=source),
            training_captions=training,
            tokenize=self._tokenize,
            variant=self._variant,
        )


class Oracle(AbstractMetric):
    """Oracle: best score among an image's captions by each metric, see `evaluate_oracle`."""

    def __init__(
        self,
        *,
        metrics: Annotated[Sequence[MetricName], MinLen(1)] = METRICS,
        tokenizer: TokenizerName = "ptb",
    ) -> None:
        """Configure the oracle with metric names and the tokenizer ``"ptb"`` or ``"python"``."""
        self._metrics = tuple(metrics)
        self._tokenizer = tokenizer

    def score(self, captions: Captions, images: CaptionedImages) -> MetricResult:
        """Return the mean over images of the best caption's score, named ``oracle CIDEr-D`` etc."""
        result = evaluate_oracle(
            captions,
            images.references(),
            metrics=self._metrics,
            tokenize=TOKENIZERS[self._tokenizer],
        )
        settings = result.settings
        settings["missing"] = {
            f"oracle {name}": reason for name, reason in settings["missing"].items()
        }
        return MetricResult(
            corpus={f"oracle {name}": value for name, value in result.mean.items()}
            | {f"oracle corpus {name}": value for name, value in result.corpus_bleu.items()},
            per_image={
                image_id: {f"oracle {name}": value for name, value in scores.items()}
                for image_id, scores in result.per_image.items()
            },
            settings=settings,
        )


class SentenceQuality(AbstractMetric):
    """Well-formedness ``G`` of first captions; not GRUEN, see docs/cards/scores_control.md."""

    def __init__(self, *, well_formedness: WellFormedness) -> None:
        """Configure the metric with a calibrated model."""
        self._well_formedness = well_formedness

    def score(self, captions: Captions, images: CaptionedImages) -> MetricResult:
        """Return the mean G, and the share of captions above CIC-BART-SSA's threshold."""
        scores = self._well_formedness.score([group[0] for group in captions.values()])
        totals = [score.total for score in scores]
        return MetricResult(
            corpus={
                "G": fmean(totals),
                f"G from {MIN_G}": fmean(value >= MIN_G for value in totals),
            },
            per_image={i: {"G": total} for i, total in zip(captions, totals, strict=True)},
            settings=self._well_formedness.settings(),
        )


class NovelObjects(AbstractMetric):
    """Metrics of novel objects: F1 of mentions, COF1, COF1.5; see `captioning.metrics.novel`."""

    def __init__(
        self,
        *,
        classes: Sequence[str] | Forms | None = None,
        truth: Literal["references", "labels"] = "references",
        metrics: Sequence[MetricName] = ("METEOR", "CIDEr-D"),
        tokenizer: TokenizerName = "ptb",
    ) -> None:
        """Configure the held-out classes.

        Args:
            classes: names of the held-out classes, or word forms by name; None: the eight classes
                of held-out COCO.
            truth: ``"references"``, or ``"labels"`` for the labels of the images' boxes.
            metrics: standard scores to compute for the groups of images.
            tokenizer: ``"ptb"`` or ``"python"``.

        Raises:
            ValueError: an unknown ``truth``.
        """
        if truth not in ("references", "labels"):
            raise ValueError(f"truth must be 'references' or 'labels': got {truth!r}")
        forms = classes if isinstance(classes, Mapping) else None
        self._forms = HELD_OUT_FORMS if classes is None else word_forms(classes, forms)
        self._truth = truth
        self._options = {"metrics": list(metrics), "tokenizer": tokenizer}

    def score(self, captions: Captions, images: CaptionedImages) -> MetricResult:
        """Score first captions; score names end in ``out-of-domain``, ``in-domain`` or a class."""
        labels = {s.image_id: [region.label for region in s.regions] for s in images.samples}
        result = score_novel(
            {image_id: group[0] for image_id, group in captions.items()},
            images.references(),
            forms=self._forms,
            labels=labels if self._truth == "labels" else None,
            **self._options,
        )
        corpus = {f"{name} out-of-domain": value for name, value in result.out_of_domain.items()}
        if result.in_domain is not None:
            corpus |= {f"{k} in-domain": v for k, v in result.in_domain.corpus.items()}
        for label, mentions in result.mentions.by_class.items():
            corpus[f"F1 {label}"] = mentions.f1
        settings = result.settings | {"left_out": result.mentions.left_out}
        return MetricResult(corpus=corpus, per_image={}, settings=settings)


class Nocaps(AbstractMetric):
    """Scores of nocaps by domain: ``CIDEr-D in``, ``near``, ``out`` and ``overall``."""

    def __init__(
        self,
        *,
        domains: Mapping[str, str],
        metrics: Sequence[MetricName] = ("METEOR", "CIDEr-D"),
        tokenizer: TokenizerName = "ptb",
        frequencies: Frequencies = "all",
    ) -> None:
        """Configure the image domains and the scores.

        Args:
            domains: domain of each image id: in, near or out.
            metrics: standard scores of each domain and of all images.
            tokenizer: ``"ptb"`` or ``"python"``.
            frequencies: document frequencies of CIDEr-D, see
                `captioning.metrics.novel.score_groups`: of ``"all"`` scored images, or of each
                domain (``"group"``), as ViECap's authors do.

        Raises:
            ValueError: an unknown ``frequencies``.
        """
        check_frequencies(frequencies)
        self._domains, self._frequencies = domains, frequencies
        self._options = {"metrics": list(metrics), "tokenizer": tokenizer}

    def score(self, captions: Captions, images: CaptionedImages) -> MetricResult:
        """Score the first captions by domain."""
        first = {image_id: group[0] for image_id, group in captions.items()}
        results = score_nocaps(
            first,
            images.references(),
            self._domains,
            frequencies=self._frequencies,
            **self._options,
        )
        overall = results["overall"]
        corpus = {
            f"{name} {domain}": value
            for domain, result in results.items()
            for name, value in result.corpus.items()
        }
        sizes = {domain: len(result.per_image) for domain, result in results.items()}
        settings = overall.settings | {
            "num_images": sizes,
            "cider_frequencies": self._frequencies,
        }
        return replace(overall, corpus=corpus, per_image={}, settings=settings)
