"""Further metrics as `evaluate.py` takes them: ``extra_metrics=[diversity,joint_space]``.

Each class connects a module of this package with the data set's annotations of the images.
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
    """CLIPScore and RefCLIPScore, or the same formulas in another space (and under its name)."""

    def __init__(
        self,
        *,
        encoder: JointEmbedder,
        weight: PositiveFloat = WEIGHT,
        prompt: str | None = None,
        batch_size: PositiveInt = 64,
        long_texts: Literal["parts", "cut"] = "parts",
    ) -> None:
        """See `captioning.metrics.clipscore.evaluate_similarity`.

        Args:
            encoder: the space.
            weight, prompt: as there.
            batch_size: photos that are opened at once.
            long_texts: of texts that the encoder does not read to their ends: ``"parts"`` scores
                their sentences, ``"cut"`` their beginnings, as papers do.

        Raises:
            ValueError: another ``long_texts``.
        """
        if long_texts not in ("parts", "cut"):
            raise ValueError(f"long_texts must be 'parts' or 'cut': got {long_texts!r}")
        # an encoder of the user's own may not tell
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
    """How much the captions of an image differ, see `captioning.metrics.diversity`."""

    min_captions: ClassVar[int] = 2

    def __init__(
        self,
        *,
        tokenizer: TokenizerName = "python",
        variant: Literal["CIDEr-D", "CIDEr"] = "CIDEr-D",
        max_captions: PositiveInt | None = None,
        training: CaptionedImages | None = None,
    ) -> None:
        """Set the measure up.

        Args:
            tokenizer: ``"ptb"`` or ``"python"``.
            variant: kernel of self-CIDEr.
            max_captions: number of captions of each image that count, the first ones; 5, the best
                by consensus, in papers. None takes all.
            training: the training captions: document frequencies for self-CIDEr, and the captions
                that are not novel. Without them the references' frequencies are taken and novelty
                is left out.
        """
        self._tokenize = TOKENIZERS[tokenizer]
        self._variant = variant
        self._max_captions = max_captions
        self._training = training

    def score(self, captions: Captions, images: CaptionedImages) -> MetricResult:
        """Measure; every image needs two captions or more."""
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
    """Best-1 of an image's captions, by each metric, see `captioning.metrics.diversity`."""

    def __init__(
        self,
        *,
        metrics: Annotated[Sequence[MetricName], MinLen(1)] = METRICS,
        tokenizer: TokenizerName = "ptb",
    ) -> None:
        """Set the oracle up with names of metrics, and ``"ptb"`` or ``"python"``."""
        self._metrics = tuple(metrics)
        self._tokenizer = tokenizer

    def score(self, captions: Captions, images: CaptionedImages) -> MetricResult:
        """The mean over images of the best caption's score, as ``oracle CIDEr-D`` and so on."""
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
    """Well-formedness of the first captions, ``G``; not GRUEN: docs/cards/scores_control.md."""

    def __init__(self, *, well_formedness: WellFormedness) -> None:
        """Take the calibrated model."""
        self._well_formedness = well_formedness

    def score(self, captions: Captions, images: CaptionedImages) -> MetricResult:
        """The mean, and the share of captions from the threshold of CIC-BART-SSA on."""
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
    """F1 of mentions, COF1, COF1.5 and macro-averages, see `captioning.metrics.novel`."""

    def __init__(
        self,
        *,
        classes: Sequence[str] | Forms | None = None,
        truth: Literal["references", "labels"] = "references",
        metrics: Sequence[MetricName] = ("METEOR", "CIDEr-D"),
        tokenizer: TokenizerName = "ptb",
    ) -> None:
        """Set the classes.

        Args:
            classes: names of the held-out classes, or their word forms by name; None for the eight
                of held-out COCO.
            truth: ``"references"``, or ``"labels"``, the labels of the images' boxes.
            metrics: standard scores of the groups of images.
            tokenizer: ``"ptb"`` or ``"python"``.

        Raises:
            ValueError: another ``truth``.
        """
        if truth not in ("references", "labels"):
            raise ValueError(f"truth must be 'references' or 'labels': got {truth!r}")
        forms = classes if isinstance(classes, Mapping) else None
        self._forms = HELD_OUT_FORMS if classes is None else word_forms(classes, forms)
        self._truth = truth
        self._options = {"metrics": list(metrics), "tokenizer": tokenizer}

    def score(self, captions: Captions, images: CaptionedImages) -> MetricResult:
        """Score the first captions; names end in ``out-of-domain``, ``in-domain`` or a class."""
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
    """Scores of nocaps' domains: ``CIDEr-D in``, ``near``, ``out`` and ``overall``."""

    def __init__(
        self,
        *,
        domains: Mapping[str, str],
        metrics: Sequence[MetricName] = ("METEOR", "CIDEr-D"),
        tokenizer: TokenizerName = "ptb",
        frequencies: Frequencies = "all",
    ) -> None:
        """Set the domains by image id, and what is scored.

        Args:
            domains: by image id: in, near or out.
            metrics: standard scores of each domain and of all images.
            tokenizer: ``"ptb"`` or ``"python"``.
            frequencies: frequencies of CIDEr-D, see `captioning.metrics.novel.score_groups`: of
                ``"all"`` images that are scored, or of each domain (``"group"``), as ViECap's
                authors do.

        Raises:
            ValueError: another ``frequencies``.
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
