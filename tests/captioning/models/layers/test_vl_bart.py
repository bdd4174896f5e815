"""Weights in the layout of VL-BART's authors, written here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import BertConfig

from captioning.models.cic_bart import CicBart
from captioning.models.layers.vl_bart import load_bart
from tests.tiny import FEATURE_SIZE, cic_bart, make_batch

VISUAL = "model.encoder.visual_embedding."
THEIR_NAMES = {
    "features.weight": "feat_embedding.0.weight",
    "features.bias": "feat_embedding.0.bias",
    "places.weight": "absolute_vis_pos_embedding.0.weight",
    "places.bias": "absolute_vis_pos_embedding.0.bias",
    "image.weight": "img_order_embedding.weight",
    "norm.weight": "layer_norm.weight",
    "norm.bias": "layer_norm.bias",
}


def drawn(seed: int) -> CicBart:
    torch.manual_seed(seed)
    return cic_bart().eval()


def their_layout(model: CicBart) -> dict[str, Tensor]:
    """The names that ``torch.save(VLBart.state_dict())`` writes."""
    state = {name: tensor.clone() for name, tensor in model.bart.state_dict().items()}
    for ours, theirs in THEIR_NAMES.items():
        state[VISUAL + theirs] = model.visual.state_dict()[ours].clone()
    state[f"{VISUAL}obj_order_embedding.weight"] = state["model.shared.weight"].clone()
    return state


@pytest.mark.parametrize("form", ["plain", "module", "vis_encoder", "safetensors"])
def test_their_checkpoint_gives_their_losses(tmp_path: Path, form: str) -> None:
    published = drawn(1)
    state = their_layout(published)
    if form == "module":
        state = {f"module.{name}": tensor for name, tensor in state.items()}
    if form == "vis_encoder":
        state = {n.replace("model.encoder.", "model.vis_encoder."): t for n, t in state.items()}
    path = tmp_path / ("Epoch30.safetensors" if form == "safetensors" else "Epoch30.pth")
    (save_file if form == "safetensors" else torch.save)(state, path)
    torch.manual_seed(2)
    loaded = cic_bart(weights=path).eval()
    batch = make_batch()
    assert torch.equal(loaded.losses(batch).per_sample, published.losses(batch).per_sample)
    assert not torch.equal(drawn(2).losses(batch).per_sample, loaded.losses(batch).per_sample)
    for name, tensor in published.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


def test_checkpoints_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "Epoch30.pth"
    with pytest.raises(FileNotFoundError, match="no such file"):
        cic_bart(weights=path)
    state = their_layout(drawn(1))
    torch.save(state | {f"{VISUAL}feat_embedding.1.weight": torch.ones(16)}, path)
    with pytest.raises(
        ValueError, match=r"a further visual\.feat_embedding\.1\.weight .*one layer"
    ):
        cic_bart(weights=path)
    torch.save({n: t for n, t in state.items() if "layers.0.fc1" not in n}, path)
    with pytest.raises(ValueError, match=r"lacks bart\.model\.decoder\.layers\.0\.fc1"):
        cic_bart(weights=path)
    torch.save(state | {"model.shared.weight": torch.zeros(7, 16)}, path)
    with pytest.raises(
        ValueError, match=r"bart\.model\.shared\.weight has shape \(7, 16\), but the model has"
    ):
        cic_bart(weights=path)
    wide = torch.zeros(16, FEATURE_SIZE + 1)
    torch.save(state | {f"{VISUAL}feat_embedding.0.weight": wide}, path)
    with pytest.raises(ValueError, match=r"visual\.features\.weight has shape \(16, 13\)"):
        cic_bart(weights=path)
    path.write_bytes(b"no weights")
    with pytest.raises(ValueError, match="not a readable weights file"):
        cic_bart(weights=path)
    torch.save({"step": 3}, path)
    with pytest.raises(ValueError, match="must hold tensors by name"):
        cic_bart(weights=path)


def test_other_models_and_vocabularies_are_refused(tmp_path: Path) -> None:
    BertConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is 'bert', not BART"):
        load_bart(str(tmp_path), vocabulary=300, dropout=0.1)
    model = drawn(1)
    model.bart.config.save_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match="no safetensors in it"):
        load_bart(str(tmp_path), vocabulary=300, dropout=0.1)
    model.bart.save_pretrained(tmp_path)
    size = len(model.tokenizer)
    with pytest.raises(ValueError, match=f"has {size} tokens, but the tokenizer has 300"):
        load_bart(str(tmp_path), vocabulary=300, dropout=0.1)
    assert load_bart(str(tmp_path), vocabulary=size, dropout=0.1).config.vocab_size == size
    longer = load_bart(str(tmp_path), vocabulary=size + 200, dropout=0.3)
    assert longer.lm_head.weight is longer.model.shared.weight
    assert longer.model.encoder.layers[0].activation_dropout == 0.3
    assert len(longer.lm_head.weight) == longer.final_logits_bias.shape[1] == size + 200
