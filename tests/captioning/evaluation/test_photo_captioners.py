"""A finished run writes captions for any photo, the same in every batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.data.features.build import ensure_features
from captioning.decoding.beam import BeamSearch
from captioning.decoding.sampling import Sampling
from captioning.evaluation import photo_captioners
from captioning.evaluation.photo_captioners import ImageTextCaptioner, RunCaptioner
from captioning.training import inputs
from captioning.vision.photo_captions import PhotoCaptions
from tests.matching_folders import save_blip_captioner


@pytest.fixture
def run(trained) -> Path:
    return trained("num_epochs=1", "curation=none", "optimizer.lr=0.01")


@pytest.fixture
def photos(tmp_path) -> list[Path]:
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"{number}.png" for number in range(4)]
    for path in paths:
        Image.fromarray(rng.integers(0, 255, (60, 80, 3), dtype=np.uint8)).save(path)
    return paths


def test_a_run_captions_photos_it_never_saw(run, photos, tmp_path):
    search = Sampling.with_settings(max_length=8, min_length=2, num_captions=2, top_p=0.9)
    captioner = RunCaptioner(run=str(run), search=search, device="cpu", batch_size=4)
    source = PhotoCaptions(captioner=captioner, cache_folder=tmp_path / "captions")
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    captions = source.captions(photos)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(1 <= len(texts) <= 2 and all(texts) for texts in captions)
    assert captioner.name.startswith("updown_tiny@")

    alone = RunCaptioner(run=str(run), search=search, device="cpu", batch_size=1)
    apart = PhotoCaptions(captioner=alone)
    assert [apart.captions([path])[0] for path in reversed(photos)] == captions[::-1]

    class Refuses:
        name, identity, batch_size = captioner.name, captioner.identity, 4

    assert (
        PhotoCaptions(captioner=Refuses(), cache_folder=tmp_path / "captions").captions(photos)
        == captions
    )


def test_features_of_all_photos_are_looked_up_together(run, photos, monkeypatch):
    asked = []

    def noted(paths, **settings):
        asked.append(len(paths))
        return ensure_features(paths, **settings)

    monkeypatch.setattr(inputs, "ensure_features", noted)
    search = Sampling.with_settings(max_length=8, min_length=2)
    captioner = RunCaptioner(run=str(run), search=search, device="cpu", batch_size=1)
    PhotoCaptions(captioner=captioner).captions(photos)
    assert asked == [len(photos)]


def test_another_search_is_another_captioner(run):
    beams = [BeamSearch.with_settings(beam_size=size, max_length=8) for size in (1, 2)]
    identities = {RunCaptioner(run=str(run), search=s, device="cpu").identity for s in beams}
    assert len(identities) == 2


def test_half_precision_is_another_captioner_and_computes_in_it(run, photos, monkeypatch):
    settings = {"run": str(run), "search": BeamSearch.with_settings(max_length=8), "device": "cpu"}
    single, auto, half = (
        RunCaptioner(**settings, precision=precision)
        for precision in ("float32", "auto", "bfloat16")  # auto: single on a processor
    )
    assert single.identity == auto.identity == RunCaptioner(**settings).identity
    assert half.identity == f"{single.identity} bfloat16"
    computed = []

    def noted(model, *arguments, **keywords):
        computed.append(torch.is_autocast_enabled("cpu"))
        return candidates(model, *arguments, **keywords)

    captioner = type(single._at_hand(photo_captioners._roster(photos, "abcd"))[0])
    candidates = captioner.candidates
    monkeypatch.setattr(captioner, "candidates", noted)
    for writer in (single, half):
        assert all(writer.write_captions(photos, keys=list("abcd")))
    assert computed == [False, True]


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing.*config\.yaml"):
        RunCaptioner(run=str(tmp_path / "nothing"), search=BeamSearch.with_settings())


def test_a_model_of_transformers_captions_photos(photos, tmp_path):
    folder = save_blip_captioner(tmp_path / "blip")
    search = Sampling.with_settings(max_length=8, min_length=2, num_captions=2, top_p=0.9)
    settings = {"name": str(folder), "search": search, "prompt": "a picture of", "device": "cpu"}
    together = PhotoCaptions(captioner=ImageTextCaptioner(**settings, batch_size=4))
    captions = together.captions(photos)
    assert together.name.startswith("blip@")
    assert all(1 <= len(texts) <= 2 and all(texts) for texts in captions)
    apart = PhotoCaptions(captioner=ImageTextCaptioner(**settings, batch_size=1))
    assert apart.captions(photos[::-1]) == captions[::-1]
    other = ImageTextCaptioner(**settings | {"prompt": ""})
    assert other.identity != together.captioner.identity


def test_a_folder_without_weights_or_processor_is_named(tmp_path):
    folder = save_blip_captioner(tmp_path / "blip")
    search = BeamSearch.with_settings()
    (folder / "model.safetensors").rename(folder / "model.bin")
    with pytest.raises(FileNotFoundError, match=r"blip: no model\.safetensors in"):
        ImageTextCaptioner(name=str(folder), search=search)
    without = save_blip_captioner(tmp_path / "without")
    (without / "processor_config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"no processor_config\.json"):
        ImageTextCaptioner(name=str(without), search=search)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        ImageTextCaptioner(name=str(tmp_path / "nothing"), search=search)


def test_captions_continue_a_text(run, photos, tmp_path):
    search = BeamSearch.with_settings(beam_size=1, max_length=12, min_length=6)
    blip = {"name": str(save_blip_captioner(tmp_path / "blip")), "prompt": "a picture of"}
    for captioner in (
        RunCaptioner(run=str(run), search=search, device="cpu"),
        ImageTextCaptioner(**blip, search=search, device="cpu"),
    ):
        source = PhotoCaptions(captioner=captioner, cache_folder=tmp_path / "captions")
        whole = [texts[0] for texts in source.captions(photos)]
        words = [len(text.split()) for text in whole]
        begun = [" ".join(text.split()[:2]) for text in whole[:3]] + [""]
        rest = source.captions(photos, begun)
        assert [texts[0].split()[: n - 4] for texts, n in zip(rest, words, strict=True)][:3] == [
            text.split()[2 : n - 2] for text, n in zip(whole[:3], words, strict=False)
        ]
        assert rest[3] == [whole[3]]
        assert PhotoCaptions(captioner=captioner).captions(photos[:1], begun[:1]) == rest[:1]
