"""What every captioner promises, whatever its inside."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from captioning.decoding.greedy import GreedySearch
from captioning.decoding.settings import SearchRequest
from captioning.decoding.words_to_tokens import bind_search
from captioning.models.base import AbstractCaptioner
from captioning.models.training_steps import trainable
from captioning.models.vlm import Vlm
from captioning.types import Batch
from tests import tiny, tiny_vlm
from tests.tiny import MODELS

# Image-to-text models of transformers, one of each kind; test_vlm.py has all families.
FAMILIES = {f"vlm_{family}": family for family in ("git", "paligemma", "blip2_t5", "qwen2_5_vl")}
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
every_model = pytest.mark.parametrize("name", [*MODELS, *FAMILIES])


def build(name: str, *, beam_size: int = 3, seed: int = 0) -> AbstractCaptioner:
    if name not in FAMILIES:
        return tiny.build(name, beam_size=beam_size, seed=seed)
    folder = tiny_vlm.model_folder(FAMILIES[name])
    return tiny_vlm.captioner(folder, beam_size=beam_size, seed=seed)


def batch_for(model: AbstractCaptioner, pictures: list | None = None, **options) -> Batch:
    if not isinstance(model, Vlm):
        return tiny.make_batch(**options)
    folder = Path(model.pretrained)
    return tiny_vlm.batch_of(folder, model.tokenizer, pictures, **options)


def only(model: AbstractCaptioner, batch: Batch, caption: int) -> Batch:
    if not isinstance(model, Vlm):
        return tiny.only(batch, caption)
    one = batch_for(model, [tiny_vlm.photos()[batch.image_index[caption]]])
    rows = slice(caption, caption + 1)
    of_caption = {
        "rows": batch.rows[rows],
        "sample_ids": batch.sample_ids[rows],
        "tokens": batch.tokens[rows],
        "token_mask": batch.token_mask[rows],
    }
    return replace(one, image_index=torch.tensor([0]), **of_caption)


def backwards(model: AbstractCaptioner, batch: Batch) -> Batch:
    """The same images in another order."""
    index = len(batch.image_ids) - 1 - batch.image_index
    changed = {"image_ids": batch.image_ids[::-1], "image_index": index}
    if isinstance(model, Vlm):
        return replace(batch_for(model, tiny_vlm.photos()[::-1]), **changed)
    regions = {"regions": batch.regions.flip(0), "region_mask": batch.region_mask.flip(0)}
    return replace(batch, extras={"boxes": batch.extras["boxes"].flip(0)}, **regions, **changed)


def permuted(batch: Batch, order: torch.Tensor) -> Batch:
    return replace(
        batch,
        rows=batch.rows[order],
        sample_ids=tuple(batch.sample_ids[i] for i in order.tolist()),
        image_index=batch.image_index[order],
        tokens=batch.tokens[order],
        token_mask=batch.token_mask[order],
        controls=batch.controls and tuple(batch.controls[i] for i in order.tolist()),
    )


@every_model
def test_permuting_the_batch_permutes_the_losses(name: str) -> None:
    model = build(name)
    batch = batch_for(model)
    order = torch.tensor([3, 1, 0, 4, 2, *range(5, len(batch))])
    losses, permuted_losses = model.losses(batch), model.losses(permuted(batch, order))
    torch.testing.assert_close(losses.per_sample[order], permuted_losses.per_sample)
    torch.testing.assert_close(losses.total, permuted_losses.total)
    assert len(losses.per_sample.unique()) == len(batch)


@every_model
def test_a_caption_of_weight_0_is_not_learnt_from(name: str) -> None:
    model = build(name)
    batch = batch_for(model)
    order = torch.tensor([0, 2, len(batch) - 2, len(batch) - 1])
    fewer = permuted(batch, order)
    weights = torch.zeros(len(batch)).index_fill_(0, order, 0.5)
    weighted = model.losses(replace(batch, weights=weights))
    torch.testing.assert_close(weighted.total, model.losses(fewer).total)
    torch.testing.assert_close(weighted.per_sample, model.losses(batch).per_sample)
    uneven = model.losses(replace(batch, weights=torch.linspace(0, 1, len(batch))))
    assert not torch.isclose(uneven.total, model.losses(batch).total)


@every_model
def test_steps_under_teacher_forcing_add_up_to_the_loss(name: str) -> None:
    model = build(name)
    batch = batch_for(model)
    if model.loss_is_bound:
        return the_loss_is_above_what_steps_add_up_to(model, batch)
    expected = model.losses(batch).per_sample
    for caption in range(len(batch)):
        state, total = model.start(only(model, batch, caption)), 0.0
        tokens = batch.tokens[caption][batch.token_mask[caption]]
        for now, following in itertools.pairwise(tokens):
            log_probs, state = model.step(now.view(1), state)
            total -= log_probs[0, following]
        torch.testing.assert_close(total / (len(tokens) - 1), expected[caption])


@every_model
def test_curation_gets_the_sum_of_a_captions_token_losses(name: str) -> None:
    model = trainable(build(name))
    batch = batch_for(model)
    model.log = lambda *_, **__: None
    step = model.training_step(batch, 0)
    lengths = batch.token_mask[:, 1:].sum(1)
    torch.testing.assert_close(step["per_sample_sum"], step["per_sample"] * lengths)
    assert not step["per_sample_sum"].requires_grad
    assert len(model.training_step(replace(batch, filler=True), 0)["per_sample_sum"]) == 0


@torch.no_grad()
def the_loss_is_above_what_steps_add_up_to(model: AbstractCaptioner, batch: Batch) -> None:
    """The mean loss of many draws is at least the negative log-likelihood by steps."""
    model = model.double()
    batches = [replace(batch, rows=batch.rows + 1000 * number) for number in range(20)]
    losses = torch.stack([model.losses(other).per_sample for other in batches]).mean(0)
    lengths = batch.token_mask[:, 1:].sum(1)
    likelihoods = log_likelihoods(model, batch, num_draws=200)
    assert (losses * lengths > -likelihoods).all()
    assert losses.isfinite().all()


@torch.no_grad()
def log_likelihoods(model: AbstractCaptioner, batch: Batch, num_draws: int) -> torch.Tensor:
    """``log mean_k p(caption | z_k, image)`` of each caption, in nats, for draws from the prior."""
    likelihoods = []
    for caption, image in enumerate(batch.image_index.tolist()):
        only = replace(
            batch,
            image_ids=(batch.image_ids[image],),
            regions=batch.regions[image : image + 1],
            region_mask=batch.region_mask[image : image + 1],
        )
        state = model.start(only).drawn(keys=[0], draws=range(num_draws), temperature=1, seed=0)
        total = torch.zeros(num_draws, dtype=torch.float64)
        for now, following in itertools.pairwise(batch.tokens[caption][batch.token_mask[caption]]):
            log_probs, state = model.step(now.expand(num_draws), state)
            total += log_probs[:, following]
        likelihoods.append(total.logsumexp(0) - math.log(num_draws))
    return torch.stack(likelihoods)


@every_model
def test_every_trainable_parameter_gets_a_gradient(name: str) -> None:
    model = build(name).train()
    model.losses(batch_for(model)).total.backward()
    for parameter_name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.abs().sum() > 0, parameter_name


@every_model
def test_saved_and_loaded_weights_give_the_same_loss(name: str, tmp_path) -> None:
    model = build(name)
    batch = batch_for(model)
    checkpoint = {"state_dict": model.state_dict()}
    model.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, tmp_path / "model.ckpt")
    loaded = torch.load(tmp_path / "model.ckpt", weights_only=True)
    other = build(name, seed=9)
    assert not torch.equal(other.losses(batch).total, model.losses(batch).total)
    other.on_load_checkpoint(loaded)
    other.load_state_dict(loaded["state_dict"])
    assert torch.equal(other.losses(batch).per_sample, model.losses(batch).per_sample)


@every_model
def test_a_checkpoint_of_another_model_or_vocabulary_is_refused(name: str) -> None:
    model = build(name)
    checkpoint: dict = {}
    model.on_save_checkpoint(checkpoint)
    with pytest.raises(ValueError, match="belongs to model Other"):
        model.on_load_checkpoint({"captioner": {**checkpoint["captioner"], "class": "Other"}})
    words = {"words": ["dog"], "max_words": 20}
    with pytest.raises(ValueError, match="vocabularies"):
        model.on_load_checkpoint({"captioner": {**checkpoint["captioner"], "tokenizer": words}})
    with pytest.raises(ValueError, match="no captioner"):
        model.on_load_checkpoint({})


@every_model
def test_an_evaluation_changes_only_what_the_model_takes(name: str) -> None:
    model = build(name)
    model.prepare_evaluation({})
    with pytest.raises(ValueError, match=r"leave out colour, .*prepare_evaluation"):
        model.prepare_evaluation({"colour": 1})


@every_model
def test_beam_one_is_greedy(name: str) -> None:
    model = build(name, beam_size=1)
    batch = batch_for(model)
    words = model.tokenizer
    request = SearchRequest(
        num_images=len(batch.image_ids),
        bos_id=words.bos_id,
        eos_id=words.eos_id,
        pad_id=words.pad_id,
    )
    search = bind_search(GreedySearch.with_settings(max_length=8), words)
    expected = search(model, model.start(batch), request)
    predictions = model.generate(batch)
    captions = [p.caption for p in predictions]
    assert captions == [words.decode(row) for row in expected.tokens[:, 0].tolist()]
    # of random image-to-text models the scores alone tell photos apart
    assert len({p.score for p in predictions} if isinstance(model, Vlm) else set(captions)) > 1


@every_model
def test_more_padding_changes_nothing(name: str) -> None:
    model = build(name)
    losses = model.losses(batch_for(model))
    padded_losses = model.losses(batch_for(model, extra_padding=4))
    torch.testing.assert_close(losses.per_sample, padded_losses.per_sample)
    torch.testing.assert_close(losses.total, padded_losses.total)


@pytest.mark.parametrize("name", MODELS)
def test_masked_regions_change_nothing(name: str) -> None:
    model, batch = build(name), tiny.make_batch()
    regions = batch.regions.clone()
    regions[3, 3:] = 1e3
    losses, masked_losses = model.losses(batch), model.losses(replace(batch, regions=regions))
    torch.testing.assert_close(losses.per_sample, masked_losses.per_sample)
    other_captions = model.generate(replace(batch, regions=regions))
    assert model.generate(batch) == other_captions


@every_model
def test_each_image_is_described_from_its_own_picture(name: str) -> None:
    model = build(name)
    batch = batch_for(model)
    swapped = backwards(model, batch)
    predictions = {p.image_id: (p.caption, p.score) for p in model.generate(batch)}
    permuted_predictions = {p.image_id: (p.caption, p.score) for p in model.generate(swapped)}
    assert predictions.keys() == permuted_predictions.keys()
    for image_id, (caption, score) in predictions.items():
        assert permuted_predictions[image_id][0] == caption
        assert permuted_predictions[image_id][1] == pytest.approx(score, rel=1e-4)


def test_every_model_config_has_a_tiny_form() -> None:
    assert all(issubclass(type(build(name)), AbstractCaptioner) for name in MODELS)
