"""BLIP here against BLIP of transformers, on small random weights written to disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace
from torch.nn import functional
from transformers import BlipConfig, BlipForConditionalGeneration

from captioning.config.compose import compose_config
from captioning.decoding.greedy import GreedySearch
from captioning.models.adapt import add_low_rank
from captioning.models.blip import Blip
from captioning.text.tokenizers.restore import restored
from captioning.text.tokenizers.subwords import SubwordTokenizer
from captioning.training.speed import HalfWeights
from captioning.types import Batch
from captioning.vision.blip import build_blip_vision, load_blip
from tests.tiny import CAPTIONS, NUM_IMAGES, make_batch

PROMPT = "a dog"
SIDE = 16


def tokenizer_file(folder: Path) -> int:
    words = sorted({word for caption in CAPTIONS for word in caption.split()} - {"grass"})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words, "gra", "##ss"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer, tokenizer.decoder = Whitespace(), WordPieceDecoder()
    tokenizer.save(str(folder / "tokenizer.json"))
    return len(tokens)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BLIP captioner in the layout of the hub's."""
    path = tmp_path_factory.mktemp("blip")
    known = tokenizer_file(path)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    text = {**sizes, "num_hidden_layers": 2, "vocab_size": known + 2, "encoder_hidden_size": 16}
    text |= {"bos_token_id": known, "sep_token_id": 3, "pad_token_id": 0, "eos_token_id": 3}
    text |= {"max_position_embeddings": 32}
    vision = {**sizes, "num_hidden_layers": 2, "image_size": SIDE, "patch_size": 8}
    torch.manual_seed(1)
    model = BlipForConditionalGeneration(BlipConfig(text_config=text, vision_config=vision))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.4)
        # else a word, whose vector is also that of its output, is followed by itself
        embeddings = model.text_decoder.bert.embeddings
        embeddings.word_embeddings.weight.mul_(0.3)
        embeddings.position_embeddings.weight.mul_(3)
    model.save_pretrained(path)
    return path


def build(folder: Path, **settings) -> Blip:
    backbone = build_blip_vision(pretrained=str(folder))
    return Blip(
        feature_size=backbone.dim,
        backbone=backbone,
        pretrained=str(folder),
        prompt=PROMPT,
        tokenizer=SubwordTokenizer.of_blip(name=str(folder)),
        search=GreedySearch.with_settings(max_length=8),
        **settings,
    )


def pixels_batch(tokenizer: SubwordTokenizer) -> Batch:
    images = torch.randn(NUM_IMAGES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    return replace(make_batch(words=tokenizer), regions=None, region_mask=None, images=images)


def test_losses_are_those_of_transformers(folder: Path) -> None:
    model = build(folder, label_smoothing=0.1).double().eval()
    batch = pixels_batch(model.tokenizer)
    batch = replace(batch, images=batch.images.double())
    theirs = BlipForConditionalGeneration.from_pretrained(folder, dtype=torch.float64).eval()
    theirs.text_decoder.label_smoothing = 0.1
    prompt = torch.tensor(model.tokenizer.encode(PROMPT)[1:-1]).expand(len(batch), -1)
    tokens = torch.cat([batch.tokens[:, :1], prompt, batch.tokens[:, 1:]], dim=1)
    there = torch.cat([torch.ones_like(prompt, dtype=torch.bool), batch.token_mask], dim=1)
    labels = tokens.masked_fill(~there, -100)
    labels[:, : 1 + prompt.shape[1]] = -100
    images = batch.images[batch.image_index]
    expected = theirs(
        pixel_values=images, input_ids=tokens, attention_mask=there.long(), labels=labels
    )
    losses = model.losses(batch)
    assert losses.total.item() == pytest.approx(expected.loss.item(), rel=1e-9)
    log_probs = expected.logits[:, :-1].log_softmax(-1)
    for number in range(len(batch)):
        is_target = labels[number, 1:] >= 0
        rows = log_probs[number][is_target]
        nll = -rows.gather(1, labels[number, 1:][is_target].unsqueeze(1)).mean()
        assert losses.per_sample[number].item() == pytest.approx(nll.item(), rel=1e-9)
    # what the authors' decoder returns with reduction="none"
    every = functional.cross_entropy(
        log_probs.transpose(1, 2), labels[:, 1:], reduction="none", label_smoothing=0.1
    )
    torch.testing.assert_close(losses.smoothed, every.sum(1).detach())


def test_greedy_captions_are_those_of_transformers(folder: Path) -> None:
    model = build(folder).eval()
    batch = pixels_batch(model.tokenizer)
    theirs = BlipForConditionalGeneration.from_pretrained(folder).eval()
    begin = torch.tensor([model.tokenizer.encode(PROMPT)]).expand(NUM_IMAGES, -1)
    tokenizer, prompt = model.tokenizer, model.prompt.numel()
    generated = theirs.generate(
        pixel_values=batch.images,
        input_ids=begin,
        max_new_tokens=8,
        do_sample=False,
        suppress_tokens=[tokenizer.bos_id, tokenizer.pad_id, tokenizer.unk_id],
    )
    expected = [tokenizer.decode(row[1 + prompt :].tolist()) for row in generated]
    assert [prediction.caption for prediction in model.generate(batch)] == expected
    assert len(set(expected)) > 1


def test_what_is_saved_is_read_by_transformers(folder: Path, tmp_path: Path) -> None:
    model = build(folder).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01)
    model.save_pretrained(tmp_path)
    batch = pixels_batch(model.tokenizer)
    expected = model.losses(batch).per_sample
    assert torch.equal(build(tmp_path).eval().losses(batch).per_sample, expected)
    assert not torch.equal(build(folder).eval().losses(batch).per_sample, expected)
    theirs = BlipForConditionalGeneration.from_pretrained(tmp_path)
    word = theirs.text_decoder.bert.embeddings.word_embeddings.weight
    assert torch.equal(theirs.text_decoder.cls.predictions.decoder.weight, word)
    model.backbone = None
    with pytest.raises(ValueError, match="only a captioner that was trained with features=blip"):
        model.save_pretrained(tmp_path)


def test_low_rank_additions_are_saved_as_part_of_the_weights(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="needs peft")
    model, batch = build(folder).eval(), pixels_batch(SubwordTokenizer.of_blip(name=str(folder)))
    plain = model.losses(batch).per_sample
    lora = {"rank": 2, "alpha": 4, "dropout": 0.0, "modules": ["query", "value", "qkv"]}
    add_low_rank(model, **lora)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.2, generator=torch.Generator().manual_seed(2))
    expected = model.eval().losses(batch).per_sample
    assert not torch.allclose(expected, plain, atol=1e-2)
    model.save_pretrained(tmp_path)
    # the model that is being trained keeps its additions
    assert torch.equal(model.losses(batch).per_sample, expected)
    again = build(tmp_path).eval()
    assert [name for name, _ in again.named_parameters()] == [
        name for name, _ in build(folder).named_parameters()
    ]
    torch.testing.assert_close(again.losses(batch).per_sample, expected)
    theirs = BlipForConditionalGeneration.from_pretrained(tmp_path).eval()
    states = theirs.vision_model(batch.images).last_hidden_state
    torch.testing.assert_close(states, model.backbone.grid(batch.images))


def test_additions_to_shared_weights_are_not_merged(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="needs peft")
    model = build(folder)
    lora = {"rank": 2, "alpha": 4, "dropout": 0.0, "modules": ["word_embeddings"]}
    add_low_rank(model, **lora)
    with pytest.raises(ValueError, match="word_embeddings shares its weights"):
        model.save_pretrained(tmp_path)


def test_checkpointing_changes_no_gradient(folder: Path) -> None:
    batch = pixels_batch(SubwordTokenizer.of_blip(name=str(folder)))
    gradients = []
    for checkpointing in (False, True):
        model = build(folder, checkpointing=checkpointing).train()
        model.losses(batch).total.backward()
        gradients.append(model.decoder.text.bert.embeddings.word_embeddings.weight.grad)
    torch.testing.assert_close(*gradients)


def test_subwords_there_and_back(folder: Path) -> None:
    tokenizer = SubwordTokenizer.of_blip(name=str(folder), max_words=6)
    ids = tokenizer.encode("A dog runs: on the (grass)! and on")
    assert (ids[0], ids[-1]) == (len(tokenizer) - 2, 3)
    assert tokenizer.decode(ids) == "a dog runs on the grass"
    assert ids[-2] in tokenizer.continuing()
    assert tokenizer.spellings("grass") == [ids[-3:-1]]
    again = restored(json.loads(json.dumps(tokenizer.state())))
    assert again.state() == tokenizer.state()
    assert again.encode("a dog") == tokenizer.encode("a dog")
    assert len(SubwordTokenizer.of_blip(name=str(folder), max_tokens=5).encode(CAPTIONS[2])) == 5


def test_captions_are_cut_where_prompt_and_caption_have_40_tokens_as_there(folder: Path) -> None:
    config = compose_config("train", ["experiment=blip/fine_tuning", "model.pretrained=null"])
    prompt = config.model.module.prompt.split()  # each of them is a token of BERT's
    tokenizer = SubwordTokenizer.of_blip(
        name=str(folder), max_words=99, max_tokens=config.tokenizer.max_tokens
    )
    assert len(prompt) + len(tokenizer.encode("a dog " * 30)) == 40


def test_weights_that_do_not_fit_are_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "bert"
    other.mkdir()
    (other / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match="is 'bert', not BLIP"):
        build_blip_vision(pretrained=str(other))
    (other / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(FileNotFoundError, match="no safetensors in it"):
        build_blip_vision(pretrained=str(other))
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json does not exist"):
        SubwordTokenizer.of_blip(name=str(other))
    model = build(folder)
    with pytest.raises(ValueError, match="words missing in the vocabulary; .*prompt=$"):
        model._prompt_ids("a photograph of")
    with pytest.raises(ValueError, match="multiple of the patch size 8"):
        build_blip_vision(pretrained=str(folder), image_size=20)
    batch = pixels_batch(model.tokenizer)
    long = batch.tokens[:, 1:2].expand(-1, 31)
    tokens = torch.cat([batch.tokens[:, :1], long, batch.tokens[:, -1:]], dim=1)
    with pytest.raises(ValueError, match="exceeds the decoder's 32 positions"):
        model.losses(replace(batch, tokens=tokens, token_mask=torch.ones_like(tokens) > 0))


def test_pixels_of_another_size(folder: Path) -> None:
    vision = build_blip_vision(pretrained=str(folder), image_size=2 * SIDE)
    images = torch.randn(2, 3, 2 * SIDE, 2 * SIDE)
    assert vision.grid(images).shape == (2, 1 + 16, 16)


@pytest.mark.parametrize("side", [SIDE // 2, 3 * SIDE, 4 * SIDE])
def test_positions_are_resized_as_in_transformers(folder: Path, side: int, monkeypatch) -> None:
    images, weights = torch.randn(2, 3, side, side), torch.randn(2, 1 + (side // 8) ** 2, 16)
    theirs = load_blip(str(folder)).vision_model
    expected = theirs(images, interpolate_pos_encoding=True).last_hidden_state
    (expected * weights).sum().backward()
    vision = build_blip_vision(pretrained=str(folder), image_size=side)
    embeddings = vision.network.embeddings
    # its gradient is not deterministic on a GPU
    monkeypatch.setattr(functional, "interpolate", None)
    states = vision.grid(images)
    (states * weights).sum().backward()
    torch.testing.assert_close(states, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        embeddings.position_embedding.grad,
        theirs.embeddings.position_embedding.grad,
        rtol=1e-4,
        atol=1e-5,
    )
    assert vision.network.state_dict().keys() == theirs.state_dict().keys()


def test_positions_are_resized_exactly_in_mixed_precision(folder: Path) -> None:
    embeddings = build_blip_vision(pretrained=str(folder), image_size=3 * SIDE).network.embeddings
    patches, side = torch.zeros(1, 1 + 36, 16), 3 * SIDE
    exact = embeddings.interpolate_pos_encoding(patches, side, side)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = embeddings.interpolate_pos_encoding(patches, side, side)
    assert torch.equal(mixed, exact)
    assert mixed.dtype == torch.float32
    converted = HalfWeights("bf16-true").convert_module(embeddings)
    half = converted.interpolate_pos_encoding(patches, side, side)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), exact, rtol=2**-7, atol=2**-7)
    assert converted._resizing.dtype == torch.float32
