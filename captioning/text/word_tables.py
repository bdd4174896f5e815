"""Word vectors from a GloVe file, or from a packaged token table that needs no download.

Nouns are compared by the cosine of their vectors. Published scores of controllable captioning use
300-dimensional GloVe vectors; `build_token_table` works without them.
`docs/cards/scores_control.md` compares how well both separate synonyms from other words.
"""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from captioning.config.loadable import loadable
from captioning.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Seed
from captioning.interfaces import AbstractWordVectors
from captioning.runtime.extras import checked, package_folder

OPENERS = {".bz2": bz2.open, ".gz": gzip.open}


@loadable
def load_word_vectors(
    *,
    path: str | Path,
    words: Sequence[str],
    size: PositiveInt,
    missing_mean: float | None = None,
    missing_spread: NonNegativeFloat | None = None,
    seed: Seed = 0,
) -> Tensor:
    """Load the word vectors of a vocabulary from a GloVe file.

    Words missing in the file get random vectors, by default with the file's mean and spread,
    so that tied output weights differ between words.

    Args:
        path: lines of ``word v1 ... v_size``; plain text, ``.bz2`` or ``.gz``.
        words: the vocabulary in id order.
        size: vector size E.
        missing_mean: mean of the random values; None: the file's mean.
        missing_spread: standard deviation of the random values; None: the file's.
        seed: seed of the random vectors.

    Returns:
        ``(V, E) float32``.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a line of another size or with invalid numbers, or no word was found.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"word vectors {path} do not exist; download GloVe (nlp.stanford.edu/projects/glove) "
            "and set model.word_vectors.path"
        )
    vectors_by_id = _read(path, {word: index for index, word in enumerate(words)}, size)
    if not vectors_by_id:
        raise ValueError(f"{path} holds none of the {len(words)} words of the vocabulary")
    file_vectors = np.stack(list(vectors_by_id.values()))
    rng = np.random.default_rng(seed)
    mean = file_vectors.mean() if missing_mean is None else missing_mean
    spread = file_vectors.std() if missing_spread is None else missing_spread
    vectors = rng.normal(mean, spread, (len(words), size)).astype(np.float32)
    vectors[list(vectors_by_id)] = file_vectors
    return torch.from_numpy(vectors)


def _read(path: Path, ids: dict[str, int], size: int) -> dict[int, np.ndarray]:
    vectors_by_id: dict[int, np.ndarray] = {}
    try:
        for number, line in enumerate(_lines(path), start=1):
            word, _, values = line.rstrip("\n").partition(" ")
            index = ids.get(word)
            if index is None or index in vectors_by_id:
                continue
            vectors_by_id[index] = to_vector(
                values.split(" "),
                size=size,
                place=f"{path}, line {number}",
                word=word,
                remedy="set model.module.embedding_size to the file's size",
            )
    except (UnicodeDecodeError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged ({error}); download the file again") from error
    return vectors_by_id


def _lines(path: Path) -> Iterator[str]:
    with OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8") as lines:
        yield from lines


def to_vector(
    values: Sequence[str], *, size: int, place: str, word: str, remedy: str
) -> np.ndarray:
    """Convert the values of a word to a vector, ``(size,) float32``.

    Raises:
        ValueError: not ``size`` finite numbers; ``place``, ``word`` and ``remedy`` appear in
            the message.
    """
    try:
        vector = np.array(values, dtype=np.float32)
    except ValueError as error:
        raise ValueError(f"{place}: the values after {word!r} are not numbers") from error
    if len(vector) != size or not np.isfinite(vector).all():
        raise ValueError(
            f"{place}: {word!r} must have {size} finite values, got {len(vector)}; {remedy}"
        )
    return vector


TABLE_PACKAGE = "wordllama"
_TABLE = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_TABLE_SHA256 = "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"
_TOKENIZER_SHA256 = "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68"


@loadable
class GloveVectors(AbstractWordVectors):
    """Word vectors of a file in GloVe's text format, of any size.

    Each call with new words reads the whole file once and keeps only the vectors of these words:
    request all words of a corpus at once.
    """

    def __init__(self, *, path: str | Path) -> None:
        """Open the file and read the vector size.

        Args:
            path: lines of ``word v1 ... vE``; plain text, ``.bz2`` or ``.gz``. A word2vec header
                of two numbers is skipped.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: the file has another format.
        """
        self._path = Path(path)
        if not self._path.is_file():
            raise FileNotFoundError(
                f"word vectors {path} do not exist; download GloVe "
                "(nlp.stanford.edu/projects/glove) or use word_vectors=tokens"
            )
        self.name = f"GloVe file {self._path.name}"
        with self._open() as lines:
            heads = [line.split() for line in islice(lines, 2)]
        heads = [head for head in heads if len(head) > 2]
        if not heads:
            raise ValueError(f"{path}: no line holds a word and its values; give a GloVe file")
        self._size = len(heads[0]) - 1
        self._vectors: dict[str, np.ndarray | None] = {}

    def vectors(self, words: Sequence[str]) -> Tensor:
        """Return the vectors of words, see `AbstractWordVectors`.

        Raises:
            ValueError: the line of a word has too few values, or values that are not
                numbers.
        """
        new = set(words) - self._vectors.keys()
        if new:
            self._vectors |= dict.fromkeys(new) | self._read(new)
        zeros = np.zeros(self._size, dtype=np.float32)
        rows = [zeros if (row := self._vectors[word]) is None else row for word in words]
        table = torch.from_numpy(np.stack(rows)) if rows else torch.zeros(0, self._size)
        return nn.functional.normalize(table, dim=1)

    def _read(self, words: set[str]) -> dict[str, np.ndarray]:
        vectors: dict[str, np.ndarray] = {}
        with self._open() as lines:
            for number, line in enumerate(lines, start=1):
                word, _, numbers = line.rstrip("\n").partition(" ")
                if word not in words or word in vectors:
                    continue
                values = numbers.split()
                # more values than usual: a phrase that begins with this word
                if len(values) <= self._size:
                    vectors[word] = to_vector(
                        values,
                        size=self._size,
                        place=f"{self._path}, line {number}",
                        word=word,
                        remedy="fetch the file again",
                    )
        return vectors

    def _open(self):
        return OPENERS.get(self._path.suffix, open)(self._path, "rt", encoding="utf-8")


class TokenTable(AbstractWordVectors):
    """Word vectors as the mean of token vectors.

    Every word has a vector, even an invented word; only the empty word has none.
    """

    def __init__(self, *, table: Tensor, tokenizer: Tokenizer, name: str) -> None:
        """Wrap a table; `build_token_table` is the usual way.

        Args:
            table: ``(V, E)``, one row per token.
            tokenizer: tokenizer that splits words into these tokens.
            name: name of the table, for records.

        Raises:
            ValueError: the tokenizer has more tokens than the table has rows.
        """
        if tokenizer.get_vocab_size() > len(table):
            raise ValueError(
                f"{name} must have one row per token: got {len(table)} rows for "
                f"{tokenizer.get_vocab_size()} tokens"
            )
        self.name = name
        self._table, self._tokenizer = table.float(), tokenizer

    def vectors(self, words: Sequence[str]) -> Tensor:
        """Return the vectors of words, see `AbstractWordVectors`."""
        rows = torch.zeros(len(words), self._table.shape[1])
        encoded = self._tokenizer.encode_batch(list(words), add_special_tokens=False)
        for row, (word, tokens) in enumerate(zip(words, encoded, strict=True)):
            if word.strip():
                rows[row] = self._table[tokens.ids].mean(0)
        return nn.functional.normalize(rows, dim=1)


@loadable
def build_token_table() -> TokenTable:
    """Load the token table of the package wordllama: 32,000 tokens of 256 values.

    The package's own code is not run, because it would search a model hub.

    Raises:
        ModuleNotFoundError: the package is not installed.
        ValueError: the package lacks the table, or the table is damaged.
    """
    purpose = "the table of token vectors (word_vectors=glove reads a GloVe file instead)"
    folder = package_folder(TABLE_PACKAGE, extra="offline", purpose=purpose)
    if not (folder / _TABLE).is_file() or not (folder / _TOKENIZER).is_file():
        raise ValueError(f"{folder} lacks {_TABLE} or {_TOKENIZER}; install the package again")
    try:
        [table] = load_file(checked(folder / _TABLE, _TABLE_SHA256)).values()
    except SafetensorError as error:
        raise ValueError(f"{folder / _TABLE} is damaged ({error}); install it again") from error
    return TokenTable(
        table=table,
        tokenizer=Tokenizer.from_file(str(checked(folder / _TOKENIZER, _TOKENIZER_SHA256))),
        name=f"{TABLE_PACKAGE} {version(TABLE_PACKAGE)}",
    )


@loadable
def load_token_vectors(
    *, words: Sequence[str], length: PositiveFloat = 5.0, seed: Seed = 0
) -> Tensor:
    """Return a captioner's word vectors from `build_token_table`, without a GloVe file.

    Special tokens such as ``<eos>`` get a random direction.

    Args:
        words: the vocabulary in id order.
        length: length of every vector, by default near that of GloVe's frequent words. It
            bounds the logits of an output tied to the vectors.
        seed: seed of the random vectors.

    Returns:
        ``(V, 256) float32``.

    Raises:
        ModuleNotFoundError, ValueError: see `build_token_table`.
    """
    vectors = build_token_table().vectors(words)
    drawn = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(seed))
    marks = torch.tensor([word.startswith("<") for word in words])
    return length * nn.functional.normalize(torch.where(marks[:, None], drawn, vectors), dim=1)
