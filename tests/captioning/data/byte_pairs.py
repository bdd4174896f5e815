"""A byte-level tokenizer in BART's layout, small."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

MERGES = [("d", "o"), ("do", "g"), ("Ġ", "dog"), ("Ġ", "a"), ("r", "u"), ("ru", "n")]


def write_byte_pairs(
    folder: Path, *, parts: bool = False, merges: Sequence[tuple[str, str]] = MERGES
) -> int:
    """Write ``tokenizer.json``, or ``vocab.json`` and ``merges.txt``; the number of tokens."""
    letters = sorted(ByteLevel.alphabet())
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *letters, *(a + b for a, b in merges), "<mask>"]
    pairs = BPE({token: number for number, token in enumerate(tokens)}, list(merges))
    if parts:
        pairs.save(str(folder))
        return len(tokens)
    tokenizer = Tokenizer(pairs)
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return len(tokens)
