"""Random control signals: captions for random regions and lengths.

Table 8 of CIC-BART-SSA (Basioti et al., 2024) and its length error L are of ten random controls an
image (appendix C.1). How they are drawn is in the authors' code (``diverse_length``): a caption's
regions in random order, and any number of words from 5 to 29.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from captioning.config.ranges import AbstractSettings, NonNegativeInt, PositiveInt, Seed
from captioning.metrics.best_sets import best_diversity
from captioning.metrics.control import ControlledCaption, score_control
from captioning.metrics.tokenizer import tokenize_python
from captioning.types import Control, Sample

Regions = Literal["caption", "any"]


@dataclass(frozen=True, kw_only=True)
class RandomControls(AbstractSettings):
    """How controls are drawn.

    Attributes:
        controls: drawn for each image, at least ``best``; 0: none.
        best: captions of a set for `best_diversity`.
        shortest, longest: numbers of words, all alike likely.
        regions: ``"caption"``: the regions of one of the image's captions; ``"any"``: as many
            regions as one caption has, drawn from the regions of all the image's captions.
        seed: of all draws.

    Raises:
        ValueError: settings out of their ranges.
    """

    controls: NonNegativeInt = 10
    best: PositiveInt = 5
    shortest: PositiveInt = 5
    longest: PositiveInt = 29
    regions: Regions = "caption"
    seed: Seed = 0

    def __post_init__(self) -> None:
        if not self.controls:
            return
        if not 1 <= self.best <= self.controls:
            raise ValueError(
                f"random.controls must be at least random.best, and that at least 1: got "
                f"{self.controls} and {self.best}"
            )
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(
                "random.shortest must be at least 1 and at most random.longest: got "
                f"{self.shortest} and {self.longest}"
            )

    def draw(
        self, samples: Sequence[Sample], controls: Sequence[Control]
    ) -> list[tuple[Sample, Control]]:
        """Controls of each image, with a sample that has an id of its own.

        Args:
            samples: captions, several an image.
            controls: the control of each caption. Where it has no length, none is drawn; verbs are
                not requested.
        """
        by_image: dict[str, list[tuple[Sample, Control]]] = {}
        for sample, control in zip(samples, controls, strict=True):
            by_image.setdefault(sample.image_id, []).append((sample, control))
        generator = np.random.default_rng(self.seed)
        drawn = []
        for image_id, candidates in by_image.items():
            all_regions = list(
                dict.fromkeys(r for _, control in candidates for r in control.regions or ())
            )
            for number in range(self.controls):
                sample, control = candidates[int(generator.integers(len(candidates)))]
                named = replace(sample, sample_id=f"{image_id} random {number}")
                drawn.append((named, self._draw_one(control, all_regions, generator)))
        return drawn

    def _draw_one(
        self, control: Control, all_regions: Sequence[int], generator: np.random.Generator
    ) -> Control:
        regions = control.regions or ()
        pool = regions if self.regions == "caption" else all_regions
        drawn = tuple(int(r) for r in generator.permutation(pool)[: len(regions)])
        num_words = int(generator.integers(self.shortest, self.longest + 1))
        has_length = control.num_words is not None
        return replace(
            control,
            regions=drawn,
            num_words=num_words if has_length else None,
            level=None,
            verbs=(),
        )

    def scores(
        self,
        drawn: Sequence[tuple[Sample, Control]],
        captions: Mapping[str, str],
        *,
        full_stops_count: bool = False,
    ) -> dict[str, Any]:
        """``D-1`` and ``D-2`` of the best captions of each image, ``L`` and ``LP`` of all.

        Args:
            drawn: what `draw` gave.
            captions: captions by sample id.
            full_stops_count: see `ControlledCaption`.

        Returns:
            ``corpus``, ``settings`` and ``captions``, each with its control.
        """
        groups: dict[str, list[str]] = {}
        for sample, _ in drawn:
            groups.setdefault(sample.image_id, []).append(captions[sample.sample_id])
        tokenize = None if full_stops_count else tokenize_python  # as in `score_control`
        best = best_diversity(groups, k=self.best, tokenize=tokenize)
        lengths = score_control(
            [
                ControlledCaption(
                    sample_id=sample.sample_id,
                    image_id=sample.image_id,
                    caption=captions[sample.sample_id],
                    num_words=control.num_words,
                    full_stops_count=full_stops_count,
                )
                for sample, control in drawn
            ]
        ).corpus
        corpus = {"D-1": best.corpus["Div-1"], "D-2": best.corpus["Div-2"]}
        corpus |= {name: lengths[name] for name in ("L", "LP") if name in lengths}
        return {
            "corpus": corpus,
            "settings": best.settings | {name: getattr(self, name) for name in self.known()},
            "captions": [
                {
                    "image_id": sample.image_id,
                    "regions": control.regions,
                    "num_words": control.num_words,
                    "caption": captions[sample.sample_id],
                }
                for sample, control in drawn
            ],
        }
