"""What every search may be told: the rules by themselves, and that all searches take them."""

from __future__ import annotations

from pathlib import Path

import hydra
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from captioning.config.compose import compose_config
from captioning.decoding.beam import BeamSearch
from captioning.decoding.constrained import ConstrainedBeamSearch
from captioning.decoding.diverse import DiverseBeamSearch
from captioning.decoding.greedy import GreedySearch
from captioning.decoding.sampling import Sampling
from captioning.decoding.settings import Normalisation, SearchRequest, SearchSettings
from captioning.decoding.token_rules import Rules
from tests.captioning.decoding.enumeration import allowed
from tests.captioning.decoding.toy import BOS, EOS, PAD, TableStepper, random_table, run

IDS = {"bos_id": BOS, "eos_id": EOS, "pad_id": PAD}
SEARCHES = {
    GreedySearch: {},
    BeamSearch: {"beam_size": 2},
    Sampling: {"num_captions": 2},
    DiverseBeamSearch: {"beam_size": 2, "num_groups": 2, "diversity": 0.5},
}
each_search = pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.__name__)


def build(**options: object) -> Rules:
    settings = SearchSettings(**{"max_length": 5, **options})
    return Rules.build(settings, SearchRequest(num_images=1, **IDS))


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
    masked = build(no_repeat_ngram_size=size).without_repeats(log_probs, rows)
    for row, tokens in zip(masked, history, strict=True):
        for token in range(3, 7):
            expected = allowed(tuple(tokens), token, no_repeat_ngram_size=size)
            assert row[token] == (log_probs[0, token] if expected else -torch.inf)
        assert torch.equal(row[:3], log_probs[0, :3])
    assert log_probs.isfinite().all(), "what came in is left as it was"


def test_the_worked_example_of_bigrams():
    # a b c a: "a b" is there already, so b may not follow; c and a may.
    masked = build(no_repeat_ngram_size=2).without_repeats(
        torch.zeros(1, 7), torch.tensor([[3, 4, 5, 3]])
    )
    assert masked.tolist() == [[0, 0, 0, 0, -torch.inf, 0, 0]]


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
        ({"max_length": 0}, "max_length must be a whole number of at least 1: got 0"),
        ({"min_length": 6}, "min_length must be in .*: got 6 for 5"),
        ({"min_length": -1}, "min_length must be a whole number of at least 0: got -1"),
        (
            {"no_repeat_ngram_size": -1},
            "no_repeat_ngram_size must be a whole number of at least 0: got -1",
        ),
        ({"forbidden_ids": (EOS,)}, "forbidden_ids must not hold eos_id"),
        ({"forbidden_ids": (5,), "end_ids": (4, 5)}, r"end_ids must not hold .*: got \[5\]"),
        ({"end_ids": (PAD,)}, r"end_ids must not hold .*: got \[2\]"),
    ],
)
def test_every_search_refuses_rules_out_of_range(search, options, message):
    stepper = TableStepper(random_table(0))
    with pytest.raises(ValueError, match=message):
        run(search, stepper, **SEARCHES[search], **{"max_length": 5, **options})


@each_search
def test_every_search_keeps_the_rules(search):
    rule_settings = {
        "min_length": 3,
        "forbidden_ids": (4,),
        "end_ids": (5,),
        "no_repeat_ngram_size": 1,
    }
    stepper = TableStepper(random_table(4, images=30, vocabulary=9))
    result = run(search, stepper, max_length=5, **rule_settings, **SEARCHES[search])
    lasts = set()
    for row, length in zip(result.tokens[:, 0].tolist(), result.lengths[:, 0], strict=True):
        tokens = tuple(row[:length])
        assert length >= 3
        assert all(
            allowed(tokens[:place], tokens[place], **rule_settings) for place in range(length)
        )
        assert not {EOS, 5} & {*tokens[:-1]}, "nothing comes after an end"
        assert set(row[length:]) <= {PAD}
        lasts.add(tokens[-1])
    assert {EOS, 5} <= lasts


@each_search
def test_every_search_of_no_images_is_empty(search):
    stepper = TableStepper(random_table(0)[:0])
    result = run(search, stepper, max_length=3, **SEARCHES[search])
    assert result.tokens.shape[::2] == (0, 0)


@each_search
def test_every_search_refuses_nan(search):
    table = random_table(0)
    table[1, :, 4] = float("nan")
    stepper = TableStepper(table)
    with pytest.raises(ValueError, match="the decoder returned NaN"):
        run(search, stepper, max_length=3, **SEARCHES[search])


@pytest.mark.parametrize(
    ("search", "settings", "name"),
    [
        (GreedySearch, {"beam_size": 3}, "beam_size: got 3"),
        (GreedySearch, {"num_captions": 2}, "num_captions: got 2"),
        (BeamSearch, {"temperature": 0.5}, "temperature: got 0.5"),
        (Sampling, {"length_penalty": 0.7}, "length_penalty: got 0.7"),
        (ConstrainedBeamSearch, {"end_words": ["."]}, r"end_words: got \['.'\]"),
    ],
)
def test_a_setting_that_a_search_does_not_read_is_refused(search, settings, name):
    with pytest.raises(ValueError, match=f"{search.__name__} does not use {name}; leave it out"):
        search.with_settings(**settings)


def test_a_setting_that_no_search_has_is_refused():
    with pytest.raises(TypeError, match="beam_width"):
        BeamSearch.with_settings(beam_width=3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam_size": 2.5}, "beam_size must be a whole number of at least 1: got 2.5"),
        ({"num_captions": None}, "num_captions must be a whole number of at least 1: got None"),
        ({"seed": -1}, "seed must be a whole number of at least 0: got -1"),
        ({"temperature": -0.1}, "temperature must be at least 0 and finite: got -0.1"),
        ({"forbidden_words": "dog"}, r"forbidden_words must be a list .*: got 'dog'; write \[dog"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SearchSettings(**settings)


def test_settings_equal_to_their_defaults_are_not_changed():
    assert SearchSettings(forbidden_words=[], end_ids=(), beam_size=1).changed() == set()
    assert SearchSettings(forbidden_words=["a"], beam_size=2).changed() == {
        "forbidden_words",
        "beam_size",
    }


CONFIGS = [
    path.stem
    for path in Path(__file__).parents[3].glob("configs/search/*.yaml")
    if path.stem not in ("base", "constrained", "latents", "latents_published", "generate")
]


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_every_config_is_called_as_models_call_it(name, repository):
    config = compose_config("train", [f"search={name}", "seed=0"])
    search = hydra.utils.instantiate(config.search).changed(forbidden_ids=(6,))
    stepper = TableStepper(random_table(0))
    result = search(stepper, stepper.start(), SearchRequest(num_images=3, **IDS))
    assert result.tokens.shape[:2] == result.scores.shape == (3, 1)
    assert result.scores.isfinite().all()


@pytest.mark.parametrize("name", sorted([*CONFIGS, "constrained", "latents", "generate"]))
def test_every_config_takes_the_settings_of_all_searches_by_short_keys(name, repository):
    rule_settings = [
        "search.max_length=9",
        "search.forbidden_words=[photo]",
        "search.no_repeat_ngram_size=2",
    ]
    config = compose_config("train", [f"search={name}", "seed=3", *rule_settings])
    settings = hydra.utils.instantiate(config.search).settings
    assert (settings.max_length, settings.no_repeat_ngram_size) == (9, 2)
    assert settings.forbidden_words == ["photo"]
    assert type(settings.forbidden_words) is list
    assert settings.seed == (3 if "seed" in config.search else 0)
