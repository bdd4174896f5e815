"""Embeddings and entities of captions, for training on captions without photos."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from captioning.data.batches.base import AbstractBatchReader, Epoch, Read, of_captions
from captioning.interfaces import AbstractParser, TextEmbedder
from captioning.text.entities import as_sentence, find_entities, read_names
from captioning.text.entity_index import embed_captions
from captioning.types import Sample

AT_ONCE = 4096  # captions between two calls of the encoder


class CaptionTexts(AbstractBatchReader):
    """Embeddings and entities of captions; every distinct caption is computed once.

    In training on captions alone, batches have them in the place of pictures. Captions are embedded
    as sentences (`as_sentence`), as the language model reads them. Values are kept as ``float16``:
    a kilobyte a caption, half a gigabyte for all of COCO's.

    Args:
        encoder: of the space in which photos are embedded.
        parser: finds nouns; None for no entities.
        names_path: names of the entities, see `captioning.text.entities.read_names`; the same list
            that photos are compared with.

    Raises:
        FileNotFoundError, ValueError: no names.
    """

    fixes_captions: ClassVar[bool] = True

    def __init__(
        self,
        *,
        encoder: TextEmbedder | None,
        parser: AbstractParser | None = None,
        names_path: str | Path | None = None,
    ) -> None:
        self._encoder, self._parser = encoder, parser
        names = () if parser is None else read_names(names_path)
        self._numbers = {name: number for number, name in enumerate(names)}
        self._rows: dict[str, int] = {}
        self._embeddings: list[Tensor] = []
        self._entities: list[tuple[int, ...]] = []

    @property
    def refuses_photos(self) -> str:
        """Photos are not read."""
        return "it is trained on captions alone, without photos: choose corpus=none"

    def open(self, epoch: Epoch) -> Read | None:
        """Computes the tensors of all samples at once, which is faster than batch by batch."""
        if epoch.has_photos:
            return None
        self(epoch.samples)
        return of_captions(self)

    def __call__(self, samples: Sequence[Sample]) -> dict[str, Tensor]:
        """Tensors with a row for each sample, as `Batch.extras` holds them.

        Returns:
            ``text_embeddings (N, E) float16``, and with a parser ``text_entities (N, M) int64``:
            positions in the list of names in the order in which the caption has them, -1 behind
            the last.
        """
        captions = [sample.caption for sample in samples]
        new = (caption for caption in dict.fromkeys(captions) if caption not in self._rows)
        while chunk := list(islice(new, AT_ONCE)):
            self._add(chunk)
        rows = [self._rows[caption] for caption in captions]
        if len(self._embeddings) > 1:
            self._embeddings = [torch.cat(self._embeddings)]
        tensors = {"text_embeddings": self._embeddings[0][rows]}
        if self._parser is not None:
            tensors["text_entities"] = _padded([self._entities[row] for row in rows])
        return tensors

    def _add(self, captions: Sequence[str]) -> None:
        sentences = [as_sentence(caption) for caption in captions]
        self._embeddings.append(embed_captions(self._encoder, sentences).half())
        if self._parser is not None:
            for parse in self._parser.parse(captions):
                entities = find_entities(parse, self._numbers)
                self._entities.append(tuple(self._numbers[name] for name in entities))
        first = len(self._rows)
        self._rows |= {caption: first + number for number, caption in enumerate(captions)}


def _padded(rows: Iterable[tuple[int, ...]]) -> Tensor:
    rows = list(rows)
    width = max(1, *map(len, rows)) if rows else 1
    return torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows]).view(-1, width)
