"""What a converted checkpoint is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from captioning.interfaces import AbstractTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUse:
    """What became of one key of a checkpoint.

    Attributes:
        key: the authors'.
        into: names of ours; empty where it is not used.
        note: how, or why not.
    """

    key: str
    into: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a conversion may need beside the checkpoint.

    Attributes:
        vocabulary: file or folder of the authors' words.
        base: folder in transformers' format of the network that theirs began with.
        overrides: of ``captioning train``, for data and features.
    """

    vocabulary: Path | None = None
    base: Path | None = None
    overrides: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A model of this project.

    Attributes:
        overrides: of ``captioning train`` that build it; those of `Options` come after.
        tokenizer: of the checkpoint's words.
        weights: all of the model's ``state_dict``, by our names.
        feature_size: D of the features that it reads.
        keys: of all keys of the checkpoint.
        built: further names of ours, whose values the config makes, such as embeddings of names.
    """

    overrides: tuple[str, ...]
    tokenizer: AbstractTokenizer
    weights: Mapping[str, Tensor]
    feature_size: int
    keys: tuple[KeyUse, ...]
    built: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedNetwork:
    """A network of transformers.

    Attributes:
        save: writes it, with tokenizer and processor where there are any, into a folder.
        keys: of all keys of the checkpoint.
        use: an override that uses the folder, such as ``model.pretrained={folder}``.
    """

    save: Callable[[Path], object]
    keys: tuple[KeyUse, ...]
    use: str = field(default="model.pretrained={folder}")
