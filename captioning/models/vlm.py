"""Vision-language models of transformers as captioners: GIT, BLIP-2, LLaVA, Qwen-VL and others.

`self_check` compares training and search with transformers' own code. Captions of two photos are
read alone, padded together and with a shared prompt. Their losses are
compared with the network's own forward pass on its processor's output for the whole text.
A greedy search is compared with the network's own ``generate``.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from captioning.config.ranges import DropRate, PositiveInt
from captioning.config.setting_error import SettingError
from captioning.models.adapt import merged_low_rank
from captioning.models.base import AbstractCaptioner
from captioning.models.layers import quantized
from captioning.models.layers.cross_entropy import head_caption_losses, padded_caption_losses
from captioning.models.layers.image_states import ImageStates, State, drops, unfit
from captioning.models.layers.image_text_parts import ImageTextParts
from captioning.models.layers.part_losses import part_losses, photo_parts
from captioning.models.layers.speaker import (
    Generated,
    HeadNotLast,
    SpeakerState,
    changes_in_place,
)
from captioning.runtime.cores import free_memory
from captioning.runtime.files import read_json, write_json
from captioning.runtime.model_folder import checkpoint_layers
from captioning.runtime.processors import (
    WeightType,
    image_text_folder,
    load_image_text,
    load_processor,
)
from captioning.runtime.sample_dropout import by_caption, by_image
from captioning.types import Batch, CaptionLosses, Sample
from captioning.vision.photos import load_rgb
from captioning.vision.prompt_tensors import PHOTO_KEYS, PREFIX, PromptedProcessor, rows_of

CHECK_FILE = "model_check.json"  # in the run folder
ROOM = 0.25  # share of the host's free memory that states of photos may take
# Positions per pass that keep a device busy, by device type.
POSITIONS = {"cpu": 1024}
POSITIONS_ELSEWHERE = 16384
log = logging.getLogger(__name__)
# Maximum differences in nats per token that rounding explains, by type of the weights.
TOLERANCES = {torch.float64: 1e-6, torch.float32: 2e-4, torch.bfloat16: 0.1, torch.float16: 0.02}
TENSOR_FLOAT = 0.01  # of float32 whose products a GPU rounds to 10 bits
ALONE = "set loader.batch_size=1 and loader.eval_batch_size=1, or use another model"
NUM_GREEDY = 4  # tokens that are searched


class Vlm(AbstractCaptioner[SpeakerState]):
    """Vision-language model of transformers with its own processor.

    Batches come from `captioning.data.batches.image_text.ImageTextReader`.

    Args:
        pretrained: hub name or folder of the model.
        label_smoothing: label smoothing of the training loss.
        checkpointing: recompute layers in the backward pass instead of storing their outputs.
        check: compare losses and tokens with the network's own code before training, see
            `captioning.models.vlm`.
        weights: data type of the network's weights. Half precision halves their memory; then
            fine-tune only LoRA weights (``model.lora``), which stay in single precision.
        quantize: store the weights of linear layers in 4 or 8 bits, see
            `captioning.models.layers.quantized`; then train LoRA weights.
        keep_image_states: cache a frozen image encoder's states of the training photos across
            epochs in CPU memory. ``"auto"``: if the model supports it, in a quarter of the
            free memory; True: for all photos.
        positions_at_once: maximum positions of prompts and captions per pass in
            training; larger batches are split, with the same gradient. ``"auto"``: 1,024 on a
            CPU, 16,384 elsewhere; None: no split.
        feature_size: unused.
        **captioner: see `AbstractCaptioner`.

    Raises:
        FileNotFoundError, ConnectionError: the model does not exist.
        ValueError: missing weights, a vocabulary of another size, or layers that cannot be
            quantized.
        ModuleNotFoundError: a package of ``quantize`` is not installed.
    """

    def __init__(
        self,
        *,
        pretrained: str,
        label_smoothing: DropRate = 0.0,
        checkpointing: bool = False,
        check: bool = True,
        weights: WeightType = "float32",
        quantize: quantized.Kind | None = None,
        keep_image_states: Literal["auto"] | bool = "auto",
        positions_at_once: PositiveInt | Literal["auto"] | None = "auto",
        feature_size: int = 0,
        **captioner: Any,
    ) -> None:
        del feature_size
        super().__init__(**captioner)
        self.network = _network(pretrained, getattr(torch, weights), quantize).train()
        self.quantize: quantized.Kind | None = quantize
        self.pretrained, self.label_smoothing = pretrained, label_smoothing
        self.begins_with = pretrained
        self.checkpointing, self.check = checkpointing, check
        self.keep_image_states, self.positions_at_once = keep_image_states, positions_at_once
        if checkpointing:
            checkpoint_layers(self.network)
        self.parts = ImageTextParts(self.network)
        self.attends = self.parts.attends
        self.shares_prompts = self.parts.shares_prompts
        self._leaves_head_out = True  # until the network turns out to do more after it
        self._states: ImageStates | None = None
        self._frozen_sums: dict[str, int] | None = None
        self._changed: set[str] = set()  # frozen ones that are not as in pretrained
        self._left_out: set[str] = set()  # by the checkpoint that is being loaded

    def _prompts(self, batch: Batch) -> dict[str, Tensor]:
        """Return the processor's output for the batch's photos.

        Raises:
            ValueError: the batch comes from another reader.
        """
        tensors = {n: value for n, value in batch.extras.items() if n.startswith(PREFIX)}
        if not tensors:
            raise ValueError("model=vlm reads photos with its own processor: choose features=vlm")
        return tensors

    @functools.cached_property
    def _drops(self) -> bool:
        """Whether the network has dropout."""
        return any(map(drops, self.network.modules()))

    def _frozen(self) -> dict[str, Tensor]:
        """Frozen weights that are not quantized, with tied weights under all their names."""
        parameters = self.named_parameters(remove_duplicate=False)
        names = {name for name, value in parameters if not value.requires_grad}
        return {name: value for name, value in self.state_dict().items() if name in names}

    def _quantized(self) -> dict[str, Any]:
        """Layers with quantized weights, by name."""
        return quantized.quantized_layers(self) if self.quantize else {}

    def state_dict(self, *args: Any, **options: Any) -> Any:
        """Return the module's state without quantized weights, which come from ``pretrained``."""
        tensors = super().state_dict(*args, **options)
        layers = {f"{options.get('prefix', '')}{name}" for name in self._quantized()}
        for name in [n for n in tensors if quantized.is_of_quantized(n, layers)]:
            del tensors[name]
        return tensors

    def train(self, mode: bool = True) -> Vlm:
        """Set training mode, but keep the statistics of batch normalisation fixed.

        Otherwise a caption's loss would depend on the other photos of its batch.
        """
        super().train(mode)
        for module in self.network.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self

    def setup(self, stage: str) -> None:
        """Compute checksums of frozen weights before the trainer moves or converts them.

        Raises:
            ValueError: ``keep_image_states=true`` is impossible, or the device does not
                support quantized weights.
        """
        self._sums_of_frozen()
        if self.quantize:
            quantized.check_training(self.quantize, self._trainer)
        if stage == "fit" and (reader := self._reader()) is not None:
            self._begin_keeping(self._datamodule().train.samples)
            reader.known = None if self._states is None else self._states.prompts

    def _reader(self) -> Any:
        """Return the batch reader of the training; None for other data."""
        datamodule = self._datamodule()
        readers = [] if datamodule is None else datamodule.readers.values()
        return next((r for r in readers if hasattr(r, "processor")), None)

    def _datamodule(self) -> Any:
        """Return the datamodule of the training; None outside of training."""
        return getattr(self._trainer, "datamodule", None)

    @property
    def _is_sharded(self) -> bool:
        return any(hasattr(parameter, "full_tensor") for parameter in self.parameters())

    def _sums_of_frozen(self) -> dict[str, int]:
        if self._frozen_sums is None:
            self._frozen_sums = {name: _sum(value) for name, value in self._frozen().items()}
            for name, layer in self._quantized().items():
                parts = map(_sum, quantized.stored_tensors(layer))
                self._frozen_sums[f"{name}.quantized"] = sum(parts)
        return self._frozen_sums

    def on_train_start(self) -> None:
        """Check the model on two photos of the data, unless the run resumes.

        Raises:
            ValueError: see `captioning.models.vlm.self_check`.
        """
        super().on_train_start()
        path = Path(self.trainer.default_root_dir) / CHECK_FILE
        reader = self._reader()
        if self.trainer.global_step or self.trainer.current_epoch:
            checked = read_json(path) if path.is_file() else {}
            if checked.get("shared_differs"):
                self.shares_prompts = False
            if checked.get("states_differ"):
                self._keep_nothing()
        elif self.check and reader is not None and not self._is_sharded:
            self._check(self._datamodule(), reader.processor, path)

    @contextmanager
    def rehearsing(self) -> Iterator[Callable[[], int]]:
        """See `AbstractCaptioner.rehearsing`: cached photo states go to a temporary cache."""
        kept = self._states
        self._states = None if kept is None else kept.empty()
        try:
            yield lambda: 0 if self._states is None else self._states.expected_bytes()
        finally:
            self._states = kept

    def _keep_nothing(self) -> None:
        """Stop caching photo states: each batch computes its own."""
        self._states = None
        if (reader := self._reader()) is not None:
            reader.known = None

    def _begin_keeping(self, samples: Sequence[Sample]) -> None:
        """Cache photo states from now on, if requested and possible.

        Raises:
            ValueError: caching is required but impossible.
        """
        if self.keep_image_states is False:
            return
        reason = "weights are sharded" if self._is_sharded else unfit(self.parts)
        if not reason:
            room = ROOM * free_memory() if self.keep_image_states == "auto" else float("inf")
            number = len({sample.image_path for sample in samples})
            self._states = ImageStates(self.network, num_photos=number, room=room)
        elif self.keep_image_states is True:
            raise ValueError(
                f"model.keep_image_states=true: {reason}, so caching is impossible; set it to auto"
            )

    def _check(self, datamodule: Any, processor: Any, path: Path) -> None:
        began = time.perf_counter()
        self.eval()
        try:
            result, states_differ = self._checked(datamodule, processor)
        finally:
            self.train()
        if result.shared_differs:
            self.shares_prompts = False
            log.warning(
                f"{result.family}: photo and prompt are computed for each caption separately, as "
                f"losses with shared prompts differ by {result.shared:.2g} nats per token from the "
                "network's own forward pass"
            )
        if self.trainer.is_global_zero:
            write_json(path, {**result.as_plain(), "states_differ": states_differ})
            log.info(
                f"model.check: training and search of {result.family} agree with transformers "
                f"({time.perf_counter() - began:.0f} s; details in {path.name})"
            )

    def _checked(self, datamodule: Any, processor: Any) -> tuple[SelfCheck, bool]:
        """Return the check's result, and whether it ran without cached photo states."""
        loader = datamodule.loader
        options: dict[str, Any] = {
            "shares_prompts": self.shares_prompts and not self.checkpointing,
            "one_by_one": loader.batch_size == 1 and loader.eval_batch_size == 1,
        }
        given = (self, self.parts, processor, datamodule.train.samples)
        if self._states is None:
            return self_check(*given, **options), False
        try:
            return self_check(*given, **options), False
        except ValueError as error:
            self._keep_nothing()
            result = self_check(*given, **options)
            log.warning(f"model.keep_image_states: {error}; each batch computes them again")
            return result, True

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Write a checkpoint without frozen weights that equal those of ``pretrained``."""
        super().on_save_checkpoint(checkpoint)
        sums = self._sums_of_frozen()
        frozen = {name: value for name, value in sums.items() if name not in self._changed}
        checkpoint["captioner"] |= {"frozen": frozen, "quantize": self.quantize}
        weights = checkpoint.get("state_dict", {})
        checkpoint["state_dict"] = {n: v for n, v in weights.items() if n not in frozen}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Raise an error for weights of another model, vocabulary, ``pretrained`` or ``quantize``.

        Raises:
            ValueError: the checkpoint does not belong to this model.
        """
        super().on_load_checkpoint(checkpoint)
        saved, here = checkpoint["captioner"].get("frozen", {}), self._sums_of_frozen()
        self._refuse_another_kind(checkpoint["captioner"])
        own = {name: value for name, value in self.state_dict().items() if name in saved}
        known = {name: here[name] if name in here else _sum(value) for name, value in own.items()}
        known |= {name: here[name] for name in here.keys() & saved.keys()}  # quantized ones, too
        changed = sorted(name for name, value in known.items() if value != saved[name])
        if changed:
            raise ValueError(
                f"checkpoint was trained with other weights than model.pretrained={self.pretrained}"
                f" has now ({len(changed)} frozen tensors differ, such as {changed[0]}); give the "
                "folder with which the run began"
            )
        self._left_out = set(saved)

    def _refuse_another_kind(self, saved: Mapping[str, Any]) -> None:
        """Raise an error for LoRA weights trained with another quantization: they would be wrong.

        Args:
            saved: class, vocabulary and frozen weights of a checkpoint.

        Raises:
            SettingError: ``quantize`` differs from the checkpoint's.
        """
        kind = saved.get("quantize")
        if kind != self.quantize:
            was, here = kind or "null", self.quantize or "null"
            raise SettingError(
                "model.quantize",
                f"is {here}, but the weights to load were trained with model.quantize={was}",
                f"set model.quantize={was}, or export that run and set its folder as "
                "model.pretrained",
            )

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load weights; frozen weights that the checkpoint leaves out stay unchanged.

        Checkpoints keep frozen weights of a run that trained them (``start_from=``).
        """
        sums = self._sums_of_frozen()
        kept = {n: v for n, v in self.state_dict().items() if n in sums or n in self._left_out}
        layers = self._quantized()
        if whole := [name for name in state_dict if quantized.is_of_quantized(name, layers)]:
            raise ValueError(
                f"model.quantize={self.quantize}: the weights to load hold {len(whole)} tensors of "
                f"quantized layers, such as {whole[0]}; export that run and set its "
                "folder as model.pretrained, or set model.quantize=null"
            )
        loaded = super().load_state_dict({**kept, **state_dict}, strict and not layers, assign)
        if strict and layers:
            missing = [n for n in loaded.missing_keys if not quantized.is_of_quantized(n, layers)]
            if lost := [*missing, *loaded.unexpected_keys]:
                raise RuntimeError(
                    f"weights do not fit the model:\n\t{lost[0]} ({len(lost)} in all)"
                )
        # Shards have other checksums; they are loaded after training.
        given = {
            name: value
            for name, value in self._frozen().items()
            if name in state_dict and not hasattr(value, "full_tensor")
        }
        self._changed |= {name for name, value in given.items() if _sum(value) != sums[name]}
        return loaded

    def losses(self, batch: Batch) -> CaptionLosses:
        """Compute the cross-entropy of caption tokens and end tokens; prompts have no loss."""
        # An objective may request gradients by caption.
        if not self.training or self.objective is not None:
            return self._losses(batch)
        return self.in_parts(batch, lambda part, _: self._losses(part))

    def in_parts(
        self, batch: Batch, losses: Callable[[Batch, Tensor], CaptionLosses]
    ) -> CaptionLosses:
        """See `AbstractCaptioner.in_parts`; with gradients, in parts of `positions_at_once`."""
        parts = self._photo_parts(batch)
        if len(parts) < 2:
            return losses(batch, torch.arange(len(batch)))
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return part_losses(batch, parts, losses, trained, drops=self._drops)

    def _photo_parts(self, batch: Batch) -> list[list[int]]:
        """Return the photos of the batch's parts, if training is split."""
        device = batch.rows.device.type
        if not torch.is_grad_enabled() or self.positions_at_once is None:
            return []
        scales = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device)
        if scales is torch.float16:  # whose gradients vanish before the loss is scaled
            return []
        if self._is_sharded:
            return []
        most = self.positions_at_once
        if not isinstance(most, int):
            most = POSITIONS.get(device, POSITIONS_ELSEWHERE)
        return photo_parts(batch, most)

    def _losses(self, batch: Batch) -> CaptionLosses:
        """Return the losses of captions that go through the network together."""
        images = None if self._states is None else self._image_states(self._states, batch)
        if self._leaves_head_out:
            speaker = self.parts.speaker
            try:
                with speaker.without_head():
                    states = self._read(batch, images)
                return head_caption_losses(speaker.head, states, batch, self.label_smoothing)
            except HeadNotLast as name:
                log.info(
                    f"{name} changes its logits after its last layer, so logits of prompts and "
                    "padding are computed, too"
                )
                self._leaves_head_out = False
        logits = self._read(batch, images)
        return padded_caption_losses(logits, batch, self.label_smoothing)

    def _image_states(self, kept: ImageStates, batch: Batch) -> list[State]:
        """Return the image states of the batch's photos."""
        host = batch.host.extras
        keys = host[PHOTO_KEYS].tolist() if PHOTO_KEYS in host else ()
        return kept.read(self._prompts(batch), host, keys)

    def _read(self, batch: Batch, images: Sequence[State] | None) -> Tensor:
        """Return logits ``(B, T + 1, V)``, or the head's input, before each next token."""
        tokens, exist = batch.caption_tokens()
        tensors, captions = self._prompts(batch), (tokens[:, 1:-1], exist[:, 1:-1])
        speaker = self.parts.speaker
        # Dropout must not depend on how many captions of a photo this process has.
        wanted = len(batch) > len(batch.image_ids) or (self.training and self._drops)
        # Checkpointed layers do not cache the prompts.
        if wanted and not self.checkpointing:
            logits = self._shared(batch, captions, images)
            if logits is not None:
                return logits
        if self.parts.reads_photos:
            with by_image(batch):
                prompts = self.parts.prompts(tensors)
            with by_caption(batch):
                return speaker.read(rows_of(prompts, batch.image_index), *captions)
        if images is not None:
            images = [images[place] for place in batch.host.image_index.tolist()]
        rows = rows_of(tensors, batch.image_index, batch.host.extras)
        with by_caption(batch):
            return speaker.read(self.parts.prompts(rows, self._joined(images)), *captions)

    def _joined(self, images: Sequence[State] | None) -> Any:
        if images is None or self._states is None:
            return None
        return self._states.joined(images, self.network.device)

    def _shared(
        self,
        batch: Batch,
        captions: tuple[Tensor, Tensor],
        images: Sequence[State] | None,
    ) -> Tensor | None:
        """Compute `_read` with prompts read once for all captions of a photo.

        None if captions cannot share the network's memory in training, which is logged once.
        """
        if not self.shares_prompts:
            return None
        speaker = self.parts.speaker
        with by_image(batch):
            prompts = self.parts.prompts(self._prompts(batch), self._joined(images))
            first, state = speaker.read_prompts(prompts, batch.image_index)
        if state.cache is None or (torch.is_grad_enabled() and changes_in_place(state.cache)):
            log.warning(
                f"{type(self.network).__name__} has no memory that captions of a photo can "
                "share in training: each caption reads photo and prompt again"
            )
            self.shares_prompts = False
            return None
        with by_caption(batch):
            return speaker.read_captions(first, state, *captions)

    def start(self, batch: Batch) -> SpeakerState:
        """Return the memory before the first token; photos are read with it."""
        images = None
        if self._states is not None and PHOTO_KEYS in batch.host.extras:  # of training
            images = self._joined(self._image_states(self._states, batch))
        return self.parts.speaker.start(self.parts.prompts(self._prompts(batch), images))

    def step(self, tokens: Tensor, state: SpeakerState) -> tuple[Tensor, SpeakerState]:
        """Return log-probabilities of the next token; the first call reads photos and prompts."""
        return self.parts.speaker.step(tokens, state)

    def next_logits(self, tokens: Tensor, state: SpeakerState) -> tuple[Tensor, SpeakerState]:
        """Return logits instead of log-probabilities; otherwise as `step`."""
        return self.parts.speaker.next_logits(tokens, state)

    def attend_step(
        self, tokens: Tensor, state: SpeakerState
    ) -> tuple[Tensor, SpeakerState, Tensor | None]:
        """Make a `step`, and return the network's cross-attention to the photo, if it has one."""
        if self.attends:
            return self.parts.attend_step(tokens, state)
        return super().attend_step(tokens, state)

    def low_rank_layers(self) -> list[str]:
        """Return all linear layers of the language model, except head and expert routers."""
        return self.parts.language_layers(self)

    def generate_tokens(
        self, state: SpeakerState, *, end_ids: Sequence[int], **settings: Any
    ) -> Generated:
        """Generate captions with the network's own ``generate``, see `Speaker.generate_tokens`."""
        return self.parts.speaker.generate_tokens(state, end_ids=end_ids, **settings)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write network and processor in transformers' format, with LoRA weights merged."""
        network: Any = merged_low_rank(self.network)
        network.save_pretrained(folder)
        load_processor(image_text_folder(self.pretrained)).save_pretrained(folder)

    def transformers_parts(self) -> dict[str, nn.Module]:
        """Return the networks that `save_pretrained` writes, by name prefix."""
        return {"": self.network}


def _network(pretrained: str, dtype: torch.dtype, kind: quantized.Kind | None) -> Any:
    """Load the network of a folder, with quantized linear layers if a kind is given."""
    if kind is None:
        return load_image_text(pretrained, dtype=dtype)
    quantized.check_quantizable(image_text_folder(pretrained), kind, pretrained)
    options = quantized.reading_options(kind, dtype)
    try:
        network = load_image_text(pretrained, dtype=dtype, **options)
    except ValueError as error:
        raise ValueError(
            f"model.quantize={kind}: transformers cannot load the model so ({error}); set it to "
            f"{'nf4' if kind == 'int8' else 'int8'} or null"
        ) from error
    quantized.prepare(network, kind, pretrained)
    return network


def _sum(value: Tensor) -> int:
    """Return an exact checksum of a tensor, independent of the order of summation."""
    return int(value.contiguous().view(torch.uint8).sum(dtype=torch.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheck:
    """Compared values, in nats per token.

    Attributes:
        family: model family, as named in the config.
        alone: maximum difference between a caption's loss alone and the network's own
            loss.
        padded: maximum difference for captions of two photos padded together.
        shared: maximum difference for captions that share a photo's prompt; None: never shared.
        greedy: maximum amount by which a token of ``generate`` is less likely here than the
            likeliest one.
        photo: minimum change of a caption's loss when its photo is replaced by its negative.
        shared_differs: whether ``shared`` exceeds rounding, so each caption must read
            photo and prompt separately in training.
    """

    family: str
    alone: float
    padded: float
    shared: float | None
    greedy: float
    photo: float
    shared_differs: bool

    def as_plain(self) -> dict[str, Any]:
        """Return plain values for a file."""
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
    """Compare two captions' losses and the first greedy tokens with the network's own code.

    Args:
        model: model in evaluation mode, on its device.
        parts: network of the model.
        processor: processor of the photos.
        samples: training samples, of which two with different photos are used.
        shares_prompts: whether captions of a photo share its prompt in training.
        one_by_one: whether every batch has one caption and one photo, without padding.

    Raises:
        ValueError: a difference that rounding does not explain; the message names the family,
            the value and the difference. If only captions with a shared prompt differ, the result
            says so instead.
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
    """Return the maximum difference in nats per token that rounding explains."""
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
    """Raise an error if a difference exceeds rounding."""
    if not difference <= most:
        raise ValueError(
            f"model.pretrained: {family}: {what} differs by {difference:.2g} nats a token from the "
            f"network's own forward pass (limit {most:.2g}), so training would be wrong; "
            f"{remedy}, or set model.check=false to train all the same"
        )


def _refuse_photos(family: str, changed: Tensor, most: float) -> None:
    """Raise an error if a photo does not affect its caption's loss, or affects another's.

    Args:
        family: the model's family.
        changed: ``(1 or 2,)`` changes of losses when the first caption's photo is replaced.
        most: maximum change that rounding explains.
    """
    if not changed[0] > 0:
        raise ValueError(
            f"model.pretrained: {family}: the loss of a caption stays the same when its photo is "
            "replaced by its negative, so the model ignores the photo; check its processor and "
            "model.prompt, or set model.check=false to train all the same"
        )
    if len(changed) > 1 and float(changed[1]) > most:
        raise ValueError(
            f"model.pretrained: {family}: the loss of a caption changes by {float(changed[1]):.2g} "
            "nats per token when another caption's photo is replaced; batches of this model "
            f"are read wrongly: {ALONE}, or set model.check=false to train all the same"
        )


def _chosen(samples: Sequence[Sample], model: AbstractCaptioner[SpeakerState]) -> list[Sample]:
    """Return two samples of different photos, with captions of different lengths if possible."""
    first = samples[0]
    others = [sample for sample in samples[:200] if sample.image_id != first.image_id]
    length = len(model.tokenizer.encode(first.caption))
    unlike = [s for s in others if len(model.tokenizer.encode(s.caption)) != length]
    return [first, *(unlike or others)[:1]]


class _Batches:
    """Batches of the same photos and captions in different combinations.

    Args:
        model: the captioner.
        parts: network of the captioner.
        processor: processor of the photos.
        samples: samples of different photos.
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
        """Return captions' losses in one batch, one photo replaced by its negative if given."""
        photos = [self.photos[number] for number in numbers]
        if negative is not None:
            photos[negative] = ImageOps.invert(photos[negative])
        captions = [self.captions[number] for number in numbers]
        return self.model.losses(self._batch(photos, captions, range(len(numbers)))).per_sample

    def shared_losses(self, numbers: Sequence[int]) -> Tensor:
        """Return losses of captions as if all belonged to the first photo, which has one more."""
        captions = [*(self.captions[number] for number in numbers), self.captions[0]]
        batch = self._batch(self.photos[:1], captions, [0] * len(captions))
        return self.model.losses(batch).per_sample[:-1]

    def own_loss(self, number: int, *, photo: int | None = None) -> Tensor:
        """Return a caption's mean loss over tokens and end, by the network's own forward pass.

        Args:
            number: number of the caption.
            photo: number of the photo; None: the caption's own.
        """
        picture = self.photos[number if photo is None else photo]
        caption = self.captions[number][1:].to(self.device)
        logits = self._own_logits(picture, self.texts[number], caption)
        return functional.cross_entropy(logits.float(), caption)

    def _own_logits(self, photo: Image.Image, text: str, caption: Tensor) -> Tensor:
        """Return logits ``(T, V)`` of one network call on the processor's whole-text output."""
        parts, form = self.parts, self.processor.format
        prompt = self._read(photo)
        if not (parts.reads_photos or parts.speaker.start_ids):
            whole = self._read(photo, f"{form.text}{form.before}{text}")
            ids = torch.cat([prompt[f"{PREFIX}input_ids"], caption[None, :-1]], dim=1)
            if torch.equal(whole[f"{PREFIX}input_ids"], ids):
                inputs = {name.removeprefix(PREFIX): value for name, value in whole.items()}
                return parts.network(**inputs, use_cache=False).logits[0, -len(caption) :]
        # A separate text, or a text whose tokens depend on the text around it.
        inputs = parts.prompts(self._on_device(self.processor.joined([self._read(photo)])))
        exist = torch.ones_like(caption[None, :-1], dtype=torch.bool)
        return parts.speaker.read(inputs, caption[None, :-1], exist)[0]

    def greedy_gap(self, numbers: Sequence[int]) -> float:
        """Return by how much ``generate``'s tokens are less likely than the likeliest here."""
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
        """Return the first tokens of the network's own greedy search for a photo, up to an end."""
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
        """Move tensors to the device, with pixels in the type of the weights."""
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
