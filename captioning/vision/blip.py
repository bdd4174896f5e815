"""BLIP's image encoder with published weights (hub name or folder), or of any other size.

It can replace a `captioning.vision.backbones.Backbone` for end-to-end training.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BlipForConditionalGeneration
from transformers.models.blip.configuration_blip import BlipVisionConfig
from transformers.models.blip.modeling_blip import (
    BlipAttention,
    BlipVisionEmbeddings,
    BlipVisionModel,
)

from captioning.config.loadable import loadable
from captioning.config.ranges import PositiveFloat, PositiveInt
from captioning.runtime.files import read_json
from captioning.runtime.model_folder import checkpoint_layers, load_network, model_folder

# Pixel statistics of CLIP's training photos, which BLIP uses too.
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


class FusedAttention(BlipAttention):
    """BLIP attention with torch's fused operation, which stores no attention matrix.

    Photos have 577 patches: transformers' own attention stores 4 million weights a photo and layer.
    """

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> tuple[Tensor, None]:  # pyright: ignore
        """Return states ``(B, P, D)``; attention weights are not returned."""
        queries, keys, values = (
            self.qkv(hidden_states)
            .unflatten(2, (3, self.num_heads, self.head_dim))
            .permute(2, 0, 3, 1, 4)
        )
        attended = functional.scaled_dot_product_attention(
            queries, keys, values, dropout_p=self.dropout.p if self.training else 0.0
        )
        return self.projection(attended.transpose(1, 2).flatten(2)), None


class ResizedEmbeddings(BlipVisionEmbeddings):
    """Position embeddings for photos of another size, resized by a fixed matrix.

    Bicubic resizing is linear. Torch's own resize has no deterministic gradient on GPUs before
    2.15, and a slow one since.
    """

    _resizing: Tensor

    def resize_to(self, side: int) -> None:
        """Prepare for photos of ``side`` by ``side`` patches; checkpoints do not change."""
        number = self.num_patches
        old_side = math.isqrt(number)
        each = torch.eye(number).view(1, number, old_side, old_side)
        resized = functional.interpolate(each, size=(side, side), mode="bicubic")
        matrix = resized.flatten(2)[0].T.contiguous()
        self.register_buffer("_resizing", matrix, persistent=False)

    def interpolate_pos_encoding(self, embeddings: Tensor, height: int, width: int) -> Tensor:
        """Return positions ``(1, 1 + patches, D)`` for photos of ``height`` by ``width`` pixels."""
        if height != width or embeddings.shape[1] != 1 + len(self._resizing):
            return super().interpolate_pos_encoding(embeddings, height, width)
        photo, patches = self.position_embedding.split([1, self.num_patches], dim=1)
        wide = torch.promote_types(patches.dtype, torch.float32)  # as torch resizes
        with torch.autocast(patches.device.type, enabled=False):
            resized = self._resizing.to(wide) @ patches.to(wide)
        return torch.cat([photo, resized.to(patches.dtype)], dim=1)


class BlipVision(nn.Module):
    """Image encoder: maps pixels to states for the decoder, one of the photo and one per patch.

    Args:
        network: the vision transformer.
        image_size: side in pixels to which photos are resized; None: side of the weights.
            Positions are interpolated for other sizes.
        checkpointing: recompute layers in the backward pass instead of storing their outputs.

    Attributes:
        dim: size D of a state.
        mean, std: mean and standard deviation of pixels in [0, 1], per channel.
    """

    _mean: Tensor
    _std: Tensor

    def __init__(
        self,
        *,
        network: BlipVisionModel,
        image_size: int | None = None,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        config: Any = network.config
        default_size, patch = config.image_size, config.patch_size
        self.image_size = image_size or default_size
        if self.image_size % patch:
            raise ValueError(
                f"image_size must be a multiple of the patch size {patch}: got {image_size}"
            )
        for module in network.modules():
            if type(module) is BlipAttention:
                module.__class__ = FusedAttention
        self.network = network
        self.dim = int(config.hidden_size)
        self.mean, self.std = MEAN, STD
        for name, values in {"_mean": MEAN, "_std": STD}.items():
            scaled = torch.tensor(values).view(3, 1, 1) * 255
            self.register_buffer(name, scaled, persistent=False)
        self._interpolated = self.image_size != default_size
        if self._interpolated:
            embeddings: Any = network.embeddings
            embeddings.__class__ = ResizedEmbeddings
            embeddings.resize_to(self.image_size // patch)
        if checkpointing:
            checkpoint_layers(network)

    def compile_network(self) -> None:
        """Compile the network with torch."""
        self.network.compile()

    def normalise(self, pixels: Tensor) -> Tensor:
        """Convert pixels ``(B, 3, H, W) uint8`` to the ``float32`` input of `grid`."""
        return (pixels.to(torch.float32) - self._mean) / self._std

    def grid(self, images: Tensor) -> Tensor:
        """Return states ``(B, 1 + patches, D)`` of pixels, ``uint8`` or normalised."""
        if images.dtype == torch.uint8:
            images = self.normalise(images)
        outputs = self.network(images, interpolate_pos_encoding=self._interpolated)
        return outputs.last_hidden_state


def with_positions_of(network: BlipVisionModel, image_size: int) -> None:
    """Store the resized positions of `ResizedEmbeddings` in the network, for one photo size."""
    embeddings: Any = network.embeddings
    if not isinstance(embeddings, ResizedEmbeddings):
        return
    with torch.no_grad():
        photo, patches = embeddings.position_embedding.split([1, embeddings.num_patches], dim=1)
        wide = torch.promote_types(patches.dtype, torch.float32)  # as in the network's own pass
        resized = (embeddings._resizing.to(wide) @ patches.to(wide)).to(patches.dtype)
        embeddings.position_embedding = nn.Parameter(torch.cat([photo, resized], dim=1))
    embeddings.num_patches = resized.shape[1]
    embeddings.num_positions = embeddings.num_patches + 1
    embeddings.image_size = network.config.image_size = image_size
    del embeddings._resizing
    object.__setattr__(embeddings, "__class__", BlipVisionEmbeddings)


@loadable
def build_blip_vision(
    *,
    pretrained: str | None = None,
    image_size: PositiveInt | None = None,
    layer_norm_eps: PositiveFloat | None = None,
    checkpointing: bool = False,
    **sizes: Any,
) -> BlipVision:
    """Build BLIP's image encoder.

    Args:
        pretrained: hub name or folder of a complete BLIP captioner; None: random weights.
        image_size: see `BlipVision`.
        layer_norm_eps: epsilon of layer normalisation; None: as in the config. The authors use
            1e-6, hub folders of transformers have 1e-5.
        checkpointing: see `BlipVision`.
        **sizes: sizes of a randomly initialised network: ``hidden_size``, ``num_hidden_layers``,
            ``num_attention_heads``, ``intermediate_size``, ``patch_size``.

    Raises:
        ValueError: sizes together with published weights, or weights of another architecture.
    """
    options: dict[str, Any] = {"image_size": image_size, "checkpointing": checkpointing}
    if pretrained is not None:
        if sizes:
            raise ValueError(f"published weights fix the sizes: leave out {list(sizes)}")
        network = load_blip(pretrained).vision_model
        if layer_norm_eps is not None:
            _set_layer_norm_eps(network, layer_norm_eps)
        return BlipVision(network=network, **options)
    if image_size is not None:
        sizes["image_size"] = image_size
    if layer_norm_eps is not None:
        sizes["layer_norm_eps"] = layer_norm_eps
    network = BlipVisionModel(BlipVisionConfig(**sizes))
    # transformers initialises these with deviation 1, which is too large for small networks
    nn.init.trunc_normal_(network.embeddings.position_embedding, std=0.02)
    nn.init.trunc_normal_(network.embeddings.class_embedding, std=0.02)
    return BlipVision(network=network, **options)


def _set_layer_norm_eps(network: BlipVisionModel, eps: float) -> None:
    network.config.layer_norm_eps = eps
    for module in network.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = eps


def load_blip(name: str) -> BlipForConditionalGeneration:
    """Load a complete BLIP captioner of transformers, from safetensors only.

    Args:
        name: hub name or folder.

    Raises:
        FileNotFoundError: the folder or its safetensors file does not exist.
        ValueError: weights of another architecture.
        ConnectionError: the hub cannot be reached.
    """
    folder = model_folder(name, instead="a BLIP of your own sizes (model.pretrained=null)")
    kind = read_json(folder / "config.json").get("model_type")
    if kind != "blip":
        raise ValueError(
            f"{name} is {kind!r}, not BLIP; give a BLIP captioner such as "
            "Salesforce/blip-image-captioning-base"
        )
    return load_network(
        BlipForConditionalGeneration,
        folder,
        name=name,
        kind="a BLIP captioner",
        hint=": is it BLIP for another task?",
    )
