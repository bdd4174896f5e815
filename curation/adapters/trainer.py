"""Curation for transformers' ``Trainer`` and its subclasses, such as TRL's ``SFTTrainer``."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from curation.adapters.curated_dataset import ROW, SENTENCES, check_loader
from curation.adapters.curation import Curation
from curation.adapters.curation_state import read_state, write_state
from curation.adapters.losses import IGNORED, per_sample_losses, plain_token_losses, sentence_means
from curation.adapters.process_group import is_writer
from curation.base import SENTENCE_LOSS

FILE_NAME = "curation.safetensors"  # in each of the trainer's checkpoints

log = logging.getLogger(__name__)


class TrainerCuration(TrainerCallback):
    """Transformers callback: adds each caption's loss and ends the epochs of `Curation`.

    Needs ``remove_unused_columns=False``, so that rows reach the model's call, where a hook takes
    them out again, and ``labels`` among the model's inputs. The model's own loss is left as it is,
    with ``num_items_in_batch`` and gradient accumulation, unless samples are down-weighted. Some
    models take no ``num_items_in_batch``: their accumulated updates are means of the batches'
    means. That is logged, and refused together with down-weighting.

    Each checkpoint holds `FILE_NAME`; ``trainer.train(resume_from_checkpoint=...)`` resumes from
    it, amid an epoch too.

    Args:
        curation: the run's curation.
        shift: whether the model's logits of a place are for the label of the next one.

    Examples:
        >>> import torch
        >>> from captioning import CuratedDataset, Curation, TrainerCuration
        >>> from curation import with_rows
        >>> from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
        >>> config = GPT2Config(vocab_size=128, n_positions=8, n_embd=8, n_layer=1, n_head=1)
        >>> samples = [("a.jpg", "a dog"), ("b.jpg", "a cat")]
        >>> curation = Curation.open("hf", samples=samples, policy="track", first_epoch=0)
        >>> data = CuratedDataset(lambda s: {"tokens": [*s.caption.encode()]}, curation)
        >>> def collate(items):
        ...     tokens = torch.tensor([item["tokens"] for item in items])
        ...     return {"input_ids": tokens, "labels": tokens}
        >>> own = {"remove_unused_columns": False, "report_to": "none", "use_cpu": True}
        >>> trainer = Trainer(
        ...     GPT2LMHeadModel(config),
        ...     TrainingArguments("hf", num_train_epochs=2, save_strategy="no", **own),
        ...     train_dataset=data,
        ...     data_collator=with_rows(collate),
        ...     callbacks=[TrainerCuration(curation)],
        ... )
        >>> result = trainer.train()
        >>> curation.epoch
        2
    """

    def __init__(self, curation: Curation, *, shift: bool = True) -> None:
        self.curation = curation
        self.shift = shift
        self._hooks: list[Any] = []
        self._rows: Tensor | None = None
        self._sentences: Tensor | None = None
        self._means_of_means = ""  # why weights are refused

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Check the setup, resume from the checkpoint's state, and add hooks to the model.

        Raises:
            ValueError: settings or a dataset with which curation would have no effect, or weights
                where accumulated updates are means of means.
            FileNotFoundError: the checkpoint has no state of curation.
        """
        check_arguments(args)
        check_loader(kwargs["train_dataloader"], self.curation)
        self._resume(args, state)
        model: nn.Module = kwargs["model"]
        self._check_accumulation(args.gradient_accumulation_steps, model)
        self._hooks = [
            model.register_forward_pre_hook(self._before, with_kwargs=True),
            model.register_forward_hook(self._after, with_kwargs=True),
        ]

    def _check_accumulation(self, steps: int, model: nn.Module) -> None:
        """Log that accumulated updates average batch means; raise if samples are down-weighted."""
        self._means_of_means = ""
        if steps == 1 or accepts_num_items(model):
            return
        name = type(base_model(model)).__name__
        self._means_of_means = (
            f"gradient_accumulation_steps={steps}: {name} takes no num_items_in_batch, so an "
            f"update is the mean of {steps} batches' means, and tokens of a batch with few count "
            "more: set gradient_accumulation_steps=1 with a larger per_device_train_batch_size"
        )
        policy = self.curation._curator.policy
        if self.curation.mean_weight != 1.0 or policy.amend.changes_weights:
            raise self._refusal()
        log.warning(self._means_of_means)

    def _refusal(self) -> ValueError:
        return ValueError(
            f"curation: weights are of tokens of a whole update. {self._means_of_means}"
        )

    def _resume(self, args: TrainingArguments, state: TrainerState) -> None:
        epoch = state.epoch or 0.0
        path = _checkpoint(args, state) / FILE_NAME
        if state.global_step and not path.is_file():
            raise FileNotFoundError(
                f"{path} does not exist, so curation cannot resume from step {state.global_step}; "
                "resume from a checkpoint in output_dir that holds the state of curation"
            )
        if state.global_step:
            self.curation.load_state_dict(read_state(path), mid_epoch=True)
        if self.curation.epoch != int(epoch):
            raise ValueError(
                f"training starts at epoch {int(epoch)}, but {self.curation.folder} resumes at "
                f"epoch {self.curation.epoch}: call trainer.train(resume_from_checkpoint=True), "
                "or use Curation.open(first_epoch=0) to start from scratch"
            )

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """End curation's epoch after its last step, before the trainer saves or evaluates."""
        if (state.epoch or 0.0) >= self.curation.epoch + 1:
            self.curation.end_epoch()

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Save the state of curation beside the model's weights."""
        saved = self.curation.state_dict(gathered=True)
        if is_writer():
            write_state(_checkpoint(args, state) / FILE_NAME, saved)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write the report, and remove the hooks from the model."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if (state.epoch or 0.0) > self.curation.epoch:
            log.warning(
                f"max_steps ended training within epoch {self.curation.epoch}: its losses are in "
                "the checkpoint, but curation made no edits from these losses"
            )
        self.curation.finish()

    def _before(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Hook before the model's call: remove rows and sentences from the model's inputs."""
        rows, self._sentences = kwargs.pop(ROW, None), kwargs.pop(SENTENCES, None)
        self._rows = rows if model.training else None
        if model.training and rows is None and kwargs.get("labels") is not None:
            raise ValueError(
                f"the batch has no {ROW!r}: collate with with_rows(...), and set "
                "remove_unused_columns=False"
            )
        if self._rows is not None and self._sentences is None and self.curation.needs_sentences:
            raise ValueError(
                f"the batch has no {SENTENCES!r}, which assigns losses and masks to sentences: "
                f"collate with with_rows(collate, curation=curation, tokenizer=tokenizer)"
            )
        return args, kwargs

    def _after(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any
    ) -> Any:
        """Hook after the model's call: add the losses, and weight down-weighted samples."""
        rows, self._rows = self._rows, None
        labels = kwargs.get("labels")
        if rows is None or labels is None:
            return None
        signals = {}
        if self.curation.num_sentences and self._sentences is not None:
            numbers = self._sentences.where(labels != IGNORED, -1)[:, int(self.shift) :]
            with torch.no_grad():
                nll = token_losses(outputs, labels, shift=self.shift)
                means = sentence_means(nll, numbers, self.curation.num_sentences)
            signals[SENTENCE_LOSS] = means
        if self.curation.mean_weight == 1.0:
            with torch.no_grad():
                losses = caption_losses(outputs, labels, shift=self.shift)
                self.curation.add(rows, losses, **signals)
            return None
        if self._means_of_means:
            raise self._refusal()
        losses = caption_losses(outputs, labels, shift=self.shift)
        self.curation.add(rows, losses, **signals)
        return self._weighted(outputs, losses, rows, kwargs)

    def _weighted(
        self, outputs: Any, losses: Tensor, rows: Tensor, kwargs: Mapping[str, Any]
    ) -> Any:
        """Return the outputs with a loss that weights each token by its caption's weight.

        Weights are divided by their mean over the epoch's samples, so that updates keep their size.
        """
        labels = kwargs["labels"]
        counts = ((labels[:, 1:] if self.shift else labels) != IGNORED).sum(1)
        weights = self.curation.weights(rows.to(losses.device)) / self.curation.mean_weight
        if outputs.get("log_probs") is not None:  # the trainer sums these up itself
            outputs["log_probs"] = outputs["log_probs"] * weights[:, None]
            return outputs
        total = kwargs.get("num_items_in_batch")
        total = counts.sum() if total is None else total
        outputs["loss"] = (weights * losses * counts).sum() / total
        return outputs


def base_model(model: nn.Module) -> nn.Module:
    """Return the model that a PEFT model wraps, or the model itself."""
    find = getattr(model, "get_base_model", None)
    return model if find is None else find()


def accepts_num_items(model: nn.Module) -> bool:
    """Return whether ``Trainer`` would pass ``num_items_in_batch`` to this model."""
    model = base_model(model)
    if hasattr(model, "accepts_loss_kwargs"):
        return bool(model.accepts_loss_kwargs)
    parameters = inspect.signature(model.forward).parameters.values()
    return any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters)


def caption_losses(outputs: Any, labels: Tensor, *, shift: bool = True) -> Tensor:
    """Mean loss per token of each caption, ``(B,)``, from the outputs of a model.

    Args:
        outputs: the model's outputs: ``logits (B, S, V)``, or ``log_probs`` and ``label_mask`` if
            TRL has fused the head with the loss.
        labels: ``(B, T)``, -100 where a token is not learnt.
        shift: see `per_sample_losses`.

    Raises:
        ValueError: the outputs hold neither logits nor ``log_probs``.
    """
    if outputs.get("logits") is not None:
        logits = outputs["logits"]
        places = logits.shape[1]
        own = None
        if not torch.is_grad_enabled():
            own = own_losses(outputs.get("loss"), labels, places=places, shift=shift)
        return per_sample_losses(logits, labels, shift=shift) if own is None else own
    return -_log_probs(outputs).sum(1) / outputs["label_mask"].sum(1)


def _log_probs(outputs: Any) -> Tensor:
    if outputs.get("log_probs") is None or outputs.get("label_mask") is None:
        raise ValueError(
            f"the model returned no logits (only {list(outputs)}), so curation cannot compute "
            "each caption's loss: switch fused losses off (use_liger_kernel=False)"
        )
    return outputs["log_probs"]


@torch.no_grad()
def token_losses(outputs: Any, labels: Tensor, *, shift: bool = True) -> Tensor:
    """Loss of each predicted label, ``(B, T - shift)``; see `caption_losses`.

    Raises:
        ValueError: the outputs hold neither logits nor ``log_probs``.
    """
    number = labels.shape[1] - shift
    if (logits := outputs.get("logits")) is None:
        return -_log_probs(outputs)[:, -number:]
    own = _own_token_losses(outputs.get("loss"), labels, places=logits.shape[1], shift=shift)
    if own is None:
        return plain_token_losses(logits, labels, shift=shift)
    if own.shape[1] == logits.shape[1] and shift:  # with a label appended
        own = own[:, :-1]
    return own[:, -number:]


def own_losses(loss: Tensor | None, labels: Tensor, *, places: int, shift: bool) -> Tensor | None:
    """Mean loss per token of each caption, ``(B,)``, read from the graph of the model's own loss.

    The model has computed log-probabilities for its loss and keeps them for going backward, so that
    nothing of the vocabulary's size is computed again.

    Args:
        loss: the loss with gradient; any multiple of the tokens' summed or mean cross-entropy.
        labels: see `caption_losses`.
        places: S, of the logits ``(B, S, V)``.
        shift: see `per_sample_losses`.

    Returns:
        None where the loss has another graph.
    """
    own = _own_token_losses(loss, labels, places=places, shift=shift)
    return None if own is None else own.sum(1) / (labels[:, int(shift) :] != IGNORED).sum(1)


def _own_token_losses(
    loss: Tensor | None, labels: Tensor, *, places: int, shift: bool
) -> Tensor | None:
    """Loss of each token in that graph: ``(B, T - shift)``, ``(B, S)`` or ``(B, S - shift)``."""
    step: Any = None if loss is None else loss.grad_fn
    while step is not None and step.name() in ("DivBackward0", "MulBackward0", "ToCopyBackward0"):
        step = step.next_functions[0][0]
    if step is None or step.name() != "NllLossBackward0":
        return None
    before = step.next_functions[0][0]
    targets, plain = step._saved_target, step._saved_weight is None
    if before is None or before.name() != "LogSoftmaxBackward0" or not plain:
        return None
    number = labels.shape[1] - shift
    # Some models append a label to be ignored, in place of leaving the last logits out.
    if len(targets) not in {len(labels) * size for size in (number, places, places - shift)}:
        return None
    learnt = targets != IGNORED
    taken = before._saved_result.gather(1, targets.masked_fill(~learnt, 0).unsqueeze(1))
    return -(taken.squeeze(1) * learnt).view(len(labels), -1)


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"


def check_arguments(args: TrainingArguments) -> None:
    """Raise ValueError for trainer settings that drop rows or move items between batches."""
    refusals = {
        "remove_unused_columns=True drops the rows: set it to False": args.remove_unused_columns,
        "several GPUs in one process (DataParallel) split batches after their rows were read: "
        "start one process a GPU, with torchrun": args.n_gpu > 1,
        "label_smoothing_factor keeps the labels from the model: set it to 0": (
            args.label_smoothing_factor > 0
        ),
        "train_sampling_strategy sorts by the lengths of the first epoch: leave it out": (
            getattr(args, "train_sampling_strategy", "random") not in ("random", "sequential")
        ),
    }
    for text, is_set in refusals.items():
        if is_set:
            raise ValueError(f"curation: {text}")
