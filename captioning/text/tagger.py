"""Tag the words of captions with Penn Treebank tags, using the parser's pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from captioning.text.parser import BATCH_SIZE, PACKAGED, fingerprint, load_pipeline

Tagged = tuple[tuple[str, str], ...]


class CaptionTagger:
    """Tagger with the words and tags of `captioning.text.parser.SpacyParser`, twice as fast.

    Args:
        folder: saved pipeline with tagger and parser; None: the packaged pipeline.

    Attributes:
        fingerprint: hash of the pipeline's files and spaCy's version.
    """

    def __init__(self, *, folder: str | Path | None = None) -> None:
        self.folder = PACKAGED if folder is None else Path(folder)
        self.fingerprint = fingerprint(self.folder)
        self._pipeline: Any = None

    def tag(self, captions: Iterable[str]) -> Iterator[Tagged]:
        """Yield the ``(word, tag)`` pairs of each caption in order, words unchanged.

        White space is collapsed first. Memory use stays low for long inputs.

        Raises:
            ValueError: the pipeline cannot be loaded.
        """
        if self._pipeline is None:
            self._pipeline = load_pipeline(self.folder)
        texts = (" ".join(caption.split()) for caption in captions)
        for doc in self._pipeline.pipe(texts, batch_size=BATCH_SIZE, disable=["parser"]):
            yield tuple((token.text, token.tag_) for token in doc)
