"""Converting BLIP's checkpoints: which keys are used, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from captioning.convert.converted import Options, convert
from tests.parity.blip_plain import WORDS, random_state

SIDE = "features.backbone.image_size=16"


def run(folder: Path, state, *, words=WORDS, overrides=(SIDE,)):
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    torch.save({"model": state}, folder / "model.pth")
    options = Options(vocabulary=folder, overrides=overrides)
    return convert("blip", folder / "model.pth", folder / "converted", options)


def test_parts_of_other_tasks_are_left_out_and_named(tmp_path: Path) -> None:
    state = random_state()
    further = {"itm_head.weight", "text_encoder.pooler", "visual_encoder_m.cls_token", "temp"}
    state |= {key: torch.ones(2) for key in further}
    words = "text_decoder.bert.embeddings.word_embeddings.weight"
    output = "text_decoder.cls.predictions.decoder.weight"
    state[output] = state[words] + 1
    keys = {key.key: key for key in run(tmp_path, state)}
    assert {key for key, use in keys.items() if use.note == "of another task than captions"} == (
        further
    )
    assert keys[words].into == ()
    assert f"tied to {output}" in keys[words].note
    assert keys[output].into == (output,)
    assert keys["visual_encoder.blocks.1.attn.proj.bias"].into == (
        "vision_model.encoder.layers.1.self_attn.projection.bias",
    )
    lines = (tmp_path / "converted" / "keys.tsv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(state)


def test_sizes_are_read_from_the_weights(tmp_path: Path) -> None:
    run(tmp_path, random_state(), overrides=())
    config = json.loads((tmp_path / "converted" / "config.json").read_text(encoding="utf-8"))
    text, vision = config["text_config"], config["vision_config"]
    assert (text["hidden_size"], text["encoder_hidden_size"], text["num_hidden_layers"]) == (
        128,
        64,
        2,
    )
    assert (vision["image_size"], vision["patch_size"], vision["num_attention_heads"]) == (
        384,
        8,
        1,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text_encoder.weight": torch.ones(1)}, r"answers questions \(VQA\)"),
        ({"visual_encoder.pos_embed": None}, "not a checkpoint of a BLIP captioner: 'visual_enc"),
        ({"text_decoder.cls.predictions.transform.dense.bias": None}, r"missing \['text_decoder"),
        ({"text_decoder.other": torch.ones(1)}, r"too many \['text_decoder.other'\]"),
    ],
)
def test_other_checkpoints_are_refused(tmp_path: Path, change, message) -> None:
    state = {key: value for key, value in (random_state() | change).items() if value is not None}
    with pytest.raises(ValueError, match=message):
        run(tmp_path, state)
    assert not (tmp_path / "converted").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"words": WORDS[:-1]}, "15 words, of 16 that the checkpoint has"),
        ({"words": ["x", *WORDS[1:]]}, "give the vocab.txt of bert-base-uncased"),
        ({"overrides": ["features.backbone.image_size=30"]}, "must be a multiple of the 8 pixels"),
        ({"overrides": ["seed=3"]}, "takes features.backbone.image_size=N alone: got 'seed=3'"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        run(tmp_path, random_state(), **options)


def test_words_must_be_given(tmp_path: Path) -> None:
    torch.save(random_state(), tmp_path / "model.pth")
    with pytest.raises(ValueError, match="--vocabulary FILE, the vocab.txt of bert-base-uncased"):
        convert("blip", tmp_path / "model.pth", tmp_path / "to", Options())
    options = Options(vocabulary=tmp_path / "none.txt")
    with pytest.raises(FileNotFoundError, match="no such file; --vocabulary is BERT's"):
        convert("blip", tmp_path / "model.pth", tmp_path / "to", options)
