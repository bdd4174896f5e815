"""CLIP in the format of transformers, a small one of random weights, and its features."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize
from transformers import CLIPConfig, CLIPModel, CLIPProcessor

from captioning.vision.clip import CONFIG, WEIGHTS, ClipEncoder, HubClip, _tagged, build_clip
from captioning.vision.dual_encoder import build_dual_encoder
from captioning.vision.embedding_backbones import ClipBackbone
from captioning.vision.pair_scorers import CosineScorer
from tests.clip_folder import SIZES, hub_clip_folder

# Names of open_clip's tensors in transformers.
NAMES = (
    ("visual.class_embedding", "vision_model.embeddings.class_embedding"),
    ("visual.positional_embedding", "vision_model.embeddings.position_embedding.weight"),
    ("visual.conv1", "vision_model.embeddings.patch_embedding"),
    ("visual.ln_pre", "vision_model.pre_layrnorm"),
    ("visual.ln_post", "vision_model.post_layernorm"),
    ("visual.proj", "visual_projection.weight"),
    ("visual.transformer.resblocks", "vision_model.encoder.layers"),
    ("positional_embedding", "text_model.embeddings.position_embedding.weight"),
    ("token_embedding", "text_model.embeddings.token_embedding"),
    ("transformer.resblocks", "text_model.encoder.layers"),
    ("ln_final", "text_model.final_layer_norm"),
    ("text_projection", "text_projection.weight"),
)
LAYER_NAMES = (("ln_", "layer_norm"), ("attn.", "self_attn."), ("c_fc", "fc1"), ("c_proj", "fc2"))
TEXTS = ["a dog runs", "a cat", "", "word " * 60]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hub_clip_folder(tmp_path_factory.mktemp("hub") / "clip")


@pytest.fixture(scope="module")
def encoder(folder: Path) -> ClipEncoder:
    return build_clip(name=str(folder), weights=None, batch_size=3, device="cpu")


def photos(*sides: tuple[int, int]) -> list[Image.Image]:
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (*s, 3), dtype=np.uint8)) for s in sides]


def test_texts_are_embedded_as_by_transformers(folder: Path, encoder: ClipEncoder) -> None:
    network, processor = CLIPModel.from_pretrained(folder), CLIPProcessor.from_pretrained(folder)
    alone = []
    for text in TEXTS:
        inputs = processor(text=[text], truncation=True, max_length=24, return_tensors="pt")
        with torch.inference_mode():
            alone.append(network.get_text_features(**inputs).pooler_output)
    found = encoder.embed_texts(TEXTS)
    torch.testing.assert_close(found, normalize(torch.cat(alone), dim=-1), atol=1e-5, rtol=0)
    assert (encoder.space, encoder.dim) == ("clip", 8)
    assert (found @ found.T).fill_diagonal_(0).max() < 0.9999


def test_photos_are_embedded_as_by_transformers(folder: Path, encoder: ClipEncoder) -> None:
    other = build_dual_encoder(name=str(folder), device="cpu")
    squares = photos((32, 32), (32, 48), (40, 32))  # cut, not resized
    expected = other.embed_photos(squares)
    torch.testing.assert_close(encoder.embed_photos(squares), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(
        encoder.embed_texts(TEXTS), other.embed_texts(TEXTS), atol=1e-5, rtol=0
    )


def test_threads_may_prepare_its_photos(encoder: ClipEncoder) -> None:
    opened = photos((40, 30), (30, 40), (20, 20))
    prepared = [encoder.prepare(photo) for photo in opened]
    expected = encoder.embed_photos(opened)
    assert torch.equal(encoder.embed_photos(prepared), expected)
    assert torch.equal(encoder.embed_photos([opened[0], *prepared[1:]]), expected)
    assert not torch.equal(encoder.embed_photos([1 - pixels for pixels in prepared]), expected)


def test_its_embeddings_are_features(encoder: ClipEncoder) -> None:
    backbone, images = ClipBackbone(encoder=encoder), photos((50, 70), (90, 33))
    pixels = np.stack([np.array(backbone.fitted(image)) for image in images])
    cells = backbone.grid(torch.from_numpy(pixels).permute(0, 3, 1, 2))
    torch.testing.assert_close(cells[:, 0], encoder.embed_photos(images), atol=1e-5, rtol=0)
    assert (backbone.image_size, backbone.dim) == (32, 8)


def test_folders_that_do_not_fit_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"neither open_clip_config\.json nor config\.json"):
        build_clip(name=str(tmp_path), weights=None)
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "siglip"}))
    with pytest.raises(ValueError, match="'siglip' model, not a CLIP; .*similarity=siglip"):
        build_clip(name=str(tmp_path), weights=None)
    hub_clip_folder(tmp_path)
    (tmp_path / "processor_config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"no preprocessor_config\.json"):
        build_clip(name=str(tmp_path), weights=None)
    content = {"size": 24, "crop_size": 24, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="photos have 24 pixels .* 32 in config"):
        build_clip(name=str(tmp_path), weights=None)


def test_weights_by_open_clips_tag_may_lie_in_the_folder_of_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = SimpleNamespace(get_pretrained_cfg=lambda name, tag: {"hf_hub": "timm/clip.openai/"})
    folder = tmp_path / "timm" / "clip.openai"
    folder.mkdir(parents=True)
    monkeypatch.setenv("CAPTIONING_MODELS", str(tmp_path))
    with pytest.raises(ValueError, match=r"is not in .*clip.openai, .* lacks its commit"):
        _tagged("ViT-B-32", "openai", known)
    for name in (CONFIG, WEIGHTS):
        (folder / name).touch()
    assert _tagged("ViT-B-32", "openai", known) == folder / WEIGHTS


def in_transformers(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """open_clip's tensors under the names of transformers."""
    renamed = {}
    for key, value in state.items():
        start, target = next((pair for pair in NAMES if key.startswith(pair[0])), (key, key))
        name = target + key.removeprefix(start)
        for part, other in LAYER_NAMES if ".layers." in name else ():
            name = name.replace(part, other)
        if "in_proj_" in name:
            for part, rows in zip("qkv", value.chunk(3), strict=True):
                renamed[name.replace("in_proj_", f"{part}_proj.")] = rows
        else:
            renamed[name] = value.T if "projection.weight" in name else value
    return renamed


def test_the_weights_of_open_clip_give_its_embeddings() -> None:
    open_clip = pytest.importorskip("open_clip", reason="needs open_clip")
    torch.manual_seed(0)
    theirs = open_clip.CLIP(**SIZES).eval()
    vision, text = SIZES["vision_cfg"], SIZES["text_cfg"]
    pictures = {"num_hidden_layers": 1, "num_attention_heads": 1, "hidden_act": "gelu"}
    pictures |= {"hidden_size": vision["width"], "intermediate_size": 4 * vision["width"]}
    pictures |= {"image_size": vision["image_size"], "patch_size": vision["patch_size"]}
    words = {"num_hidden_layers": 1, "num_attention_heads": text["heads"], "hidden_act": "gelu"}
    words |= {"hidden_size": text["width"], "intermediate_size": 4 * text["width"]}
    words |= {"max_position_embeddings": text["context_length"], "vocab_size": text["vocab_size"]}
    config = CLIPConfig(text_config=words, vision_config=pictures, projection_dim=8)
    network = CLIPModel(config).eval()
    report = network.load_state_dict(in_transformers(theirs.state_dict()), strict=False)
    assert not report.missing_keys
    ours = HubClip(network, image_size=vision["image_size"])
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    tokens = torch.tensor([[49406, 320, 1929, 49407, 0, 0], [49406, 320, 2368, 320, 1929, 49407]])
    with torch.inference_mode():
        torch.testing.assert_close(ours.encode_image(pixels), theirs.encode_image(pixels))
        padded = torch.nn.functional.pad(tokens, (0, text["context_length"] - tokens.shape[1]))
        torch.testing.assert_close(ours.encode_text(tokens), theirs.encode_text(padded))


class Elsewhere(torch.nn.Module):
    """Tells where it is, where its inputs are, and how exactly GPUs compute."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def encode_text(self, tokens: torch.Tensor) -> None:
        assert self.weight.device == tokens.device
        precision = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        raise RuntimeError(f"on {tokens.device} in {precision}")

    encode_image = encode_text


def test_inputs_follow_the_network_which_computes_in_full_precision(
    encoder: ClipEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What scores keep must not depend on the speed of the run that asked first."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    moved = ClipEncoder(
        model=Elsewhere(),
        preprocess=encoder.preprocess,
        tokenize=encoder._tokenize,
        space="moved",
        device="meta",
    )
    assert moved.model.weight.device.type == "cpu"  # until it is used
    with pytest.raises(RuntimeError, match=r"on meta in \('highest', False\)"):
        moved.embed_texts(["a dog"])
    with pytest.raises(RuntimeError, match=r"on meta in \('highest', False\)"):
        moved.embed_photos(photos((32, 32)))


class Moving(torch.nn.Module):
    """Remembers where it was moved."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def to(self, place: torch.device | torch.dtype | str) -> Moving:
        self.places += [] if isinstance(place, torch.dtype) else [torch.device(place).type]
        return self

    def encode_text(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(tokens), 2)


def test_a_network_is_on_its_device_while_it_is_used(encoder: ClipEncoder) -> None:
    model = Moving()
    moving = ClipEncoder(
        model=model,
        preprocess=encoder.preprocess,
        tokenize=encoder._tokenize,
        space="moving",
        device="meta",
    )
    assert model.places == []
    moving.embed_texts(["a dog"])
    CosineScorer(encoder=moving).release()
    assert model.places == ["meta", "cpu"]
