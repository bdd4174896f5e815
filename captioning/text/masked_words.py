"""A small network that predicts a masked word of a row from what else is known of the photo.

It reads the caption's other words, and as switches the words of the photo's other captions and
features of the photo. The context of a word is a window of its neighbours and the bag of all other
words of its caption; other captions and the photo's cells are read by attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from captioning.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from captioning.text.word_groups import PAD, Group, Vocabulary
from captioning.text.word_rows import word_rows


class MaskedWords(nn.Module):
    """Logits of the meanings of a row for masked words.

    Args:
        num_tokens: size of the vocabulary.
        meaning_tokens: ``(M,)`` token of each meaning's first word, rows one after another.
        photo_size: of the features of a photo's cells; 0: photos are not read.
        siblings: whether the photo's other captions are read.
        width: of embeddings; contexts are twice as wide.
        window: neighbours on each side.
        num_heads: of attention.
        dropout: of contexts.
    """

    def __init__(
        self,
        *,
        num_tokens: int,
        meaning_tokens: Tensor,
        photo_size: int = 0,
        siblings: bool = True,
        width: int = 64,
        window: int = 4,
        num_heads: int = 4,
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        self.window, self.num_heads, self.siblings = window, num_heads, siblings
        self.photo_size = photo_size
        inner = 2 * width
        self.register_buffer("meaning_tokens", meaning_tokens)
        self.embedding = nn.Embedding(num_tokens, width, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=1 / math.sqrt(width))
        self.near = nn.Linear(2 * window * width, inner)
        self.bag = nn.Linear(width, inner, bias=False)
        self.dropout = nn.Dropout(dropout)
        sources = 1
        if siblings:
            sources += 1
            self.query = nn.Linear(inner, inner)
            self.key = nn.Linear(inner + width, inner)
            self.value = nn.Linear(inner + width, inner)
        if photo_size:
            sources += 1
            self.photo_query = nn.Linear(inner, inner)
            self.photo_key = nn.Linear(photo_size, inner)
            self.photo_value = nn.Linear(photo_size, inner)
        self.join = nn.Linear(sources * inner, inner)
        self.out = nn.Linear(inner, width)
        self.bias = nn.Parameter(torch.zeros(len(meaning_tokens)))

    def forward(
        self, tokens: Tensor, owner: Tensor, places: Tensor, photos: Tensor | None
    ) -> Tensor:
        """Logits ``(G, Q, M)``.

        Args:
            tokens: ``(G, L)``, padded.
            owner: ``(G, L)`` caption of each token, -1 where padded.
            places: ``(G, Q)`` of the masked words in [0, L), padded with any.
            photos: ``(G, R, photo_size)`` or None.
        """
        embedded = self.embedding(tokens)
        context = self._context(embedded, owner)
        query = context.gather(1, places[..., None].expand(-1, -1, context.shape[-1]))
        sources = [query]
        if self.siblings:
            read = torch.cat([context, embedded], -1)
            own = owner.gather(1, places)
            mask = (owner[:, None, :] != own[:, :, None]) & (owner >= 0)[:, None, :]
            sources.append(self._attend(self.query(query), self.key(read), self.value(read), mask))
        if photos is not None:
            parts = (self.photo_query(query), self.photo_key(photos), self.photo_value(photos))
            sources.append(self._attend(*parts, None))
        joined = functional.relu(self.join(self.dropout(torch.cat(sources, -1))))
        targets = self.embedding(self.meaning_tokens)
        return self.out(self.dropout(joined)) @ targets.T + self.bias

    def _context(self, embedded: Tensor, owner: Tensor) -> Tensor:
        """``(G, L, 2 * width)`` of each token without the token itself."""
        neighbours = []
        for offset in range(-self.window, self.window + 1):
            if not offset:
                continue
            shifted = torch.roll(embedded, -offset, 1)
            same = torch.roll(owner, -offset, 1) == owner
            if offset > 0:
                same[:, -offset:] = False
            else:
                same[:, :-offset] = False
            neighbours.append(shifted * same[..., None])
        same = (owner[:, :, None] == owner[:, None, :]).float()
        number = same.sum(-1, keepdim=True)
        bag = (same @ embedded - embedded) / number.sqrt()
        return functional.relu(self.near(torch.cat(neighbours, -1)) + self.bag(bag))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """``(G, Q, inner)``: each word reads what belongs to its group; zero where nothing does."""
        size = query.shape[-1] // self.num_heads

        def heads(values: Tensor) -> Tensor:
            return values.unflatten(-1, (self.num_heads, size)).transpose(1, 2)

        weights = heads(query) @ heads(key).transpose(-1, -2) / math.sqrt(size)
        if mask is not None:
            weights = weights.masked_fill(~mask[:, None], -1e4)
        weights = weights.softmax(-1)
        if mask is not None:
            weights = weights * mask[:, None]
        return (weights @ heads(value)).transpose(1, 2).flatten(2)


@dataclass(frozen=True, kw_only=True)
class WordTraining:
    """How `MaskedWords` are trained.

    Attributes:
        num_epochs: passes over the photos.
        batch_size: photos with their captions.
        lr: of AdamW, falling to 0 in a half cosine.
        weight_decay: of AdamW.
    """

    num_epochs: PositiveInt = 6
    batch_size: PositiveInt = 32
    lr: PositiveFloat = 0.003
    weight_decay: NonNegativeFloat = 0.01


def meaning_rows() -> Tensor:
    """``(M,)`` row of each meaning."""
    sizes = [len(row.meanings) for row in word_rows()]
    return torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))


def row_starts() -> np.ndarray:
    """Number of the first meaning of each row."""
    return np.cumsum([0, *(len(row.meanings) for row in word_rows())])[:-1]


def new_network(vocabulary: Vocabulary, **settings: Any) -> MaskedWords:
    """A network with fresh parameters; for settings see `MaskedWords`."""
    firsts = [words[0] for row in word_rows() for words in row.meanings]
    tokens = torch.tensor([vocabulary.numbers[word] for word in firsts])
    return MaskedWords(num_tokens=len(vocabulary), meaning_tokens=tokens, **settings)


def fit(
    network: MaskedWords,
    groups: Sequence[Group],
    photos: Tensor | None,
    *,
    training: WordTraining,
    seed: int,
) -> None:
    """Train to predict every word of a row in all groups.

    Args:
        network: is changed.
        groups: captions by photo.
        photos: ``(I, R, photo_size)`` features by number of the photo, or None.
        training: see `WordTraining`.
        seed: of the order; parameters and dropout are drawn from torch's generator.
    """
    groups = [group for group in groups if len(group.places)]
    size = training.batch_size
    num_steps = -(-len(groups) // size) * training.num_epochs
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=training.lr, weight_decay=training.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / num_steps))
    )
    generator = np.random.default_rng(seed)
    network.train()
    for _ in range(training.num_epochs):
        order = generator.permutation(len(groups)).tolist()
        for start in range(0, len(order), size):
            batch = _collate([groups[i] for i in order[start : start + size]], photos)
            optimizer.zero_grad()
            _loss(network, batch).backward()
            optimizer.step()
            schedule.step()
    network.eval()


def _loss(network: MaskedWords, batch: _Batch) -> Tensor:
    """Mean negative log-likelihood of the written words, in nats."""
    targets = torch.from_numpy(row_starts())[batch.rows] + batch.meanings
    log_probs = _in_rows(network(*batch.inputs), batch.rows)
    return -log_probs.gather(-1, targets[..., None])[..., 0][batch.mask].mean()


@dataclass(frozen=True, kw_only=True)
class _Batch:
    inputs: tuple[Tensor, Tensor, Tensor, Tensor | None]
    rows: Tensor
    meanings: Tensor
    mask: Tensor


def _collate(groups: Sequence[Group], photos: Tensor | None) -> _Batch:
    def padded(values: list[np.ndarray], fill: int = 0) -> Tensor:
        width = max(map(len, values))
        result = np.full((len(values), width), fill, dtype=np.int64)
        for target, value in zip(result, values, strict=True):
            target[: len(value)] = value
        return torch.from_numpy(result)

    numbers = torch.tensor([group.photo for group in groups])
    return _Batch(
        inputs=(
            padded([group.tokens for group in groups]),
            padded([group.owner for group in groups], -1),
            padded([group.places for group in groups]),
            None if photos is None else photos[numbers].float(),
        ),
        rows=padded([group.rows for group in groups]),
        meanings=padded([group.meanings for group in groups]),
        mask=padded([np.ones(len(group.places), np.int64) for group in groups]).bool(),
    )


def _in_rows(logits: Tensor, rows: Tensor) -> Tensor:
    """Log-probabilities ``(G, Q, M)`` within each word's row; elsewhere far below."""
    return logits.masked_fill(meaning_rows() != rows[..., None], -1e4).log_softmax(-1)


@torch.no_grad()
def predict(
    network: MaskedWords, groups: Sequence[Group], photos: Tensor | None, *, batch_size: int = 64
) -> np.ndarray:
    """Log-probabilities ``(Q, K) float32`` of all words of rows, group by group.

    K is the most meanings that a row has; places beyond a word's row hold minus infinity. For
    arguments see `fit`.
    """
    rows = word_rows()
    sizes = np.array([len(row.meanings) for row in rows])
    places = np.arange(sizes.max())
    results = [np.zeros((0, len(places)), np.float32)]
    groups = [group for group in groups if len(group.places)]
    for start in range(0, len(groups), batch_size):
        batch = _collate(groups[start : start + batch_size], photos)
        log_probs = _in_rows(network(*batch.inputs), batch.rows)[batch.mask].numpy()
        of_word = batch.rows[batch.mask].numpy()
        columns = np.minimum(row_starts()[of_word][:, None] + places, log_probs.shape[1] - 1)
        inside = places < sizes[of_word][:, None]
        picked = np.take_along_axis(log_probs, columns, axis=1)
        results.append(np.where(inside, picked, -np.inf).astype(np.float32))
    return np.concatenate(results)
