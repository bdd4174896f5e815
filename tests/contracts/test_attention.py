"""Where captioners look as they say a word: every captioner says it, or that it looks nowhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from captioning.inference.attention import attended_words, square_grid
from captioning.models.base import AbstractCaptioner
from captioning.types import Batch
from tests.image_text_folders import FAMILIES, with_long
from tests.tiny import FEATURE_SIZE, MODELS, NUM_REGIONS, build, make_batch, only
from tests.tiny_vlm import batch_of, captioner, model_folder, photos

every_model = pytest.mark.parametrize("name", MODELS)
# An embedding of the whole photo has no parts.
BLIND = ("viecap", "viecap_soft")
# Of transformers: those with a cross-attention to the photo's own states, and how many these are.
CROSS = {"blip": 5, "florence2": 5}
STEPS = 150  # of learning to name what one region shows


def alone(image: int) -> Batch:
    """A picture of the tiny batch, with the first of its captions and no control."""
    batch = make_batch()
    caption = batch.image_index.tolist().index(image)
    return replace(only(batch, caption), controls=None)


@torch.no_grad()
def told(model: AbstractCaptioner, photo: Batch, tokens: list[int]) -> torch.Tensor:
    """Weights ``(T, C)`` before each token; the step's other results must be those of `step`."""
    looked, state, other = [], model.start(photo), model.start(photo)
    for token in tokens:
        log_probs, state, weights = model.attend_step(torch.tensor([token]), state)
        expected, other = model.step(torch.tensor([token]), other)
        torch.testing.assert_close(log_probs, expected)
        looked.append(weights)
    return torch.cat(looked)


@every_model
def test_weights_are_shares_of_the_regions_that_exist(name: str) -> None:
    model = build(name)
    photo = alone(3)  # of five regions it has three
    tokens = model.tokenizer.encode("a dog runs on the grass")[:-1]
    assert model.attends == (name not in BLIND)
    if not model.attends:
        log_probs, _, weights = model.attend_step(torch.tensor([tokens[0]]), model.start(photo))
        torch.testing.assert_close(log_probs.exp().sum(), torch.tensor(1.0))
        assert weights is None
        return
    weights = told(model, photo, tokens)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(len(tokens)))
    assert (weights[:, 3:] == 0).all()
    assert len({tuple(row) for row in weights.tolist()}) == len(tokens)  # each word looks anew


@every_model
@torch.no_grad()
def test_words_of_captions_side_by_side_are_those_of_each_alone(name: str) -> None:
    model, photo = build(name), alone(1)
    captions = ["a dog runs", "the tall tree has a red bird", ""]
    together = attended_words(model, photo, captions)
    assert together[2] == []
    assert attended_words(model, photo, []) == []
    for caption, words in zip(captions[:2], together, strict=False):
        assert " ".join(word.text for word in words) == caption
        (single,) = attended_words(model, photo, [caption])
        tokens = model.tokenizer.encode(caption)
        log_probs, _ = model.step(torch.tensor(tokens[:1]), model.start(photo))
        assert words[0].probability == pytest.approx(float(log_probs[0, tokens[1]].exp()), rel=1e-4)
        for one, other in zip(words, single, strict=True):
            assert one.probability == pytest.approx(other.probability, rel=1e-3)
            assert one.weights == pytest.approx(other.weights, abs=1e-5)


def cued(places: torch.Tensor, kinds: torch.Tensor, generator: torch.Generator) -> Batch:
    """Photos of which one region shows one of two things; the others show nothing but noise."""
    number = len(places)
    regions = 0.1 * torch.randn(number, NUM_REGIONS, FEATURE_SIZE, generator=generator)
    regions[torch.arange(number), places, kinds] += 4
    regions[torch.arange(number), places, 5] += 4  # here is something
    batch = make_batch()
    boxes = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(number, NUM_REGIONS, 4)
    return replace(
        batch,
        rows=torch.arange(number),
        sample_ids=tuple(map(str, range(number))),
        image_ids=tuple(map(str, range(number))),
        image_index=torch.arange(number),
        regions=regions,
        region_mask=None,
        controls=None,
        extras={"boxes": boxes},
    )


def said(model: AbstractCaptioner, kinds: torch.Tensor) -> torch.Tensor:
    lines = [model.tokenizer.encode(("a dog", "a cat")[kind]) for kind in kinds.tolist()]
    return torch.tensor(lines)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in MODELS if name not in BLIND])
def test_the_word_of_a_thing_looks_where_it_is(name: str) -> None:
    """A model that has learnt to name what one region shows attends to that region."""
    torch.manual_seed(0)
    model, generator = MODELS[name](1).train(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        places = torch.randint(NUM_REGIONS, (32,), generator=generator)
        kinds = torch.randint(2, (32,), generator=generator)
        tokens = said(model, kinds)
        batch = replace(cued(places, kinds, generator), tokens=tokens, token_mask=tokens == tokens)
        optimizer.zero_grad()
        model.losses(batch).total.backward()
        optimizer.step()
    model.eval()
    places = torch.arange(NUM_REGIONS)
    batch = cued(places, places % 2, generator)
    tokens = said(model, places % 2)
    _, state, _ = model.attend_step(tokens[:, 0], model.start(batch))
    log_probs, _, weights = model.attend_step(tokens[:, 1], state)
    assert (log_probs.argmax(1) == tokens[:, -2]).all()
    cue = weights[places, places]
    assert cue.mean() > 2 / NUM_REGIONS
    if "cic_bart" not in name:  # whose encoder may carry what it saw to other regions
        assert (weights.argmax(1) == places).all()


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("family", with_long(FAMILIES))
@torch.no_grad()
def test_networks_of_transformers_look_by_their_own_cross_attention(family: str) -> None:
    model = captioner(model_folder(family))
    photo = batch_of(model_folder(family), model.tokenizer, photos()[:1])
    captions = ["a dog runs", "two dogs"]
    attended = attended_words(model, photo, captions)
    cells = CROSS.get(family, 0)
    assert model.attends == bool(cells)
    for words, caption in zip(attended, captions, strict=True):
        assert words
        tokens = model.tokenizer.encode(caption)[1 : len(words) + 1]
        state, last = model.start(photo), model.tokenizer.bos_id
        for word, token in zip(words, tokens, strict=True):
            assert len(word.weights) == cells
            assert not cells or sum(word.weights) == pytest.approx(1, abs=1e-5)
            assert min(word.weights, default=0) >= 0
            log_probs, state = model.step(torch.tensor([last]), state)
            assert word.probability == pytest.approx(float(log_probs[0, token].exp()), rel=1e-3)
            last = token
    if cells:
        assert square_grid(cells) is not None
        assert len({word.weights for word in attended[0]}) == len(attended[0])


def test_square_grids() -> None:
    assert [square_grid(n) for n in (0, 1, 2, 5, 8, 49, 577)] == [
        None, (1, 1), (1, 1), (2, 2), None, (7, 7), (24, 24)
    ]  # fmt: skip
