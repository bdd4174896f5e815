"""BLIP's captioner from its paper and the shapes of its checkpoints, in plain torch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

State = Mapping[str, Tensor]
HEAD = 64
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = [
    *SPECIAL,
    *["a", "dog", "cat", "runs", "on", "the", "grass", "red", "bird", "sits", "tree"],
]
DEC, SEP = len(WORDS), 3  # [DEC] and [ENC] come after BERT's words
TEXT, VISION, INNER, PATCH, POSITIONS = 128, 64, 96, 8, 24


def random_state(
    *, side: int = 2, layers: int = 2, vision_layers: int = 2, seed: int = 0
) -> dict[str, Tensor]:
    """A checkpoint for photos of ``side`` patches, in the authors' names."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int, scale: float = 0.15) -> Tensor:
        return torch.randn(shape, generator=generator) * scale

    state: dict[str, Tensor] = {}

    def linear(name: str, outputs: int, inputs: int, scale: float = 0.15) -> None:
        state[f"{name}.weight"], state[f"{name}.bias"] = (
            draw(outputs, inputs, scale=scale),
            draw(outputs),
        )

    def norm(name: str, size: int) -> None:
        state[f"{name}.weight"], state[f"{name}.bias"] = 1 + draw(size), draw(size)

    vision, bert = "visual_encoder", "text_decoder.bert"
    state[f"{vision}.cls_token"] = draw(1, 1, VISION)
    state[f"{vision}.pos_embed"] = draw(1, 1 + side**2, VISION)
    state[f"{vision}.patch_embed.proj.weight"] = draw(VISION, 3, PATCH, PATCH)
    state[f"{vision}.patch_embed.proj.bias"] = draw(VISION)
    for layer in range(vision_layers):
        block = f"{vision}.blocks.{layer}"
        norm(f"{block}.norm1", VISION)
        norm(f"{block}.norm2", VISION)
        linear(f"{block}.attn.qkv", 3 * VISION, VISION)
        linear(f"{block}.attn.proj", VISION, VISION)
        linear(f"{block}.mlp.fc1", INNER, VISION)
        linear(f"{block}.mlp.fc2", VISION, INNER)
    norm(f"{vision}.norm", VISION)
    embeddings = f"{bert}.embeddings"
    state[f"{embeddings}.position_ids"] = torch.arange(POSITIONS)[None]
    state[f"{embeddings}.word_embeddings.weight"] = draw(len(WORDS) + 2, TEXT, scale=1.0)
    state[f"{embeddings}.position_embeddings.weight"] = draw(POSITIONS, TEXT, scale=2.0)
    norm(f"{embeddings}.LayerNorm", TEXT)
    for layer in range(layers):
        block = f"{bert}.encoder.layer.{layer}"
        for name, width in {"attention": TEXT, "crossattention": VISION}.items():
            linear(f"{block}.{name}.self.query", TEXT, TEXT)
            linear(f"{block}.{name}.self.key", TEXT, width)
            linear(f"{block}.{name}.self.value", TEXT, width)
            linear(f"{block}.{name}.output.dense", TEXT, TEXT, scale=0.6)
            norm(f"{block}.{name}.output.LayerNorm", TEXT)
        linear(f"{block}.intermediate.dense", INNER, TEXT)
        linear(f"{block}.output.dense", TEXT, INNER)
        norm(f"{block}.output.LayerNorm", TEXT)
    head = "text_decoder.cls.predictions"
    linear(f"{head}.transform.dense", TEXT, TEXT)
    norm(f"{head}.transform.LayerNorm", TEXT)
    state[f"{head}.bias"] = draw(len(WORDS) + 2)
    state[f"{head}.bias"][SEP] += 4.5
    state[f"{head}.transform.LayerNorm.weight"] *= 0.1  # soft enough that beams matter
    state[f"{head}.decoder.weight"] = state[f"{embeddings}.word_embeddings.weight"]
    state[f"{head}.decoder.bias"] = state[f"{head}.bias"]
    return state


def linear_of(state: State, name: str, rows: Tensor) -> Tensor:
    return rows @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def norm_of(state: State, name: str, rows: Tensor, eps: float) -> Tensor:
    centred = rows - rows.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    return centred / deviation * state[f"{name}.weight"] + state[f"{name}.bias"]


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """``(B, T, D)`` each, heads side by side; ``mask (T, S)`` is added to the products."""

    def by_head(rows: Tensor) -> Tensor:
        return rows.unflatten(2, (-1, HEAD)).transpose(1, 2)

    products = by_head(queries) @ by_head(keys).transpose(2, 3) / HEAD**0.5
    products = products if mask is None else products + mask
    return (products.softmax(-1) @ by_head(values)).transpose(1, 2).flatten(2)


def vision(state: State, pixels: Tensor) -> Tensor:
    """States ``(I, 1 + patches, D)`` of normalised pixels ``(I, 3, H, W)``."""
    name = "visual_encoder"
    patches = functional.conv2d(
        pixels,
        state[f"{name}.patch_embed.proj.weight"],
        state[f"{name}.patch_embed.proj.bias"],
        stride=PATCH,
    )
    rows = patches.flatten(2).transpose(1, 2)
    first = state[f"{name}.cls_token"].expand(len(rows), -1, -1)
    rows = torch.cat([first, rows], dim=1) + state[f"{name}.pos_embed"]
    for layer in range(2):
        block = f"{name}.blocks.{layer}"
        normed = norm_of(state, f"{block}.norm1", rows, 1e-6)
        parts = linear_of(state, f"{block}.attn.qkv", normed).chunk(3, dim=-1)
        rows = rows + linear_of(state, f"{block}.attn.proj", attend(*parts))
        inner = linear_of(state, f"{block}.mlp.fc1", norm_of(state, f"{block}.norm2", rows, 1e-6))
        rows = rows + linear_of(state, f"{block}.mlp.fc2", functional.gelu(inner))
    return norm_of(state, f"{name}.norm", rows, 1e-6)


def logits(state: State, tokens: Tensor, images: Tensor) -> Tensor:
    """``(B, T, V)`` of tokens ``(B, T)`` and the states of their images."""
    bert, length = "text_decoder.bert", tokens.shape[1]
    rows = state[f"{bert}.embeddings.word_embeddings.weight"][tokens]
    rows = rows + state[f"{bert}.embeddings.position_embeddings.weight"][:length]
    rows = norm_of(state, f"{bert}.embeddings.LayerNorm", rows, 1e-12)
    causal = torch.full((length, length), -torch.inf).triu(1)
    for layer in range(2):
        block = f"{bert}.encoder.layer.{layer}"
        for name, mask in {"attention": causal, "crossattention": None}.items():
            sources = images if mask is None else rows
            attended = attend(
                linear_of(state, f"{block}.{name}.self.query", rows),
                linear_of(state, f"{block}.{name}.self.key", sources),
                linear_of(state, f"{block}.{name}.self.value", sources),
                mask,
            )
            added = linear_of(state, f"{block}.{name}.output.dense", attended)
            rows = norm_of(state, f"{block}.{name}.output.LayerNorm", rows + added, 1e-12)
        inner = functional.gelu(linear_of(state, f"{block}.intermediate.dense", rows))
        added = linear_of(state, f"{block}.output.dense", inner)
        rows = norm_of(state, f"{block}.output.LayerNorm", rows + added, 1e-12)
    head = "text_decoder.cls.predictions"
    rows = functional.gelu(linear_of(state, f"{head}.transform.dense", rows))
    rows = norm_of(state, f"{head}.transform.LayerNorm", rows, 1e-12)
    return linear_of(state, f"{head}.decoder", rows)
