"""Restore tokenizers of checkpoints, vocabularies and exports from their saved state."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from captioning.interfaces import AbstractTokenizer

FOLDER = __name__.rpartition(".")[0]


def restored(state: Mapping[str, Any]) -> AbstractTokenizer:
    """Restore the tokenizer that wrote an `AbstractTokenizer.state`, by its ``kind``.

    Raises:
        ValueError: no module of this package and no plugin defines the kind.
    """
    values = {name: value for name, value in state.items() if name != "kind"}
    return _class_of(state.get("kind") or _kind_without_name(state))(**values)


def _kind_without_name(state: Mapping[str, Any]) -> str:
    """Infer the kind for the three tokenizers whose older states store no kind."""
    if "start_id" in state:
        return "sentences"
    return "subwords" if "definition" in state else "words"


def _class_of(kind: str) -> type[AbstractTokenizer]:
    """Return the tokenizer class of a kind, from a module of this package or from a plugin."""
    if kind.isidentifier() and find_spec(f"{FOLDER}.{kind}") is not None:
        import_module(f"{FOLDER}.{kind}")
    for known in AbstractTokenizer.__subclasses__():
        if known.kind == kind:
            return known
    raise ValueError(
        f"the saved tokenizer has the unknown kind {kind!r}; update the package, or name the "
        "plugin that defines it: plugins=[NAME]"
    )
