"""A toy model for search: scores are looked up by image and by the whole history's hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from captioning.decoding.machine import Machine
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import SearchRequest
from captioning.decoding.state import ConstrainedResult, SearchResult
from captioning.interfaces import AbstractDecoderState, AbstractStepper

BOS, EOS, PAD = 0, 1, 2


@dataclass(frozen=True)
class TableState(AbstractDecoderState):
    """Image ``(G,)`` of each row and the hash ``(G,)`` of the tokens that it has read."""

    image: Tensor
    code: Tensor

    def select(self, index: Tensor) -> TableState:
        return TableState(self.image[index], self.code[index])


def run(
    kind: type[AbstractSearch],
    stepper: TableStepper,
    *,
    machines: Sequence[Machine] | None = None,
    image_ids: Sequence[int | str] | None = None,
    boundary: int | None = None,
    **settings: object,
) -> SearchResult | ConstrainedResult:
    """Search all images of a stepper; ``boundary`` is begin, end and padding in one token."""
    bos, eos, pad = (BOS, EOS, PAD) if boundary is None else (boundary,) * 3
    request = SearchRequest(
        num_images=len(stepper.table),
        bos_id=bos,
        eos_id=eos,
        pad_id=pad,
        machines=machines,
        image_ids=image_ids,
    )
    return kind.with_settings(**settings)(stepper, stepper.start(), request)


class TableStepper(AbstractStepper):
    """Log-probabilities ``table[image, hash of history]``, ``table (I, C, V)``."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.rows: list[int] = []

    def start(self) -> TableState:
        images = torch.arange(len(self.table))
        return TableState(images, torch.zeros_like(images))

    def next_code(self, code: int, token: int) -> int:
        return (7 * code + 3 * token + 1) % self.table.shape[1]

    def after(self, image: int, tokens: Sequence[int]) -> np.ndarray:
        """Log-probabilities ``(V,)`` of what follows tokens, the begin token included."""
        code = 0
        for token in tokens:
            code = self.next_code(code, token)
        return self.table[image, code].numpy()

    def step(self, tokens: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        self.rows.append(len(tokens))
        images, counts = state.image.unique_consecutive(return_counts=True)
        assert len(images.unique()) == len(images), "the rows of an image must be contiguous"
        assert len(counts.unique()) <= 1, "every image must have as many rows"
        code = (7 * state.code + 3 * tokens + 1) % self.table.shape[1]
        return self.table[state.image, code], TableState(state.image, code)


def random_table(
    seed: int, *, images: int = 3, codes: int = 11, vocabulary: int = 7, coarse: bool = False
) -> Tensor:
    """A table of log-probabilities; ``coarse`` gives many equal values and some impossible."""
    generator = np.random.default_rng(seed)
    shape = (images, codes, vocabulary)
    if coarse:
        values = generator.choice([-0.5, -1.0, -1.5, -2.0, -np.inf], size=shape)
        return torch.tensor(values, dtype=torch.float32)
    logits = torch.tensor(generator.normal(scale=2.0, size=shape), dtype=torch.float32)
    return logits.log_softmax(dim=-1)


Hypothesis = tuple[float, tuple[int, ...]]


def naive_beam_search(
    stepper: TableStepper,
    image: int,
    *,
    beam_size: int,
    max_length: int,
    min_length: int = 0,
    length_penalty: float = 0.0,
    per_node_beam: int | None = None,
    forbidden_ids: tuple[int, ...] = (),
    num_captions: int = 1,
) -> list[Hypothesis]:
    """What `BeamSearch` promises for one image, word by word: lists, no early end."""
    table = stepper.table[image]
    banned = {BOS, PAD, *forbidden_ids}
    live = [(np.float32(0.0), (), stepper.next_code(0, BOS))]
    pool: list[Hypothesis] = []
    for length in range(1, max_length + 1):
        ranked = []
        for place, (score, tokens, code) in enumerate(live):
            finished = []
            for token, value in enumerate(table[code].numpy()):
                allowed = token not in banned and (token != EOS or length >= min_length)
                if allowed and value > -np.inf:
                    finished.append((-value, token))
            finished.sort()
            if per_node_beam is not None and length > 1:
                finished = finished[:per_node_beam]
            for loss, token in finished:
                total = np.float32(score - loss)
                key = (-total, place, loss, token)
                ranked.append((key, total, (*tokens, token), stepper.next_code(code, token)))
        ranked.sort(key=lambda item: item[0])
        for _, total, tokens, _ in ranked[:beam_size]:
            if tokens[-1] == EOS:
                pool.append((normalised(total, length, length_penalty), tokens))
        live = [item[1:] for item in ranked if item[2][-1] != EOS][:beam_size]
    pool.sort(key=lambda item: -item[0])
    cut_off = [(normalised(s, max_length, length_penalty), tokens) for s, tokens, _ in live]
    return (pool[:num_captions] + cut_off)[:num_captions]


def normalised(total: np.float32, length: int, penalty: float) -> float:
    return float(torch.tensor(total) / length**penalty)
