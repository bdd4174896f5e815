#!/usr/bin/env bash
# transformers 5.23.0, torch 2.15.0, on a CPU with Python 3.11.
#
# Behaviour: JanusForConditionalGeneration.generate ignores logits_processor when it writes text.
# The method names the argument in its signature, uses it to generate images, and does not pass it
# on to the common generate in the text mode, which is the default. No warning mentions it.
#
# Why a good engineer would not guess it: logits_processor is the documented way to constrain
# decoding, and generate raises an error for an argument that it does not know.
# prefix_allowed_tokens_fn and stopping_criteria given to the same method do work. The common
# generate, called by name on the same model (GenerationMixin.generate), applies the processor.
#
# Output seen:
#   no constraint:                        [11, 11, 11, 11, 11]
#   logits_processor, Janus' generate:    [11, 11, 11, 11, 11]
#   logits_processor, common generate:    [7, 7, 7, 7, 7]
#   prefix_allowed_tokens_fn, Janus' own: [7, 7, 7, 7, 7]
#
# Exit status: 0 while the behaviour holds, another number when it changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet transformers==5.23.0 torch==2.15.0
"$folder/bin/python" - <<'PY'
import torch
from transformers import GenerationMixin, JanusConfig, JanusForConditionalGeneration
from transformers import LogitsProcessor, LogitsProcessorList


class OnlySeven(LogitsProcessor):
    """Forbids every token but number 7."""

    def __call__(self, input_ids, scores):
        allowed = torch.full_like(scores, float("-inf"))
        allowed[:, 7] = 0.0
        return allowed


torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 48}
sizes |= {"num_hidden_layers": 2, "num_attention_heads": 2}
ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
config = JanusConfig(
    text_config={**sizes, **ids, "model_type": "llama", "vocab_size": 100},
    vision_config={**sizes, "image_size": 16, "patch_size": 8, "projection_dim": 32},
    vq_config={"base_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1,
               "latent_channels": 32, "projection_dim": 32, "image_token_embed_dim": 32,
               "num_embeddings": 16},
    image_token_id=3,
)
model = JanusForConditionalGeneration(config).eval()

prompt = torch.tensor([[1, 3, 3, 3, 3, 10, 11]])  # Four tokens of the photo, then two words.
inputs = {"input_ids": prompt, "attention_mask": torch.ones_like(prompt)}
inputs["pixel_values"] = torch.randn(1, 3, 16, 16)
settings = {"max_new_tokens": 5, "do_sample": False}
constrained = {**settings, "logits_processor": LogitsProcessorList([OnlySeven()])}


def words(sequences):
    return sequences[0, prompt.shape[1] :].tolist()


free = words(model.generate(**inputs, **settings))
own = words(model.generate(**inputs, **constrained))
common = words(GenerationMixin.generate(model, **inputs, **constrained))
by_prefix = {**settings, "prefix_allowed_tokens_fn": lambda row, tokens: [7]}
allowed = words(model.generate(**inputs, **by_prefix))
print("no constraint:                       ", free)
print("logits_processor, Janus' generate:   ", own)
print("logits_processor, common generate:   ", common)
print("prefix_allowed_tokens_fn, Janus' own:", allowed)
assert common == allowed == [7] * 5
assert own == free != common, "behaviour changed"
PY
