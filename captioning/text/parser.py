"""Parse captions with a spaCy pipeline: the packaged one, or another by name or folder."""

from __future__ import annotations

import hashlib
import importlib.util
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from captioning.config.loadable import loadable
from captioning.config.ranges import PositiveInt
from captioning.interfaces import AbstractParser
from captioning.runtime.cores import num_cores
from captioning.runtime.extras import extra_version, import_extra
from captioning.runtime.files import read_json
from captioning.runtime.sharing import end_with_parent
from captioning.text.lemmas import Lemmatizer, load_lemmas, universal_pos
from captioning.text.parse_cache import ParseCache, pack, unpack
from captioning.types import Parse, Token

PURPOSE = "parsing captions"
PACKAGED = Path(__file__).parent / "weights" / "captions_parser"
LEMMAS_FILE = "lemmas.json"
# Increase when the same pipeline gives other parses, to invalidate cached parses.
FORMAT = 2
BATCH_SIZE = 256
# Captions between two cache writes: at most so many parses are lost with the process.
CHUNK_SIZE = 4096
# With fewer captions, loading the pipeline in a second process does not pay off.
WORTH_A_PROCESS = 10_000
MAX_CHARACTERS = 1_000_000
UNUSED_COMPONENTS = ("ner", "senter")


class SpacyParser(AbstractParser):
    """Parser that returns words, tags, lemmas and dependencies from a spaCy pipeline.

    White space is collapsed first and gives no tokens. Lone surrogates, which UTF-8 lacks,
    become question marks. Lemmas are lower case; without a lemmatiser in the pipeline, lemmas and
    universal parts of speech come from `captioning.text.lemmas`.

    Args:
        folder: a saved pipeline with tagger and parser.
        name: readable name.
        cache_folder: caches parses in a file named after the pipeline's content; None: no cache.
        num_processes: maximum number of processes; more than one only if over 10,000 captions are
            not in the cache. Scripts that use several need ``if __name__ == "__main__"``.

    Attributes:
        fingerprint: hash of the pipeline's files and spaCy's version.
    """

    def __init__(
        self,
        *,
        folder: str | Path,
        name: str,
        cache_folder: str | Path | None = None,
        num_processes: int = 2,
    ) -> None:
        if num_processes < 1:
            raise ValueError(f"num_processes must be at least 1, got {num_processes}")
        self.name = name
        self.folder = Path(folder)
        self.num_processes = num_processes
        self.fingerprint = fingerprint(self.folder)
        self._pipeline: _Pipeline | None = None
        self._cache = None
        if cache_folder is not None:
            self._cache = ParseCache(Path(cache_folder) / f"{self.fingerprint[:16]}.sqlite")

    def parse(self, captions: Sequence[str]) -> list[Parse]:
        """Return one parse per caption, in order; ``()`` for a caption without words.

        Raises:
            TypeError: a caption is not a string.
            ValueError: a caption of more than a million characters, or a damaged cache.
            OSError: the cache cannot be written.
        """
        texts = [_checked(caption, index) for index, caption in enumerate(captions)]
        distinct = [text for text in dict.fromkeys(texts) if text]
        packed = {"": ""} if self._cache is None else {"": ""} | self._cache.read(distinct)
        missing = [text for text in distinct if text not in packed]
        chunks = [missing[i : i + CHUNK_SIZE] for i in range(0, len(missing), CHUNK_SIZE)]
        for chunk, parses in zip(chunks, self._run(chunks), strict=True):
            new = dict(zip(chunk, parses, strict=True))
            packed |= new
            if self._cache is not None:
                self._cache.write(new.items())
        parsed = {text: unpack(packed[text]) if text else () for text in set(texts)}
        return [parsed[text] for text in texts]

    def _run(self, chunks: list[list[str]]) -> Iterator[list[str]]:
        """Yield packed parses of each chunk, in order."""
        num_processes = min(self.num_processes, len(chunks), num_cores())
        if num_processes > 1 and sum(map(len, chunks)) > WORTH_A_PROCESS:
            # Spawned, not forked: a fork would break torch's running threads.
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(
                num_processes, context, initializer=_start_worker, initargs=(self.folder,)
            ) as pool:
                yield from pool.map(_run_in_worker, chunks)
            return
        for chunk in chunks:
            if self._pipeline is None:
                self._pipeline = _Pipeline(self.folder)
            yield self._pipeline.run(chunk)


class _Pipeline:
    """A loaded spaCy pipeline that returns packed parses."""

    def __init__(self, folder: Path) -> None:
        self.nlp = load_pipeline(folder)
        table = folder / LEMMAS_FILE
        self.lemmatizer = load_lemmas(table) if table.is_file() else None

    def run(self, texts: list[str]) -> list[str]:
        """Return packed parses of texts."""
        docs = self.nlp.pipe(texts, batch_size=BATCH_SIZE)
        return [pack(_to_parse(doc, self.lemmatizer)) for doc in docs]


_worker: list[_Pipeline] = []


def _start_worker(folder: Path) -> None:
    end_with_parent()
    _worker[:] = [_Pipeline(folder)]


def _run_in_worker(texts: list[str]) -> list[str]:
    return _worker[0].run(texts)


def _checked(caption: str, index: int) -> str:
    if not isinstance(caption, str):
        raise TypeError(f"captions must be strings: number {index} is {type(caption).__name__}")
    text = " ".join(caption.split()).encode("utf-8", "replace").decode("utf-8")
    if len(text) > MAX_CHARACTERS:
        raise ValueError(
            f"caption {index} has {len(text)} characters, the maximum is {MAX_CHARACTERS}: was "
            "a whole file read as one caption?"
        )
    return text


def _to_parse(doc: Any, lemmatizer: Lemmatizer | None) -> Parse:
    return tuple(_to_token(token, lemmatizer) for token in doc)


def _to_token(token: Any, lemmatizer: Lemmatizer | None) -> Token:
    tag, dep, head = token.tag_, token.dep_, token.head.i
    if lemmatizer is None:
        lemma, pos = (token.lemma_ or token.text).lower(), token.pos_
    else:
        lemma = lemmatizer(token.text, tag)
        pos = universal_pos(tag=tag, dep=dep, lemma=lemma)
    return Token(text=token.text, lemma=lemma, pos=pos, tag=tag, dep=dep, head=head)


def load_pipeline(folder: Path) -> Any:
    """Load a spaCy pipeline without components that parsing does not need.

    Raises:
        ValueError: the pipeline has no tagger or parser, or needs another spaCy version.
    """
    spacy = import_extra("spacy", extra="parser", purpose=PURPOSE)

    try:
        with fast_arrays():
            nlp = spacy.load(folder, exclude=list(UNUSED_COMPONENTS))
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ValueError(
            f"{folder}: spaCy {_spacy_version()} cannot load this pipeline ({error}); install the "
            "version of the pipeline that this spaCy needs"
        ) from error
    missing = [part for part in ("tagger", "parser") if part not in nlp.pipe_names]
    if missing:
        raise ValueError(
            f"{folder}: the pipeline lacks {' and '.join(missing)}, it has only {nlp.pipe_names}; "
            "choose a pipeline with both"
        )
    return nlp


def fast_arrays() -> AbstractContextManager[None]:
    """Build models in this context with NumPy's matrix library.

    spaCy's own library (BLIS) falls back to plain loops on unknown CPUs, where it was three times
    slower. A chosen GPU stays in use.
    """
    from thinc.api import get_current_ops, use_ops

    return use_ops("numpy", use_blis=False) if get_current_ops().name == "numpy" else nullcontext()


def _spacy_version() -> str:
    return extra_version("spacy", extra="parser", purpose=PURPOSE)


def fingerprint(folder: Path) -> str:
    """Return a hash of a pipeline's files, spaCy's version and the format of parses."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{FORMAT} {_spacy_version()} {content_hash(folder)}".encode())
    return digest.hexdigest()


def content_hash(folder: Path) -> str:
    """Return a hash of the names and contents of a folder's files, without byte code."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(folder.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            name = file.relative_to(folder).as_posix()
            digest.update(f"{name} {file.stat().st_size}\n".encode())
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "blake2b").digest())
    return digest.hexdigest()


@loadable
def build_caption_parser(
    *, cache_folder: str | Path | None = None, num_processes: PositiveInt = 2
) -> SpacyParser:
    """Build the packaged parser, trained on captions: docs/cards/caption_parser.md.

    Raises:
        ValueError: the pipeline's files differ from the packaged ones.
    """
    card = read_json(PACKAGED.with_suffix(".json"))
    if content_hash(PACKAGED) != card["content_hash"]:
        raise ValueError(
            f"{PACKAGED}: files are missing or were changed; install the package again, or use "
            f"your own pipeline with parser=spacy parser.name=FOLDER"
        )
    return SpacyParser(
        folder=PACKAGED, name="captions", cache_folder=cache_folder, num_processes=num_processes
    )


@loadable
def build_spacy_parser(
    *, name: str, cache_folder: str | Path | None = None, num_processes: PositiveInt = 2
) -> SpacyParser:
    """Build a parser from an installed spaCy pipeline or a folder.

    The pipeline package's code is not imported. spaCy's own components load from msgpack and
    arrays; PyTorch components may load pickles, so install only pipelines that you trust.

    Raises:
        FileNotFoundError: neither a package nor a folder of this name exists.
    """
    folder = Path(name)
    if not (folder / "meta.json").is_file():
        # Names with dots or slashes are folders that do not exist.
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
        if spec is None or spec.origin is None:
            raise FileNotFoundError(
                f"spaCy pipeline {name!r} is neither installed nor a folder with meta.json: run "
                f"python -m spacy download {name}, or give a saved pipeline's folder, or use "
                "parser=captions, which needs no further files"
            )
        folder = _inside(Path(spec.origin).parent, name)
    return SpacyParser(
        folder=folder,
        name=Path(name).name,
        cache_folder=cache_folder,
        num_processes=num_processes,
    )


def _inside(package: Path, name: str) -> Path:
    """Return the folder of a pipeline's files in its package, such as ``en_core_web_sm-3.8.0``."""
    folders = sorted(file.parent for file in package.glob("*/meta.json"))
    if not folders:
        raise FileNotFoundError(
            f"{name!r} is a Python package but no spaCy pipeline: {package}; choose another name"
        )
    return folders[-1]
