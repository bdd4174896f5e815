"""Embeddings and entities of captions, for training on captions without photos."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from captioning.data.batches.base import AbstractBatchReader, Epoch, Read, Tensors, of_captions
from captioning.data.roster import Roster
from captioning.data.text_table import TextBlock, TextTable, kept_blocks
from captioning.interfaces import AbstractParser, TextEmbedder
from captioning.text.entities import as_sentence, find_entities, read_names
from captioning.text.entity_index import embed_captions
from captioning.types import Sample

AT_ONCE = 4096  # captions between two calls of the encoder
BLOCK = 4 * AT_ONCE  # captions of a file, so the most that a killed start loses
MIN_CAPTIONS = 20_000  # of fewer the values are made anew in no time
FORMAT = 1  # another one wherever this project makes other values of a caption


class CaptionTexts(AbstractBatchReader):
    """Embeddings and entities of captions; every distinct caption is computed once.

    In training on captions alone, batches have them in the place of pictures. Captions are embedded
    as sentences (`as_sentence`), as the language model reads them. Values are kept as ``float16``:
    a kilobyte a caption, half a gigabyte for all of COCO's. Those of a roster of 20,000 captions
    and more are kept on disk for later starts, and mapped into memory.

    Args:
        encoder: of the space in which photos are embedded.
        parser: finds nouns; None for no entities.
        names_path: names of the entities, see `captioning.text.entities.read_names`; the same list
            that photos are compared with.
        cache_folder: parent of the files; None keeps values in memory alone.

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
        cache_folder: str | Path | None = None,
    ) -> None:
        self._encoder, self._parser = encoder, parser
        names = () if parser is None else read_names(names_path)
        self._numbers = {name: number for number, name in enumerate(names)}
        self._folder = None if cache_folder is None else Path(cache_folder)
        self._table = TextTable()
        self._rows: dict[str, int] = {}
        # of the captions of a large roster, by their rows, which take less memory
        self._known: tuple[Sample, ...] = ()
        self._known_rows = np.zeros(0, np.int32)

    @property
    def refuses_photos(self) -> str:
        """Photos are not read."""
        return "it is trained on captions alone, without photos: choose corpus=none"

    def open(self, epoch: Epoch) -> Read | None:
        """Computes the values of all samples at once, which is faster than batch by batch."""
        if epoch.has_photos:
            return None
        roster = epoch.roster
        if self._encoder is not None and roster is not None and len(roster) >= MIN_CAPTIONS:
            self._know(roster, self._encoder)
        captions = self._unknown(epoch.samples)
        if captions and self._known:
            self._find(captions)
        self._add(captions)
        return of_captions(self)

    def __call__(self, samples: Sequence[Sample]) -> Tensors:
        """Tensors with a row for each sample, as `Batch.extras` holds them.

        Returns:
            ``text_embeddings (N, E) float16``, and with a parser ``text_entities (N, M) int64``:
            positions in the list of names in the order in which the caption has them, -1 behind
            the last.
        """
        self._add(self._unknown(samples))
        rows = [self._row(sample) for sample in samples]
        tensors = {"text_embeddings": self._table.embeddings(rows)}
        if self._parser is not None:
            tensors["text_entities"] = self._table.entities(rows)
        return tensors

    def _row(self, sample: Sample) -> int:
        """The sample's row in the table; -1: its caption is not there."""
        if sample.row < len(self._known) and self._known[sample.row].caption == sample.caption:
            return int(self._known_rows[sample.row])
        return self._rows.get(sample.caption, -1)

    def _unknown(self, samples: Sequence[Sample]) -> dict[str, None]:
        """Captions without a row, in order."""
        return dict.fromkeys(sample.caption for sample in samples if self._row(sample) < 0)

    def _know(self, roster: Roster, encoder: TextEmbedder) -> None:
        """Take all captions of a roster into the table, from files where they are there."""
        if self._known is roster.samples:
            return
        rows: dict[str, int] = {}
        numbers = (rows.setdefault(sample.caption, len(rows)) for sample in roster.samples)
        known_rows = np.fromiter(numbers, np.int32, len(roster)) + len(self._table)
        captions = list(rows)
        blocks = [range(at, min(at + BLOCK, len(rows))) for at in range(0, len(rows), BLOCK)]
        for block in kept_blocks(
            self._folder and self._folder / self._key(roster, encoder),
            sizes=[len(block) for block in blocks],
            make=lambda number: self._block([captions[row] for row in blocks[number]]),
        ):
            self._table.append(block)
        self._known, self._known_rows = roster.samples, known_rows

    def _key(self, roster: Roster, encoder: TextEmbedder) -> str:
        """Name of the files of a roster: of all that their values depend on."""
        parser = self._parser and getattr(self._parser, "fingerprint", self._parser.name)
        content = [FORMAT, AT_ONCE, BLOCK, roster.fingerprint, encoder.identity, parser]
        text = json.dumps([*content, list(self._numbers)])
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def _find(self, captions: dict[str, None]) -> None:
        """Take captions that other samples of the roster have, such as siblings', from these."""
        for sample, row in zip(self._known, self._known_rows.tolist(), strict=True):
            if sample.caption in captions:
                self._rows[sample.caption] = row
                del captions[sample.caption]

    def _add(self, captions: Iterable[str]) -> None:
        """Compute captions that the table lacks."""
        captions = iter(captions)
        while chunk := list(islice(captions, AT_ONCE)):
            first = len(self._table)
            self._table.append(self._block(chunk))
            self._rows |= {caption: first + number for number, caption in enumerate(chunk)}

    def _block(self, captions: Sequence[str]) -> TextBlock:
        """Values of captions, in groups of always the same size, as bits depend on the group."""
        embeddings, entities = [], []
        for start in range(0, len(captions), AT_ONCE):
            chunk = captions[start : start + AT_ONCE]
            sentences = [as_sentence(caption) for caption in chunk]
            embeddings.append(embed_captions(self._encoder, sentences).half())
            entities += self._entities(chunk)
        return TextBlock.build(torch.cat(embeddings), entities)

    def _entities(self, captions: Sequence[str]) -> list[list[int]]:
        if self._parser is None:
            return [[] for _ in captions]
        return [
            [self._numbers[name] for name in find_entities(parse, self._numbers)]
            for parse in self._parser.parse(captions)
        ]
