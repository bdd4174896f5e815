"""A dataset of the curated samples, for data loaders that are built once."""

from __future__ import annotations

import inspect
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from captioning.text.sentence_spans import sentence_numbers, sentence_spans
from captioning.text.tokenizers.token_spans import Span
from captioning.types import Sample
from captioning.vision.photos import load_rgb
from curation.adapters.curation import Curation, EpochSamples
from curation.adapters.losses import IGNORED, label_spans

ROW = "row"
SENTENCES = "sentences"


class CuratedDataset(Dataset):
    """Dataset of the current epoch's curated samples; ``curation.end_epoch()`` updates its items.

    The dataset keeps its first length, so that a loader, a sampler and a schedule made once stay
    valid: live samples, drawn by seed and epoch, come a second time in place of removed samples.
    So all policies make the same number of updates.

    An item is a mapping, and has the sample's row under ``"row"``, as `Curation.add` needs it.

    Args:
        source: makes an item of a `Sample`; or a dataset whose items are mappings, one for each
            row of the roster in its order. In these items an edited caption or image replaces the
            value of ``caption_key`` or ``image_key``.
        curation: the run whose edits the items follow.
        shuffle: whether each epoch has its own order, by its number and the run's seed alone: with
            a loader that does not shuffle, a resumed run sees the same batches.
        fixed_length: False: the dataset has only the live samples; build a new loader in every
            epoch.
        caption_key, image_key: keys of the dataset's items.

    Raises:
        ValueError: the dataset and the roster differ in length.

    Examples:
        >>> from captioning import CuratedDataset, Curation
        >>> samples = [("a.jpg", "a dog"), ("b.jpg", "a cat")]
        >>> curation = Curation.open("followed", samples=samples, policy="remove")
        >>> CuratedDataset(lambda sample: {"text": sample.caption}, curation)[1]
        {'text': 'a cat', 'row': 1}
    """

    def __init__(
        self,
        source: Callable[[Sample], Mapping[str, Any]] | Any,
        curation: Curation,
        *,
        shuffle: bool = False,
        fixed_length: bool = True,
        caption_key: str = "caption",
        image_key: str = "image",
    ) -> None:
        self.current = curation.current
        self.shuffle = shuffle
        self.fixed_length = fixed_length
        self._make = source
        if not callable(source):
            if len(source) != len(curation.roster):
                raise ValueError(
                    f"the dataset has {len(source)} items, but the roster has "
                    f"{len(curation.roster)} samples: give a dataset with one item for each "
                    "caption, or a function that makes an item from a Sample"
                )
            self._make = RowItems(source, curation.current, caption_key, image_key)
        self._length = len(curation.roster)
        self._ordered: tuple[int, tuple[Sample, ...]] | None = None
        self._order = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return self._length if self.fixed_length else len(self.current.samples)

    def __getitem__(self, position: int) -> dict[str, Any]:
        """Return the item at a position, counted from 0.

        Raises:
            IndexError: the position is out of range.
            ValueError: the source returns an item that is not a mapping.
        """
        if not -len(self) <= position < len(self):
            raise IndexError(f"position {position} is out of range for {len(self)} items")
        sample = self.current.samples[self._positions()[position]]
        item = self._make(sample)
        if not isinstance(item, Mapping):
            raise ValueError(
                f"the item of {sample.sample_id!r} must be a mapping, so that the key {ROW!r} can "
                f"be added: got {type(item).__name__}"
            )
        return {**item, ROW: sample.row}

    def _positions(self) -> np.ndarray:
        """Map each position of the dataset to a position among the live samples."""
        epoch, samples = self.current.epoch, self.current.samples
        if self._ordered is None or self._ordered[0] != epoch or self._ordered[1] is not samples:
            seed = (self.current.seed, epoch)
            self._order = filled_up(len(samples), len(self), seed=seed)
            if self.shuffle:
                self._order = np.random.default_rng((*seed, 1)).permutation(self._order)
            self._ordered = (epoch, samples)
        return self._order

    def as_table(self) -> Any:
        """Return a ``datasets.Dataset`` view, for trainers that accept no other type of dataset.

        Items are made on request, so the table follows curation too. TRL's trainers need it.
        """
        import datasets

        table = datasets.Dataset.from_dict({"position": range(len(self))})
        # unwrapped, as the decorator pickles and hashes all samples, for caches that are not used
        inspect.unwrap(datasets.Dataset.set_format)(table, "custom", transform=TableItems(self))
        return table


@dataclass(frozen=True)
class TableItems:
    """Transform of a ``datasets`` table: replaces positions by columns of items."""

    dataset: CuratedDataset

    def __call__(self, batch: Mapping[str, Sequence[int]]) -> dict[str, list[Any]]:
        """Return the columns of the items at ``batch["position"]``."""
        items = [self.dataset[position] for position in batch["position"]]
        return {key: [item[key] for item in items] for key in items[0]}


@dataclass(frozen=True)
class RowItems:
    """Items of a user's dataset, with the captions and images that curation has edited.

    Attributes:
        dataset: an item for each row.
        current: the samples before and after curation.
        caption_key, image_key: the entries that edits replace.
    """

    dataset: Any
    current: EpochSamples
    caption_key: str
    image_key: str

    def __call__(self, sample: Sample) -> dict[str, Any]:
        """Return the item of a sample, with the sample's edited caption or image.

        Raises:
            ValueError: the item lacks the edited caption or image.
        """
        before = self.current.roster.samples[sample.row]
        item = self.dataset[sample.row]
        if not isinstance(item, Mapping):
            raise ValueError(
                f"items must be mappings, so that the key {ROW!r} can be added: got "
                f"{type(item).__name__}"
            )
        changed = {
            self.caption_key: (sample.caption != before.caption, lambda: sample.caption),
            self.image_key: (
                sample.image_path != before.image_path,
                lambda: load_rgb(sample.image_path),
            ),
        }
        edits = {key: make() for key, (is_changed, make) in changed.items() if is_changed}
        if missing := edits.keys() - item.keys():
            raise ValueError(
                f"{sample.sample_id!r} was edited, but the item has no key {min(missing)!r}: name "
                "it with CuratedDataset(caption_key=..., image_key=...), or give a function that "
                "makes an item of a Sample"
            )
        return {**item, **edits}


def filled_up(num_live: int, length: int, *, seed: Sequence[int]) -> np.ndarray:
    """Return ``(length,) int64`` positions: each live sample once, then random repeats.

    Args:
        num_live: at least 1.
        length: the dataset's length.
        seed: seed of the order of repeated items.
    """
    passes = [np.arange(num_live)]
    rng = np.random.default_rng(seed)
    while sum(map(len, passes)) < length:
        passes.append(rng.permutation(num_live))
    return np.concatenate(passes)[:length]


def with_rows(
    collate: Callable[[list[Any]], Mapping[str, Any]],
    *,
    curation: Curation | None = None,
    tokenizer: Any = None,
) -> Callable[[list[Any]], Any]:
    """Wrap a collate function so that the batch has the samples' rows as a tensor under ``"row"``.

    Items without rows, such as those of a validation dataset, are collated unchanged.

    Args:
        collate: collates the items without their rows.
        curation: the run whose captions' sentences get a loss each; needed with a tokenizer.
        tokenizer: tokenizer of transformers, by which ``collate`` makes ``labels (B, T)``. With it
            the batch has under ``"sentences"`` the number ``(B, T) int64`` of each label's
            sentence, -1 for none, and labels in masked words and sentences are -100.

    Raises:
        ValueError: only one of curation and tokenizer is given.
    """
    if (curation is None) != (tokenizer is None):
        raise ValueError("with_rows needs both curation= and tokenizer=, or neither")
    return RowCollator(collate, None if curation is None else curation.current, tokenizer)


@dataclass(frozen=True)
class RowCollator:
    """Collate function of `with_rows`, as a class so that it can be pickled for loader workers.

    Attributes:
        collate, tokenizer: see `with_rows`.
        current: the samples of the epoch.
    """

    collate: Callable[[list[Any]], Mapping[str, Any]]
    current: EpochSamples | None = None
    tokenizer: Any = None

    def __call__(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate the items and add their rows to the batch.

        Raises:
            ValueError: some items have no row.
        """
        num_rows = sum(ROW in item for item in items)
        if num_rows == 0:
            return dict(self.collate(items))
        if num_rows < len(items):
            raise ValueError(
                f"{len(items) - num_rows} of {len(items)} items have no key {ROW!r}: do not mix "
                "items of a CuratedDataset with other items"
            )
        rows = torch.tensor([item[ROW] for item in items])
        rest = [{key: value for key, value in item.items() if key != ROW} for item in items]
        batch = {**self.collate(rest), ROW: rows}
        return batch if self.current is None else {**batch, **self._by_sentence(batch)}

    def _by_sentence(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return labels with masked tokens set to -100, and the sentence number of each label."""
        if not isinstance(labels := batch.get("labels"), Tensor):
            raise ValueError(
                f"sentence losses need labels (B, T), but collate returned only {sorted(batch)}; "
                "return labels with -100 for tokens outside the loss"
            )
        samples = [self._sample(row) for row in batch[ROW].tolist()]
        spans = label_spans(labels, [sample.caption for sample in samples], self.tokenizer)
        pairs = list(zip(samples, spans, strict=True))
        numbers = [sentence_numbers(own, sentence_spans(s.caption)) for s, own in pairs]
        is_masked = [[_is_masked(sample, span) for span in own] for sample, own in pairs]
        masked = labels.masked_fill(torch.tensor(is_masked), IGNORED)
        return {"labels": masked, SENTENCES: torch.tensor(numbers)}

    def _sample(self, row: int) -> Sample:
        """Return the live sample with this roster row."""
        samples: Sequence[Sample] = self.current.samples if self.current else ()
        return samples[bisect_left(samples, row, key=lambda sample: sample.row)]


def _is_masked(sample: Sample, span: Span) -> bool:
    """Return whether a token has a character in a masked part of the caption.

    Raises:
        ValueError: a mask keeps part of the loss, and labels can only drop it whole.
    """
    for mask in sample.masks:
        if max(span[0], mask.start) < min(span[1], mask.stop):
            if mask.weight:
                raise ValueError(
                    f"{sample.sample_id!r} has a mask of weight {mask.weight}, but labels cannot "
                    f"be weighted: set weight=0 of the policy (curation.amend.weight=0)"
                )
            return True
    return False


def follows(dataset: Any, curation: Curation) -> CuratedDataset | None:
    """Return the `CuratedDataset` of a loader's dataset if it follows ``curation``, or None."""
    kwargs = getattr(dataset, "_format_kwargs", None) or {}
    transform = kwargs.get("transform")
    if isinstance(transform, TableItems):
        dataset = transform.dataset
    if isinstance(dataset, CuratedDataset) and dataset.current is curation.current:
        return dataset
    return None


def check_loader(loader: Any, curation: Curation, *, rebuilt: bool = False) -> None:
    """Raise ValueError if a training loader would not yield the curated samples.

    Args:
        loader: the training loader.
        curation: the run's curation.
        rebuilt: whether every epoch has a new loader.

    Raises:
        ValueError: the loader has another dataset, persistent workers, or a changing length.
    """
    dataset = follows(getattr(loader, "dataset", None), curation)
    if dataset is None:
        raise ValueError(
            "curation needs a training loader over CuratedDataset(source, curation) of this run: "
            f"got {type(getattr(loader, 'dataset', loader)).__name__}, which would still train on "
            "removed samples"
        )
    if getattr(loader, "persistent_workers", False) and not rebuilt:
        raise ValueError(
            "persistent workers keep the first epoch's samples: set persistent_workers=False "
            "(dataloader_persistent_workers=False)"
        )
    if not dataset.fixed_length and not rebuilt:
        raise ValueError(
            "CuratedDataset(fixed_length=False) shrinks, but the loader is built only once: "
            "remove fixed_length, or rebuild the loader each epoch "
            "(reload_dataloaders_every_n_epochs=1)"
        )
