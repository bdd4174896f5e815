"""Batch normalisation folded into the convolutions before it: the same function, but faster.

On a CPU, batch normalisation costs about as much time as the convolutions of a small network. With
fixed statistics it is an affine map, which can be merged into the convolution's weights.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

TOLERANCE = 1e-4  # of the largest activation; rounding in float32 stays an order below


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
    names = {module: name for name, module in folded_copy.named_modules()}
    for convolution, norm in _pairs(folded_copy, example):
        _fold(convolution, norm)
        parent, _, child = names[norm].rpartition(".")
        setattr(folded_copy.get_submodule(parent), child, _activation_of(norm))
    actual = folded_copy.forward_features(example)
    # NaN gives False here: broken weights are reported later, with the photo's name.
    agree = (expected - actual).abs().max() <= TOLERANCE * expected.abs().max()
    return folded_copy if agree else plain


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
