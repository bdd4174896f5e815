"""Dataset of an epoch: batches from a list of samples, independent of curation and models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from captioning.data.batches.base import DRAW, AbstractBatchReader, Epoch, Read, Tensors
from captioning.interfaces import AbstractTokenizer
from captioning.text.sentence_spans import (
    LongCaptions,
    sentence_numbers,
    sentence_spans,
    trained_text,
)
from captioning.types import Batch, MaskedSpan, Sample

if TYPE_CHECKING:
    from captioning.data.token_table import TokenTable


def masked_token_weights(
    samples: Sequence[Sample],
    tokenizer: AbstractTokenizer,
    width: int,
    long_captions: LongCaptions = "cut",
) -> Tensor | None:
    """Return loss weights of tokens, ``(B, width) float32``; None if no sample has masked spans.

    A token that has a character in a masked span gets its weight, the lowest of several. All others
    have 1, begin, end and padding among them.

    Args:
        samples: samples of a batch, in its order.
        tokenizer: the batch's tokenizer.
        width: T of the batch's tokens.
        long_captions: see `captioning.text.sentence_spans.trained_text`.
    """
    if not any(sample.masks for sample in samples):
        return None
    weights = torch.ones(len(samples), width)
    for row, sample in zip(weights, samples, strict=True):
        if sample.masks:
            text = trained_text(sample.caption, tokenizer, long_captions)
            spans = tokenizer.token_spans(text)
            row[: len(spans)] = torch.tensor([_weight(span, sample.masks) for span in spans])
    return weights


def sentences_of_tokens(
    samples: Sequence[Sample],
    tokenizer: AbstractTokenizer,
    width: int,
    long_captions: LongCaptions = "cut",
) -> Tensor:
    """Return the sentence number of each token, ``(B, width) int64``, see `Batch`.

    Args:
        samples: samples of a batch, in its order.
        tokenizer: the batch's tokenizer.
        width: T of the batch's tokens.
        long_captions: see `captioning.text.sentence_spans.trained_text`.
    """
    numbers = torch.full((len(samples), width), -1)
    for row, sample in zip(numbers, samples, strict=True):
        spans = tokenizer.token_spans(trained_text(sample.caption, tokenizer, long_captions))
        own = sentence_numbers(spans, sentence_spans(sample.caption))
        row[: len(spans)] = torch.tensor(own)
    return numbers


def _weight(span: tuple[int, int], masks: Iterable[MaskedSpan]) -> float:
    start, stop = span
    hits = (mask.weight for mask in masks if max(start, mask.start) < min(stop, mask.stop))
    return min(hits, default=1.0)


DATASET_FIELDS = (
    "rows",
    "sample_ids",
    "image_ids",
    "image_index",
    "tokens",
    "token_mask",
    "weights",
    "token_weights",
    "token_sentences",
    DRAW,
    "filler",
    "photo_rows",
)
"""Fields of a batch that the data set fills without a reader."""
READER_FIELDS = {f.name for f in fields(Batch) if f.init} - {*DATASET_FIELDS, "extras"}


@dataclass(frozen=True, kw_only=True)
class KnownTokens:
    """Token ids of the captions in the annotations.

    Attributes:
        table: table of the roster's captions, in order.
        samples: the roster's samples.
    """

    table: TokenTable
    samples: Sequence[Sample]

    def ids(self, sample: Sample) -> np.ndarray | None:
        """Return ids ``(T,) int64`` of a sample's caption; None if curation has replaced it."""
        if sample.caption != self.samples[sample.row].caption:
            return None
        return self.table[sample.row]


class CaptionDataset(Dataset[Batch]):
    """Dataset that returns whole batches for lists of positions.

    Args:
        samples: the captions of the epoch.
        tokenizer: turns captions into ids.
        readers: give batches everything else, each in its turn (`AbstractBatchReader.open`).
        has_photos: see `captioning.data.batches.base.Epoch`.
        known: ids of the captions of a roster that the samples' rows count in; None: every caption
            is turned into ids when its batch is made.
        long_captions: see `captioning.text.sentence_spans.trained_text`.
        marks_sentences: whether batches say which sentence each token belongs to.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        *,
        tokenizer: AbstractTokenizer,
        readers: Sequence[Read],
        has_photos: bool = True,
        known: KnownTokens | None = None,
        long_captions: LongCaptions = "cut",
        marks_sentences: bool = False,
    ) -> None:
        self.samples = samples
        self.has_photos = has_photos
        self.readers = readers
        self.tokenizer = tokenizer
        self.known = known
        self.long_captions: LongCaptions = long_captions
        self.marks_sentences = marks_sentences

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, positions: list[int]) -> Batch:
        """Return the batch of some samples, longest caption first (the order for packing).

        What readers draw depends on ``positions.draw`` where the sampler gives it, see `DRAW`.

        Raises:
            ValueError: a reader gives what the data set or another reader has given.
        """
        pairs = self._ordered(positions)
        captions = [sample for sample, _ in pairs]
        photos = _by_photo(captions)
        if shared := self._ordered(getattr(positions, "batch", ())):
            # what is drawn for a photo goes by its first caption in the batch of all processes
            first = _by_photo([sample for sample, _ in shared])
            photos = {path: first[path] for path in photos}
        numbers = {path: number for number, path in enumerate(photos)}
        tokens, mask = _padded([ids for _, ids in pairs], self.tokenizer.pad_id)
        form = (self.tokenizer, tokens.shape[1], self.long_captions)
        draw, filler = getattr(positions, "draw", None), getattr(positions, "filler", False)
        tensors = self._read(captions, list(photos.values()), draw)
        return Batch(
            rows=torch.tensor([sample.row for sample in captions]),
            sample_ids=tuple(sample.sample_id for sample in captions),
            image_ids=tuple(sample.image_id for sample in photos.values()),
            image_index=torch.tensor([numbers[sample.image_path] for sample in captions]),
            tokens=tokens,
            token_mask=mask,
            weights=_weights([0.0 if filler else sample.weight for sample in captions]),
            token_weights=masked_token_weights(captions, *form),
            token_sentences=sentences_of_tokens(captions, *form) if self.marks_sentences else None,
            draw=draw,
            filler=filler,
            photo_rows=tuple(sample.row for sample in photos.values()),
            extras={name: value for name, value in tensors.items() if name not in READER_FIELDS},
            **{name: value for name, value in tensors.items() if name in READER_FIELDS},
        )

    def _ordered(self, positions: Sequence[int]) -> list[tuple[Sample, np.ndarray]]:
        """Return samples with their token ids, longest first."""
        pairs = [(sample, self._ids(sample)) for sample in map(self.samples.__getitem__, positions)]
        return sorted(pairs, key=lambda pair: -len(pair[1]))

    def _ids(self, sample: Sample) -> np.ndarray:
        """Return ids ``(T,) int64`` of a sample's current caption, with its bucket's tokens."""
        ids = None if self.known is None else self.known.ids(sample)
        if ids is None:
            text = trained_text(sample.caption, self.tokenizer, self.long_captions)
            ids = np.asarray(self.tokenizer.encode(text), dtype=np.int64)
        if sample.bucket:
            from captioning.text.control_tokens import begin_token

            ids = np.concatenate([[begin_token(self.tokenizer, sample.bucket)], ids[1:]])
        return ids

    def _read(
        self, captions: Sequence[Sample], photos: Sequence[Sample], draw: tuple[int, ...] | None
    ) -> Tensors:
        tensors: Tensors = {DRAW: draw}
        for read in self.readers:
            added = read(captions, photos, tensors)
            if duplicates := added.keys() & {*tensors, *DATASET_FIELDS, "extras"}:
                raise ValueError(
                    f"a batch has {', '.join(sorted(duplicates))} already: rename it in the later "
                    f"of the readers (model.readers)"
                )
            tensors |= added
        del tensors[DRAW]
        return tensors


def open_readers(readers: Iterable[AbstractBatchReader], epoch: Epoch) -> tuple[list[Read], Epoch]:
    """Return functions that read an epoch's batches, and the last reader's view of the epoch."""
    readers = list(readers)
    form = next(filter(None, (reader.pictures for reader in readers)), "")
    epoch, opened = replace(epoch, pictures=form), []
    for reader in readers:
        read = reader.open(epoch)
        if read is not None:
            opened.append(read)
            epoch = replace(epoch, read_pictures=read) if reader.pictures else epoch
    return opened, epoch


def photos_alone(
    samples: Sequence[Sample], readers: Iterable[AbstractBatchReader], tokenizer: AbstractTokenizer
) -> CaptionDataset:
    """Build a dataset of photos to caption that belong to no run."""
    epoch = Epoch(stage="eval", samples=samples, roster=None, tokenizer=tokenizer)
    opened, _ = open_readers(readers, epoch)
    return CaptionDataset(samples, tokenizer=tokenizer, readers=opened)


def _by_photo(captions: Sequence[Sample]) -> dict[Path, Sample]:
    """Return the first caption of each picture."""
    # After an image was replaced, one image_id has two pictures, so the path is the key.
    photos: dict[Path, Sample] = {}
    for sample in captions:
        photos.setdefault(sample.image_path, sample)
    return photos


def _weights(weights: list[float]) -> Tensor | None:
    return None if all(weight == 1 for weight in weights) else torch.tensor(weights)


def _padded(rows: list[np.ndarray], pad_id: int) -> tuple[Tensor, Tensor]:
    width = max(len(row) for row in rows)
    tokens = np.full((len(rows), width), pad_id, dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=bool)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = row
        mask[number, : len(row)] = True
    return torch.from_numpy(tokens), torch.from_numpy(mask)
