"""Constrained search over the pieces of a sub-word tokenizer: words count where they are whole."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from captioning.decoding.constrained import ConstrainedBeamSearch
from captioning.decoding.constraints import constrain
from captioning.interfaces import AbstractTokenizer
from tests.captioning.decoding.toy import BOS, EOS, PAD, TableStepper, random_table, run

# "_" is a blank; pieces without one go on with the word before them, or begin a caption.
PIECES = ("_cat", "cat", "_z", "ebra", "z", "_hot", "_dog", "dog", "s")
CONTINUING = {"cat", "ebra", "z", "dog", "s"}


class Pieces(AbstractTokenizer):
    """Writes words by the longest piece that fits."""

    bos_id, eos_id, pad_id, unk_id = BOS, EOS, PAD, PAD
    pieces = ("<bos>", "<eos>", "<pad>", *PIECES)

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, caption: str) -> list[int]:
        return [BOS, *self.split(caption.replace(" ", "_")), EOS]

    def split(self, text: str) -> list[int]:
        ids = []
        while text:
            fits = [piece for piece in PIECES if text.startswith(piece)]
            if not fits:
                return [self.unk_id]
            ids.append(self.pieces.index(max(fits, key=len)))
            text = text[len(self.pieces[ids[-1]]) :]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        words = itertools.takewhile(lambda token: token != EOS, ids)
        return "".join(self.pieces[token] for token in words if token > PAD).replace("_", " ")

    def spellings(self, text: str) -> list[list[int]]:
        candidates = [self.split(start + text.replace(" ", "_")) for start in ("_", "")]
        return [ids for ids in candidates if self.unk_id not in ids]

    def continuing(self) -> frozenset[int]:
        return frozenset(map(self.pieces.index, CONTINUING))

    def state(self) -> dict[str, Any]:
        return {}


TOKENIZER = Pieces()
CASES = [
    [("cat",)],
    [("zebra", "zebras"), ("cat", "cats")],
    [("hot dog", "hot dogs"), ("zebra",)],
]


def words_met(caption: str, constraints: list[tuple[str, ...]]) -> int:
    """Counted in the text, by whole words."""
    text = f" {' '.join(caption.split())} "
    return sum(any(f" {word} " in text for word in words) for words in constraints)


def machine_of(constraints: list[tuple[str, ...]]):
    encode, continuing = TOKENIZER.spellings, TOKENIZER.continuing()
    return constrain(constraints, encode, required=2, continues=continuing).machine


def test_words_are_written_with_a_blank_and_without():
    texts = [[TOKENIZER.pieces[i] for i in ids] for ids in TOKENIZER.spellings("zebras")]
    assert texts == [["_z", "ebra", "s"], ["z", "ebra", "s"]]
    assert [len(ids) for ids in TOKENIZER.spellings("hot dog")] == [2]


@pytest.mark.parametrize("constraints", CASES)
def test_every_text_meets_the_words_that_it_holds(constraints):
    machine = machine_of(constraints)
    for size in range(5):
        for tokens in itertools.product(range(3, len(TOKENIZER)), repeat=size):
            expected = words_met(TOKENIZER.decode(tokens), constraints)
            assert machine.met[machine.run(tokens)] == expected, TOKENIZER.decode(tokens)


@pytest.mark.long
@pytest.mark.parametrize("constraints", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_the_best_caption_that_holds_the_words_is_found(constraints, seed):
    stepper = TableStepper(random_table(seed, images=1, vocabulary=len(TOKENIZER)))
    machine = machine_of(constraints)
    settings = {"beam_size": 2000, "max_length": 5}
    result = run(ConstrainedBeamSearch, stepper, machines=[machine], **settings)
    best = max(
        (total, tokens)
        for tokens, total in every_finished(stepper, length=5)
        if words_met(TOKENIZER.decode(tokens), constraints) >= machine.required
    )
    length = int(result.lengths[0, 0])
    assert tuple(result.tokens[0, 0, :length].tolist()) == best[1]
    assert float(result.scores[0, 0]) == pytest.approx(best[0])
    assert bool(result.satisfied[0])
    assert int(result.met[0, 0]) == words_met(TOKENIZER.decode(best[1]), constraints)


def every_finished(stepper: TableStepper, length: int):
    """All captions that end within ``length`` tokens, with their summed log-probability."""
    table = stepper.table[0].numpy()
    for size in range(length):
        for words in itertools.product(range(3, len(TOKENIZER)), repeat=size):
            code, total = stepper.next_code(0, BOS), np.float32(0)
            for token in (*words, EOS):
                total += table[code, token]
                code = stepper.next_code(code, token)
            yield (*words, EOS), float(total)
