"""Embeddings and entities of captions, for training on captions without photos."""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from rich.progress import track
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from captioning.data.batches.base import AbstractBatchReader, Epoch, Read, Tensors, of_captions
from captioning.data.roster import Roster
from captioning.interfaces import AbstractParser, TextEmbedder
from captioning.runtime.file_lock import locked
from captioning.runtime.files import remove_unfinished, write_atomically
from captioning.text.entities import as_sentence, find_entities, read_names
from captioning.text.entity_index import embed_captions
from captioning.types import Sample

log = logging.getLogger(__name__)

SUFFIX = ".safetensors"


@dataclass(frozen=True, kw_only=True)
class TextBlock:
    """Embeddings and entities of N captions, in memory or in a mapped file.

    Attributes:
        embeddings: ``(N, E) float16``.
        entities: ``(M,) int32``: of all captions, one after the other.
        ends: ``(N,) int64``: where each caption's entities end.
        path: path of the file that they are mapped from, or None.
    """

    embeddings: Tensor
    entities: Tensor
    ends: Tensor
    path: Path | None = None

    @classmethod
    def build(cls, embeddings: Tensor, entities: Sequence[Sequence[int]]) -> TextBlock:
        """Build a block in memory.

        Args:
            embeddings: ``(N, E)``.
            entities: entities of each caption.
        """
        counts = np.fromiter(map(len, entities), np.int64, len(entities))
        flat = np.fromiter((entity for row in entities for entity in row), np.int32, counts.sum())
        ends = torch.from_numpy(counts.cumsum())
        return cls(embeddings=embeddings.half(), entities=torch.from_numpy(flat), ends=ends)

    @classmethod
    def open(cls, path: Path, *, number: int) -> TextBlock:
        """Map a block that `save` wrote into memory.

        Raises:
            ValueError: the file is damaged, or has another number of captions.
            OSError: it cannot be read.
        """
        try:
            block, check = cls._mapped(path)
        except (SafetensorError, KeyError, RuntimeError, ValueError) as error:
            raise ValueError(f"{path} is damaged ({error})") from error
        if [tensor.ndim for tensor in block._tensors().values()] != [2, 1, 1]:
            raise ValueError(f"{path} is damaged (its tensors have wrong shapes)")
        if len(block) != number:
            raise ValueError(f"{path} is damaged (it has {len(block)} captions, not {number})")
        if block._check() != check:
            raise ValueError(f"{path} is damaged (its checksum differs)")
        # map again: pages that the check read would count as this process's memory
        del block
        return cls._mapped(path)[0]

    @classmethod
    def _mapped(cls, path: Path) -> tuple[TextBlock, int]:
        content = load_file(path)  # maps the file, and reads what is used
        block = cls(
            embeddings=content["embeddings"],
            entities=content["entities"],
            ends=content["ends"],
            path=path,
        )
        return block, int(content["check"])

    def save(self, path: Path) -> TextBlock:
        """Write the block atomically, and return it mapped from the file.

        Raises:
            OSError: the folder cannot be written, or the disk is full.
        """
        check = torch.tensor(self._check())
        content = {**self._tensors(), "check": check}
        write_atomically(path, lambda part: part.write_bytes(save(content)))
        return self._mapped(path)[0]

    def __len__(self) -> int:
        return len(self.embeddings)

    def __reduce__(self) -> tuple[object, ...]:
        # Mapped tensors pickle as copies of all data; other processes map the file again.
        if self.path is not None:
            return _mapped_block, (self.path,)
        return _rebuilt, (self._tensors(),)

    def row(self, row: int) -> list[int]:
        """Return the entities of a caption."""
        start = int(self.ends[row - 1]) if row else 0
        return self.entities[start : int(self.ends[row])].tolist()

    def _tensors(self) -> dict[str, Tensor]:
        return {"embeddings": self.embeddings, "entities": self.entities, "ends": self.ends}

    def _check(self) -> int:
        check = 0
        for tensor in self._tensors().values():
            check = zlib.crc32(tensor.contiguous().numpy().data, check) if tensor.numel() else check
        return check


def _mapped_block(path: Path) -> TextBlock:
    return TextBlock._mapped(path)[0]


def _rebuilt(tensors: dict[str, Tensor]) -> TextBlock:
    return TextBlock(
        embeddings=tensors["embeddings"], entities=tensors["entities"], ends=tensors["ends"]
    )


class TextTable:
    """Concatenated blocks with consecutive rows of captions."""

    def __init__(self) -> None:
        self.blocks: list[TextBlock] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def append(self, block: TextBlock) -> None:
        """Append the rows of a block."""
        self.blocks.append(block)
        self._ends.append(len(self) + len(block))

    def embeddings(self, rows: Sequence[int]) -> Tensor:
        """Return embeddings ``(len(rows), E) float16``."""
        numbers, inside = self._places(rows)
        chosen = torch.empty(len(rows), self.blocks[0].embeddings.shape[1], dtype=torch.float16)
        for number in np.unique(numbers):
            here = np.flatnonzero(numbers == number)
            chosen[here] = self.blocks[number].embeddings[inside[here]]
        return chosen

    def entities(self, rows: Sequence[int]) -> Tensor:
        """Return entities ``(len(rows), M) int64``, padded with -1."""
        numbers, inside = self._places(rows)
        entities = [
            self.blocks[number].row(row)
            for number, row in zip(numbers.tolist(), inside.tolist(), strict=True)
        ]
        width = max(1, *map(len, entities)) if entities else 1
        return torch.tensor([[*row, *[-1] * (width - len(row))] for row in entities]).view(
            -1, width
        )

    def _places(self, rows: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the block of each row, and the row within the block."""
        chosen, ends = np.asarray(rows, dtype=np.int64), np.asarray(self._ends)
        numbers = np.searchsorted(ends, chosen, side="right")
        starts = np.concatenate([[0], ends[:-1]])
        return numbers, chosen - starts[numbers]


def kept_blocks(
    folder: Path | None, *, sizes: Sequence[int], make: Callable[[int], TextBlock]
) -> list[TextBlock]:
    """Load blocks from a folder; compute and save blocks that are missing or damaged.

    One process computes them while others wait. If it is killed, only its last block is lost. If
    the folder cannot be written, or has no locks, blocks stay in memory, with a warning.

    Args:
        folder: folder of these blocks alone, named by all inputs of their values; None: no folder.
        sizes: captions of each block.
        make: computes a block by its number.
    """
    blocks: list[TextBlock | None] = [None] * len(sizes)
    if folder is not None:
        blocks = _read(folder, sizes, blocks)
    if any(block is None for block in blocks):
        with ExitStack() as stack:
            folder = None if folder is None else _locked(stack, folder)
            if folder is not None:
                blocks = _read(folder, sizes, blocks, tell=log.warning)
            missing = [number for number, block in enumerate(blocks) if block is None]
            for number in track(missing, description="embeddings of captions"):
                block = make(number)
                if folder is not None:
                    block, folder = _saved(folder, number, block)
                blocks[number] = block
    return [block for block in blocks if block is not None]


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}{SUFFIX}"


def _read(
    folder: Path,
    sizes: Sequence[int],
    blocks: Sequence[TextBlock | None],
    tell: Callable[[str], None] | None = None,
) -> list[TextBlock | None]:
    """Fill missing entries of ``blocks`` with blocks read from intact files."""
    read = list(blocks)
    for number, size in enumerate(sizes):
        path = _path(folder, number)
        if read[number] is not None or not path.is_file():
            continue
        try:
            read[number] = TextBlock.open(path, number=size)
        except (ValueError, OSError) as error:
            if tell is not None:
                tell(f"{error}: the block is computed again")
    return read


def _locked(stack: ExitStack, folder: Path) -> Path | None:
    """Lock a folder and return it; None, with a warning, if it cannot be locked."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = folder.with_suffix(".lock")
        stack.enter_context(locked(lock, subject=str(folder), notify=log.info))
        remove_unfinished(folder, SUFFIX)
    except OSError as error:
        _warn(error)
        return None
    return folder


def _saved(folder: Path, number: int, block: TextBlock) -> tuple[TextBlock, Path | None]:
    """Save and map a block; without a folder, or if writing fails, keep it in memory."""
    try:
        return block.save(_path(folder, number)), folder
    except OSError as error:
        _warn(error)
        return block, None


def _warn(error: OSError) -> None:
    log.warning(f"embeddings of captions cannot be cached for later runs: {error}")


AT_ONCE = 4096  # captions between two calls of the encoder
BLOCK = 4 * AT_ONCE  # captions of a file, so the most that a killed start loses
MIN_CAPTIONS = 20_000  # for fewer, computing the values again takes no time
FORMAT = 1  # another one wherever this project makes other values of a caption


class CaptionTexts(AbstractBatchReader):
    """Batch reader of caption embeddings and entities; each distinct caption is computed once.

    In training on captions alone, batches have them in the place of pictures. Captions are embedded
    as sentences (`as_sentence`), as the language model reads them. Values are kept as ``float16``:
    a kilobyte a caption, half a gigabyte for all of COCO's. For a roster of 20,000 captions or more
    they are kept on disk for later starts, and mapped into memory.

    Args:
        encoder: encoder of the space in which photos are embedded.
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
        """Explain that photos are not read."""
        return "the model is trained on captions without photos: choose corpus=none"

    def open(self, epoch: Epoch) -> Read | None:
        """Compute the values of all samples at once, which is faster than batch by batch."""
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
        """Return tensors with one row per sample, for `Batch.extras`.

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
        """Return a sample's row in the table; -1 if its caption is not in the table."""
        if sample.row < len(self._known) and self._known[sample.row].caption == sample.caption:
            return int(self._known_rows[sample.row])
        return self._rows.get(sample.caption, -1)

    def _unknown(self, samples: Sequence[Sample]) -> dict[str, None]:
        """Return captions without a row, in order."""
        return dict.fromkeys(sample.caption for sample in samples if self._row(sample) < 0)

    def _know(self, roster: Roster, encoder: TextEmbedder) -> None:
        """Add all captions of a roster to the table, from cached files if possible."""
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
        """Return the cache key of a roster, which covers all inputs of the values."""
        parser = self._parser and getattr(self._parser, "fingerprint", self._parser.name)
        content = [FORMAT, AT_ONCE, BLOCK, roster.fingerprint, encoder.identity, parser]
        text = json.dumps([*content, list(self._numbers)])
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def _find(self, captions: dict[str, None]) -> None:
        """Copy the values of captions that other samples of the roster have."""
        for sample, row in zip(self._known, self._known_rows.tolist(), strict=True):
            if sample.caption in captions:
                self._rows[sample.caption] = row
                del captions[sample.caption]

    def _add(self, captions: Iterable[str]) -> None:
        """Compute captions missing in the table."""
        captions = iter(captions)
        while chunk := list(islice(captions, AT_ONCE)):
            first = len(self._table)
            self._table.append(self._block(chunk))
            self._rows |= {caption: first + number for number, caption in enumerate(chunk)}

    def _block(self, captions: Sequence[str]) -> TextBlock:
        """Compute captions in groups of constant size, because results depend on the group size."""
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
