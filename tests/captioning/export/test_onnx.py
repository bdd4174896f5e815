"""Captioners in ONNX against torch, on photos."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image

from captioning.config.compose import compose_config
from captioning.decoding.beam import BeamSearch
from captioning.decoding.greedy import GreedySearch
from captioning.export import onnx as onnx_export
from captioning.export.export import export
from captioning.export.onnx import networks_of
from captioning.export.onnx_caption import OnnxCaptioner
from captioning.inference.captioner import Captioner
from captioning.inference.photo_batches import photo_samples
from tests.run_calls import train
from tests.tiny import build

pytest.importorskip("onnx", reason="needs onnx")
pytest.importorskip("onnxruntime", reason="needs onnxruntime")

BLIP = (
    "model=blip_small",
    *(f"model.module.{size}" for size in ("hidden_size=16", "num_layers=2", "num_heads=2")),
    "model.module.intermediate_size=32",
    "+model.module.prompt=a",
)


def greedy(captioner: Captioner, photos: list[Path]) -> list[str]:
    search = GreedySearch.with_settings(max_length=8, min_length=2)
    samples, names = photo_samples(photos, None, Path())
    batches = [part.batch for part in captioner._read(samples, 4, skips=False)]
    groups = [g for b in batches for g in captioner.model.candidates(b, search=search)]
    captions = {group[0].image_id: group[0].caption for group in groups}
    return [captions[name] for name in names]


def photos_in(cache: Path) -> list[Path]:
    return (
        sorted((cache / "miniworld").rglob("*test*.png"))[:8]
        or sorted(
            path for path in (cache / "miniworld").rglob("*.*") if path.suffix in (".png", ".jpg")
        )[:8]
    )


@pytest.mark.long
@pytest.mark.parametrize("model", ["updown", "blip"])
def test_onnx_writes_the_same_captions(model, small, small_settings, cache, tmp_path) -> None:
    if model == "updown":
        config = small("num_epochs=1", "optimizer.lr=0.02", "search.min_length=2")
    else:
        places = (f"paths.cache={cache}", f"run_dir={tmp_path / 'run'}", "search.min_length=2")
        chosen = [*small_settings, *BLIP, *places, "num_epochs=1", "optimizer.lr=0.02"]
        config = compose_config("train", chosen)
        OmegaConf.resolve(config)
    train(config)
    folder = export(tmp_path / "run", tmp_path / "export", onnx=True)
    card = (folder / "README.md").read_text()
    assert "Checked against torch: log-probabilities differ by at most" in card
    assert ("reads all words again" in card) is (model == "blip")
    captioner, served = Captioner.load(folder, device="cpu"), OnnxCaptioner(folder / "onnx")
    photos = photos_in(cache)
    assert len(photos) == 8
    expected = greedy(captioner, photos)
    assert [served.caption(Image.open(photo), beam=1) for photo in photos] == expected
    own = [result.caption for result in captioner.caption(photos)]
    assert served.settings["beam_size"] == captioner.model.search.settings.beam_size > 1
    assert [served.caption(Image.open(photo)) for photo in photos] == own  # beam search, as here
    command = [sys.executable, folder / "onnx" / "caption.py", photos[0], "--beam", "1"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output == f"{photos[0]}: {expected[0]}\n"
    settings = json.loads((folder / "onnx" / "settings.json").read_text())
    assert settings["image_size"] == 64


def test_models_without_a_form_are_refused_by_name(tmp_path: Path) -> None:
    class Backbone(torch.nn.Module):
        mean = std = (0.5, 0.5, 0.5)

        def grid(self, images):
            return images.flatten(2)

    with pytest.raises(ValueError, match="ViECap cannot be exported to ONNX; UpDown and Blip can"):
        networks_of(build("viecap"), Backbone())
    with pytest.raises(ValueError, match="needs a backbone that reads pixels"):
        networks_of(build("updown"), None)


@pytest.mark.long
def test_onnx_that_differs_is_not_exported(trained, tmp_path: Path, monkeypatch) -> None:
    trained("num_epochs=1")
    monkeypatch.setattr(onnx_export, "largest_difference", lambda *arguments: float("nan"))
    with pytest.raises(ValueError, match="onnxruntime differs from torch by nan nats"):
        export(tmp_path / "run", tmp_path / "export", onnx=True)
    assert not (tmp_path / "export").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def served(**settings) -> dict:
    """What ``settings.json`` has of a search of a captioner with a prompt of two tokens."""
    model = build("blip_prompted")
    assert len(model.prompt_ids) == 2
    model.search = BeamSearch.with_settings(**settings)
    networks = SimpleNamespace(
        image=SimpleNamespace(backbone=SimpleNamespace(image_size=64)), form=model.onnx_form()
    )
    search = onnx_export._served_search(model)
    return onnx_export._settings(model.tokenizer, networks, search)


def test_lengths_that_count_the_prompt_are_served_without_it() -> None:
    lengths = {"min_length": 5, "max_length": 20}
    counted = served(**lengths, count_prompt=True)
    assert (counted["min_length"], counted["max_length"]) == (3, 17)
    plain = served(**lengths)
    assert (plain["min_length"], plain["max_length"]) == (5, 20)


def test_special_tokens_are_said_where_the_search_says_them() -> None:
    words = build("blip_prompted").tokenizer
    marks = sorted({words.bos_id, words.pad_id})
    assert served()["forbidden"] == sorted([*marks, words.unk_id])
    free = served(special_tokens=True)
    assert (free["forbidden"], free["silent"]) == ([], marks)
    captioner = OnnxCaptioner.__new__(OnnxCaptioner)
    captioner.settings = free
    assert captioner.text([*marks, *words.encode("a dog")[1:-1]]) == "a dog"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"end_ids": (5,)}, "end_words"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"no_repeat_ngram_size": 3}, "no_repeat_ngram_size"),
        ({"normalisation": "gnmt", "length_penalty": 0.7}, "normalisation"),
    ],
)
def test_settings_of_a_search_without_a_form_are_refused(settings, name) -> None:
    with pytest.raises(
        ValueError, match=rf"search\.{name} of this run's search cannot be exported"
    ):
        served(**settings)
    assert served(normalisation="gnmt")["length_penalty"] == 0
