"""CLIP through open_clip, with a small untrained model saved to disk; nothing is downloaded."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.vision.clip import ClipEncoder, build_clip
from tests.clip_folder import SIZES, clip_folder

open_clip = pytest.importorskip("open_clip", reason="needs open_clip")


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return open_clip.CLIP(**SIZES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clip_folder(tmp_path_factory.mktemp("models") / "tiny-clip")


@pytest.fixture(scope="module")
def encoder(folder: Path) -> ClipEncoder:
    return build_clip(name=str(folder), weights=None, batch_size=2, device="cpu")


def photos(number: int) -> list[Image.Image]:
    rng = np.random.default_rng(0)
    return [
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)) for _ in range(number)
    ]


def test_a_folder_gives_the_model_that_was_saved(
    encoder: ClipEncoder, model: torch.nn.Module
) -> None:
    assert (encoder.space, encoder.dim) == ("tiny-clip", 8)
    assert encoder.identity.startswith("clip-tiny-clip-")
    images = photos(3)
    embeddings = encoder.embed_photos(images)
    pixels = torch.stack([torch.from_numpy(np.array(i)).permute(2, 0, 1) for i in images]) / 255
    with torch.inference_mode():
        expected = model.eval().encode_image((pixels - 0.5) / 0.5)
    assert embeddings.shape == (3, 8)
    assert torch.allclose(embeddings, expected / expected.norm(dim=1, keepdim=True), atol=1e-5)


def test_texts_are_embedded_one_by_one_and_cut_where_too_long(encoder: ClipEncoder) -> None:
    texts = ["a dog", "a photo of two cats", "", "word " * 100]
    embeddings = encoder.embed_texts(texts)
    assert torch.allclose(embeddings.norm(dim=1), torch.ones(4), atol=1e-5)
    alone = torch.cat([encoder.embed_texts([text]) for text in texts])
    assert torch.allclose(embeddings, alone, atol=1e-5)
    assert (embeddings @ embeddings.T).fill_diagonal_(0).max() < 0.9999


def test_images_of_any_mode_and_size(encoder: ClipEncoder) -> None:
    grey = Image.new("L", (50, 20), 99)
    assert torch.equal(
        encoder.embed_photos([grey]), encoder.embed_photos([Image.new("RGB", (50, 20), (99,) * 3)])
    )


def test_nothing_and_a_bare_text_are_refused(encoder: ClipEncoder) -> None:
    with pytest.raises(ValueError, match="no images or texts to embed"):
        encoder.embed_texts([])
    with pytest.raises(ValueError, match="no images or texts to embed"):
        encoder.embed_photos([])
    with pytest.raises(TypeError, match="into a list"):
        encoder.embed_texts("a dog")


class Dangerous:
    """Would write a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_weights_that_hold_code_are_not_run(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "evil"
    target.mkdir()
    config = (folder / "open_clip_config.json").read_text()
    (target / "open_clip_config.json").write_text(config)
    torch.save({"state_dict": Dangerous(tmp_path / "ran")}, target / "open_clip_pytorch_model.bin")
    with pytest.raises(ValueError, match="only tensors"):
        build_clip(name=str(target), weights=None)
    (target / "open_clip_pytorch_model.bin").write_bytes(
        pickle.dumps(Dangerous(tmp_path / "ran"), protocol=2)
    )
    with pytest.raises(ValueError, match="only tensors"):
        build_clip(name=str(target), weights=None)
    assert not (tmp_path / "ran").exists()


def test_wrong_names_and_missing_weights(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"unknown CLIP model 'ViT-B-33'.*ViT-B-32"):
        build_clip(name="ViT-B-33")
    with pytest.raises(ValueError, match=r"one of .*openai.*got 'nope'"):
        build_clip(name="ViT-B-32", weights="nope")
    with pytest.raises(FileNotFoundError, match="open_clip_config"):
        build_clip(name=str(tmp_path))
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": SIZES}))
    with pytest.raises(ValueError, match="unreadable weights"):
        build_clip(name=str(tmp_path), weights=None)

    with pytest.raises(ValueError, match="timm/vit_base_patch32_clip_224.openai@COMMIT"):
        build_clip(name="ViT-B-32", weights="openai")


def test_tags_are_taken_at_a_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The activation goes by the weights."""
    requested: list[tuple] = []
    fetched: list[str] = []

    def create(name: str, file: str, **settings: object) -> tuple:
        requested.append((name, file, settings["force_quick_gelu"]))
        return torch.nn.Identity(), None

    def fetch(name: str, **_: object) -> Path:
        fetched.append(name)
        (tmp_path / "open_clip_model.safetensors").touch()
        return tmp_path

    monkeypatch.setattr(open_clip, "create_model_from_pretrained", create)
    monkeypatch.setattr("captioning.vision.clip.model_folder", fetch)
    commit = "5" * 40
    built = build_clip(name="ViT-B-32", weights=f"openai@{commit}", device="cpu")
    assert built.space == "ViT-B-32/openai"
    build_clip(name="ViT-B-32", weights=f"laion2b_s34b_b79k@{commit}", device="cpu")
    file = str(tmp_path / "open_clip_model.safetensors")
    assert requested == [("ViT-B-32", file, True), ("ViT-B-32", file, False)]
    assert fetched[0] == f"timm/vit_base_patch32_clip_224.openai@{commit}"
