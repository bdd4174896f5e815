"""EfficientNet-Lite as timm has it (``tf_efficientnet_lite*``), for inference without timm.

timm and what it imports take two seconds of a processor, which is much of a command that looks at a
few photos. Names of tensors, their order and each operation are timm's, so the outputs have the
same bits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

_STEM, _HEAD, _CLASSES = 32, 1280, 1000  # whatever the size
# Stages: blocks, side of the depthwise kernel, stride, widening, channels (all of Lite0).
_STAGES = (
    (1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320),
)  # fmt: skip
_EPS = 1e-3  # of TensorFlow's weights
# The first stages make 5 MB of a photo, and of more photos than these what no cache holds and the
# allocator asks the system for each time; the last ones read their weights once for all.
_EARLY, _EARLY_AT_ONCE = 2, 4


class Conv2dSame(nn.Conv2d):
    """A convolution with TensorFlow's padding: a zero more behind than before where it is odd."""

    def forward(self, input: Tensor) -> Tensor:
        """``(B, C, H, W)`` of such, a side of ``ceil(side / stride)``."""
        sides = zip(input.shape[-2:], self.kernel_size, self.stride, strict=True)
        needs = [
            max((-(-side // step) - 1) * step + kernel - side, 0) for side, kernel, step in sides
        ]
        high, wide = needs
        around = (wide // 2, wide - wide // 2, high // 2, high - high // 2)
        return self._conv_forward(functional.pad(input, around), self.weight, self.bias)


class EfficientNetLite(nn.Module):
    """The network; its tensors are empty until a state dict is loaded with ``assign=True``.

    Args:
        width: channels, as a multiple of those of Lite0.
        depth: blocks of a stage, as a multiple of those of Lite0.

    Attributes:
        num_features: channels of `forward_features`.
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
        """``(B, 1280, h, w)`` of normalised ``(B, 3, H, W)``."""
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
        """Leave the classifier out."""
        if num_classes:
            raise ValueError(f"num_classes must be 0: got {num_classes}")
        self.classifier = nn.Identity()


class _Norm(nn.BatchNorm2d):
    """Batch normalisation with what follows it."""

    def __init__(self, channels: int, act: nn.Module) -> None:
        super().__init__(channels, eps=_EPS)
        self.act = act

    def forward(self, input: Tensor) -> Tensor:
        return self.act(super().forward(input))


class _FirstBlock(nn.Module):
    """A depthwise convolution and one of single pixels."""

    def __init__(self, before: int, after: int, *, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv_dw = _convolution(before, before, kernel=kernel, stride=stride, groups=before)
        self.bn1 = _Norm(before, nn.ReLU6())
        self.conv_pw = _convolution(before, after)
        self.bn2 = _Norm(after, nn.Identity())

    def forward(self, images: Tensor) -> Tensor:
        return self.bn2(self.conv_pw(self.bn1(self.conv_dw(images))))


class _Block(nn.Module):
    """Six times as many channels, a depthwise convolution, and back to few; added to the input."""

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
    """To eights, at most a tenth below."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near
