"""Tokenizers of checkpoints, vocabularies and exports, from the plain values they were saved as."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from captioning.interfaces import AbstractTokenizer

FOLDER = __name__.rpartition(".")[0]


def restored(state: Mapping[str, Any]) -> AbstractTokenizer:
    """The tokenizer that wrote an `AbstractTokenizer.state`, found by its ``kind``.

    Raises:
        ValueError: a kind that neither this folder nor a plugin defines.
    """
    values = {name: value for name, value in state.items() if name != "kind"}
    return _class_of(state.get("kind") or _kind_without_name(state))(**values)


def _kind_without_name(state: Mapping[str, Any]) -> str:
    """Of the three tokenizers whose states name no kind."""
    if "start_id" in state:
        return "sentences"
    return "subwords" if "definition" in state else "words"


def _class_of(kind: str) -> type[AbstractTokenizer]:
    """The tokenizer of a kind: of this folder's module of that name, or of a plugin."""
    if kind.isidentifier() and find_spec(f"{FOLDER}.{kind}") is not None:
        import_module(f"{FOLDER}.{kind}")
    for known in AbstractTokenizer.__subclasses__():
        if known.kind == kind:
            return known
    raise ValueError(
        f"saved tokenizer: of kind {kind!r}, which no tokenizer here has; update the package, or "
        "name the plugin that defines it: plugins=[NAME]"
    )
