"""Tokens that end captions beside the end token: where searches stop and what captions hold."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from captioning.decoding.beam import BeamSearch
from captioning.decoding.beam_averaged import AveragedBeamSearch
from captioning.decoding.beam_transformers import TransformersBeamSearch
from captioning.decoding.constrained import ConstrainedBeamSearch
from captioning.decoding.diverse import DiverseBeamSearch
from captioning.decoding.greedy import GreedySearch
from captioning.decoding.machine import build_machine
from captioning.decoding.published_beam import HeldBeamSearch
from captioning.decoding.sampling import Sampling
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import SearchRequest
from captioning.decoding.state import ConstrainedResult, SearchResult
from captioning.decoding.words_to_tokens import bind_search, find_captions
from captioning.interfaces import AbstractDecoderState, AbstractStepper
from captioning.text.tokenizers.image_text import ImageTextTokenizer
from tests.captioning.decoding.toy import BOS, EOS, PAD, TableStepper, random_table

DOG, RUNS, FURTHER, WORD = 3, 4, 5, 6
VOCABULARY = 7
LENGTH = 6
SEARCHES = {
    "greedy": GreedySearch.with_settings(max_length=LENGTH),
    "beam": BeamSearch.with_settings(max_length=LENGTH, beam_size=3),
    "averaged": AveragedBeamSearch.with_settings(max_length=LENGTH, beam_size=3),
    "transformers": TransformersBeamSearch.with_settings(max_length=LENGTH, beam_size=3),
    "diverse": DiverseBeamSearch.with_settings(
        max_length=LENGTH, beam_size=4, num_groups=2, diversity=0.5
    ),
    "sampling": Sampling.with_settings(max_length=LENGTH, num_captions=2),
    "constrained": ConstrainedBeamSearch.with_settings(max_length=LENGTH, beam_size=3),
    "held": HeldBeamSearch.with_settings(max_length=LENGTH, beam_size=3),
}
# A caption ends in one way there: the likeliest end stands in the place of the end token.
OF_ONE_END = ("constrained", "held")
every_search = pytest.mark.parametrize("name", SEARCHES)


@dataclass(frozen=True)
class Place(AbstractDecoderState):
    """How many tokens each row has read, ``(G,)``."""

    number: Tensor

    def select(self, index: Tensor) -> Place:
        return Place(self.number[index])


class Scripted(AbstractStepper):
    """Says "dog runs", an end, further words and the end token, whatever it reads."""

    def __init__(self, end: int) -> None:
        said = [DOG, RUNS, end, WORD, WORD, EOS]
        self.table = torch.full((LENGTH, VOCABULARY), -30.0)
        self.table[range(LENGTH), said] = 0.0

    def start(self) -> Place:
        return Place(torch.zeros(1, dtype=torch.long))

    def step(self, tokens: Tensor, state: Place) -> tuple[Tensor, Place]:
        return self.table[state.number], Place(state.number + 1)


def searched(
    search: AbstractSearch, stepper: Scripted | TableStepper, *, ends: tuple[int, ...] = ()
) -> SearchResult | ConstrainedResult:
    number = len(stepper.table) if isinstance(stepper, TableStepper) else 1
    machines = [build_machine([[(DOG,)]])] * number if search.takes_machines else None
    request = SearchRequest(
        num_images=number, bos_id=BOS, eos_id=EOS, pad_id=PAD, further_ends=ends, machines=machines
    )
    return search(stepper, stepper.start(), request)


def best(result: SearchResult | ConstrainedResult) -> list[int]:
    return result.tokens[0, 0, : result.lengths[0, 0]].tolist()


@every_search
@pytest.mark.parametrize("end", [FURTHER, PAD])
def test_a_further_end_ends_a_caption(name: str, end: int) -> None:
    """Also one that pads, too."""
    result = searched(SEARCHES[name], Scripted(end), ends=(end,))
    assert best(result) == [DOG, RUNS, EOS if name in OF_ONE_END else end]
    assert float(result.scores[0, 0]) == 0
    if isinstance(result, ConstrainedResult):
        assert result.satisfied.tolist() == [True]


@every_search
def test_without_it_the_caption_goes_on(name: str) -> None:
    found = best(searched(SEARCHES[name], Scripted(FURTHER)))
    assert found == [DOG, RUNS, FURTHER, WORD, WORD, EOS]


@every_search
@pytest.mark.parametrize("seed", range(5))
def test_further_ends_are_as_ends_of_the_settings(name: str, seed: int) -> None:
    stepper = TableStepper(random_table(seed, vocabulary=VOCABULARY))
    found = searched(SEARCHES[name], stepper, ends=(FURTHER,))
    if name in OF_ONE_END:
        expected = searched(SEARCHES[name], TableStepper(with_one_end(stepper.table)))
    else:
        expected = searched(SEARCHES[name].changed(end_ids=(FURTHER,)), stepper)
    assert torch.equal(found.tokens, expected.tokens)
    assert torch.equal(found.scores, expected.scores)
    assert torch.equal(found.lengths, expected.lengths)


def with_one_end(table: Tensor) -> Tensor:
    table = table.clone()
    table[..., EOS] = table[..., [EOS, FURTHER]].amax(-1)
    table[..., FURTHER] = -torch.inf
    return table


@every_search
def test_no_caption_ends_early_by_a_further_end(name: str) -> None:
    search = SEARCHES[name].changed(min_length=4)
    result = searched(search, Scripted(FURTHER), ends=(FURTHER,))
    assert result.lengths[result.lengths > 0].min() >= 4


def tokenizer(*, pad: int) -> ImageTextTokenizer:
    names = ["<s>", "</s>", "<pad>", "dog", "runs", "<end_of_turn>", "again"]
    definition = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(names)},
            "unk_token": "<pad>",
        },
    }
    return ImageTextTokenizer(
        definition=json.dumps(definition),
        size=len(names),
        before="",
        bos_id=BOS,
        eos_id=EOS,
        pad_id=pad,
        unk_id=PAD,
        further_ends=(FURTHER, 2),
    )


@every_search
@pytest.mark.parametrize("pad", [PAD, FURTHER])
def test_captions_hold_no_further_end(name: str, pad: int) -> None:
    words, stepper = tokenizer(pad=pad), Scripted(FURTHER)
    search = bind_search(SEARCHES[name], words)
    machines = [build_machine([[(DOG,)]])] if search.takes_machines else None
    ((first, *_),) = find_captions(
        search,
        stepper.start(),
        stepper=stepper,
        tokenizer=words,
        image_ids=["photo"],
        machines=machines,
    )
    assert first.caption == "dog runs"


def test_decoding_stops_at_the_first_end_of_any_kind() -> None:
    words = tokenizer(pad=PAD)
    for end in (EOS, FURTHER, 2):
        assert words.decode([BOS, DOG, end, WORD, EOS]) == "dog"
    assert words.decode([DOG, RUNS]) == "dog runs"


@every_search
@pytest.mark.parametrize("most", [1, 2])
def test_no_caption_is_cut_off_where_the_last_token_must_end_it(name: str, most: int) -> None:
    """So none holds more words than ``max_length`` less its end; a full stop is a word."""
    search = SEARCHES[name].changed(max_length=most + 1, must_end=True)
    if "end_ids" not in search.unused:
        search = search.changed(end_ids=(WORD,))
    num_longest = 0
    for seed in range(5):
        table = random_table(seed, vocabulary=VOCABULARY)
        table[..., [EOS, FURTHER, WORD]] -= 8  # so that captions would run on
        result = searched(search, TableStepper(table.log_softmax(-1)), ends=(FURTHER,))
        lengths = result.lengths[result.lengths > 0]
        assert len(lengths) >= len(result.tokens)
        last = result.tokens[result.lengths > 0].gather(1, lengths[:, None] - 1)
        is_longest = lengths == most + 1
        num_longest += int(is_longest.sum())
        assert torch.isin(last[is_longest], torch.tensor([EOS, FURTHER])).all()
        assert torch.isfinite(result.scores[result.lengths > 0]).all()
        assert (lengths <= most + 1).all()
    assert num_longest


def test_a_greedy_caption_that_must_end_is_the_beginning_of_the_free_one() -> None:
    search = SEARCHES["greedy"].changed(max_length=4, must_end=True)
    assert best(searched(search, Scripted(FURTHER))) == [DOG, RUNS, FURTHER, EOS]
