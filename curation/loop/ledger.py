"""Each sample's loss in each epoch, in dense tensors indexed by the sample's row in the dataset."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from captioning.runtime.files import write_atomically

NUM_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLosses:
    """Losses of single tokens in a batch.

    Attributes:
        nll: ``(B, T)`` in nats.
        sentences: ``(B, T) int64`` number of the sentence that each belongs to, from 0; -1 for
            padding and for tokens of no sentence, which do not count.
    """

    nll: Tensor
    sentences: Tensor


class LossLedger:
    """Losses of the current epoch on the training device, and of finished epochs on the CPU.

    Recording costs two ``index_add_`` a step and never waits for the device. A sample seen more
    than once in an epoch counts with its mean.

    Args:
        num_samples: roster size N.
        num_parts: K, the most sentences of a caption, for a ledger by sentence: its values are
            ``(N, K)`` and its history ``(E, N, K)``. None: a value per sample, ``(N,)``.
        device: the device that computes the losses.

    Attributes:
        sums: a ledger of the losses summed over a caption's tokens, where these are wanted too.
        sentences: a ledger by sentence, where it is wanted too.
    """

    def __init__(
        self,
        *,
        num_samples: int,
        num_parts: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if num_samples < 1:
            raise ValueError(f"num_samples must be at least 1: got {num_samples}")
        self.num_samples = num_samples
        self.shape: tuple[int, ...] = (num_samples, *([] if num_parts is None else [num_parts]))
        self._sum = torch.zeros(self.shape, dtype=torch.float32, device=device)
        self._count = torch.zeros(self.shape, dtype=torch.float32, device=device)
        self.sums: LossLedger | None = None
        self.sentences: LossLedger | None = None
        self._reduced = False
        self._history: list[Tensor] = []
        self._epochs: list[int] = []

    def to(self, device: torch.device | str) -> LossLedger:
        """Move the current epoch's sums to ``device``, and return this ledger."""
        self._sum = self._sum.to(device)
        self._count = self._count.to(device)
        return self

    @property
    def device(self) -> torch.device:
        """Device of the current epoch's sums."""
        return self._sum.device

    def num_recorded(self) -> Tensor:
        """Number of losses recorded in this epoch, a scalar tensor on the device."""
        return self._count.sum()

    def add(
        self,
        rows: Tensor,
        losses: Tensor,
        sums: Tensor | None = None,
        tokens: TokenLosses | None = None,
    ) -> None:
        """Record the losses of a training batch in the current epoch's sums.

        Args:
            rows: ``(B,) int64`` roster rows.
            losses: ``(B,)`` loss of each, in nats; in a ledger by sentence ``(B, S)``, NaN where a
                caption has fewer sentences.
            sums: ``(B,)`` the same summed over the caption's tokens; not kept unless wanted.
            tokens: losses of single tokens with their sentences; not kept unless wanted.

        Raises:
            ValueError: shapes differ, or required sums or token losses are missing.
            RuntimeError: the epoch's sums were already reduced over the processes.
        """
        if len(self.shape) == 2:
            self._add_sentences(rows, losses)
            return
        if rows.dim() != 1 or losses.shape != rows.shape:
            raise ValueError(
                "losses must have one value per row: "
                f"got {tuple(losses.shape)} for rows {tuple(rows.shape)}"
            )
        if self.sums is not None:
            if sums is None:
                raise ValueError(
                    "curation.score.loss=sum needs each caption's loss summed over its tokens, "
                    "which this model does not give (CaptionLosses.nll, or 'per_sample_sum' of "
                    "training_step): use curation.score.loss=mean"
                )
            self.sums.add(rows, sums)
        if self.sentences is not None:
            if tokens is None:
                raise ValueError(
                    "curation/score=sentence_loss needs the loss of each token, which this model "
                    "does not give (CaptionLosses.token_nll): choose a score that needs no losses, "
                    "such as curation/score=sentence_fit, or another model"
                )
            self.sentences.add_tokens(rows, tokens)
        self._record(rows, losses, torch.ones_like(losses))

    def _add_sentences(self, rows: Tensor, losses: Tensor) -> None:
        if losses.dim() != 2 or len(losses) != len(rows):
            raise ValueError(
                "losses of sentences must be (B, S), a value for each sentence of each row, NaN "
                f"where a caption has fewer: got {tuple(losses.shape)} for rows {tuple(rows.shape)}"
            )
        places = torch.arange(losses.shape[1], device=losses.device)
        numbers = places.expand(losses.shape).where(~losses.isnan(), -1)
        self.add_tokens(rows, TokenLosses(nll=losses, sentences=numbers))

    def add_tokens(self, rows: Tensor, tokens: TokenLosses) -> None:
        """Record sentence losses; each is the mean loss of the sentence's tokens.

        Args:
            rows: ``(B,) int64`` roster rows.
            tokens: tokens of these captions; sentences after the K-th are not kept.
        """
        num_parts = self.shape[1]
        numbers = tokens.sentences
        is_kept = (numbers >= 0) & (numbers < num_parts)
        places = (rows.to(numbers)[:, None] * num_parts + numbers).where(is_kept, 0)
        losses = tokens.nll.where(is_kept, 0)
        self._record(places.flatten(), losses.flatten(), is_kept.flatten().to(losses))

    def _record(self, places: Tensor, losses: Tensor, counts: Tensor) -> None:
        if self._reduced:
            raise RuntimeError("the epoch is already reduced: call close_epoch before adding more")
        places = places.to(self._sum.device, torch.int64, non_blocking=True)
        for running, added in ((self._sum, losses), (self._count, counts)):
            added = added.detach().to(running.device, torch.float32, non_blocking=True)
            running.view(-1).index_add_(0, places, added)

    def reduce(self) -> None:
        """Sum over all processes in place; afterwards every process holds the same values.

        Does nothing with one process or when called again in the same epoch.
        """
        if not self._reduced and dist.is_available() and dist.is_initialized():
            dist.all_reduce(self._sum, op=dist.ReduceOp.SUM)
            dist.all_reduce(self._count, op=dist.ReduceOp.SUM)
        self._reduced = True

    def mean(self) -> Tensor:
        """Mean loss of each sample in the current epoch, ``(N,) float32``; NaN if unseen.

        ``(N, K)`` by sentence, NaN also where a caption has fewer sentences.
        """
        # 0 / 0 gives NaN, the value of unseen samples
        return self._sum / self._count

    def close_epoch(self, *, epoch: int, name_of: Callable[[int], str] = str) -> Tensor:
        """Append the current means to the history and start an empty epoch.

        Args:
            epoch: number of the epoch that ends.
            name_of: a row's ``sample_id``, for the error message.

        Returns:
            `mean` in host memory.

        Raises:
            ValueError: a recorded loss is NaN or infinite; the message names the samples.
        """
        means = self.mean().cpu()
        broken = (~torch.isfinite(means) & (self._count.cpu() > 0)).nonzero()
        if len(broken):
            named = ", ".join(
                f"{name_of(place[0])!r} ({float(means[tuple(place)])})"
                for place in broken[:NUM_NAMED].tolist()
            )
            raise ValueError(
                f"{len(broken)} samples have a loss that is not finite in epoch {epoch}, such as "
                f"{named}: check their photos and captions, lower the learning rate, or train in "
                "a wider precision; curation made no edit in this epoch"
            )
        self._history.append(means)
        self._epochs.append(epoch)
        self._sum.zero_()
        self._count.zero_()
        self._reduced = False
        return means

    @property
    def epochs(self) -> tuple[int, ...]:
        """Numbers of the finished epochs, one for each row of `history`."""
        return tuple(self._epochs)

    def history(self) -> Tensor:
        """Losses of the finished epochs, ``(E, N) float32``; NaN for unseen samples.

        ``(E, N, K)`` if they are kept by sentence.
        """
        if not self._history:
            return torch.empty(0, *self.shape)
        return torch.stack(self._history)

    def state_dict(self, *, gathered: bool = False) -> dict[str, Any]:
        """Return plain tensors and a list, which ``torch.load(weights_only=True)`` can read.

        Args:
            gathered: sum the losses of the epoch under way over all processes, which must all call
                it; otherwise they are this process's own.
        """
        running = {"sum": self._sum, "count": self._count}
        if gathered and not self._reduced and dist.is_available() and dist.is_initialized():
            running = {name: values.clone() for name, values in running.items()}
            for values in running.values():
                dist.all_reduce(values, op=dist.ReduceOp.SUM)
        return {
            **{name: values.cpu().clone() for name, values in running.items()},
            "history": self.history(),
            "epochs": list(self._epochs),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a saved state onto this ledger's device.

        Raises:
            ValueError: the state is of a roster of another size.
        """
        if state["sum"].shape != self._sum.shape:
            raise ValueError(
                f"the checkpoint's ledger has {len(state['sum'])} samples, this roster has "
                f"{self.num_samples}: resume with the annotations the run was started with"
            )
        self._sum.copy_(state["sum"])
        self._count.copy_(state["count"])
        self._history = list(state["history"].unbind(0))
        self._epochs = [int(epoch) for epoch in state["epochs"]]
        self._reduced = False

    def clear_running(self) -> None:
        """Discard the losses of the current epoch."""
        self._sum.zero_()
        self._count.zero_()
        self._reduced = False

    def save(self, path: str | Path, *, sample_ids: Sequence[str]) -> None:
        """Save a .npz file with ``history (E, ...)``, ``epochs (E,)`` and the ids as JSON bytes.

        The file appears whole or not at all. `read_history` reads it.
        """
        ids = np.frombuffer(json.dumps(list(sample_ids)).encode(), dtype=np.uint8)
        history, epochs = self.history().numpy(), np.array(self._epochs, dtype=np.int64)

        def write(part: Path) -> None:
            with part.open("wb") as file:
                np.savez(file, history=history, epochs=epochs, sample_ids=ids)

        write_atomically(path, write)


def read_history(path: str | Path) -> tuple[list[str], list[int], np.ndarray]:
    """Read sample ids, epoch numbers and losses of a saved ledger, see `LossLedger.history`.

    Raises:
        ValueError: the file is damaged.
    """
    try:
        # opened here, because np.load leaves files open that are not archives
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as saved:
            ids = json.loads(saved["sample_ids"].tobytes())
            epochs, history = saved["epochs"].tolist(), saved["history"]
        if history.shape[:2] != (len(epochs), len(ids)):
            raise ValueError(
                f"the shape {history.shape} of the losses does not match {len(epochs)} epochs and "
                f"{len(ids)} samples"
            )
        if np.isinf(history).any():
            raise ValueError("some losses are infinite")
        return ids, epochs, history
    except FileNotFoundError:
        raise
    except Exception as error:  # NumPy and zipfile raise many error types for damaged files
        problem = str(error).partition(". If you trust")[0]
        raise ValueError(
            f"{path} has no losses of a run ({problem}): it was damaged or cut off; resume or "
            "repeat the run, which writes it again"
        ) from error
