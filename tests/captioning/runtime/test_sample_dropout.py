"""Masks go by sample: whatever the rest of the batch, and in layers that are computed again."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from captioning.models.base import AbstractCaptioner
from captioning.runtime import sample_dropout
from captioning.runtime.sample_dropout import by_caption, by_image, by_name, by_token, replayed
from captioning.types import Batch
from tests.captioning.models.test_cos_cvae import pseudo_model, with_contexts
from tests.captioning.training.test_host_syncs import texts_alone
from tests.tiny import MODELS, build, make_batch
from tests.tiny_vlm import batch_of, captioner, model_folder

SHARE = 0.3


def dropping(model: AbstractCaptioner) -> AbstractCaptioner:
    """The model in training, with dropout wherever it has a place for it."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, float) and (name == "p" or "dropout" in name):
                setattr(module, name, SHARE)
    return model.train()


def part(batch: Batch, captions: list[int], by_photo: tuple[str, ...] = ()) -> Batch:
    """Some of a batch's captions, as another process would have them."""
    index = batch.image_index[captions]
    images = index.unique()
    places = {int(image): number for number, image in enumerate(images)}
    longest = int(batch.token_mask[captions].sum(1).max())
    return replace(
        batch,
        rows=batch.rows[captions],
        sample_ids=tuple(batch.sample_ids[caption] for caption in captions),
        image_ids=tuple(batch.image_ids[image] for image in images),
        image_index=torch.tensor([places[int(image)] for image in index]),
        regions=None if batch.regions is None else batch.regions[images],
        region_mask=None if batch.region_mask is None else batch.region_mask[images],
        tokens=batch.tokens[captions, :longest],
        token_mask=batch.token_mask[captions, :longest],
        controls=None if batch.controls is None else tuple(batch.controls[c] for c in captions),
        extras={
            name: value[images if name in by_photo else captions]
            for name, value in batch.extras.items()
        },
    )


def losses_by_row(model: AbstractCaptioner, batch: Batch) -> dict[int, float]:
    torch.manual_seed(5)
    values = model.losses(batch).per_sample
    return dict(zip(batch.rows.tolist(), values.tolist(), strict=True))


def check_parts(model: AbstractCaptioner, batch: Batch, **options) -> None:
    model = dropping(model)
    complete = losses_by_row(model, batch)
    last = len(batch) - 1
    parts = [[last], [0], [3, 1], list(range(2, len(batch)))]
    for captions in parts:
        assert losses_by_row(model, part(batch, captions, **options)) == pytest.approx(
            {int(batch.rows[c]): complete[int(batch.rows[c])] for c in captions}, rel=1e-4
        )
    torch.manual_seed(6)
    assert model.losses(batch).per_sample.tolist() != list(complete.values())


@pytest.mark.parametrize("name", MODELS)
def test_a_caption_gets_the_masks_that_it_gets_in_a_larger_batch(name: str) -> None:
    check_parts(build(name), make_batch(), by_photo=("boxes",))


def test_so_do_captions_alone() -> None:
    check_parts(build("viecap"), texts_alone(make_batch()))


def test_and_contexts_of_other_photos() -> None:
    model, batch = dropping(pseudo_model()), with_contexts(make_batch())
    halves = [part(batch, [0, 1, 2]), part(batch, [3, 4, 5])]
    torch.manual_seed(5)
    _, complete = model.losses(batch).means
    sums, counts = [], []
    for half in halves:
        torch.manual_seed(5)
        _, mean = model.losses(half).means
        sums.append(mean.value * mean.denominator)
        counts.append(mean.denominator)
    torch.testing.assert_close(complete.value, sum(sums) / sum(counts), rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("family", ["git", "blip", "blip2_t5"])
def test_models_of_transformers_drop_by_sample(family: str) -> None:
    folder = model_folder(family)
    model = captioner(folder)
    batch = batch_of(folder, model.tokenizer)
    check_parts(model, batch, by_photo=tuple(batch.extras))


@pytest.mark.parametrize("middle", [(), (4,), (3, 4)])
def test_masks_are_random_numbers(middle: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    with by_name(range(200), torch.device("cpu")):
        mask = (functional.dropout(torch.ones(200, *middle, 50), SHARE) == 0).double()
        other = (functional.dropout(torch.ones(200, *middle, 50), SHARE) == 0).double()
    flat = mask.flatten(0, -2)
    assert mask.mean() == pytest.approx(SHARE, abs=0.02)
    assert _covariance(mask, other) < 0.01
    assert _covariance(flat[1:], flat[:-1]) < 0.01
    assert _covariance(flat[:, 1:], flat[:, :-1]) < 0.01
    # as many zeros a row as chance would have
    variance = SHARE * (1 - SHARE) * 50
    assert flat.sum(1).var() == pytest.approx(variance, rel=0.35)


def _covariance(first: Tensor, second: Tensor) -> float:
    return float(((first - SHARE) * (second - SHARE)).mean().abs())


def test_what_is_kept_is_scaled_and_has_a_gradient() -> None:
    values = torch.ones(2, 1000, requires_grad=True)
    with by_name("ab", torch.device("cpu")):
        dropped = nn.Dropout(0.25)(values)
    dropped.sum().backward()
    assert sorted(dropped.unique().tolist()) == pytest.approx([0, 1 / 0.75])
    assert torch.equal(values.grad, dropped.detach())


@pytest.mark.long
def test_attention_is_torchs_own_but_for_the_masks() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 5, 8)[:, :, :, :, :].unbind(0)
    masks = torch.rand(2, 1, 5, 5) > 0.4
    masks |= torch.eye(5, dtype=torch.bool)
    for options in ({"is_causal": True}, {"attn_mask": masks}, {"attn_mask": masks.float() * -2}):
        expected = functional.scaled_dot_product_attention(query, key, value, **options)
        with by_name("ab", torch.device("cpu")):
            drawn = torch.stack(
                [
                    functional.scaled_dot_product_attention(
                        query, key, value, dropout_p=0.2, **options
                    )
                    for _ in range(3000)
                ]
            )
        assert not torch.equal(drawn[0], drawn[1])
        torch.testing.assert_close(drawn.mean(0), expected, atol=0.06, rtol=0)


def test_fewer_keys_than_queries_have_their_groups() -> None:
    query, few = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8)
    with by_name("ab", torch.device("cpu")):
        torch.manual_seed(1)
        grouped = functional.scaled_dot_product_attention(
            query, few, few, dropout_p=0.2, enable_gqa=True
        )
        torch.manual_seed(1)
        many = few.repeat_interleave(2, dim=1)
        repeated = functional.scaled_dot_product_attention(query, many, many, dropout_p=0.2)
    assert torch.equal(grouped, repeated)


def test_layers_that_are_computed_again_drop_alike() -> None:
    layer = nn.Sequential(nn.Linear(6, 6), nn.Dropout(SHARE), nn.Linear(6, 6), nn.Dropout(SHARE))
    inputs = torch.randn(6, 4, 6)

    def gradients(again: bool) -> list[Tensor]:
        layer.zero_grad()
        torch.manual_seed(2)
        with by_caption(make_batch()):
            outputs = layer(inputs)
            if again:
                torch.manual_seed(2)
        if again:
            with by_caption(make_batch()):
                outputs = checkpoint(layer, inputs, use_reentrant=False, context_fn=replayed)
        outputs.square().sum().backward()
        return [parameter.grad.clone() for parameter in layer.parameters()]

    for plain, computed_again in zip(gradients(False), gradients(True), strict=True):
        assert torch.equal(plain, computed_again)


def test_torchs_own_functions_are_back_afterwards() -> None:
    own = (functional.dropout, functional.scaled_dot_product_attention)
    with pytest.raises(KeyError):
        _nested(own[0])
    assert (functional.dropout, functional.scaled_dot_product_attention) == own


def _nested(own: object) -> None:
    with by_image(make_batch()):
        assert functional.dropout is not own
        with by_token(torch.tensor([0]), torch.tensor([0])):
            pass
        assert functional.dropout is not own
        raise KeyError


def test_a_tensor_without_samples_is_told_once(caplog) -> None:
    caplog.set_level("INFO")
    sample_dropout._Current.told = False
    with by_name("abc", torch.device("cpu")):
        for _ in range(2):
            assert (functional.dropout(torch.ones(4, 50), 0.5) == 0).any()
    assert len(caplog.records) == 1
    assert "shape (4, 50) cannot depend on samples" in caplog.text
