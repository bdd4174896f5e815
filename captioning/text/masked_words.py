"""A small network that predicts a masked row word from the other data on the photo.

It reads the caption's other words, and as switches the words of the photo's other captions and
features of the photo. The context of a word is a window of its neighbours and the bag of all other
words of its caption; other captions and the photo's cells are read by attention. The words in other
captions, and those expected for such a photo, add to the logits.
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
    """The data of photos, by number of the photo.

    Attributes:
        cells: ``(I, R, D)`` features.
        expected: ``(I, T)`` log-ratios by thing, see `captioning.text.expected_words`.
        things: ``(W, K)`` thing that each meaning of each row names, see `Vocabulary.things`.
    """

    cells: Tensor
    expected: Tensor
    things: Tensor


@dataclass(frozen=True, kw_only=True)
class WordBatch:
    """Groups of captions as tensors, padded.

    Attributes:
        tokens: ``(G, L)``.
        owner: ``(G, L)`` caption of each token, -1 where padded.
        keys: ``(G, K)`` places of tokens that tell something.
        key_mask: ``(G, K) bool``, True where there is one.
        neighbours: ``(G, K, 2 * WINDOW)`` tokens around them.
        places: ``(G, Q)`` which keys are masked words.
        rows, meanings: ``(G, Q)`` of these.
        named: ``(G, Q, K, 2)`` what other captions name, see `Group`.
        mask: ``(G, Q) bool``, True where there is a masked word.
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
        """The groups with their photos' data."""
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
    """The same with the masked words as the only keys."""
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
    """``(G, Q, K)`` what is expected of photos ``(G,)``, for the meanings of rows ``(G, Q)``."""
    things = photos.things[rows]
    return photos.expected[numbers].gather(1, things.flatten(1)).view(things.shape)


def _picked(values: Tensor, places: Tensor) -> Tensor:
    """``(G, P, D)`` of ``(G, L, D)`` at ``(G, P)``."""
    return values.gather(1, places[..., None].expand(-1, -1, values.shape[-1]))


class _Held:
    """The places of a padded batch that hold something: nearly half hold nothing.

    Args:
        mask: ``(G, P) bool``, True where there is something: N of them.
    """

    def __init__(self, mask: Tensor) -> None:
        self.shape = mask.shape
        self.numbers = mask.flatten().nonzero()[:, 0]

    def packed(self, values: Tensor) -> Tensor:
        """Select the N places that hold words: ``(G, P, ...)`` to ``(N, ...)``."""
        return values.flatten(0, 1).index_select(0, self.numbers)

    def padded(self, values: Tensor) -> Tensor:
        """``(G, P, D)`` of ``(N, D)``, 0 where there is nothing."""
        empty = values.new_zeros(self.shape.numel(), values.shape[-1])
        return empty.index_copy(0, self.numbers, values).unflatten(0, self.shape)

    def among(self, places: Tensor, masked: _Held) -> Tensor:
        """``(M,)`` numbers among the N of the places ``(G, Q)`` that ``masked`` holds."""
        ranks = self.numbers.new_zeros(self.shape.numel())
        ranks[self.numbers] = torch.arange(len(self.numbers))
        return masked.packed(ranks.view(self.shape).gather(1, places))


class _Dropout(nn.Module):
    """Dropout by bytes of numpy's generator: torch draws its masks ten times as slowly on a CPU.

    Args:
        share: share of the values that are left out, rounded to 256ths.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self._least = round(256 * share)
        self._generator = np.random.default_rng(int(torch.randint(2**62, ()).item()))

    def forward(self, values: Tensor, held: _Held) -> Tensor:
        """Of the same mean, in training; ``values (N, D)`` are of a padded batch."""
        if not self.training or not self._least:
            return values
        size = held.shape.numel() * values.shape[-1]
        drawn = np.frombuffer(self._generator.bytes(size), np.uint8) >= self._least
        kept = torch.from_numpy(drawn).view(*held.shape, -1)
        return values * held.packed(kept.to(values.device)) * (256 / (256 - self._least))


class MaskedWords(nn.Module):
    """Logits of the meanings of a row for masked words.

    Args:
        num_tokens: size of the vocabulary.
        meaning_tokens: ``(M,)`` token of each meaning's first word, rows one after another.
        row_sizes: number of meanings of each row.
        photo_size: size of the features of a photo's cells; 0: photos are not read.
        siblings: whether the photo's other captions are read.
        width: width of embeddings; contexts are twice as wide.
        num_heads: number of heads of attention.
        dropout: dropout of contexts, in [0, 1).
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
        """Logits ``(N, K)`` of the meanings of each masked word's row, K the most of any row.

        The words are those of ``words.mask``, in its order. Places beyond a row hold minus
        infinity.
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
        """``(N, 2 * width)`` of each key without the key itself."""
        number = int(words.owner.max()) + 1
        is_of = functional.one_hot(words.owner.clamp_min(0), number).to(embedded.dtype)
        is_of = is_of * (words.owner >= 0)[..., None]
        sums = is_of.transpose(1, 2) @ embedded / is_of.sum(1)[..., None].clamp_min(1).sqrt()
        owner = words.owner.gather(1, words.keys).clamp_min(0)
        bag = keys.packed(_picked(sums, owner)) - known / 3
        near = self.embedding(keys.packed(words.neighbours)).flatten(1)
        return self.dropout(functional.relu(self.near(near) + self.bag(bag)), keys)

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
        lr: learning rate of AdamW, falling to 0 in a half cosine.
        weight_decay: weight decay of AdamW.
    """

    num_epochs: PositiveInt = 4
    batch_size: PositiveInt = 48
    lr: PositiveFloat = 0.006
    weight_decay: NonNegativeFloat = 0.01


def new_network(vocabulary: Vocabulary, **settings: Any) -> MaskedWords:
    """A network with fresh parameters; for settings see `MaskedWords`."""
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
    """Train to predict every word of a row in all groups.

    Args:
        network: is changed.
        groups: captions by photo.
        photos: the photos' cells of ``photo_size`` values; None: they are not read.
        training: see `WordTraining`.
        seed: the order's seed; parameters and dropout are drawn from torch's generator.
        progress: called with the share of the work that is done.
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
    """The fused AdamW of torch, whose own class imports torch's compiler: two seconds.

    Args:
        parameters: parameters to train.
        weight_decay: their weight decay.
    """

    def __init__(self, parameters: list[nn.Parameter], *, weight_decay: float) -> None:
        self.parameters, self._weight_decay = parameters, weight_decay
        self._means, self._squares = (
            [torch.zeros_like(own) for own in parameters] for _ in range(2)
        )
        self._steps = [torch.zeros(()) for _ in parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], lr: float) -> None:
        """Change them, by gradients of theirs."""
        torch._foreach_add_(self._steps, 1)  # pyright: ignore[reportPrivateImportUsage]
        torch._fused_adamw_(  # pyright: ignore[reportPrivateImportUsage]
            [*self.parameters], [*gradients], self._means, self._squares, [], self._steps,
            lr=lr, beta1=0.9, beta2=0.999, weight_decay=self._weight_decay, eps=1e-8,
            amsgrad=False, maximize=False,
        )  # fmt: skip


def _loss(network: MaskedWords, batch: WordBatch) -> Tensor:
    """Mean negative log-likelihood of the written words, in nats."""
    log_probs = network(batch).log_softmax(-1)
    return -log_probs.gather(-1, batch.meanings[batch.mask][:, None]).mean()


def _row_places(sizes: Tensor) -> tuple[Tensor, Tensor]:
    """``(W, K)`` number of each row's meanings among all, and whether there is one."""
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
    """Log-probabilities ``(Q, K) float32`` of all words of rows, group by group.

    K is the most meanings that a row has; places beyond a word's row hold minus infinity. For
    arguments see `fit`.
    """
    results = [np.zeros((0, network.inside.shape[1]), np.float32)]
    groups = [group for group in groups if len(group.places)]
    for start in range(0, len(groups), batch_size):
        batch = WordBatch.of(groups[start : start + batch_size], photos)
        results.append(network(batch).log_softmax(-1).numpy())
    return np.concatenate(results)
