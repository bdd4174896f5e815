"""BLIP's checkpoints after conversion, beside plain torch and published rules of search.

The plain searches were held against the authors' code with transformers 4.26.1 on random weights.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from torch.nn import functional
from transformers import BlipForConditionalGeneration

from captioning.config.folders import config_folder
from captioning.convert.converted import Options, convert
from captioning.decoding import sampling
from captioning.decoding.beam_transformers import TransformersBeamSearch
from captioning.decoding.greedy import GreedySearch
from captioning.models.blip import Blip
from captioning.text.tokenizers.subwords import SubwordTokenizer
from captioning.types import Batch
from captioning.vision.blip import build_blip_vision
from tests.captioning.decoding.plain_beams import penalised, transformers_search
from tests.parity import blip_plain as plain

SIDE = "features.backbone.image_size=16"
PROMPT = [plain.WORDS.index(word) for word in ("a", "dog")]
PREFIX = (plain.DEC, *PROMPT)
NUM_IMAGES = 16
CAPTIONS = ("cat runs on", "red bird sits on the tree")
LENGTHS = {"max_length": 12, "min_length": 5}
RULES = {"count_prompt": True, "special_tokens": True, **LENGTHS}
SETTINGS = {"beams": 3, "power": 1.0, "early": False, "penalty": 1.0, "ngram": 0}


def vocabulary(folder: Path) -> Path:
    (folder / "vocab.txt").write_text("\n".join(plain.WORDS) + "\n", encoding="utf-8")
    return folder / "vocab.txt"


def converted(folder: Path, state, *overrides: str):
    """The folder of a checkpoint, and what became of its keys."""
    torch.save({"model": state}, folder / "model.pth")
    options = Options(vocabulary=vocabulary(folder), overrides=overrides)
    keys = convert("blip", folder / "model.pth", folder / "converted", options)
    return folder / "converted", keys


@pytest.fixture(scope="module")
def state():
    return plain.random_state()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, state) -> Path:
    return converted(tmp_path_factory.mktemp("blip"), state, SIDE)[0]


@pytest.fixture(scope="module")
def model(folder: Path) -> Blip:
    backbone = build_blip_vision(pretrained=str(folder))
    return Blip(
        pretrained=str(folder),
        backbone=backbone,
        feature_size=backbone.dim,
        prompt="a dog",
        tokenizer=SubwordTokenizer.of_blip(name=str(folder)),
        search=TransformersBeamSearch.with_settings(beam_size=3, length_penalty=1.0, **RULES),
    ).eval()


def batch_of(model: Blip, captions: tuple[str, ...], num_images: int) -> Batch:
    rows = [torch.tensor(model.tokenizer.encode(caption)) for caption in captions]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    generator = torch.Generator().manual_seed(1)
    numbers = [str(number) for number in range(max(num_images, len(captions)))]
    return Batch(
        rows=torch.arange(len(captions)),
        sample_ids=tuple(numbers[: len(captions)]),
        image_ids=tuple(numbers[:num_images]),
        image_index=torch.arange(len(captions)) % num_images,
        images=torch.randn(num_images, 3, 16, 16, generator=generator),
        tokens=tokens,
        token_mask=tokens != 0,
        weights=torch.ones(len(captions)),
    )


def test_the_loss_is_the_papers(model, state) -> None:
    batch = batch_of(model, CAPTIONS, 2)
    images = plain.vision(state, batch.images)
    losses = []
    for row, caption in enumerate(CAPTIONS):
        words = [plain.WORDS.index(word) for word in caption.split()]
        tokens = torch.tensor([[*PREFIX, *words, plain.SEP]])
        predicted = plain.logits(state, tokens, images[row : row + 1])[0, len(PROMPT) : -1]
        losses.append((predicted, tokens[0, len(PREFIX) :]))
    logits, targets = (torch.cat(parts) for parts in zip(*losses, strict=True))
    expected = functional.cross_entropy(logits, targets, label_smoothing=0.1)
    with torch.no_grad():
        assert float(model.losses(batch).total) == pytest.approx(float(expected), abs=1e-5)


def captions_of(model, search) -> list[tuple[int, ...]]:
    """Tokens after the prompt, up to the end."""
    captions = []
    batch = batch_of(model, ("a",) * NUM_IMAGES, NUM_IMAGES)
    for prediction in model.candidates(batch, search=search):
        captions.append(prediction[0].caption)
    return captions


def text(model, tokens) -> str:
    return model.tokenizer.decode(list(tokens))


@pytest.mark.parametrize("change", [{}, {"penalty": 1.1}, {"early": True}, {"ngram": 2}], ids=str)
def test_captions_are_those_of_the_published_search(model, state, change) -> None:
    settings = SETTINGS | change
    search = TransformersBeamSearch.with_settings(
        beam_size=3,
        length_penalty=1.0,
        early_stopping=settings["early"],
        repetition_penalty=settings["penalty"],
        no_repeat_ngram_size=settings["ngram"],
        **RULES,
    )
    images = plain.vision(state, batch_of(model, ("a",) * NUM_IMAGES, NUM_IMAGES).images)
    expected = []
    for image in images:

        def predict(tokens, image=image):
            predicted = plain.logits(state, torch.tensor([tokens]), image[None])[0, -1]
            return predicted.log_softmax(-1).numpy()

        best, *_ = transformers_search(predict, PREFIX, end=plain.SEP, **LENGTHS, **settings)
        expected.append(text(model, best[1]))
    assert captions_of(model, search) == expected
    lengths = {len(caption.split()) for caption in expected}
    assert len({*expected}) > 5, "random weights that tell photos apart"
    assert len(lengths) > 1


def test_the_penalty_of_greedy_search_is_of_logits(model, state) -> None:
    images = plain.vision(state, batch_of(model, ("a",) * NUM_IMAGES, NUM_IMAGES).images)
    expected = []
    for image in images:
        tokens = PREFIX
        while len(tokens) < LENGTHS["max_length"] and tokens[-1] != plain.SEP:
            predicted = plain.logits(state, torch.tensor([tokens]), image[None])[0, -1]
            values = penalised(predicted.numpy(), tokens, 1.3)
            values[plain.SEP] = -torch.inf if len(tokens) < 5 else values[plain.SEP]
            tokens = (*tokens, int(values.argmax()))
        expected.append(text(model, tokens[len(PREFIX) :]))
    search = GreedySearch.with_settings(repetition_penalty=1.3, **RULES)
    assert captions_of(model, search) == expected


@pytest.mark.parametrize("change", [{}, {"repetition_penalty": 1.2}, {"no_repeat_ngram_size": 2}])
def test_without_lengths_in_the_score_captions_are_those_of_transformers(
    model, folder: Path, change
) -> None:
    # Later versions count lengths otherwise.
    search = TransformersBeamSearch.with_settings(
        beam_size=3, length_penalty=0.0, **RULES, **change
    )
    network = BlipForConditionalGeneration.from_pretrained(folder).eval()
    pixels = batch_of(model, ("a",) * NUM_IMAGES, NUM_IMAGES).images
    states = network.vision_model(pixels).last_hidden_state
    rows = network.text_decoder.generate(
        input_ids=torch.tensor([PREFIX] * NUM_IMAGES),
        encoder_hidden_states=states,
        encoder_attention_mask=torch.ones(states.shape[:2], dtype=torch.long),
        num_beams=3,
        length_penalty=0.0,
        eos_token_id=plain.SEP,
        pad_token_id=0,
        **LENGTHS,
        **change,
    )
    expected = [text(model, row[len(PREFIX) :].tolist()) for row in rows]
    assert captions_of(model, search) == expected


@torch.no_grad()
def drawn_by_transformers(network, batch: Batch, rules) -> tuple[torch.Tensor, tuple]:
    """Tokens ``(I, T)`` after the prompt, and the logits ``(I, V)`` that each was drawn from."""
    states = network.vision_model(batch.images).last_hidden_state
    torch.manual_seed(0)
    output = network.text_decoder.generate(
        input_ids=torch.tensor([PREFIX] * NUM_IMAGES),
        encoder_hidden_states=states,
        encoder_attention_mask=torch.ones(states.shape[:2], dtype=torch.long),
        do_sample=True,
        eos_token_id=plain.SEP,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
        **rules,
    )
    return output.sequences[:, len(PREFIX) :], output.scores


@pytest.mark.parametrize("change", [{}, {"top_k": 4}, {"top_p": 0.5, "repetition_penalty": 1.3}])
def test_nucleus_draws_from_what_transformers_draws_from(
    model, folder: Path, change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Along captions that transformers has drawn, as no seed gives the same draws in both."""
    config = OmegaConf.load(config_folder() / "search" / "nucleus.yaml")
    settings = {str(key): config[key] for key in config if key != "defaults"} | change
    ours_alone = ("count_prompt", "special_tokens")
    rules = {key: value for key, value in settings.items() if key not in ours_alone}
    batch = batch_of(model, ("a",) * NUM_IMAGES, NUM_IMAGES)
    network = BlipForConditionalGeneration.from_pretrained(folder).eval()
    rows, scores = drawn_by_transformers(network, batch, rules)
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def follow(weights, chances):
        unfinished = (rows[:, : len(kept)] != plain.SEP).all(1)
        kept.append((unfinished, weights / weights.sum(1, keepdim=True)))
        return rows[unfinished, len(kept) - 1, None]

    monkeypatch.setattr(sampling, "_draw", follow)
    search = sampling.Sampling.with_settings(**settings)
    assert captions_of(model, search) == [text(model, row.tolist()) for row in rows]
    assert len(kept) > settings["min_length"]
    for (unfinished, shares), logits in zip(kept, scores, strict=True):
        expected = logits[unfinished].softmax(-1)
        assert torch.equal(shares > 0, expected > 0)
        torch.testing.assert_close(shares.float(), expected, atol=1e-5, rtol=0)
    counts = {int(count) for _, shares in kept for count in (shares > 0).sum(1)}
    assert len(counts) > 1, "distributions of several breadths"


def test_positions_are_resized_as_by_the_authors(tmp_path: Path) -> None:
    state = plain.random_state(side=3)
    folder, keys = converted(tmp_path, state, "features.backbone.image_size=40")
    name = "visual_encoder.pos_embed"
    (use,) = (key for key in keys if key.key == name)
    assert use.note == "resized to 5 x 5 patches"
    network = BlipForConditionalGeneration.from_pretrained(folder)
    positions = network.vision_model.embeddings.position_embedding[0]
    patches = state[name][0, 1:].T.reshape(1, plain.VISION, 3, 3)
    resized = functional.interpolate(patches, (5, 5), mode="bicubic", align_corners=False)
    expected = resized[0].reshape(plain.VISION, 25).T
    assert torch.equal(positions[0], state[name][0, 0])
    assert torch.allclose(positions[1:], expected, atol=1e-6)
    assert network.config.vision_config.layer_norm_eps == 1e-6
