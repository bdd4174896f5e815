"""Scorer that asks an image-to-text model whether a caption describes the photo."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from captioning.config.ranges import Device, PositiveInt
from captioning.config.setting_error import Setting, SettingError
from captioning.models.layers.image_text_parts import ImageTextParts
from captioning.runtime.devices import Precision, Resident
from captioning.runtime.model_folder import weights_identity
from captioning.runtime.processors import (
    PHOTOS_ALONE,
    image_text_folder,
    load_image_text,
    model_kind,
    refuse_misfit,
)
from captioning.runtime.work_ahead import done_ahead
from captioning.vision.prompt_tensors import PREFIX, PromptedProcessor

QUESTION = 'Does the caption "{caption}" describe the image? Answer yes or no.'
MARK = "{caption}"
TOKENS = f"{PREFIX}input_ids"
ANSWERS = ("yes", "no")


class YesNoScorer:
    """Probability of "yes" against "no" as the answer's first token; a `PairScorer`.

    The probability of all spellings of "yes" (lower and upper case, with and without a leading
    space) is divided by the probability of both answers.

    Args:
        network: an image-to-text model.
        processor: processor of the photos, with the question as prompt.
        identity: hash of the weights.
        space: name of the weights, used in score names.
        precision: the network's precision.
        batch_size: number of pairs per batch.
        device: device of the network.

    Raises:
        ValueError: the tokenizer's first tokens do not distinguish "yes" from "no".
    """

    is_probability = True

    def __init__(
        self,
        *,
        network: Any,
        processor: PromptedProcessor,
        identity: str,
        space: str,
        precision: Precision = "auto",
        batch_size: int = 8,
        device: str = "auto",
    ) -> None:
        yes, no = (_first_tokens(processor.processor.tokenizer, answer) for answer in ANSWERS)
        # A token that begins both answers, such as a space, is useless.
        self._answers = sorted(yes - no), sorted(no - yes)
        if not all(self._answers):
            raise ValueError(
                f"{space}: the tokenizer's first tokens do not separate yes from no; use a model "
                "of English text, or matching=blip_itm"
            )
        self._place = Resident(network, device=device, precision=precision)
        self._parts = ImageTextParts(network)
        self._processor, self._weights, self._space = processor, identity, space
        self._batch_size = batch_size

    @property
    def name(self) -> str:
        """Name of the score with the weights' name; see `PairScorer`."""
        return f"probability of yes ({self._space})"

    @property
    def identity(self) -> str:
        """Cache key of question, weights and precision; see `PairScorer`."""
        question = self._processor.format.text
        return f"yes-no {self._weights} {str(self._place.dtype)[6:]} {question!r}"

    def score_pairs(
        self, photos: Sequence[Image.Image], captions: Sequence[str], photo_of: Sequence[int]
    ) -> Tensor:
        """Return probabilities in [0, 1]; see `PairScorer`."""
        pairs = zip((photos[number] for number in photo_of), captions, strict=True)
        # Read by one thread while the network works: a processor is not thread-safe.
        inputs = done_ahead(self._read, pairs, threads=1, most_ahead=2 * self._batch_size)
        scores = torch.empty(len(captions))
        with closing(inputs), self._place.used():
            for places, part in _of_one_length(inputs, self._batch_size):
                scores[places] = self._judged(self._processor.joined(part))
        return scores

    def _read(self, pair: tuple[Image.Image, str]) -> dict[str, Tensor]:
        photo, caption = pair
        return self._processor.read_photo(photo, self._question(caption))

    def _question(self, caption: str) -> str:
        """Return the prompt of a pair, without special markers inside the caption."""
        for mark in self._processor.processor.tokenizer.all_special_tokens:
            caption = caption.replace(mark, " ")
        return self._processor.format.text.replace(MARK, " ".join(caption.split()))

    def _judged(self, tensors: Mapping[str, Tensor]) -> Tensor:
        state = self._parts.start(tensors)
        first = torch.zeros(len(tensors[TOKENS]), dtype=torch.long, device=self._place.device)
        logits = self._parts.speaker.next_logits(first, state)[0].float()
        yes, no = (logits[:, ids].logsumexp(1) for ids in self._answers)
        return torch.sigmoid(yes - no).cpu()

    def release(self) -> None:
        """Move the network to the CPU; the next call moves it back."""
        self._place.release()


def _of_one_length(
    inputs: Iterable[dict[str, Tensor]], size: int
) -> Iterator[tuple[list[int], list[dict[str, Tensor]]]]:
    """Yield batches of prompts of equal length, because padding changes some networks."""
    waiting: dict[int, list[tuple[int, dict[str, Tensor]]]] = defaultdict(list)
    for place, tensors in enumerate(inputs):
        length = tensors[TOKENS].shape[1]
        waiting[length].append((place, tensors))
        if len(waiting[length]) == size:
            places, part = zip(*waiting.pop(length), strict=True)
            yield list(places), list(part)
    for group in waiting.values():
        places, part = zip(*group, strict=True)
        yield list(places), list(part)


def _first_tokens(tokenizer: Any, answer: str) -> set[int]:
    """Return the first tokens of all spellings of an answer."""
    words = (answer, answer.capitalize(), answer.upper())
    texts = [space + word for word in words for space in ("", " ")]
    all_ids = [tokenizer(text, add_special_tokens=False).input_ids for text in texts]
    return {ids[0] for ids in all_ids if ids and ids[0] != tokenizer.unk_token_id}


@lru_cache(maxsize=1)  # what selects and what amends may share it
def build_yes_no(
    *,
    name: str,
    question: str = QUESTION,
    template: Mapping[str, Any] | None = None,
    precision: Precision = "auto",
    batch_size: PositiveInt = 8,
    device: Device = "auto",
) -> YesNoScorer:
    """Build the scorer from an image-to-text model of transformers, with safetensors only.

    Args:
        name: hub name or folder.
        question: question with the placeholder ``{caption}``.
        template: options of the model's chat template.
        precision: ``"auto"``: half precision on a GPU.
        batch_size: number of pairs per batch.
        device: ``"auto"`` takes a GPU if there is one.

    Raises:
        FileNotFoundError, ConnectionError: the model does not exist.
        ValueError: a question without ``{caption}``, missing weights, a wrong
            processor, or a tokenizer that does not distinguish the answers.
    """
    if MARK not in question:
        raise ValueError(f"question must hold the placeholder {MARK}: got {question!r}")
    kind = model_kind(image_text_folder(name))
    if kind in PHOTOS_ALONE:
        raise SettingError(
            Setting("name", name),
            f"{kind} models accept no text, so they cannot be asked about a caption",
            "choose a model that reads a question, such as LLaVA, Qwen-VL or PaliGemma",
        )
    processor = PromptedProcessor(pretrained=name, prompt=question, template=template)
    network = load_image_text(name)
    scorer = YesNoScorer(
        network=network,
        processor=processor,
        identity=weights_identity(image_text_folder(name, weights=True)),
        space=Path(name).name,
        precision=precision,
        batch_size=batch_size,
        device=device,
    )
    with refuse_misfit(name, processor.processor, network):
        scorer.score_pairs([Image.new("RGB", (64, 48), "grey")], ["a photo"], [0])
    scorer.release()
    return scorer
