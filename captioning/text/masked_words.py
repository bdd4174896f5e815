"""A small network that predicts a masked caption word from its context and the photo.

It reads the caption's other words and, as options, the words of the photo's other captions and the
photo's features. The context of a word is a window of neighbours and the bag of all other words of
its caption; attention reads other captions and the photo's cells. Counts of words in other
captions, and of words expected for such a photo, add to the logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from captioning.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from captioning.text.word_groups import PAD, WINDOW, Group, Vocabulary


@dataclass(frozen=True, kw_only=True)
class PhotoEvidence:
    """Features and expected words of photos, indexed by photo number.

    Attributes:
        cells: ``(I, R, D)`` cell features.
        expected: ``(I, T)`` log-ratios per thing, see `captioning.text.expected_words`.
        things: ``(W, K)`` thing named by each meaning of each row, see `Vocabulary.things`.
    """

    cells: Tensor
    expected: Tensor
    things: Tensor


@dataclass(frozen=True, kw_only=True)
class WordBatch:
    """Groups of captions as padded tensors.

    Attributes:
        tokens: ``(G, L)`` token ids.
        owner: ``(G, L)`` caption of each token, -1 in padding.
        keys: ``(G, K)`` positions of content words.
        key_mask: ``(G, K) bool``, False in padding.
        neighbours: ``(G, K, 2 * WINDOW)`` tokens around each key.
        places: ``(G, Q)`` which keys are masked words.
        rows, meanings: ``(G, Q)`` row and meaning of each masked word.
        named: ``(G, Q, K, 2)`` meanings named by other captions, see `Group`.
        mask: ``(G, Q) bool``, False in padding.
        photos: ``(G, R, D)`` features, or None.
        expected: ``(G, Q, K)`` log-ratios of each meaning of the word's row, or None.
    """

    tokens: Tensor
    owner: Tensor
    keys: Tensor
    key_mask: Tensor
    neighbours: Tensor
    places: Tensor
    rows: Tensor
    meanings: Tensor
    named: Tensor
    mask: Tensor
    photos: Tensor | None
    expected: Tensor | None

    @classmethod
    def of(cls, groups: Sequence[Group], photos: PhotoEvidence | None) -> WordBatch:
        """Convert groups to a batch with their photos' data."""
        numbers = torch.tensor([group.photo for group in groups])
        rows = _padded([group.rows for group in groups])
        return cls(
            tokens=_padded([group.tokens for group in groups]),
            owner=_padded([group.owner for group in groups], -1),
            keys=_padded([group.keys for group in groups]),
            key_mask=_padded([np.ones(len(group.keys), np.int64) for group in groups]).bool(),
            neighbours=_padded([group.neighbours for group in groups]),
            places=_padded([group.places for group in groups]),
            rows=rows,
            meanings=_padded([group.meanings for group in groups]),
            named=_padded([group.named for group in groups]),
            mask=_padded([np.ones(len(group.places), np.int64) for group in groups]).bool(),
            photos=None if photos is None else photos.cells[numbers].float(),
            expected=None if photos is None else _of_things(photos, numbers, rows),
        )


def _masked_alone(words: WordBatch) -> WordBatch:
    """Return the batch with only masked words as keys."""
    places = words.places
    return replace(
        words,
        keys=words.keys.gather(1, places),
        key_mask=words.mask,
        neighbours=_picked(words.neighbours, places),
        places=torch.arange(places.shape[1]).expand_as(places),
    )


def _padded(values: Sequence[np.ndarray], fill: int = 0) -> Tensor:
    width = max(map(len, values))
    result = np.full((len(values), width, *values[0].shape[1:]), fill, dtype=np.int64)
    for target, value in zip(result, values, strict=True):
        target[: len(value)] = value
    return torch.from_numpy(result)


def _of_things(photos: PhotoEvidence, numbers: Tensor, rows: Tensor) -> Tensor:
    """Return expectations ``(G, Q, K)`` of photos ``(G,)`` for meanings of rows ``(G, Q)``."""
    things = photos.things[rows]
    return photos.expected[numbers].gather(1, things.flatten(1)).view(things.shape)


def _picked(values: Tensor, places: Tensor) -> Tensor:
    """Select positions ``(G, P)`` of ``(G, L, D)``: ``(G, P, D)``."""
    return values.gather(1, places[..., None].expand(-1, -1, values.shape[-1]))


class _Held:
    """Index of the non-padding positions of a batch; nearly half the positions are padding.

    Args:
        mask: ``(G, P) bool``, True at the N non-padding positions.
    """

    def __init__(self, mask: Tensor) -> None:
        self.shape = mask.shape
        self.numbers = mask.flatten().nonzero()[:, 0]

    def packed(self, values: Tensor) -> Tensor:
        """Select the N non-padding positions: ``(G, P, ...)`` to ``(N, ...)``."""
        return values.flatten(0, 1).index_select(0, self.numbers)

    def padded(self, values: Tensor) -> Tensor:
        """Scatter ``(N, D)`` back to ``(G, P, D)``, with 0 in padding."""
        empty = values.new_zeros(self.shape.numel(), values.shape[-1])
        return empty.index_copy(0, self.numbers, values).unflatten(0, self.shape)

    def among(self, places: Tensor, masked: _Held) -> Tensor:
        """Return packed indices ``(M,)`` of positions ``(G, Q)`` that ``masked`` selects."""
        ranks = self.numbers.new_zeros(self.shape.numel())
        ranks[self.numbers] = torch.arange(len(self.numbers))
        return masked.packed(ranks.view(self.shape).gather(1, places))


class _Dropout(nn.Module):
    """Dropout with numpy's random bytes, ten times as fast as torch's masks on a CPU.

    Args:
        share: dropout probability, rounded to 256ths.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self._least = round(256 * share)
        self._generator = np.random.default_rng(int(torch.randint(2**62, ()).item()))

    def forward(self, values: Tensor, held: _Held) -> Tensor:
        """Drop values ``(N, D)`` of a padded batch in training; the mean is preserved."""
        if not self.training or not self._least:
            return values
        size = held.shape.numel() * values.shape[-1]
        drawn = np.frombuffer(self._generator.bytes(size), np.uint8) >= self._least
        kept = torch.from_numpy(drawn).view(*held.shape, -1)
        return values * held.packed(kept.to(values.device)) * (256 / (256 - self._least))


class MaskedWords(nn.Module):
    """Network that gives the logits of a row's meanings for masked words.

    Args:
        num_tokens: size of the vocabulary.
        meaning_tokens: ``(M,)`` token of each meaning's first word, row after row.
        row_sizes: number of meanings of each row.
        photo_size: feature size of a photo's cells; 0: photos are ignored.
        siblings: whether the network reads the photo's other captions.
        width: width of embeddings; contexts are twice as wide.
        num_heads: number of attention heads.
        dropout: dropout probability of contexts, in [0, 1).
    """

    def __init__(
        self,
        *,
        num_tokens: int,
        meaning_tokens: Tensor,
        row_sizes: Sequence[int],
        photo_size: int = 0,
        siblings: bool = True,
        width: int = 48,
        num_heads: int = 4,
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        self.num_heads, self.siblings = num_heads, siblings
        self.photo_size = photo_size
        inner = 2 * width
        self.register_buffer("meaning_tokens", meaning_tokens)
        self.meaning_places, self.inside = _row_places(torch.tensor(row_sizes))
        self.embedding = nn.Embedding(num_tokens, width, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=1 / math.sqrt(width))
        self.near = nn.Linear(2 * WINDOW * width, inner)
        self.bag = nn.Linear(width, inner, bias=False)
        self.dropout = _Dropout(dropout)
        sources = 1
        if siblings:
            sources += 1
            self.query = nn.Linear(inner, inner)
            self.key = nn.Linear(inner + width, inner)
            self.value = nn.Linear(inner + width, inner)
            self.named = nn.Linear(inner, 2)
            nn.init.ones_(self.named.bias)
        if photo_size:
            sources += 1
            self.photo_query = nn.Linear(inner, inner)
            self.photo_key = nn.Linear(photo_size, inner)
            self.photo_value = nn.Linear(photo_size, inner)
            self.expected = nn.Linear(inner, 1)
            nn.init.zeros_(self.expected.weight)
            nn.init.constant_(self.expected.bias, 0.5)
        self.join = nn.Linear(sources * inner, inner)
        self.out = nn.Linear(inner, width)
        self.bias = nn.Parameter(torch.zeros(len(meaning_tokens)))

    def forward(self, words: WordBatch) -> Tensor:
        """Return logits ``(N, K)`` of the meanings of each masked word's row.

        The words are selected by ``words.mask``, in its order. K is the size of the largest row;
        positions beyond a row are minus infinity.
        """
        if not self.siblings:
            words = _masked_alone(words)  # no other word is read by attention
        keys, masked = _Held(words.key_mask), _Held(words.mask)
        embedded = self.embedding(words.tokens)
        known = keys.packed(_picked(embedded, words.keys))
        owner = words.owner.gather(1, words.keys).masked_fill(~words.key_mask, -1)
        context = self._context(embedded, known, words, keys)
        query = context[keys.among(words.places, masked)]
        sources = [query]
        if self.siblings:
            read = torch.cat([context, known], -1)
            own = owner.gather(1, words.places)
            mask = (owner[:, None, :] != own[:, :, None]) & words.key_mask[:, None, :]
            parts = (keys.padded(self.key(read)), keys.padded(self.value(read)))
            sources.append(
                masked.packed(self._attend(masked.padded(self.query(query)), *parts, mask))
            )
        if words.photos is not None:
            photos = words.photos
            parts = (self.photo_key(photos), self.photo_value(photos))
            asked = masked.padded(self.photo_query(query))
            sources.append(masked.packed(self._attend(asked, *parts, None)))
        joined = self.dropout(functional.relu(self.join(torch.cat(sources, -1))), masked)
        targets = self.embedding(self.meaning_tokens)
        rows = masked.packed(words.rows)
        logits = (self.out(joined) @ targets.T + self.bias).gather(-1, self.meaning_places[rows])
        if self.siblings:
            named = masked.packed(words.named).float().log1p()
            logits = logits + (self.named(joined)[:, None] * named).sum(-1)
        if words.expected is not None:
            logits = logits + self.expected(joined) * masked.packed(words.expected)
        return logits.masked_fill(~self.inside[rows], -torch.inf)

    def _context(self, embedded: Tensor, known: Tensor, words: WordBatch, keys: _Held) -> Tensor:
        """Return each key's context ``(N, 2 * width)`` without the key itself."""
        number = int(words.owner.max()) + 1
        is_of = functional.one_hot(words.owner.clamp_min(0), number).to(embedded.dtype)
        is_of = is_of * (words.owner >= 0)[..., None]
        sums = is_of.transpose(1, 2) @ embedded / is_of.sum(1)[..., None].clamp_min(1).sqrt()
        owner = words.owner.gather(1, words.keys).clamp_min(0)
        bag = keys.packed(_picked(sums, owner)) - known / 3
        near = self.embedding(keys.packed(words.neighbours)).flatten(1)
        return self.dropout(functional.relu(self.near(near) + self.bag(bag)), keys)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Attend within each group, ``(G, Q, inner)``; zero where a group has no keys."""
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
    """Training settings of `MaskedWords`.

    Attributes:
        num_epochs: number of passes over the photos.
        batch_size: number of photos, with all their captions.
        lr: learning rate of AdamW, with cosine decay to 0.
        weight_decay: weight decay of AdamW.
    """

    num_epochs: PositiveInt = 4
    batch_size: PositiveInt = 48
    lr: PositiveFloat = 0.006
    weight_decay: NonNegativeFloat = 0.01


def new_network(vocabulary: Vocabulary, **settings: Any) -> MaskedWords:
    """Create a network with new parameters; for settings see `MaskedWords`."""
    rows = vocabulary.table.rows
    firsts = [words[0] for row in rows for words in row.meanings]
    tokens = torch.tensor([vocabulary.numbers[word] for word in firsts])
    sizes = [len(row.meanings) for row in rows]
    own = {"num_tokens": len(vocabulary), "meaning_tokens": tokens, "row_sizes": sizes}
    return MaskedWords(**own, **settings)


def fit(
    network: MaskedWords,
    groups: Sequence[Group],
    photos: PhotoEvidence | None,
    *,
    training: WordTraining,
    seed: int,
    progress: Callable[[float], None] | None = None,
) -> None:
    """Train a network to predict every row word in all groups.

    Args:
        network: network, changed in place.
        groups: captions by photo.
        photos: cell features with ``photo_size`` values; None: photos are ignored.
        training: see `WordTraining`.
        seed: seed of the batch order; parameters and dropout use torch's generator.
        progress: function that receives the completed fraction of the work.
    """
    groups = [group for group in groups if len(group.places)]
    size = training.batch_size
    num_steps = max(-(-len(groups) // size) * training.num_epochs, 1)
    optimizer = FusedAdamW(list(network.parameters()), weight_decay=training.weight_decay)
    generator = np.random.default_rng(seed)
    network.train()
    step = 0
    for _ in range(training.num_epochs):
        order = generator.permutation(len(groups)).tolist()
        for start in range(0, len(order), size):
            batch = WordBatch.of([groups[i] for i in order[start : start + size]], photos)
            gradients = torch.autograd.grad(_loss(network, batch), optimizer.parameters)
            optimizer.step(
                gradients, training.lr * 0.5 * (1 + math.cos(math.pi * step / num_steps))
            )
            step += 1
            if progress is not None:
                progress(step / num_steps)
    network.eval()


class FusedAdamW:
    """Fused AdamW of torch, without torch's own class, whose compiler import takes two seconds.

    Args:
        parameters: parameters to train.
        weight_decay: weight decay of the parameters.
    """

    def __init__(self, parameters: list[nn.Parameter], *, weight_decay: float) -> None:
        self.parameters, self._weight_decay = parameters, weight_decay
        self._means, self._squares = (
            [torch.zeros_like(own) for own in parameters] for _ in range(2)
        )
        self._steps = [torch.zeros(()) for _ in parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], lr: float) -> None:
        """Update the parameters with their gradients."""
        torch._foreach_add_(self._steps, 1)  # pyright: ignore[reportPrivateImportUsage]
        torch._fused_adamw_(  # pyright: ignore[reportPrivateImportUsage]
            [*self.parameters], [*gradients], self._means, self._squares, [], self._steps,
            lr=lr, beta1=0.9, beta2=0.999, weight_decay=self._weight_decay, eps=1e-8,
            amsgrad=False, maximize=False,
        )  # fmt: skip


def _loss(network: MaskedWords, batch: WordBatch) -> Tensor:
    """Return the mean negative log-likelihood of the written words, in nats."""
    log_probs = network(batch).log_softmax(-1)
    return -log_probs.gather(-1, batch.meanings[batch.mask][:, None]).mean()


def _row_places(sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``(W, K)`` index of each row's meanings among all meanings, and its mask."""
    offsets = torch.arange(int(sizes.max()))
    starts = sizes.cumsum(0) - sizes
    inside = offsets < sizes[:, None]
    return torch.where(inside, starts[:, None] + offsets, 0), inside


@torch.no_grad()
def predict(
    network: MaskedWords,
    groups: Sequence[Group],
    photos: PhotoEvidence | None,
    *,
    batch_size: int = 64,
) -> np.ndarray:
    """Return log-probabilities ``(Q, K) float32`` for all row words, group by group.

    K is the size of the largest row; positions beyond a word's row are minus infinity. For
    arguments see `fit`.
    """
    results = [np.zeros((0, network.inside.shape[1]), np.float32)]
    groups = [group for group in groups if len(group.places)]
    for start in range(0, len(groups), batch_size):
        batch = WordBatch.of(groups[start : start + batch_size], photos)
        results.append(network(batch).log_softmax(-1).numpy())
    return np.concatenate(results)
