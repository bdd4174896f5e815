#!/usr/bin/env bash
# transformers 5.23.0, torch 2.15.0, on a CPU with Python 3.11.
#
# Behaviour: Qwen3VLForConditionalGeneration resumes a chat from its own cache and gives another
# answer if another chat with a photo had its turn in between.
# A photo takes fewer rotary positions than tokens. The model keeps this difference in the attribute
# model.model.rope_deltas, not in the cache. The next photo overwrites it, whichever chat it
# belongs to. Each later word of the first chat then has a wrong position.
#
# Why a good engineer would not guess it: the cache that the caller holds looks complete. The same
# code is right for text models and for a single chat. Both chats are valid, each has its
# own cache, they run one after the other, and nothing is raised or logged.
#
# Check: the second turn of chat A, from the cache, against the same turn computed from the start.
#
# Output seen:
#   chat A alone: logits off by 0.000001, answers [59, 59, 59, 40], from the start [59, 59, 59, 40]
#   chat B between: logits off by 1.861411, answers [59, 59, 59, 59], from the start [59, 59, 59, 40]
#
# Exit status: 0 while the behaviour holds, another number when it changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet transformers==5.23.0 torch==2.15.0
"$folder/bin/python" - <<'PY'
import torch
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 48}
rope = {"rope_theta": 1e6, "mrope_section": [3, 3, 2], "mrope_interleaved": True}
config = Qwen3VLConfig(
    text_config={**sizes, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 16,
                 "num_key_value_heads": 1, "vocab_size": 100, "initializer_range": 0.2,
                 "rope_parameters": rope},
    vision_config={**sizes, "depth": 1, "num_heads": 2, "out_hidden_size": 32, "patch_size": 8,
                   "num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
    vision_start_token_id=3, vision_end_token_id=4, image_token_id=5, video_token_id=6,
)
model = Qwen3VLForConditionalGeneration(config).eval()
settings = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
settings |= {"return_dict_in_generate": True, "output_logits": True}


def written(ids):
    """The inputs that go with these tokens; 5 stands for a part of a photo."""
    ids = torch.tensor([ids]) if isinstance(ids, list) else ids
    types = (ids == 5).int()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "mm_token_type_ids": types}


def chat(rows, columns):
    """A first turn: a photo of rows x columns patches (four patches a token), then two words."""
    turn = written([3, *[5] * (rows * columns // 4), 4, 20, 21])
    turn["pixel_values"] = torch.randn(rows * columns, 3 * 2 * 8 * 8)
    turn["image_grid_thw"] = torch.tensor([[1, rows, columns]])
    return turn


a, b = chat(4, 8), chat(12, 12)


def second_turn(other_chat):
    first = model.generate(**a, **settings)
    if other_chat:
        model.generate(**b, **settings)
    ids = torch.cat([first.sequences, torch.tensor([[30, 31, 32]])], dim=1)
    resumed = model.generate(**written(ids), past_key_values=first.past_key_values, **settings)
    whole = model.generate(**{**a, **written(ids)}, **settings)
    answer = [out.sequences[0, ids.shape[1] :].tolist() for out in (resumed, whole)]
    return (resumed.logits[0] - whole.logits[0]).abs().max().item(), *answer


alone, answer, whole = second_turn(other_chat=False)
print(f"chat A alone: logits off by {alone:.6f}, answers {answer}, from the start {whole}")
mixed, answer, whole = second_turn(other_chat=True)
print(f"chat B between: logits off by {mixed:.6f}, answers {answer}, from the start {whole}")
assert alone < 1e-4
assert mixed > 0.01, "behaviour changed"
PY
