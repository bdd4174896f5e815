"""Batch normalisation folded into the convolutions before it: the same function, but faster.

On a CPU, batch normalisation costs about as much time as the convolutions of a small network. With
fixed statistics it is an affine map, which can be merged into the convolution's weights. The
activation that follows is computed by the same kernel (oneDNN), before its input leaves the cache.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_weights

TOLERANCE = 1e-4  # of the largest activation; rounding in float32 stays an order below
_SAME = "Conv2dSame"  # timm's, or that of `captioning.vision.efficientnet_lite`
# Activations that oneDNN computes with a convolution, by its names, and their numbers.
_FUSED: dict[type[nn.Module], tuple[str, list[float]]] = {
    nn.Identity: ("none", []),
    nn.ReLU: ("relu", []),
    nn.ReLU6: ("hardtanh", [0.0, 6.0]),
}


@torch.no_grad()
def folded(network: nn.Module, example: Tensor) -> nn.Module:
    """A copy of ``network`` for inference, with batch normalisation folded where possible.

    One forward pass shows which convolution feeds which normalisation. The result is compared with
    the network itself; if they disagree (because a convolution's output is used twice, say) an
    unfolded copy is returned.

    Args:
        network: a timm network; not changed.
        example: ``(B, 3, H, W) float32`` images to trace and compare with.
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
    """A convolution and its activation as one operation of oneDNN, where that can be.

    That is on a CPU in ``float32``. Elsewhere they are computed one after the other.

    Args:
        convolution: its weights must not change any more.
        activation: after it.
    """

    def __init__(self, convolution: nn.Conv2d, activation: nn.Module) -> None:
        super().__init__()
        self.convolution, self.activation = convolution, activation
        self._same = type(convolution).__name__ == _SAME
        self._packed: dict[bool, Tensor] = {}

    @staticmethod
    def can_hold(convolution: nn.Conv2d, activation: nn.Module) -> bool:
        """Whether oneDNN is there, and computes the two."""
        return (
            torch.backends.mkldnn.is_available()
            and hasattr(torch.ops.mkldnn, "_convolution_pointwise")
            and (type(convolution) is nn.Conv2d or type(convolution).__name__ == _SAME)
            and not isinstance(convolution.padding, str)
            and convolution.padding_mode == "zeros"
            and type(activation) in _FUSED
        )

    def forward(self, images: Tensor) -> Tensor:
        """``(B, C, H, W)`` of such."""
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
        """Zeros before and after the rows and columns, and whether the kernel is wider by one.

        TensorFlow's padding may have a zero more behind than before. The same comes of equal
        padding by a kernel that begins with zeros. None where rows and columns differ in this.
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
        """What oneDNN has packed cannot be copied, and is packed again."""
        return {**self.__dict__, "_packed": {}}


def _put(network: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """``new`` in the place of ``old``."""
    name = next(name for name, module in network.named_modules() if module is old)
    parent, _, child = name.rpartition(".")
    setattr(network.get_submodule(parent), child, new)


def _pairs(network: Any, example: Tensor) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Each convolution with the batch normalisation that reads its output, both used once."""
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
    """The activation within timm's normalisation layer, which stays after folding."""
    activation = getattr(norm, "act", None)
    return activation if isinstance(activation, nn.Module) else nn.Identity()
