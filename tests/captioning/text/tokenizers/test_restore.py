"""Saved tokenizers are found by their kind, of a module of that name or of a plugin."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

import pytest

from captioning.interfaces import AbstractTokenizer
from captioning.text import tokenizers
from captioning.text.tokenizers.restore import restored
from captioning.text.tokenizers.words import WordTokenizer

WORDS = WordTokenizer.build(["a dog runs"], min_count=1)


def test_kinds_are_the_names_of_modules() -> None:
    kinds = {}
    for module in iter_modules(tokenizers.__path__):
        for value in vars(import_module(f"{tokenizers.__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, AbstractTokenizer):
                kinds[value.kind] = value.__module__.rpartition(".")[2]
    kinds.pop("")  # of the abstract class
    assert {"bart", "image_text", "published_words", "sentences", "subwords", "words"} == set(kinds)
    assert all(kind == module for kind, module in kinds.items())


def test_states_without_a_kind_are_told_by_their_keys() -> None:
    assert "kind" not in WORDS.state()
    assert type(restored(WORDS.state())) is WordTokenizer
    assert restored(WORDS.state()).state() == WORDS.state()


def test_a_plugins_tokenizer_is_found() -> None:
    class Spelled(AbstractTokenizer):
        kind = "spelled_by_a_plugin"

        def __init__(self, *, letters: str) -> None:
            self.letters = letters

        def __len__(self) -> int:
            return len(self.letters)

        def encode(self, caption: str) -> list[int]:
            return [self.letters.index(letter) for letter in caption]

        def decode(self, ids) -> str:
            return "".join(self.letters[number] for number in ids)

        def token_id(self, token: str) -> int | None:
            return self.letters.find(token)

        def state(self) -> dict:
            return {"kind": self.kind, "letters": self.letters}

    again = restored(Spelled(letters="abc").state())
    assert isinstance(again, Spelled)
    assert again.encode("cab") == [2, 0, 1]


@pytest.mark.parametrize("kind", ["places", "bart.places", "unheard_of"])
def test_an_unknown_kind_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=rf"unknown kind '{kind}'.*plugins="):
        restored({"kind": kind, "words": []})


@pytest.mark.long
def test_words_alone_load_no_network_tokenizer() -> None:
    code = (
        "import sys; from captioning.text.tokenizers.restore import restored\n"
        f"restored({WORDS.state()!r})\n"
        "sys.exit(any(name.startswith('captioning.text.tokenizers.bart') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
