"""Rewards of single captions, which a captioner is trained to maximise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor

from captioning.config.ranges import PositiveInt
from captioning.interfaces import JointEmbedder
from captioning.metrics.bleu import BleuReferences, prepare_bleu, score_bleu
from captioning.metrics.cider import CiderReferences, CiderStatistics
from captioning.metrics.tokenizer import tokenize_python
from captioning.types import Sample
from captioning.vision.pair_scores import PairScores
from captioning.vision.photo_keys import loading_for, read_ahead
from captioning.vision.photos import load_rgb, refusals_named

END = "END"
"""Word that stands for a caption's end in rewards; it differs from lower-case tokens."""


NUM_TRIED = 8
"""Number of photos whose captions a reward is tried on before training."""


class AbstractReward(ABC):
    """Reward that scores captions one by one."""

    @property
    def name(self) -> str:
        """Name of the reward, for messages."""
        return type(self).__name__

    def parts(self) -> Sequence[AbstractReward]:
        """Rewards that this reward combines; the reward itself if it combines none."""
        return (self,)

    def start(self, samples: Sequence[Sample]) -> None:  # noqa: B027  # most need nothing
        """Read the training captions before curation; called once, before `open`.

        Values that depend on them stay the same in a resumed run.
        """

    @abstractmethod
    def open(self, samples: Sequence[Sample]) -> None:
        """Use the current training captions as references.

        This is called before the first reward, and again after curation has changed the samples.

        Args:
            samples: samples with a weight above 0.
        """

    @abstractmethod
    def rewards(
        self, captions: Sequence[str], samples: Sequence[Sample], ended: Sequence[bool]
    ) -> Tensor:
        """Rewards ``(N,) float32`` on the CPU, higher for better captions.

        Args:
            captions: N, as the model wrote them; an empty one is allowed.
            samples: N, a training sample of the picture that each caption describes.
            ended: N, False for captions that were cut off at the length limit.
        """


class AbstractReferenceReward(AbstractReward):
    """Reward by comparison with the references of the photo; 0 for a photo without references.

    Args:
        end_token: count the end as a word of captions and references. Otherwise n-gram rewards
            teach captions that break off ("a man with a"), at no loss of reward (Luo, 2020).
    """

    def __init__(self, *, end_token: bool = True) -> None:
        self.end_token = end_token
        self._numbers: dict[Path, int] = {}
        self._tokens: dict[str, str] = {}  # of the references, which are opened again and again

    def open(self, samples: Sequence[Sample]) -> None:
        """See `AbstractReward.open`. Photos are identified by their files."""
        references = self._references_of(samples)
        self._numbers = {path: number for number, path in enumerate(references)}
        self._prepare(list(references.values()))

    def rewards(
        self, captions: Sequence[str], samples: Sequence[Sample], ended: Sequence[bool]
    ) -> Tensor:
        """See `AbstractReward.rewards`."""
        known = [n for n, sample in enumerate(samples) if sample.image_path in self._numbers]
        tokens = self._tokenized([captions[n] for n in known], [ended[n] for n in known])
        values = torch.zeros(len(captions))
        if known:
            images = [self._numbers[samples[n].image_path] for n in known]
            values[known] = torch.from_numpy(self._scores(tokens, images)).float()
        return values

    def _references_of(self, samples: Sequence[Sample]) -> dict[Path, list[str]]:
        """Tokenized references of each photo."""
        captions = dict.fromkeys(sample.caption for sample in samples)
        new = [caption for caption in captions if caption not in self._tokens]
        self._tokens |= dict(zip(new, self._tokenized(new, [True] * len(new)), strict=True))
        references: dict[Path, list[str]] = {}
        for sample in samples:
            references.setdefault(sample.image_path, []).append(self._tokens[sample.caption])
        if not references:
            raise ValueError("rewards need references: there are no training captions")
        return references

    def _tokenized(self, captions: Sequence[str], ended: Sequence[bool]) -> list[str]:
        """Caption's words joined by spaces, followed by the end token if the caption has ended."""
        tokens = tokenize_python(captions)
        if not self.end_token:
            return tokens
        ends = [f" {END}" if has_end else "" for has_end in ended]
        return [(words + end).strip() for words, end in zip(tokens, ends, strict=True)]

    @abstractmethod
    def _prepare(self, references: list[list[str]]) -> None:
        """Prepare the tokenized references of every photo."""

    @abstractmethod
    def _scores(self, tokens: list[str], images: list[int]) -> np.ndarray:
        """Scores ``(N,)`` of tokenized captions, given the index of each caption's photo."""


@final
class CiderReward(AbstractReferenceReward):
    """Reward CIDEr-D in [0, 10], with the document frequencies of the training captions.

    The frequencies count all training captions before curation.
    """

    def __init__(self, *, end_token: bool = True) -> None:
        super().__init__(end_token=end_token)
        self._statistics: CiderStatistics | None = None
        self._references: CiderReferences | None = None

    def start(self, samples: Sequence[Sample]) -> None:
        """Count the document frequencies of the training captions."""
        references = list(self._references_of(samples).values())
        self._statistics = CiderStatistics.count(references, source="the training captions")

    def _prepare(self, references: list[list[str]]) -> None:
        self._references = CiderReferences.prepare(references, self._statistics)

    def _scores(self, tokens: list[str], images: list[int]) -> np.ndarray:
        if self._references is None:
            raise ValueError("a reward was computed before its references were opened")
        return self._references.score(tokens, images)


@final
class BleuReward(AbstractReferenceReward):
    """Reward BLEU of single captions, in [0, 1].

    Args:
        order: longest n-grams, 1 to 4.
        end_token: see `AbstractReferenceReward`.
    """

    def __init__(self, *, order: PositiveInt = 4, end_token: bool = True) -> None:
        super().__init__(end_token=end_token)
        if not 1 <= order <= 4:
            raise ValueError(f"objective.reward.order must be 1 to 4: got {order}")
        self.order = order
        self._references: list[BleuReferences] = []

    def _prepare(self, references: list[list[str]]) -> None:
        self._references = prepare_bleu(references)

    def _scores(self, tokens: list[str], images: list[int]) -> np.ndarray:
        _, per_caption = score_bleu(tokens, [self._references[image] for image in images])
        return np.array(per_caption[self.order - 1])


@final
class SimilarityReward(AbstractReward):
    """Reward cosine of photo and caption in a joint space such as CLIP; needs no references.

    Args:
        encoder: the space's encoder.
        weight: factor of the cosine; CLIPScore's is 2.5.
    """

    def __init__(self, *, encoder: JointEmbedder, weight: float = 2.5) -> None:
        self.encoder, self.weight = encoder, weight
        self._photos: dict[Path, Tensor] = {}

    def open(self, samples: Sequence[Sample]) -> None:
        """Do nothing, as photos are embedded when first needed and cached (2 KB each)."""

    def rewards(
        self, captions: Sequence[str], samples: Sequence[Sample], ended: Sequence[bool]
    ) -> Tensor:
        """Return ``weight * max(cosine, 0)`` of each caption and its photo."""
        paths = [sample.image_path for sample in samples]
        new = [path for path in dict.fromkeys(paths) if path not in self._photos]
        for _, photos in read_ahead(new, len(new) or 1, loading_for(self.encoder, load_rgb)):
            self._photos |= dict(zip(new, self.encoder.embed_photos(photos), strict=True))
        embedded = torch.stack([self._photos[path] for path in paths])
        texts = self.encoder.embed_texts([caption or "." for caption in captions])
        return self.weight * (embedded * texts).sum(1).clamp(min=0).float()


@final
class PairReward(AbstractReward):
    """Reward by a scorer that reads photo and caption together; needs no references.

    Args:
        pairs: pairs of a scorer such as BLIP's matching head, SigLIP, or a question to an
            image-text model. Its cache is not used, as sampled captions rarely repeat.
    """

    def __init__(self, *, pairs: PairScores) -> None:
        self._scorer = pairs.scorer

    @property
    def name(self) -> str:
        """Name of the scorer."""
        return self._scorer.name

    def open(self, samples: Sequence[Sample]) -> None:
        """Do nothing, as this reward needs no references."""

    def rewards(
        self, captions: Sequence[str], samples: Sequence[Sample], ended: Sequence[bool]
    ) -> Tensor:
        """Scores in the scorer's unit; an empty caption is scored as a full stop."""
        paths = [sample.image_path for sample in samples]
        places = {path: place for place, path in enumerate(dict.fromkeys(paths))}
        load = loading_for(self._scorer, load_rgb)
        ((unique, photos),) = read_ahead(list(places), len(places), load)
        texts = [caption if caption.strip() else "." for caption in captions]
        with refusals_named(unique, photos):
            return self._scorer.score_pairs(photos, texts, [places[path] for path in paths])


@final
class FunctionReward(AbstractReward):
    """Reward by a user's Python function.

    Args:
        function: takes N captions and N samples (`captioning.types.Sample`), one of the photo that
            each describes, and gives N numbers, higher for better captions: a list, an array or a
            tensor.
    """

    def __init__(
        self, *, function: Callable[[Sequence[str], Sequence[Sample]], Sequence[float] | Tensor]
    ) -> None:
        self._function = function

    @property
    def name(self) -> str:
        """Name of the function, with its module."""
        own = getattr(self._function, "func", self._function)  # of a partial
        return f"{own.__module__}.{getattr(own, '__qualname__', type(own).__qualname__)}"

    def open(self, samples: Sequence[Sample]) -> None:
        """Do nothing, as this reward needs no references."""

    def rewards(
        self, captions: Sequence[str], samples: Sequence[Sample], ended: Sequence[bool]
    ) -> Tensor:
        """Return the numbers that the function gives.

        Raises:
            ValueError: the function does not return one number per caption.
        """
        given = self._function(captions, samples)
        try:
            return torch.as_tensor(given, dtype=torch.float32, device="cpu")
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"objective.reward: {self.name} must return a number for each caption: got "
                f"{type(given).__name__} ({error})"
            ) from error


@final
class WeightedReward(AbstractReward):
    """Weighted sum of several rewards.

    Args:
        rewards: parts, by name.
        weights: weights of each, by the same names.

    Raises:
        ValueError: the names differ, or there are none.
    """

    def __init__(
        self, *, rewards: Mapping[str, AbstractReward], weights: Mapping[str, float]
    ) -> None:
        if not rewards or rewards.keys() != weights.keys():
            raise ValueError(
                f"objective.reward.weights must name the rewards {sorted(rewards)}: "
                f"got {sorted(weights)}"
            )
        self._rewards, self._weights = dict(rewards), dict(weights)

    def parts(self) -> Sequence[AbstractReward]:
        """Rewards of the sum."""
        return [part for reward in self._rewards.values() for part in reward.parts()]

    def start(self, samples: Sequence[Sample]) -> None:
        """Start every reward of the sum."""
        for reward in self._rewards.values():
            reward.start(samples)

    def open(self, samples: Sequence[Sample]) -> None:
        """Open every reward of the sum."""
        for reward in self._rewards.values():
            reward.open(samples)

    def rewards(
        self, captions: Sequence[str], samples: Sequence[Sample], ended: Sequence[bool]
    ) -> Tensor:
        """Return the weighted sum of the rewards."""
        total = torch.zeros(len(captions))
        for name, reward in self._rewards.items():
            total += self._weights[name] * judged(reward, captions, samples, ended)
        return total


def judged(
    reward: AbstractReward,
    captions: Sequence[str],
    samples: Sequence[Sample],
    ended: Sequence[bool],
) -> Tensor:
    """Call a reward and check its values ``(N,) float32``; see `AbstractReward.rewards`.

    Raises:
        ValueError: the number of values is wrong or a value is not finite.
    """
    values = reward.rewards(captions, samples, ended).detach().to("cpu", torch.float32)
    if values.shape != (len(captions),):
        raise ValueError(
            f"objective.reward: {reward.name} must return a number for each caption: got "
            f"{tuple(values.shape)} for {len(captions)} captions"
        )
    broken = (~values.isfinite()).nonzero().flatten().tolist()
    if broken:
        first = broken[0]
        raise ValueError(
            f"objective.reward: {reward.name} is {float(values[first])} for the caption "
            f"{captions[first]!r} of {samples[first].image_path}: it must be a finite number for "
            "any caption, even an empty one; correct it or choose another objective/reward"
        )
    return values


def try_reward(reward: AbstractReward, samples: Sequence[Sample]) -> None:
    """Raise an error for a reward from which training cannot learn.

    Each part of the reward scores the captions of a few photos, the same captions with other
    photos, the captions' first halves and an empty caption.

    Args:
        reward: opened.
        samples: training samples.

    Raises:
        ValueError: a value is missing or not finite, or all values are equal.
    """
    of_photos = list({sample.image_id: sample for sample in reversed(samples)}.values())
    tried = of_photos[:: max(1, len(of_photos) // NUM_TRIED)][:NUM_TRIED]
    whole = [sample.caption for sample in tried]
    halves = [" ".join(text.split()[: len(text.split()) // 2]) for text in whole]
    captions = [*whole, *whole[1:], whole[0], *halves, ""]
    photos = [*tried * 3, tried[0]]
    ended = [True] * 2 * len(whole) + [False] * len(halves) + [True]
    for part in reward.parts():
        values = judged(part, captions, photos, ended)
        if float(values.min()) == float(values.max()):
            raise ValueError(
                f"objective.reward: {part.name} is {float(values[0]):g} for each of "
                f"{len(captions)} different captions and photos, so training cannot learn from it: "
                "correct it or choose another objective/reward"
            )
