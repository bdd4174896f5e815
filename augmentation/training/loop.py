"""The training loop of all generators: learning rate schedule, weight averaging and resuming."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Gt, Lt
from torch import Tensor, nn

from augmentation.training.identity import refuse_other_training
from captioning.config.ranges import (
    AbstractSettings,
    Fraction,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
)
from captioning.models.layers.weighted_mean import LEAST
from captioning.runtime.cores import step_ended
from captioning.runtime.files import write_atomically
from captioning.training.optim import cosine
from captioning.types import Mean

log = logging.getLogger(__name__)

LoopPrecision = Literal["float32", "bf16-mixed"]
LossOf = Callable[[int, torch.Generator], Tensor | Mean]
Validate = Callable[[int], dict[str, float]]
Prepare = Callable[[torch.Generator], None]


@dataclass(frozen=True, kw_only=True)
class AbstractLoopSettings(AbstractSettings):
    """Config ``training`` of commands that use this loop, without the number of steps.

    Attributes:
        batch_size: examples in a part of a step.
        accumulate: parts of a step.
        lr, weight_decay: learning rate and weight decay of AdamW.
        warmup: share of the steps in which the rate rises.
        floor: share of the rate at the end; 1 keeps it constant.
        ema_decay: decay of the averaged weights; None: no average.
        clip: norm of the gradient.
        log_every, val_every, checkpoint_every: steps.
    """

    batch_size: PositiveInt
    accumulate: PositiveInt
    lr: NonNegativeFloat
    weight_decay: NonNegativeFloat
    warmup: Fraction
    floor: Fraction
    ema_decay: Annotated[float, Gt(0), Lt(1)] | None
    clip: PositiveFloat
    log_every: PositiveInt
    val_every: PositiveInt
    checkpoint_every: PositiveInt


@dataclass(frozen=True, kw_only=True)
class LoopSettings(AbstractLoopSettings):
    """Config ``training`` of commands without further settings."""

    num_steps: PositiveInt


class TrainingLoop:
    """Trains the parameters of a module that require gradients.

    A step's draws depend on seed and step alone, so a killed training resumes with the same results
    as an uninterrupted one. Validation uses averaged weights, and `run` leaves them in the module.

    Args:
        model: model to train.
        settings: see there.
        num_steps: updates.
        checkpoint: file to resume from, written during training.
        seed: seed of all draws.
        identity: plain values that the result depends on, see `training_identity`.

    Raises:
        ValueError: the checkpoint is of a training with other settings or data.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        settings: AbstractLoopSettings,
        num_steps: int,
        checkpoint: Path,
        seed: int,
        identity: Mapping[str, Any],
    ) -> None:
        self.settings, self.num_steps = settings, num_steps
        self.checkpoint = checkpoint
        self.seed = seed
        self.identity = dict(identity)
        # here, as much may be computed before `run`
        self._refuse_other()
        self.step = 0
        self._losses, self._num_losses = 0.0, 0  # since the last one that was logged
        self._uncounted: list[tuple[int, Tensor]] = []  # of a step's part, on the device
        self.history: list[dict[str, float]] = []
        parameters = {
            name: value for name, value in model.named_parameters() if value.requires_grad
        }
        self.trained: dict[str, nn.Parameter] = parameters
        self.averaged = (
            {}
            if settings.ema_decay is None
            else {name: value.detach().clone() for name, value in parameters.items()}
        )
        self.optimizer = torch.optim.AdamW(
            parameters.values(), lr=settings.lr, weight_decay=settings.weight_decay
        )
        self.schedule = cosine(
            self.optimizer,
            horizon=num_steps,
            warmup=settings.warmup,
            floor=settings.floor,
        )

    def run(
        self, loss_of: LossOf, validate: Validate, prepare: Prepare | None = None
    ) -> list[dict[str, float]]:
        """Train to the last step, starting from the checkpoint if it exists.

        Args:
            loss_of: the loss of a step's part, by the step's number and a generator of its own: a
                scalar where all parts count the same, a `Mean` where their denominators differ.
            validate: scores with averaged weights, by the number of steps made.
            prepare: is called before a part's loss with the generator of the next part, so that
                what this will need is read meanwhile.

        Returns:
            Losses and scores, each with its ``step``.

        Raises:
            ValueError: the loss is not finite, or the checkpoint is of another model or has made
                more steps.
        """
        self._resume()
        settings, since, first = self.settings, time.monotonic(), self.step
        while self.step < self.num_steps:
            self._update(loss_of, prepare)
            last = self.step == self.num_steps
            every = settings.log_every, settings.val_every, settings.checkpoint_every
            if last or any(self.step % steps == 0 for steps in every):
                self._count_losses()
            if self.step % settings.log_every == 0:
                mean, spent = self._losses / self._num_losses, time.monotonic() - since
                log.info(f"step {self.step}: loss {mean:.4f}, {spent / (self.step - first):.3f} s")
                self._note({"loss": mean})
                since, first = time.monotonic(), self.step
                self._losses, self._num_losses = 0.0, 0
            if self.step % settings.val_every == 0 or last:
                with self.averaged_weights():
                    scores = validate(self.step)
                log.info(f"step {self.step}: {scores}")
                self._note(scores)
            if self.step % settings.checkpoint_every == 0 or last:
                self._save()
        self._exchange()
        return self.history

    def _update(self, loss_of: LossOf, prepare: Prepare | None) -> None:
        parts = self.settings.accumulate
        losses: list[Tensor] = []
        denominator: Tensor | None = None  # of the step's parts so far
        for part in range(parts):
            number = self.step * parts + part
            if prepare is not None and number + 1 < self.num_steps * parts:
                prepare(self._generator(number + 1))
            loss = loss_of(self.step, self._generator(number))
            if isinstance(loss, Mean):
                before, denominator = denominator, loss.denominator
                if before is not None:
                    denominator = denominator + before
                    losses = self._scale(losses, before / denominator.clamp(min=LEAST))
                loss = loss.value * (loss.denominator / denominator.clamp(min=LEAST))
            else:
                loss = loss / parts
            loss.backward()
            losses.append(loss.detach())
        self._uncounted += [(self.step, loss) for loss in losses]
        if _is_at_hand(self._uncounted[-1][1]):
            self._count_losses()
        nn.utils.clip_grad_norm_(self.trained.values(), self.settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        self.step += 1
        self._average()
        step_ended()

    def _scale(self, losses: list[Tensor], kept: Tensor) -> list[Tensor]:
        """Scale the losses of a step's parts as their gradients are scaled."""
        gradients = [value.grad for value in self.trained.values() if value.grad is not None]
        torch._foreach_mul_(gradients, kept)  # pyright: ignore[reportPrivateImportUsage]
        return [loss * kept for loss in losses]

    def _generator(self, number: int) -> torch.Generator:
        """Random generator of a part of a step; parts are counted over all steps."""
        parts = self.settings.accumulate
        return torch.Generator().manual_seed(self.seed * 1_000_003 * parts + number)

    def _count_losses(self) -> None:
        """Add the losses that are still on the device to the totals.

        Raises:
            ValueError: a loss is not finite.
        """
        if not self._uncounted:
            return
        steps, losses = zip(*self._uncounted, strict=True)
        values, parts = torch.stack(losses).tolist(), self.settings.accumulate
        self._uncounted.clear()
        for start in range(0, len(values), parts):
            total = sum(values[start : start + parts])
            if not math.isfinite(total):
                raise ValueError(
                    f"the loss is {total} in step {steps[start]}: lower training.lr, or train in "
                    "float32"
                )
            self._losses += total
            self._num_losses += 1

    def _average(self) -> None:
        if self.settings.ema_decay is None:
            return
        # a short run's average must not contain much of its untrained weights
        decay = min(self.settings.ema_decay, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            values = [value.detach() for value in self.trained.values()]
            averages = list(self.averaged.values())
            torch._foreach_lerp_(averages, values, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    def _note(self, scores: dict[str, float]) -> None:
        if not self.history or self.history[-1]["step"] != self.step:
            self.history.append({"step": self.step})
        self.history[-1].update(scores)

    @contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Context manager: the model has averaged weights inside."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for name, average in self.averaged.items():
            value = self.trained[name]
            value.data, self.averaged[name] = average, value.data

    def _save(self) -> None:
        state = {
            "identity": self.identity,
            "step": self.step,
            "history": self.history,
            "losses": (self._losses, self._num_losses),
            "trained": {name: value.detach() for name, value in self.trained.items()},
            "averaged": self.averaged,
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
        }
        write_atomically(self.checkpoint, lambda part: torch.save(state, part))

    def _refuse_other(self) -> None:
        if self.checkpoint.is_file():
            # mapped, as its weights are not needed yet
            state: dict[str, Any] = torch.load(
                self.checkpoint, weights_only=True, mmap=True, map_location="cpu"
            )
            refuse_other_training(self.checkpoint, state.get("identity"), self.identity)

    def _resume(self) -> None:
        if not self.checkpoint.is_file():
            return
        state: dict[str, Any] = torch.load(self.checkpoint, weights_only=True, map_location="cpu")
        shapes = {name: value.shape for name, value in self.trained.items()}
        if shapes != {name: value.shape for name, value in state["trained"].items()}:
            raise ValueError(f"{self.checkpoint} belongs to another model; choose another out=")
        if state["step"] > self.num_steps:
            raise ValueError(
                f"{self.checkpoint} is at step {state['step']}, beyond "
                f"training.num_steps={self.num_steps}: choose another out=, or delete the folder"
            )
        self.step, self.history = state["step"], state["history"]
        # older checkpoints have none: the first mean is of the steps made since
        self._losses, self._num_losses = state.get("losses", (0.0, 0))
        with torch.no_grad():
            for name, value in self.trained.items():
                value.copy_(state["trained"][name])
            for name, average in self.averaged.items():
                average.copy_(state["averaged"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        log.info(f"resumed from {self.checkpoint} at step {self.step}")


def _is_at_hand(loss: Tensor) -> bool:
    """Return whether reading a loss would not wait for earlier work on the GPU."""
    return loss.device.type == "cpu"
