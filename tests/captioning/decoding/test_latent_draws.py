"""Searches over draws of latents: one caption a draw, the same whatever stands beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from captioning.decoding.beam import BeamSearch
from captioning.decoding.latent_draws import LatentSearch, PublishedLatentSearch, _first_unused
from captioning.decoding.settings import SearchRequest
from captioning.decoding.state import DEAD, SearchResult
from captioning.decoding.words_to_tokens import bind_search
from captioning.models.cos_cvae import CosCvae
from captioning.types import Batch
from tests.tiny import build, make_batch

SETTINGS = {"temperature": 1.0, "beam_size": 2, "max_length": 8}


@pytest.fixture(scope="module")
def model() -> CosCvae:
    return build("cos_cvae")


def candidates(model: CosCvae, batch: Batch, **settings) -> list[list[str]]:
    """Captions of each image; scores differ in their last bits with what stands beside them."""
    search = LatentSearch.with_settings(**(SETTINGS | settings))
    model.search = bind_search(search, model.tokenizer)
    return [[p.caption for p in group] for group in model.candidates(batch)]


def test_a_caption_for_each_draw(model: CosCvae) -> None:
    captions = candidates(model, make_batch(), num_captions=20)
    assert [len(group) for group in captions] == [20] * 4
    assert all(len(set(group)) > 1 for group in captions)
    assert sum(len(set(group)) for group in captions) > 15


def test_a_draw_may_give_several_captions_of_its_beam(model: CosCvae) -> None:
    """As COS-CVAE's authors score them: twice as many captions as draws."""
    both = candidates(model, make_batch(), num_captions=6, captions_per_draw=2, at_once=4)
    assert [len(group) for group in both] == [12] * 4
    assert [group[::2] for group in both] == candidates(model, make_batch(), num_captions=6)
    bests, seconds = ([group[n::2] for group in both] for n in (0, 1))
    assert all(
        a != b for pair in zip(bests, seconds, strict=True) for a, b in zip(*pair, strict=True)
    )


def test_draws_do_not_depend_on_how_they_are_made(model: CosCvae) -> None:
    all_at_once = candidates(model, make_batch(), num_captions=9)
    assert candidates(model, make_batch(), num_captions=9, at_once=4) == all_at_once
    assert candidates(model, make_batch(), num_captions=5) == [group[:5] for group in all_at_once]
    assert candidates(model, make_batch(), num_captions=9, seed=1) != all_at_once


def test_draws_of_an_image_do_not_depend_on_its_batch(model: CosCvae) -> None:
    batch = make_batch()
    alone = replace(
        batch,
        image_ids=batch.image_ids[2:3],
        regions=batch.regions[2:3],
        region_mask=batch.region_mask[2:3],
    )
    (captions,) = candidates(model, alone, num_captions=6)
    assert captions == candidates(model, batch, num_captions=6)[2]


def test_at_temperature_0_all_draws_are_the_means(model: CosCvae) -> None:
    batch = make_batch()
    captions = candidates(model, batch, num_captions=3, temperature=0)
    search = BeamSearch.with_settings(beam_size=2, max_length=8)
    model.search = bind_search(search, model.tokenizer)
    for group, prediction in zip(captions, model.generate(batch), strict=True):
        assert group == [prediction.caption] * 3


def test_each_draw_is_searched_as_by_itself(model: CosCvae) -> None:
    """Hypotheses of a block read the latents of that block."""
    batch, words = make_batch(), model.tokenizer
    captions = candidates(model, batch, num_captions=4)
    special = {"bos_id": words.bos_id, "eos_id": words.eos_id, "pad_id": words.pad_id}
    for draw in range(4):
        settings = {"keys": batch.image_ids, "temperature": 1.0, "seed": 0}
        state = model.start(batch).drawn(draws=range(draw, draw + 1), **settings)
        for image in range(4):
            only = state.select(torch.tensor([image]))
            search = bind_search(BeamSearch.with_settings(beam_size=2, max_length=8), words)
            result = search(model, only, SearchRequest(num_images=1, **special))
            assert words.decode(result.tokens[0, 0].tolist()) == captions[image][draw]


def test_what_makes_no_sense_is_refused(model: CosCvae) -> None:
    batch = make_batch()
    for settings, message in (
        ({"num_captions": 0}, "num_captions must be a whole number of at least 1"),
        ({"at_once": 0}, "at_once must be a whole number of at least 1"),
        ({"captions_per_draw": 3}, "captions_per_draw must be at most beam_size=2: got 3"),
        (
            {"captions_per_draw": 2, "distinct": True},
            "distinct: needs one caption per latent sample",
        ),
        ({"temperature": -1}, "temperature must be at least 0"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"max_length": 30, "min_length": 30}, "model.module.max_steps"),
    ):
        with pytest.raises(ValueError, match=message):
            candidates(model, batch, **settings)
    state = model.start(batch)
    settings = {"draws": range(2), "temperature": 1.0, "seed": 0}
    with pytest.raises(ValueError, match="before the first word"):
        state.drawn(keys=[0], **settings)
    _, state = model.step(torch.full((4,), model.tokenizer.bos_id), state)
    with pytest.raises(ValueError, match="after 1 words"):
        state.drawn(keys=batch.image_ids, **settings)


def test_a_model_without_latents_is_refused() -> None:
    updown = build("updown")
    updown.search = bind_search(LatentSearch.with_settings(**SETTINGS), updown.tokenizer)
    with pytest.raises(ValueError, match="needs a model with latents.*UpDownState"):
        updown.generate(make_batch())


def test_distinct_draws_say_what_none_before_said(model: CosCvae) -> None:
    """At temperature 0 all beams are the same, so that they are gone through from their top."""
    batch = make_batch()
    means = {"temperature": 0, "beam_size": 3, "distinct": True}
    captions = candidates(model, batch, num_captions=4, **means)
    best = BeamSearch.with_settings(beam_size=3, num_captions=3, max_length=8)
    model.search = bind_search(best, model.tokenizer)
    for group, predictions in zip(captions, model.candidates(batch), strict=True):
        first, second, third = (prediction.caption for prediction in predictions)
        assert group == [first, second, third, first]
    assert candidates(model, batch, num_captions=4, at_once=1, **means) == captions


def test_distinct_draws_take_no_place_without_a_hypothesis() -> None:
    """Two draws of one image, each with one hypothesis for its beam of two: the same words."""
    beam = SearchResult(
        tokens=torch.tensor([[[5, 2], [0, 0]]] * 2),
        scores=torch.tensor([[-1.0, DEAD]] * 2),
        lengths=torch.tensor([[2, 0]] * 2),
    )
    assert _first_unused(beam, [set()]).tolist() == [0, 0]


def test_distinct_draws_keep_the_first_and_are_more(model: CosCvae) -> None:
    plain = candidates(model, make_batch(), num_captions=20)
    distinct = candidates(model, make_batch(), num_captions=20, distinct=True)
    assert [group[0] for group in plain] == [group[0] for group in distinct]
    assert all(len(set(d)) >= len(set(p)) for p, d in zip(plain, distinct, strict=True))
    assert sum(len(set(d)) - len(set(p)) for p, d in zip(plain, distinct, strict=True)) > 0


def test_the_published_search_forbids_no_token(model: CosCvae) -> None:
    search = PublishedLatentSearch.with_settings(num_captions=2, beam_size=2)
    bind_search(search, model.tokenizer)  # the unknown word does not count
    search = PublishedLatentSearch.with_settings(forbidden_ids=[7], beam_size=2)
    with pytest.raises(ValueError, match=r"cannot forbid tokens: got forbidden_ids \[.*7\]"):
        bind_search(search, model.tokenizer)
