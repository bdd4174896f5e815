"""A model of transformers, with a small BLIP of random weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from transformers import BlipForConditionalGeneration

from captioning import Captioner
from captioning.configuration import compose_config
from captioning.evaluation.photo_captioners import RunCaptioner
from captioning.exports.export import export
from captioning.training.run import train
from tests.captioning.models.test_blip import folder  # noqa: F401  # a fixture
from tests.captioning.training.test_vlm_run import LORA, vlm  # noqa: F401  # a fixture


def texts(captioner: Captioner, photos: list[Path]) -> list[str]:
    return [result.caption for result in captioner.caption(photos)]


def test_blip_is_exported_for_transformers(
    small_settings,
    cache,
    folder: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    kept = [entry for entry in small_settings if not entry.startswith(("features", "tokenizer"))]
    chosen = ("model=blip", "features=blip", "tokenizer=blip", f"model.pretrained={folder}")
    more = ("features.backbone.image_size=16", "model.module.prompt=a dog", "num_epochs=1")
    places = (f"paths.cache={cache}", f"run_dir={tmp_path / 'run'}")
    config = compose_config("train", [*kept, *chosen, *more, *places, "optimizer.lr=0.01"])
    OmegaConf.resolve(config)
    train(config)
    source = Captioner.load(tmp_path / "run", device="cpu")
    target = export(tmp_path / "run", tmp_path / "export")
    assert not (target / "model.safetensors").exists()
    assert str(folder) not in (target / "config.yaml").read_text()
    moved = target.rename(tmp_path / "moved")  # nothing points to where it was
    again = Captioner.load(moved, device="cpu")
    weights, expected = again.model.state_dict(), source.model.state_dict()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    theirs = BlipForConditionalGeneration.from_pretrained(moved / "transformers")
    word = theirs.text_decoder.bert.embeddings.word_embeddings.weight
    assert torch.equal(word, source.model.decoder.text.bert.embeddings.word_embeddings.weight)


@pytest.mark.parametrize("lora", [False, True])
def test_an_image_to_text_model_is_exported_for_transformers(vlm, tmp_path, lora: bool) -> None:  # noqa: F811
    if lora:
        pytest.importorskip("peft", reason="needs peft")
    train(vlm("num_epochs=1", "model.prompt=a photo of", *([f"+model.lora={LORA}"] * lora)))
    source = Captioner.load(tmp_path / "run", device="cpu")
    files = sorted((Path(source.config.paths.cache) / "miniworld").rglob("*"))
    photos = [file for file in files if file.suffix in (".png", ".jpg")][:3]
    moved = export(tmp_path / "run", tmp_path / "export").rename(tmp_path / "moved")
    assert str(source.config.model.pretrained) not in (moved / "config.yaml").read_text()
    again = Captioner.load(moved, device="cpu")
    assert len(photos) == 3
    assert texts(again, photos) == texts(source, photos)
    for place in (tmp_path / "run", moved):  # weights that have a type of their own
        half = Captioner.load(place, device="cpu", precision="float16")
        assert torch.float16 in {weight.dtype for weight in half.model.parameters()}
        assert half.dtype == torch.float32
        assert all(texts(half, photos))
    settings = {"run": str(tmp_path / "run"), "search": source.model.search, "device": "cpu"}
    plain, half, single = (
        RunCaptioner(**settings, precision=precision) for precision in (None, "float16", "float32")
    )
    assert len({plain.identity, half.identity, single.identity}) == 3
    assert all(half.write_captions(photos, keys=["a", "b", "c"]))
