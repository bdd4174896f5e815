"""What every search may be told: the rules by themselves, and that all searches take them."""

from __future__ import annotations

import hydra
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from captioning.decoding.beam import beam_search
from captioning.decoding.diverse import diverse_beam_search
from captioning.decoding.greedy import greedy
from captioning.decoding.rules import Normalisation, Rules
from captioning.decoding.sampling import sample
from tests.captioning.decoding.enumeration import allowed
from tests.captioning.decoding.toy import BOS, EOS, PAD, TableStepper, random_table

IDS = {"bos_id": BOS, "eos_id": EOS, "pad_id": PAD}
SEARCHES = {
    greedy: {},
    beam_search: {"beam_size": 2},
    sample: {"num_samples": 2},
    diverse_beam_search: {"beam_size": 2, "num_groups": 2, "diversity": 0.5},
}
each_search = pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.__name__)


def build(**options: object) -> Rules:
    return Rules.build(**{**IDS, "max_length": 5, **options})


@given(
    history=st.integers(0, 8).flatmap(
        lambda seen: st.lists(
            st.lists(st.integers(3, 6), min_size=seen, max_size=seen), min_size=1, max_size=5
        )
    ),
    size=st.integers(0, 4),
)
def test_repeats_are_found_as_word_by_word(history, size):
    rows = torch.tensor(history, dtype=torch.long).view(len(history), -1)
    log_probs = torch.linspace(-3, -1, 7).repeat(len(history), 1)
    found = build(no_repeat_ngram=size).without_repeats(log_probs, rows)
    for row, tokens in zip(found, history, strict=True):
        for token in range(3, 7):
            expected = allowed(tuple(tokens), token, no_repeat_ngram=size)
            assert row[token] == (log_probs[0, token] if expected else -torch.inf)
        assert torch.equal(row[:3], log_probs[0, :3])
    assert log_probs.isfinite().all(), "what came in is left as it was"


def test_the_worked_example_of_bigrams():
    # a b c a: "a b" is there already, so b may not follow; c and a may.
    found = build(no_repeat_ngram=2).without_repeats(
        torch.zeros(1, 7), torch.tensor([[3, 4, 5, 3]])
    )
    assert found.tolist() == [[0, 0, 0, 0, -torch.inf, 0, 0]]


def test_ends_are_forbidden_while_the_caption_is_too_short():
    rules = build(min_length=3, end_ids=(5, EOS), forbidden_ids=(6,))
    assert rules.ends.tolist() == [EOS, 5]
    assert sorted(rules.forbidden(2).tolist()) == [BOS, EOS, PAD, 5, 6]
    assert sorted(rules.forbidden(3).tolist()) == [BOS, PAD, 6]
    assert rules.ended(torch.tensor([[EOS, 3], [5, PAD]])).tolist() == [[True, False]] * 2


@pytest.mark.parametrize(
    ("kind", "penalty", "length", "expected"),
    [
        ("none", 0.0, 7, -6.0),
        ("power", 0.0, 7, -6.0),
        ("power", 1.0, 3, -2.0),
        ("power", 0.5, 9, -2.0),
        ("gnmt", 0.0, 7, -6.0),
        ("gnmt", 1.0, 7, -3.0),
        ("gnmt", 2.0, 7, -1.5),
        ("gnmt", 1.0, 1, -6.0),
    ],
)
def test_normalisations_worked_by_hand(kind, penalty, length, expected):
    scores = Normalisation(kind=kind, length_penalty=penalty).scores(torch.tensor(-6.0), length)
    assert float(scores) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "mean"}, "normalisation must be one of .*none.*power.*gnmt.*: got 'mean'"),
        ({"length_penalty": -1.0}, "length_penalty must be at least 0: got -1.0"),
        ({"kind": "none", "length_penalty": 0.7}, "length_penalty must be 0 with normalisation"),
    ],
)
def test_normalisations_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Normalisation(**settings)


@each_search
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 0}, "max_length must be at least 1: got 0"),
        ({"min_length": 6}, "min_length must be in .*: got 6 for 5"),
        ({"min_length": -1}, "min_length must be in .*: got -1 for 5"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram must be at least 0: got -1"),
        ({"forbidden_ids": (EOS,)}, "forbidden_ids must not hold eos_id"),
        ({"forbidden_ids": (5,), "end_ids": (4, 5)}, r"end_ids must not hold .*: got \[5\]"),
        ({"end_ids": (PAD,)}, r"end_ids must not hold .*: got \[2\]"),
    ],
)
def test_every_search_refuses_rules_out_of_range(search, options, message):
    stepper = TableStepper(random_table(0))
    with pytest.raises(ValueError, match=message):
        search(
            stepper,
            stepper.start(),
            num_images=3,
            **IDS,
            **SEARCHES[search],
            **{"max_length": 5, **options},
        )


@each_search
def test_every_search_keeps_the_rules(search):
    told = {"min_length": 3, "forbidden_ids": (4,), "end_ids": (5,), "no_repeat_ngram": 1}
    stepper = TableStepper(random_table(4, images=30, vocabulary=9))
    result = search(
        stepper, stepper.start(), num_images=30, max_length=5, **IDS, **told, **SEARCHES[search]
    )
    lasts = set()
    for row, length in zip(result.tokens[:, 0].tolist(), result.lengths[:, 0], strict=True):
        tokens = tuple(row[:length])
        assert length >= 3
        assert all(allowed(tokens[:place], tokens[place], **told) for place in range(length))
        assert not {EOS, 5} & {*tokens[:-1]}, "nothing comes after an end"
        assert set(row[length:]) <= {PAD}
        lasts.add(tokens[-1])
    assert {EOS, 5} <= lasts


@each_search
def test_every_search_of_no_images_is_empty(search):
    stepper = TableStepper(random_table(0)[:0])
    result = search(stepper, stepper.start(), num_images=0, max_length=3, **IDS, **SEARCHES[search])
    assert result.tokens.shape[::2] == (0, 0)


@each_search
def test_every_search_refuses_nan(search):
    table = random_table(0)
    table[1, :, 4] = float("nan")
    stepper = TableStepper(table)
    with pytest.raises(ValueError, match="the decoder returned NaN"):
        search(stepper, stepper.start(), num_images=3, max_length=3, **IDS, **SEARCHES[search])


@pytest.mark.parametrize(
    "name", ["beam", "beam_nocaps", "greedy", "sampling", "nucleus", "diverse"]
)
def test_every_config_is_called_as_models_call_it(name, repository):
    config = OmegaConf.load(repository / f"configs/search/{name}.yaml")
    search = hydra.utils.instantiate(OmegaConf.create({"seed": 0, "search": config}).search)
    stepper = TableStepper(random_table(0))
    result = search(stepper, stepper.start(), num_images=3, **IDS, forbidden_ids=(6,), device="cpu")
    assert result.tokens.shape[:2] == result.scores.shape == (3, 1)
    assert result.scores.isfinite().all()
