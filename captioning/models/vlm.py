"""Any image-to-text model of transformers as a captioner: GIT, BLIP-2, LLaVA, Qwen-VL, ..."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from captioning.config.ranges import DropRate
from captioning.models.adapt import merged_low_rank
from captioning.models.base import AbstractCaptioner
from captioning.models.layers.cross_entropy import padded_caption_losses
from captioning.models.layers.image_text_parts import ImageTextParts
from captioning.models.layers.speaker import Generated, SpeakerState, changes_in_place
from captioning.models.self_check import self_check
from captioning.runtime.files import read_json, write_json
from captioning.runtime.model_folder import checkpoint_layers
from captioning.runtime.processors import (
    WeightType,
    image_text_folder,
    load_image_text,
    load_processor,
)
from captioning.runtime.sample_dropout import by_caption, by_image
from captioning.types import Batch, CaptionLosses
from captioning.vision.prompt_tensors import PREFIX, rows_of

CHECK_FILE = "model_check.json"  # in the run folder
log = logging.getLogger(__name__)


class Vlm(AbstractCaptioner[SpeakerState]):
    """A network of transformers with its own processor.

    Batches come from `captioning.data.batches.image_text.ImageTextReader`.

    Args:
        pretrained: hub name or folder of the model.
        label_smoothing: of the loss that is back-propagated.
        checkpointing: compute layers again in the backward pass instead of keeping their outputs.
        check: compare losses and tokens with the network's own before training, see
            `captioning.models.self_check`.
        weights: type of the network's weights. Half precision halves their memory; fine-tune only
            low-rank additions then (``model.lora``), which stay in single precision.
        feature_size: not used.
        **captioner: see `AbstractCaptioner`.

    Raises:
        FileNotFoundError, ConnectionError: no such model.
        ValueError: weights that are missing, or a vocabulary of another size.
    """

    def __init__(
        self,
        *,
        pretrained: str,
        label_smoothing: DropRate = 0.0,
        checkpointing: bool = False,
        check: bool = True,
        weights: WeightType = "float32",
        feature_size: int = 0,
        **captioner: Any,
    ) -> None:
        del feature_size
        super().__init__(**captioner)
        self.network = load_image_text(pretrained, dtype=getattr(torch, weights)).train()
        self.pretrained, self.label_smoothing = pretrained, label_smoothing
        self.begins_with = pretrained
        self.checkpointing, self.check = checkpointing, check
        if checkpointing:
            checkpoint_layers(self.network)
        self.parts = ImageTextParts(self.network)
        self.attends = self.parts.attends
        self.shares_prompts = self.parts.shares_prompts
        self._frozen_sums: dict[str, int] | None = None
        self._changed: set[str] = set()  # frozen ones that are not as in pretrained
        self._left_out: set[str] = set()  # by the checkpoint that is being loaded

    def _prompts(self, batch: Batch) -> dict[str, Tensor]:
        """What the processor made of the batch's photos.

        Raises:
            ValueError: the batch comes from another reader.
        """
        tensors = {n: value for n, value in batch.extras.items() if n.startswith(PREFIX)}
        if not tensors:
            raise ValueError("model=vlm reads photos by its own processor: choose features=vlm")
        return tensors

    @functools.cached_property
    def _drops(self) -> bool:
        """Whether the network has dropout."""
        shares = (
            value
            for module in self.network.modules()
            for name, value in vars(module).items()
            if name == "p" or "dropout" in name
        )
        return any(isinstance(share, float) and share > 0 for share in shares)

    def _frozen(self) -> dict[str, Tensor]:
        """Weights that stay as they are, tied ones under each of their names."""
        parameters = self.named_parameters(remove_duplicate=False)
        names = {name for name, value in parameters if not value.requires_grad}
        return {name: value for name, value in self.state_dict().items() if name in names}

    def train(self, mode: bool = True) -> Vlm:
        """As of any module, but batch normalisation keeps the statistics that it came with.

        Otherwise a caption's loss would depend on the other photos of its batch.
        """
        super().train(mode)
        for module in self.network.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self

    def setup(self, stage: str) -> None:
        """Sum frozen weights up as they were read, before the trainer moves or converts them."""
        del stage
        self._sums_of_frozen()

    def _sums_of_frozen(self) -> dict[str, int]:
        if self._frozen_sums is None:
            self._frozen_sums = {name: _sum(value) for name, value in self._frozen().items()}
        return self._frozen_sums

    def on_train_start(self) -> None:
        """Check the model on two photos of the data, unless the run resumes.

        Raises:
            ValueError: see `captioning.models.self_check.self_check`.
        """
        super().on_train_start()
        path = Path(self.trainer.default_root_dir) / CHECK_FILE
        if self.trainer.global_step or self.trainer.current_epoch:
            if path.is_file() and read_json(path)["shared_differs"]:
                self.shares_prompts = False
            return
        datamodule: Any = getattr(self.trainer, "datamodule", None)
        readers = [] if datamodule is None else datamodule.readers.values()
        processor = next((r.processor for r in readers if hasattr(r, "processor")), None)
        is_sharded = any(hasattr(parameter, "full_tensor") for parameter in self.parameters())
        if not self.check or datamodule is None or processor is None or is_sharded:
            return
        began = time.perf_counter()
        self.eval()
        try:
            loader = datamodule.loader
            alone = loader.batch_size == 1 and loader.eval_batch_size == 1
            result = self_check(
                self,
                self.parts,
                processor,
                datamodule.train.samples,
                shares_prompts=self.shares_prompts and not self.checkpointing,
                one_by_one=alone,
            )
        finally:
            self.train()
        if result.shared_differs:
            self.shares_prompts = False
            log.warning(
                f"{result.family}: captions that share the prompt of a photo have losses that "
                f"differ by {result.shared:.2g} nats a token from the network's own forward pass, "
                "so each reads photo and prompt anew"
            )
        if self.trainer.is_global_zero:
            write_json(path, result.as_plain())
            log.info(
                f"model.check: {result.family} is trained and searched as by transformers "
                f"({time.perf_counter() - began:.0f} s; {path.name} has the figures)"
            )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """As of any captioner, without frozen weights that are as ``pretrained`` has them."""
        super().on_save_checkpoint(checkpoint)
        sums = self._sums_of_frozen()
        frozen = {name: value for name, value in sums.items() if name not in self._changed}
        checkpoint["captioner"]["frozen"] = frozen
        weights = checkpoint.get("state_dict", {})
        checkpoint["state_dict"] = {n: v for n, v in weights.items() if n not in frozen}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse weights of another model, vocabulary or ``pretrained``.

        Raises:
            ValueError: the checkpoint does not belong to this model.
        """
        super().on_load_checkpoint(checkpoint)
        saved, here = checkpoint["captioner"].get("frozen", {}), self._sums_of_frozen()
        own = {name: value for name, value in self.state_dict().items() if name in saved}
        known = {name: here[name] if name in here else _sum(value) for name, value in own.items()}
        changed = [name for name, value in known.items() if value != saved[name]]
        if changed:
            raise ValueError(
                f"checkpoint was trained on other weights than model.pretrained={self.pretrained} "
                f"has now ({len(changed)} frozen tensors differ, such as {changed[0]}); give the "
                "folder that the run began with"
            )
        self._left_out = set(saved)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """As of any module; frozen weights that the checkpoint leaves out stay.

        Frozen weights of a run that trained them (``start_from=``) are kept in checkpoints.
        """
        sums = self._sums_of_frozen()
        kept = {n: v for n, v in self.state_dict().items() if n in sums or n in self._left_out}
        loaded = super().load_state_dict({**kept, **state_dict}, strict, assign)
        # Shards have other sums; they are loaded when all has been trained.
        given = {
            name: value
            for name, value in self._frozen().items()
            if name in state_dict and not hasattr(value, "full_tensor")
        }
        self._changed |= {name for name, value in given.items() if _sum(value) != sums[name]}
        return loaded

    def losses(self, batch: Batch) -> CaptionLosses:
        """Cross-entropy of the captions' tokens and their end; the prompt has none."""
        tokens, exist = batch.caption_tokens()
        tensors, captions = self._prompts(batch), (tokens[:, 1:-1], exist[:, 1:-1])
        speaker = self.parts.speaker
        # What is dropped must not depend on how many captions of a photo this process has.
        wanted = len(batch) > len(batch.image_ids) or (self.training and self._drops)
        # Checkpointed layers keep no memory of the prompts.
        logits = self._shared(batch, captions) if wanted and not self.checkpointing else None
        if logits is not None:
            return padded_caption_losses(logits.float(), batch, self.label_smoothing)
        if self.parts.reads_photos:
            with by_image(batch):
                prompts = self.parts.prompts(tensors)
            with by_caption(batch):
                logits = speaker.read(rows_of(prompts, batch.image_index), *captions)
        else:
            rows = rows_of(tensors, batch.image_index, batch.host.extras)
            with by_caption(batch):
                logits = speaker.read(self.parts.prompts(rows), *captions)
        return padded_caption_losses(logits.float(), batch, self.label_smoothing)

    def _shared(self, batch: Batch, captions: tuple[Tensor, Tensor]) -> Tensor | None:
        """Logits ``(B, T + 1, V)``, the prompts read once for all captions of a photo.

        None where the network's memory cannot be shared in training, which is logged once.
        """
        if not self.shares_prompts:
            return None
        speaker = self.parts.speaker
        with by_image(batch):
            prompts = self.parts.prompts(self._prompts(batch))
            first, state = speaker.read_prompts(prompts, batch.image_index)
        if state.cache is None or (torch.is_grad_enabled() and changes_in_place(state.cache)):
            log.warning(
                f"{type(self.network).__name__} keeps no memory of what it has read that captions "
                "of a photo could share in training: each reads photo and prompt anew"
            )
            self.shares_prompts = False
            return None
        with by_caption(batch):
            return speaker.read_captions(first, state, *captions)

    def start(self, batch: Batch) -> SpeakerState:
        """The memory before the first token; photos are read with it."""
        return self.parts.speaker.start(self.parts.prompts(self._prompts(batch)))

    def step(self, tokens: Tensor, state: SpeakerState) -> tuple[Tensor, SpeakerState]:
        """Log-probabilities of the next token; the first call reads photos and prompts."""
        return self.parts.speaker.step(tokens, state)

    def next_logits(self, tokens: Tensor, state: SpeakerState) -> tuple[Tensor, SpeakerState]:
        """As `step`, before the softmax."""
        return self.parts.speaker.next_logits(tokens, state)

    def attend_step(
        self, tokens: Tensor, state: SpeakerState
    ) -> tuple[Tensor, SpeakerState, Tensor | None]:
        """As `step`, with the network's own cross-attention, where it has one to the photo."""
        if self.attends:
            return self.parts.attend_step(tokens, state)
        return super().attend_step(tokens, state)

    def low_rank_layers(self) -> list[str]:
        """All linear layers of the language model, without its head and what selects experts."""
        return self.parts.language_layers(self)

    def generate_tokens(
        self, state: SpeakerState, *, end_ids: Sequence[int], **settings: Any
    ) -> Generated:
        """Captions by the network's own ``generate``, see `Speaker.generate_tokens`."""
        return self.parts.speaker.generate_tokens(state, end_ids=end_ids, **settings)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write network and processor in transformers' format, low-rank additions merged."""
        network: Any = merged_low_rank(self.network)
        network.save_pretrained(folder)
        load_processor(image_text_folder(self.pretrained)).save_pretrained(folder)

    def transformers_parts(self) -> dict[str, nn.Module]:
        """The networks of `save_pretrained` by what stands before their names there."""
        return {"": self.network}


def _sum(value: Tensor) -> int:
    """By which a tensor is told from another one: exact, so that no device's order matters."""
    return int(value.contiguous().view(torch.uint8).sum(dtype=torch.int64))
