"""Words of captions with their Penn Treebank tags, by the parser's pipeline without parsing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from captioning.text.parser import BATCH_SIZE, PACKAGED, fingerprint, load_pipeline

Tagged = tuple[tuple[str, str], ...]


class CaptionTagger:
    """The words and tags of `captioning.text.parser.SpacyParser`, more than twice as fast.

    Args:
        folder: a saved pipeline with tagger and parser; None for the one in this package.

    Attributes:
        fingerprint: changes with any file of the pipeline and with spaCy's version.
    """

    def __init__(self, *, folder: str | Path | None = None) -> None:
        self.folder = PACKAGED if folder is None else Path(folder)
        self.fingerprint = fingerprint(self.folder)
        self._pipeline: Any = None

    def tag(self, captions: Iterable[str]) -> Iterator[Tagged]:
        """``(word, tag)`` pairs of each caption in order, words unchanged.

        White space is collapsed first. Few captions are held at any time.

        Raises:
            ValueError: the pipeline cannot be loaded.
        """
        if self._pipeline is None:
            self._pipeline = load_pipeline(self.folder)
        texts = (" ".join(caption.split()) for caption in captions)
        for doc in self._pipeline.pipe(texts, batch_size=BATCH_SIZE, disable=["parser"]):
            yield tuple((token.text, token.tag_) for token in doc)
