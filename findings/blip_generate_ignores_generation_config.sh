#!/usr/bin/env bash
# transformers 5.24.0, torch 2.15.0, on a CPU with Python 3.11.
#
# Behaviour: BLIP and BLIP-2 keep a generation_config, save it as generation_config.json,
# load it again, and then generate without it. Their generate hands over to a part of the model,
# which searches by a generation_config of its own, made from config.json. No warning mentions it.
#
# Why a good engineer would not guess it: generation_config.json is the documented place for a
# model's default search, GIT and all models whose generate is the common one read it, and
# model.generation_config shows the loaded values. So forbidden tokens, lengths and beams that were
# saved with a captioner have no effect where it is loaded.
#
# Output seen:
#   GIT:    loaded max_new_tokens 5, new tokens 5
#   BLIP:   loaded max_new_tokens 5, new tokens 20
#   BLIP-2: loaded max_new_tokens 5, new tokens 20
#
# Exit status: 0 while the behaviour holds, another number when it changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet transformers==5.24.0 torch==2.15.0
FOLDER=$folder "$folder/bin/python" - <<'PY'
import os

import torch
import transformers as t

small = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
small |= {"intermediate_size": 32}
ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 1, "vocab_size": 40}
photo = {**small, "image_size": 16, "patch_size": 8}
torch.manual_seed(0)
models = {
    "GIT": t.GitForCausalLM(t.GitConfig(vision_config=photo, **small, **ids)),
    "BLIP": t.BlipForConditionalGeneration(t.BlipConfig(
        text_config={**small, **ids, "sep_token_id": 2, "encoder_hidden_size": 32},
        vision_config=photo,
    )),
    "BLIP-2": t.Blip2ForConditionalGeneration(t.Blip2Config(
        vision_config=photo,
        qformer_config={**small, "vocab_size": 40, "encoder_hidden_size": 32},
        text_config={"model_type": "opt", **small, **ids, "ffn_dim": 32, "word_embed_proj_dim": 32},
        num_query_tokens=4,
        image_token_index=39,
    )),
}
pixels = torch.zeros(1, 3, 16, 16)


def inputs(name):
    if name == "BLIP-2":
        return {"input_ids": torch.tensor([[39, 39, 39, 39, 1]])}
    return {"input_ids": torch.tensor([[1, 2] if name == "BLIP" else [1]])}


for name, model in models.items():
    model.generation_config.max_new_tokens = 5
    place = os.path.join(os.environ["FOLDER"], name)
    model.save_pretrained(place)
    model = type(model).from_pretrained(place).eval()
    saved = model.generation_config.max_new_tokens
    given = inputs(name)
    with torch.no_grad():
        written = model.generate(pixel_values=pixels, **given)
        told = model.generate(pixel_values=pixels, max_new_tokens=saved, **given)
    read = told.shape[1] - saved
    number = written.shape[1] - read
    print(f"{name + ':':7} loaded max_new_tokens {saved}, new tokens {number}")
    assert saved == 5 and (number == 5) is (name == "GIT"), "behaviour changed"
PY
