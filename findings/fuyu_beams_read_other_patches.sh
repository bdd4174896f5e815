#!/usr/bin/env bash
# transformers 5.23.0, torch 2.15.0, torchvision 0.29.2, pillow 13.0.0, on a CPU with Python 3.11.
#
# Behaviour: FuyuForCausalLM.generate(num_beams=3) reads a scrambled photo in every beam.
# The processor returns image_patches as (patches, values), without a batch dimension.
# generate repeats each row of it: p0 p0 p0 p1 p1 p1 ... The model hands these rows out in order,
# so with 9 patches beam 0 reads p0 p0 p0 p1 p1 p1 p2 p2 p2, and beams 1 and 2 read other patches.
# There are as many patches as places for them, so no check fails.
# The only warning says that image_patches will be renamed.
#
# Why a good engineer would not guess it: the inputs go from processor to generate unchanged, greedy
# decoding is correct, and the library repeats image features photo by photo for other families.
# The newer form of the same input, pixel_values, raises an error under beam search.
#
# Check: before the first word, all beams hold one prompt and one photo, so their logits must agree.
# The score of the best caption must equal its log-probability under the model's own forward.
#
# Output seen:
#   greedy: score -26.208, by forward -26.208
#   3 beams: score -26.013, by forward -26.452, first logits differ by 0.310
#
# Exit status: 0 while the behaviour holds, another number when it changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet transformers==5.23.0 torch==2.15.0 \
    torchvision==0.29.2 pillow==13.0.0
"$folder/bin/python" - <<'PY'
import torch
from PIL import Image
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import FuyuConfig, FuyuForCausalLM, FuyuImageProcessor, FuyuProcessor
from transformers import PreTrainedTokenizerFast

# Like the published tokenizer, this one writes a mark of its own ("_") before each text.
words = ["<unk>", "<s>", "</s>", "_", "|SPEAKER|", "|NEWLINE|", "<0x04>"]
words += [f"word{number}" for number in range(93)]
raw = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, "<unk>"))
raw.normalizer = normalizers.Prepend("_ ")
marks = Regex(r"\|SPEAKER\||\|NEWLINE\||<0x04>")
raw.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(marks, "isolated")]
)
names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<unk>"}
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, **names)
patch = {"height": 16, "width": 16}
images = FuyuImageProcessor(size={"height": 64, "width": 64}, patch_size=patch)
processor = FuyuProcessor(images, tokenizer)

torch.manual_seed(0)
text = {"model_type": "persimmon", "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2}
text |= {"intermediate_size": 48, "num_attention_heads": 2, "initializer_range": 0.3}
model = FuyuForCausalLM(FuyuConfig(text_config=text, patch_size=16, image_token_id=4)).eval()
model.generation_config.eos_token_id = None  # All captions have six words.

photo = Image.radial_gradient("L").convert("RGB").crop((0, 0, 200, 200)).resize((48, 48))
inputs = processor(images=[photo], text=["word1 word2"], return_tensors="pt")
prompt = inputs["input_ids"].shape[1]


def caption(beams):
    """The spread of the first logits over the beams, the score reported, and the model's own."""
    settings = {"num_beams": beams, "max_new_tokens": 6, "do_sample": False}
    if beams > 1:
        settings["length_penalty"] = 0.0  # The score is a sum, not a mean.
    wanted = {"output_logits": True, "output_scores": True, "return_dict_in_generate": True}
    out = model.generate(**inputs, **settings, **wanted)
    ids = out.sequences
    whole = {**inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        logits = model(**whole).logits[:, prompt - 1 : -1]
    score = model.compute_transition_scores(
        ids, out.scores, getattr(out, "beam_indices", None), normalize_logits=beams == 1
    ).sum()
    own = logits.log_softmax(-1).gather(-1, ids[:, prompt:, None]).sum()
    first = out.logits[0]
    return (first - first[:1]).abs().max().item(), score.item(), own.item()


_, score, own = caption(beams=1)
print(f"greedy: score {score:.3f}, by forward {own:.3f}")
spread, beam_score, beam_own = caption(beams=3)
print(f"3 beams: score {beam_score:.3f}, by forward {beam_own:.3f},", end=" ")
print(f"first logits differ by {spread:.3f}")
assert abs(score - own) < 1e-3
assert spread > 0.01 and abs(beam_score - beam_own) > 0.01, "behaviour changed"
PY
