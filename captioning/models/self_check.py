"""Whether an image-to-text model is trained and searched here as its own library does.

Two captions of two photos of the data are read by themselves, padded together and with a shared
prompt, and held against the network's own forward pass on what its processor makes of the whole
text. A greedy search is held against the network's own ``generate``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from captioning.models.base import AbstractCaptioner
from captioning.models.layers.image_text_parts import ImageTextParts
from captioning.models.layers.speaker import SpeakerState
from captioning.types import Batch, Sample
from captioning.vision.photos import load_rgb
from captioning.vision.prompt_tensors import PREFIX, PromptedProcessor

# Largest differences in nats a token that rounding explains, by the type of the weights.
TOLERANCES = {torch.float64: 1e-6, torch.float32: 2e-4, torch.bfloat16: 0.1, torch.float16: 0.02}
TENSOR_FLOAT = 0.01  # of float32 whose products a GPU rounds to 10 bits
ALONE = "set loader.batch_size=1 and loader.eval_batch_size=1, or take another model"
NUM_GREEDY = 4  # tokens that are searched


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheck:
    """What was compared, in nats a token.

    Attributes:
        family: of the model, as its config names it.
        alone: largest difference of a caption read by itself from the network's own loss.
        padded: the same of captions of two photos padded together.
        shared: the same of captions that share the prompt of a photo; None: they never do.
        greedy: largest amount by which a token of ``generate`` is less likely here than the
            likeliest one.
        photo: smallest change of a caption's loss when its photo is replaced by its negative.
        shared_differs: whether rounding does not explain ``shared``, so that each caption must
            read photo and prompt by itself in training.
    """

    family: str
    alone: float
    padded: float
    shared: float | None
    greedy: float
    photo: float
    shared_differs: bool

    def as_plain(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return asdict(self)


@torch.no_grad()
def self_check(
    model: AbstractCaptioner[SpeakerState],
    parts: ImageTextParts,
    processor: PromptedProcessor,
    samples: Sequence[Sample],
    *,
    shares_prompts: bool = True,
    one_by_one: bool = False,
) -> SelfCheck:
    """Compare two captions' losses and the first greedy tokens with the network's own.

    Args:
        model: in evaluation mode, on its device.
        parts: the model's network.
        processor: of its photos.
        samples: of the training split; two of different photos are read.
        shares_prompts: whether captions of a photo share its prompt in training.
        one_by_one: whether every batch has one caption and one photo, so that none is padded.

    Raises:
        ValueError: a difference that rounding does not explain; names family, what differs and
            by how much. Where only captions that share a prompt differ, the result says so.
    """
    batches = _Batches(model, parts, processor, _chosen(samples, model))
    family, most = parts.kind, tolerance(parts.network)
    numbers = range(len(batches.photos))
    own = torch.stack([batches.own_loss(number) for number in numbers])
    alone = _most(torch.cat([batches.losses([number]) for number in numbers]), own)
    _refuse(family, "the loss of a caption", alone, most)
    if one_by_one:
        numbers, own = range(1), own[:1]
    losses = batches.losses(numbers)
    padded = _most(losses, own)
    _refuse(family, "the loss of a caption in a batch with another", padded, most, ALONE)
    shared = None
    if shares_prompts:
        of_first = torch.stack([batches.own_loss(number, photo=0) for number in numbers])
        shared = _most(batches.shared_losses(numbers), of_first)
    greedy = batches.greedy_gap(numbers)
    _refuse(family, "the likeliest token of its own generate", greedy, most, ALONE)
    changed = (batches.losses(numbers, negative=0) - losses).abs()
    _refuse_photos(family, changed, most)
    return SelfCheck(
        family=family,
        alone=alone,
        padded=padded,
        shared=shared,
        greedy=greedy,
        photo=float(changed[0]),
        shared_differs=shared is not None and not shared <= most,
    )


def tolerance(network: Any) -> float:
    """Largest difference in nats a token that rounding explains."""
    if network.dtype != torch.float32:
        return TOLERANCES[network.dtype]
    rounds_products = torch.get_float32_matmul_precision() != "highest"
    if network.device.type == "cuda" and (rounds_products or torch.backends.cudnn.allow_tf32):
        return TENSOR_FLOAT
    return TOLERANCES[torch.float32]


def _most(losses: Tensor, own: Tensor) -> float:
    return float((losses.double() - own.double()).abs().max())


def _refuse(
    family: str, what: str, difference: float, most: float, remedy: str = "take another model"
) -> None:
    """Raise where a difference is more than rounding."""
    if not difference <= most:
        raise ValueError(
            f"model.pretrained: {family}: {what} differs by {difference:.2g} nats a token from the "
            f"network's own forward pass (at most {most:.2g}), so training would be wrong; "
            f"{remedy}, or set model.check=false to train all the same"
        )


def _refuse_photos(family: str, changed: Tensor, most: float) -> None:
    """Raise where a photo does not change its caption's loss, or changes another caption's.

    Args:
        family: of the model.
        changed: ``(1 or 2,)`` by how much losses change when the first one's photo is replaced.
        most: what rounding explains.
    """
    if not changed[0] > 0:
        raise ValueError(
            f"model.pretrained: {family}: the loss of a caption stays the same when its photo is "
            "replaced by its negative, so the photo is not read; check the model's processor and "
            "model.prompt, or set model.check=false to train all the same"
        )
    if len(changed) > 1 and float(changed[1]) > most:
        raise ValueError(
            f"model.pretrained: {family}: the loss of a caption changes by {float(changed[1]):.2g} "
            "nats a token when the photo of another one is replaced; this family is not read right "
            f"in batches: {ALONE}, or set model.check=false to train all the same"
        )


def _chosen(samples: Sequence[Sample], model: AbstractCaptioner[SpeakerState]) -> list[Sample]:
    """Two samples of different photos, whose captions have different lengths if any do."""
    first = samples[0]
    others = [sample for sample in samples[:200] if sample.image_id != first.image_id]
    length = len(model.tokenizer.encode(first.caption))
    unlike = [s for s in others if len(model.tokenizer.encode(s.caption)) != length]
    return [first, *(unlike or others)[:1]]


class _Batches:
    """The same photos and captions in different company.

    Args:
        model: the captioner.
        parts: its network.
        processor: of its photos.
        samples: of different photos.
    """

    def __init__(
        self,
        model: AbstractCaptioner[SpeakerState],
        parts: ImageTextParts,
        processor: PromptedProcessor,
        samples: Sequence[Sample],
    ) -> None:
        self.model, self.parts, self.processor = model, parts, processor
        self.photos = [load_rgb(sample.image_path) for sample in samples]
        self.texts = [" ".join(sample.caption.split()) for sample in samples]
        self.captions = [torch.tensor(model.tokenizer.encode(text)) for text in self.texts]
        self.device, self.dtype = parts.network.device, parts.network.dtype

    def losses(self, numbers: Sequence[int], *, negative: int | None = None) -> Tensor:
        """Of captions of different photos in one batch, one photo replaced by its negative."""
        photos = [self.photos[number] for number in numbers]
        if negative is not None:
            photos[negative] = ImageOps.invert(photos[negative])
        captions = [self.captions[number] for number in numbers]
        return self.model.losses(self._batch(photos, captions, range(len(numbers)))).per_sample

    def shared_losses(self, numbers: Sequence[int]) -> Tensor:
        """Of captions as those of the first photo, which has one more."""
        captions = [*(self.captions[number] for number in numbers), self.captions[0]]
        batch = self._batch(self.photos[:1], captions, [0] * len(captions))
        return self.model.losses(batch).per_sample[:-1]

    def own_loss(self, number: int, *, photo: int | None = None) -> Tensor:
        """The mean loss of a caption's tokens and end by the network's own forward pass.

        Args:
            number: of the caption.
            photo: number of the photo; None: the caption's own.
        """
        picture = self.photos[number if photo is None else photo]
        caption = self.captions[number][1:].to(self.device)
        logits = self._own_logits(picture, self.texts[number], caption)
        return functional.cross_entropy(logits.float(), caption)

    def _own_logits(self, photo: Image.Image, text: str, caption: Tensor) -> Tensor:
        """``(T, V)`` of one call of the network, on what its processor makes of the whole text."""
        parts, form = self.parts, self.processor.format
        prompt = self._read(photo)
        if not (parts.reads_photos or parts.speaker.start_ids):
            whole = self._read(photo, f"{form.text}{form.before}{text}")
            ids = torch.cat([prompt[f"{PREFIX}input_ids"], caption[None, :-1]], dim=1)
            if torch.equal(whole[f"{PREFIX}input_ids"], ids):
                inputs = {name.removeprefix(PREFIX): value for name, value in whole.items()}
                return parts.network(**inputs, use_cache=False).logits[0, -len(caption) :]
        # A text of its own, or one whose tokens depend on what stands around it.
        inputs = parts.prompts(self._on_device(self.processor.joined([self._read(photo)])))
        exist = torch.ones_like(caption[None, :-1], dtype=torch.bool)
        return parts.speaker.read(inputs, caption[None, :-1], exist)[0]

    def greedy_gap(self, numbers: Sequence[int]) -> float:
        """How much less likely the tokens of ``generate`` are than the likeliest ones here."""
        photos = [self.photos[number] for number in numbers]
        batch = self._batch(photos, [self.captions[number] for number in numbers], numbers)
        gap = 0.0
        for number, photo in enumerate(photos):
            state = self.model.start(batch)
            last = batch.rows.new_full((len(photos),), self.model.tokenizer.bos_id)
            for token in self._generated(photo):
                log_probs, state = self.model.step(last, state)
                gap = max(gap, float(log_probs[number].max() - log_probs[number, token]))
                last = torch.full_like(last, token)
        return gap

    def _generated(self, photo: Image.Image) -> list[int]:
        """The first tokens of the network's own greedy search for one photo, up to an end."""
        words = self.model.tokenizer
        ends = (words.eos_id, *words.further_ends)
        tokens, _ = self.parts.speaker.generate_tokens(
            self.parts.start(self.processor.joined([self.processor.read_photo(photo)])),
            end_ids=ends,
            max_new_tokens=NUM_GREEDY,
            num_beams=1,
            do_sample=False,
            repetition_penalty=1.0,
            no_repeat_ngram_size=0,
            pad_token_id=words.pad_id,
        )
        ids = tokens[0].tolist()
        return ids[: next((n + 1 for n, token in enumerate(ids) if token in ends), len(ids))]

    def _read(self, photo: Image.Image, text: str | None = None) -> dict[str, Tensor]:
        return self._on_device(self.processor.read_photo(photo, text))

    def _on_device(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Pixels in the type of the weights."""
        return {
            name: value.to(self.device, self.dtype if value.is_floating_point() else value.dtype)
            for name, value in tensors.items()
        }

    def _batch(
        self, photos: Sequence[Image.Image], captions: Sequence[Tensor], index: Sequence[int]
    ) -> Batch:
        padded = pad_sequence(list(captions), batch_first=True, padding_value=-1)
        extras = self.processor.joined([self.processor.read_photo(photo) for photo in photos])
        batch = Batch(
            rows=torch.arange(len(captions)),
            sample_ids=tuple(str(number) for number in range(len(captions))),
            image_ids=tuple(str(number) for number in range(len(photos))),
            image_index=torch.tensor(list(index)),
            tokens=padded.clamp(min=0).masked_fill(padded < 0, self.model.tokenizer.pad_id),
            token_mask=padded >= 0,
            extras=extras,
        ).to(self.device)
        return replace(batch, extras=self._on_device(batch.extras)).with_host(batch.host)
