#!/usr/bin/env bash
# transformers 5.24.0 (`transformers serve`), torch 2.15.0, on a CPU with Python 3.11.
#
# Behaviour: the server accepts temperature, top_p and seed in a chat request, and answers with the
# greedy text all the same. It copies temperature and top_p into the model's generation config, but
# leaves do_sample off unless the model's own generation_config.json sets it. The response has
# status 200, and no field tells that the sampling parameters had no effect.
#
# Why a good engineer would not guess it: in the API that this server implements, a temperature
# above 0 means sampling, and other servers of that API sample. Captions that should be diverse are
# n copies of one caption. A request field generation_config='{"do_sample": true, ...}' does sample.
#
# Output seen:
#   temperature 0:                     1 text of 5 requests
#   temperature 2, five seeds:         1 text of 5 requests, that of temperature 0
#   do_sample by generation_config:    5 texts of 5 requests
#
# Exit status: 0 while the behaviour holds, another number when it changes.
set -euo pipefail
folder=$(mktemp -d)
server=
trap 'test -z "$server" || kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet "transformers[serving]==5.24.0" torch==2.15.0
export HF_HUB_OFFLINE=1 HF_HOME="$folder/home"
port=$("$folder/bin/python" - "$folder/model" <<'PY'
import socket
import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

words = ["<pad>", "<s>", "</s>", "<unk>", "describe", "the", "photo"]
words += [f"word{number}" for number in range(93)]
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
)
tokenizer.chat_template = "<s> {% for m in messages %}{{ m['content'] }} {% endfor %}"
tokenizer.save_pretrained(sys.argv[1])

torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
config = LlamaConfig(vocab_size=100, **sizes, **heads, **ids)
LlamaForCausalLM(config).save_pretrained(sys.argv[1])

with socket.socket() as free:
    free.bind(("localhost", 0))
    print(free.getsockname()[1])
PY
)
"$folder/bin/transformers" serve "$folder/model" --device cpu --port "$port" \
    > "$folder/server.log" 2>&1 &
server=$!
if ! "$folder/bin/python" - "$folder/model" "$port" <<'PY'
import json
import sys
import time
import urllib.request

model, port = sys.argv[1:]


def text(**settings):
    """The answer to one question."""
    body = {"model": model, "messages": [{"role": "user", "content": "describe the photo"}]}
    request = urllib.request.Request(
        f"http://localhost:{port}/v1/chat/completions",
        json.dumps({**body, "max_tokens": 8, **settings}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


for _ in range(120):
    try:
        text(temperature=0)
        break
    except OSError:
        time.sleep(1)

greedy = [text(temperature=0) for _ in range(5)]
warm = [text(temperature=2, top_p=1, seed=seed) for seed in range(5)]
sampling = json.dumps({"do_sample": True, "temperature": 2.0, "top_k": 0, "max_new_tokens": 8,
                       "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2})
drawn = [text(generation_config=sampling, seed=seed) for seed in range(5)]
same = ", that of temperature 0" if set(warm) == set(greedy) else ""
print(f"temperature 0:                     {len(set(greedy))} text of 5 requests")
print(f"temperature 2, five seeds:         {len(set(warm))} text of 5 requests{same}")
print(f"do_sample by generation_config:    {len(set(drawn))} texts of 5 requests")
sys.exit(not (set(warm) == set(greedy) and len(set(greedy)) == 1 and len(set(drawn)) > 1))
PY
then
    tail -20 "$folder/server.log"
    exit 1
fi
