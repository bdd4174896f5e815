#!/usr/bin/env bash
# transformers 5.24.0, torch 2.15.0, torchvision 0.29.2, on a CPU with Python 3.11.
#
# Behaviour: PPFormulaNetForConditionalGeneration takes encoder_outputs, so that one reading of a
# photo serves several captions, as T5, BART and Florence-2 do. Its decoder attends to pooler_output,
# and its own outputs give only encoder_last_hidden_state. Handed these states in the usual form,
# BaseModelOutput or a tuple, the decoder gets None, skips its cross-attention, and says nothing.
# The logits are then the same for every photo.
#
# Why a good engineer would not guess it: the states come from the model's own output, the call is
# the one that its signature and its siblings document, and shapes and loss look right.
#
# Check: two photos must give different logits. They do from pixel_values, and from encoder_outputs
# with pooler_output. They do not from the states that the model returns.
#
# Output seen:
#   pixel_values: logits of two photos differ by 3.5e-01
#   encoder_outputs with pooler_output: by 3.5e-01
#   encoder_outputs of the returned states: by 0.0e+00
#
# Exit status: 0 while the behaviour holds, another number when it changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet transformers==5.24.0 torch==2.15.0 torchvision==0.29.2
"$folder/bin/python" - <<'PY'
import torch
from transformers import PPFormulaNetConfig, PPFormulaNetForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling

text = {"d_model": 32, "decoder_layers": 2, "decoder_ffn_dim": 48, "decoder_attention_heads": 2}
text |= {"encoder_layers": 2, "encoder_attention_heads": 2, "max_position_embeddings": 64}
text |= {"vocab_size": 50, "dropout": 0.0, "init_std": 0.3, "decoder_start_token_id": 2}
text |= {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_dim": 48}
vision |= {"output_channels": 8, "image_size": 64, "patch_size": 4, "window_size": 8}
vision |= {"global_attn_indexes": [1], "initializer_range": 0.2, "decoder_hidden_size": 32}
vision |= {"post_conv_in_channels": 8, "post_conv_mid_channels": 24, "post_conv_out_channels": 32}

torch.manual_seed(0)
config = PPFormulaNetConfig(text_config=text, vision_config=vision)
model = PPFormulaNetForConditionalGeneration(config).eval()
photos = torch.randn(2, 3, 64, 64)
words = torch.tensor([[2, 7, 8, 9]]).expand(2, -1)


@torch.no_grad()
def spread(**inputs):
    """The largest difference of the logits of two photos that share their words."""
    logits = model(decoder_input_ids=words, **inputs).logits
    return (logits[0] - logits[1]).abs().max().item()


with torch.no_grad():
    returned = model(pixel_values=photos, decoder_input_ids=words).encoder_last_hidden_state
    encoded = model.get_encoder()(photos)
usual = spread(encoder_outputs=BaseModelOutput(last_hidden_state=returned))
pooled = BaseModelOutputWithPooling(
    last_hidden_state=encoded.last_hidden_state, pooler_output=encoded.pooler_output
)
print(f"pixel_values: logits of two photos differ by {spread(pixel_values=photos):.1e}")
print(f"encoder_outputs with pooler_output: by {spread(encoder_outputs=pooled):.1e}")
print(f"encoder_outputs of the returned states: by {usual:.1e}")
assert torch.equal(encoded.last_hidden_state, returned)
assert spread(pixel_values=photos) > 1e-2
assert abs(spread(encoder_outputs=pooled) - spread(pixel_values=photos)) < 1e-4
assert usual == 0 == spread(encoder_outputs=(returned,)), "behaviour changed"
PY
