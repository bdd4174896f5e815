"""Image-to-text models of transformers as captioners: every family, by its own processor."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from captioning.decoding.beam import BeamSearch
from captioning.decoding.constrained import ConstrainedBeamSearch
from captioning.decoding.constraints import constrain
from captioning.decoding.generate import GenerateSearch
from captioning.decoding.greedy import GreedySearch
from captioning.decoding.image_constraints import ImageConstraints
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import SearchRequest
from captioning.models.adapt import add_low_rank
from captioning.models.vlm import Vlm
from captioning.types import Batch
from captioning.vision.prompt_tensors import PromptedProcessor
from tests.image_text_folders import FAMILIES, with_long
from tests.tiny_vlm import INDEX, PROMPT, SIZES, batch_of, captioner, model_folder, photos

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
every_family = pytest.mark.parametrize("family", with_long(FAMILIES))
LENGTH = 6


@every_family
@torch.no_grad()
def test_steps_under_teacher_forcing_add_up_to_the_loss(family: str) -> None:
    """Also where the batch pads prompts and photos, and the steps see one photo alone."""
    model = captioner(model_folder(family))
    batch = batch_of(model_folder(family), model.tokenizer)
    losses = model.losses(batch).per_sample
    assert len(losses.unique()) == len(batch)
    for caption in (0, 3):
        picture = photos()[INDEX[caption]]
        state = model.start(batch_of(model_folder(family), model.tokenizer, [picture]))
        tokens, total = batch.tokens[caption][batch.token_mask[caption]], 0.0
        for now, following in itertools.pairwise(tokens):
            log_probs, state = model.step(now.view(1), state)
            total -= log_probs[0, following]
        torch.testing.assert_close(total / (len(tokens) - 1), losses[caption])


@every_family
def test_the_loss_is_that_of_transformers(family: str) -> None:
    """The mean over tokens of the network's own logits, with labels on the caption alone."""
    folder = model_folder(family)
    model = captioner(folder).double()
    batch = doubled(batch_of(folder, model.tokenizer))
    caption = batch.tokens[3][batch.token_mask[3]][1:]
    processor = AutoProcessor.from_pretrained(folder)
    text = model_text(model, folder)
    inputs = processor(images=[photos()[2]], text=[text], return_tensors="pt")
    network = AutoModelForImageTextToText.from_pretrained(folder)
    network.load_state_dict(model.network.state_dict())
    pixels = {n: v.double() for n, v in inputs.items() if v.is_floating_point()}
    logits = their_logits(network.double().eval(), family, {**inputs, **pixels}, caption)
    expected = torch.nn.functional.cross_entropy(logits.float(), caption)
    found = model.losses(batch).per_sample[3].float()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def doubled(batch: Batch) -> Batch:
    pixels = {n: v.double() for n, v in batch.extras.items() if v.is_floating_point()}
    return replace(batch, extras={**batch.extras, **pixels})


def model_text(model: Vlm, folder: Path) -> str:
    processor = PromptedProcessor(pretrained=str(folder), prompt=PROMPT)
    return processor.format.text


def their_logits(network, family: str, inputs: dict, caption: torch.Tensor) -> torch.Tensor:
    """``(T, V)`` from one call of the network on prompt and caption."""
    number = len(caption)
    if family in ("blip2_t5", "florence2"):
        start = network.config.get_text_config(decoder=True).decoder_start_token_id
        first = [start] if family == "blip2_t5" else [start, *forced(network)]
        ids = torch.tensor([[*first, *caption[:-1].tolist()]])
        return network(**inputs, decoder_input_ids=ids).logits[0, -number:]
    if family in ("git", "blip"):
        inputs = {n: v[:, :-1] if n != "pixel_values" else v for n, v in inputs.items()}
    if family == "blip":
        inputs["input_ids"][:, 0] = network.config.text_config.bos_token_id
    inputs.pop("labels", None)
    for name, value in {"input_ids": caption[None, :-1], "attention_mask": 1}.items():
        added = value if isinstance(value, torch.Tensor) else torch.ones(1, number - 1).long()
        inputs[name] = torch.cat([inputs[name], added], dim=1)
    for name, fill in {"token_type_ids": 1, "mm_token_type_ids": 0}.items():
        if name in inputs:
            added = torch.full((1, number - 1), fill)
            inputs[name] = torch.cat([inputs[name], added.to(inputs[name])], dim=1)
    return network(**inputs).logits[0, -number:]


def forced(network) -> list[int]:
    value = network.generation_config.forced_bos_token_id
    return [] if value is None else [value]


@every_family
def test_its_own_generate_and_our_search_agree(family: str) -> None:
    model = captioner(model_folder(family))
    batch = batch_of(model_folder(family), model.tokenizer)
    for ours, own in (
        (GreedySearch.with_settings(max_length=LENGTH), {"beam_size": 1}),
        (BeamSearch.with_settings(beam_size=3, max_length=LENGTH), {"beam_size": 3}),
    ):
        own_search = GenerateSearch.with_settings(max_length=LENGTH, length_penalty=0.0, **own)
        theirs = model.generate(batch, search=own_search)
        if family == "florence2":  # which forces its end token at the greatest length
            assert len({prediction.caption for prediction in theirs}) >= 1
            continue
        for mine, other in zip(model.generate(batch, search=ours), theirs, strict=True):
            assert mine.caption == other.caption
            assert mine.score == pytest.approx(other.score, abs=1e-3)


@pytest.mark.parametrize("min_length", [0, 1, 2, 4])
def test_its_own_generate_counts_the_end_token_among_the_fewest(min_length: int) -> None:
    model = captioner(model_folder("git"))
    batch = batch_of(model_folder("git"), model.tokenizer, photos()[:1])
    model.tokenizer.eos_id = likeliest_token(model, batch)  # else no caption of it ends
    ours, own = (
        kind.with_settings(max_length=LENGTH, min_length=min_length)
        for kind in (GreedySearch, GenerateSearch)
    )
    lengths = [num_tokens(model, batch, search) for search in (ours, own)]
    assert lengths == [max(1, min_length)] * 2


def likeliest_token(model: Vlm, batch: Batch) -> int:
    start = torch.full((1,), model.tokenizer.bos_id)
    return int(model.step(start, model.start(batch))[0].argmax())


def num_tokens(model: Vlm, batch: Batch, search: AbstractSearch) -> int:
    words = model.tokenizer
    special = {"bos_id": words.bos_id, "eos_id": words.eos_id, "pad_id": words.pad_id}
    with torch.no_grad():
        result = search(model, model.start(batch), SearchRequest(num_images=1, **special))
    return int(result.lengths)


def test_what_transformers_cannot_draw_is_refused() -> None:
    for name, value in {"temperature": 0.7, "top_k": 5, "top_p": 0.9}.items():
        with pytest.raises(
            ValueError, match=f"{name}: applies to random sampling, which is off: got {value}"
        ):
            GenerateSearch.with_settings(beam_size=1, **{name: value})
        GenerateSearch.with_settings(beam_size=1, sample=True, seed=3, **{name: value})
    GenerateSearch.with_settings(seed=3)  # configs give that of the run
    for settings in ({}, {"sample": True}):
        with pytest.raises(ValueError, match="set sample=true beam_size=1"):
            GenerateSearch.with_settings(beam_size=3, num_captions=5, **settings)
    with pytest.raises(ValueError, match="temperature: must be above 0"):
        GenerateSearch.with_settings(beam_size=1, sample=True, temperature=0)
    model = captioner(model_folder("git"))
    search = GenerateSearch.with_settings(beam_size=1, num_captions=5, sample=True, max_length=4)
    found = model.candidates(batch_of(model_folder("git"), model.tokenizer), search=search)
    assert [len(captions) for captions in found] == [5] * len(SIZES)


def test_tied_words_that_stay_frozen_are_in_no_checkpoint() -> None:
    pytest.importorskip("peft", reason="needs peft")
    model = captioner(model_folder("paligemma"))
    lora = {"rank": 2, "alpha": 4, "dropout": 0.0, "modules": ["q_proj", "v_proj"]}
    add_low_rank(model, **lora)
    checkpoint = {"state_dict": dict(model.state_dict())}
    model.on_save_checkpoint(checkpoint)
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    assert set(checkpoint["state_dict"]) == trained


def with_frozen(part: str) -> tuple[Vlm, dict[str, Any]]:
    """A captioner whose part stays, and what it would save."""
    model = captioner(model_folder("git"))
    for name, value in model.named_parameters():
        value.requires_grad_(part not in name)
    checkpoint: dict[str, Any] = {"state_dict": dict(model.state_dict())}
    return model, checkpoint


@pytest.mark.parametrize(("first", "then"), [("-", "image"), ("image", "-")])
def test_a_run_may_freeze_other_weights_than_the_one_that_it_starts_from(first, then) -> None:
    """What a run did not freeze and another freezes is no longer as in pretrained."""
    trained, checkpoint = with_frozen(first)
    trained.setup("fit")
    with torch.no_grad():
        for value in trained.parameters():
            value += value.requires_grad
    checkpoint["state_dict"] = dict(trained.state_dict())
    trained.on_save_checkpoint(checkpoint)
    for _ in range(2):  # started from, then loaded
        model, saved = with_frozen(then)
        model.on_load_checkpoint(checkpoint)
        model.load_state_dict(checkpoint["state_dict"])
        model.setup("fit")
        for name, value in trained.state_dict().items():
            assert torch.equal(value, model.state_dict()[name]), name
        saved["state_dict"] = dict(model.state_dict())
        model.on_save_checkpoint(saved)
        checkpoint = saved


@every_family
def test_constrained_search_says_the_words(family: str) -> None:
    model = captioner(model_folder(family))
    batch = batch_of(model_folder(family), model.tokenizer)
    words = (("ball",), ("tall tree", "tree"))
    constraints = constrain(
        words,
        model.tokenizer.spellings,
        continues=model.tokenizer.continuing(),
        missing="error",
    )
    search = ConstrainedBeamSearch.with_settings(beam_size=2, max_length=16)
    machines = [constraints.machine] * len(SIZES)
    for prediction in model.generate(batch, search=search, machines=machines):
        assert "ball" in prediction.caption.lower()
        assert "tree" in prediction.caption.lower()


@every_family
def test_constraints_may_differ_by_photo(family: str) -> None:
    model = captioner(model_folder(family))
    batch = batch_of(model_folder(family), model.tokenizer)
    words = {batch.image_ids[0]: [("ball",)], batch.image_ids[1]: [("ball",), ("tree",)]}
    machines = ImageConstraints(words=words).machines(batch.image_ids, model.tokenizer)
    search = ConstrainedBeamSearch.with_settings(beam_size=2, max_length=16)
    found = model.generate(batch, search=search, machines=machines)
    assert "ball" in found[0].caption.lower()
    assert "ball" in found[1].caption.lower()
    assert "tree" in found[1].caption.lower()
    whole = model.generate(batch, search=replace(search, by_size=False), machines=machines)
    assert [p.caption for p in found] == [p.caption for p in whole]


@every_family
def test_every_photo_is_described_by_itself(family: str) -> None:
    """A batch of other photos in another order gives each photo the same caption."""
    model = captioner(model_folder(family))
    forward = model.generate(batch_of(model_folder(family), model.tokenizer))
    backward = model.generate(batch_of(model_folder(family), model.tokenizer, photos()[::-1]))
    for mine, other in zip(forward, reversed(backward), strict=True):
        assert mine.caption == other.caption
        assert mine.score == pytest.approx(other.score, rel=1e-4)


def test_weights_leave_captions_out() -> None:
    model = captioner(model_folder("git"))
    batch = batch_of(model_folder("git"), model.tokenizer)
    weighted = replace(batch, weights=torch.tensor([1.0, 0.0, 0.5, 1.0, 0.0]))
    losses = model.losses(batch).per_sample
    lengths = batch.token_mask[:, 1:].sum(1)
    shares = weighted.weights * lengths
    expected = (losses * shares).sum() / shares.sum()
    torch.testing.assert_close(model.losses(weighted).total, expected)
    torch.testing.assert_close(model.losses(weighted).per_sample, losses)


@every_family
def test_layers_above_frozen_embeddings_are_checkpointed(family: str) -> None:
    model = captioner(model_folder(family), checkpointing=True).train()
    embeddings = [part for part in model.modules() if isinstance(part, torch.nn.Embedding)]
    for embedding in embeddings:
        embedding.requires_grad_(False)
    model.losses(batch_of(model_folder(family), model.tokenizer)).total.backward()
    trained = [p for p in model.parameters() if p.requires_grad]
    assert sum(p.grad is not None for p in trained) > len(trained) / 2
    assert all(p.grad is None for embedding in embeddings for p in embedding.parameters())


@every_family
def test_captions_of_a_photo_share_its_prompt_without_other_gradients(family: str) -> None:
    """With checkpointing nothing is shared: each caption reads photo and prompt anew."""
    folder, gradients, losses = model_folder(family), [], []
    for checkpointing in (False, True):
        model = captioner(folder, checkpointing=checkpointing).double().train()
        losses.append(model.losses(doubled(batch_of(folder, model.tokenizer))))
        losses[-1].total.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    torch.testing.assert_close(losses[0].per_sample, losses[1].per_sample, rtol=1e-6, atol=1e-6)
    for name, gradient in gradients[0].items():
        if gradient is not None:
            torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-4, atol=1e-6)


def test_padding_that_a_call_of_the_processor_set_is_no_part_of_the_vocabulary() -> None:
    folder = model_folder("git")
    before, model = captioner(folder).tokenizer.state(), captioner(folder)
    PromptedProcessor(pretrained=str(folder), prompt=PROMPT)  # calls it for two photos
    assert captioner(folder).tokenizer.state() == before
    checkpoint: dict[str, Any] = {}
    model.on_save_checkpoint(checkpoint)
    definition = json.loads(before["definition"])
    definition["padding"] = {"strategy": "BatchLongest", "direction": "Left", "pad_id": 0}
    checkpoint["captioner"]["tokenizer"] = {**before, "definition": json.dumps(definition)}
    model.on_load_checkpoint(checkpoint)  # as older ones have it
    definition["model"]["vocab"] = {"[UNK]": 0}
    checkpoint["captioner"]["tokenizer"]["definition"] = json.dumps(definition)
    with pytest.raises(ValueError, match="different vocabularies"):
        model.on_load_checkpoint(checkpoint)
