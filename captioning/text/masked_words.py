"""A small network that predicts a masked word of a row from what else is known of the photo.

It reads the caption's other words, and as switches the words of the photo's other captions and
features of the photo. The context of a word is a window of its neighbours and the bag of all other
words of its caption; other captions and the photo's cells are read by attention.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from captioning.text.word_rows import row_words, word_rows

_TOKEN = re.compile(r"[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]")
_PAD, _UNKNOWN = 0, 1
_MAX_TOGETHER = 8  # captions of one photo that are read together; the cost grows with its square


@dataclass(frozen=True, kw_only=True)
class Group:
    """Captions of one photo, their tokens one after another.

    Attributes:
        photo: number of the photo.
        captions: numbers of the captions.
        tokens: ``(L,) int64``.
        owner: ``(L,) int64`` place in ``captions`` of each token's caption.
        places: ``(Q,) int64`` tokens that are words of a row.
        rows, meanings: ``(Q,) int64`` of these words, see `word_rows`.
        starts: ``(Q,) int64`` index of each word's first character in its caption.
    """

    photo: int
    captions: tuple[int, ...]
    tokens: np.ndarray
    owner: np.ndarray
    places: np.ndarray
    rows: np.ndarray
    meanings: np.ndarray
    starts: np.ndarray


class Vocabulary:
    """Numbers of words; rare ones share a number."""

    def __init__(self, captions: Sequence[str], *, min_count: int = 2) -> None:
        counts = Counter(token for caption in captions for token in _tokens(caption))
        frequent = sorted(token for token, count in counts.items() if count >= min_count)
        words = [word for row in word_rows() for words in row.meanings for word in words]
        self.numbers = {
            token: number
            for number, token in enumerate(dict.fromkeys([*words, *frequent]), start=2)
        }

    def __len__(self) -> int:
        """With padding and unknown."""
        return len(self.numbers) + 2

    def group(self, photo: int, captions: Sequence[tuple[int, str]]) -> Group:
        """Numbered captions of a photo as the network reads them."""
        tokens: list[int] = []
        owner: list[int] = []
        words: list[tuple[int, int, int, int]] = []
        for place, (_, caption) in enumerate(captions):
            known = {word.start: word for word in row_words(caption)}
            for match in _TOKEN.finditer(caption):
                word = known.get(match.start())
                if word is not None:
                    words.append((len(tokens), word.row, word.meaning, word.start))
                tokens.append(self.numbers.get(match[0].lower(), _UNKNOWN))
                owner.append(place)
        columns = np.array(words, dtype=np.int64).reshape(-1, 4).T
        return Group(
            photo=photo,
            captions=tuple(number for number, _ in captions),
            tokens=np.array(tokens, dtype=np.int64),
            owner=np.array(owner, dtype=np.int64),
            places=columns[0],
            rows=columns[1],
            meanings=columns[2],
            starts=columns[3],
        )

    def groups(self, captions: Sequence[str], photos: Sequence[int]) -> list[Group]:
        """All captions by photo, a few at a time."""
        by_photo: dict[int, list[tuple[int, str]]] = {}
        for number, (caption, photo) in enumerate(zip(captions, photos, strict=True)):
            by_photo.setdefault(photo, []).append((number, caption))
        return [
            self.group(photo, numbered[start : start + _MAX_TOGETHER])
            for photo, numbered in by_photo.items()
            for start in range(0, len(numbered), _MAX_TOGETHER)
        ]


def _tokens(caption: str) -> list[str]:
    return [token.lower() for token in _TOKEN.findall(caption)]


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
        self.embedding = nn.Embedding(num_tokens, width, padding_idx=_PAD)
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
            sources.append(
                self._attend(self.query(query), self.key(read), self.value(read), mask)
            )
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
        batch_size: groups of captions.
        lr: of AdamW, falling to 0 in a half cosine.
        weight_decay: of AdamW.
    """

    num_epochs: int = 8
    batch_size: int = 32
    lr: float = 0.003
    weight_decay: float = 0.01


def meanings_of_rows() -> tuple[Tensor, list[int]]:
    """``(M,)`` row of each meaning, and where each row begins."""
    sizes = [len(row.meanings) for row in word_rows()]
    row_of = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return row_of, np.cumsum([0, *sizes]).tolist()


def new_network(vocabulary: Vocabulary, **settings: object) -> MaskedWords:
    """A network with fresh parameters."""
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
    """Train to predict every word of a row in all groups."""
    groups = [group for group in groups if len(group.places)]
    row_of, begins = meanings_of_rows()
    begin = torch.tensor(begins)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=training.lr, weight_decay=training.weight_decay
    )
    generator = np.random.default_rng(seed)
    per_epoch = -(-len(groups) // training.batch_size)
    total = per_epoch * training.num_epochs
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / total))
    )
    network.train()
    for _ in range(training.num_epochs):
        order = generator.permutation(len(groups))
        for start in range(0, len(order), training.batch_size):
            batch = _collate([groups[i] for i in order[start : start + training.batch_size]], photos)
            log_probs = _in_rows(network(*batch.inputs), batch, row_of)
            targets = begin[batch.rows] + batch.meanings
            picked = log_probs.gather(-1, targets[..., None])[..., 0]
            loss = -picked[batch.mask].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()


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


def _in_rows(logits: Tensor, batch: _Batch, row_of: Tensor) -> Tensor:
    """Log-probabilities ``(G, Q, M)`` within each word's row; elsewhere far below."""
    outside = row_of != batch.rows[..., None]
    return logits.masked_fill(outside, -1e4).log_softmax(-1)


@torch.no_grad()
def predict(
    network: MaskedWords, groups: Sequence[Group], photos: Tensor | None, *, batch_size: int = 64
) -> list[Tensor]:
    """Log-probabilities ``(Q, M)`` of each group's words, far below zero outside their row."""
    row_of, _ = meanings_of_rows()
    results = []
    for start in range(0, len(groups), batch_size):
        block = groups[start : start + batch_size]
        if not any(len(group.places) for group in block):
            results += [torch.zeros(0, len(row_of)) for _ in block]
            continue
        batch = _collate(block, photos)
        log_probs = _in_rows(network(*batch.inputs), batch, row_of)
        results += [values[mask] for values, mask in zip(log_probs, batch.mask, strict=True)]
    return results
