"""Benchmark fine-tuning of BLIP and of a VLM with LoRA against plain transformers code.

python benchmarks/bench_pretrained.py [--size small|full] [--cases blip vlm] [--captions 1 5]
    [--images N] [--words 12] [--rounds 5] [--device auto] [--threads N]

``full`` has BLIP-base at 384 pixels, and LLaVA's form with 2.4 billion weights (CLIP-L at 336
pixels, a Llama of 24 layers of 2,048); it is for a GPU, in bfloat16. ``small`` has the same forms
in small, and runs anywhere. Weights are random. Both ways have the same weights, batches, optimiser
and precision, and are measured turn by turn; seconds are medians.

A line each: captions per second in training, with and without the ledger of curation, and GiB of a
GPU; images per second in beam search (3 beams, 20 tokens); the share of the device's peak in matrix
products, measured here. Plain code repeats photo and prompt for each caption.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from bench_blip import build as build_blip
from bench_blip import make_batch as make_blip_batch
from bench_blip import plain_loss as plain_blip_loss
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from captioning.decoding.beam import BeamSearch
from captioning.models.adapt import add_low_rank
from captioning.models.base import AbstractCaptioner
from captioning.models.vlm import Vlm
from captioning.results.versions import versions
from captioning.text.tokenizers.image_text import ImageTextTokenizer
from captioning.types import Batch
from captioning.vision.prompt_tensors import PREFIX, PromptedProcessor
from curation.loop.ledger import LossLedger

PROMPT = "USER: <image>\nDescribe the image. ASSISTANT:"
SIZES = {
    "small": {
        "blip": {"layers": 2, "hidden": 128, "side": 96, "vocabulary": 2000},
        "vlm": {"vision": (64, 2), "side": 56, "text": (128, 2), "images": 4},
        "images": 4,
    },
    "full": {
        "blip": {"layers": 12, "hidden": 768, "side": 384, "vocabulary": 30524},
        "vlm": {"vision": (1024, 24), "side": 336, "text": (2048, 24), "images": 8},
        "images": 32,
    },
}
SEARCH = {"beam_size": 3, "max_length": 20, "min_length": 20}
LORA = {
    "rank": 16,
    "alpha": 32,
    "dropout": 0.0,
    "modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
}


class Case:
    """One model in both implementations.

    Args:
        ours: the captioner.
        batch: captions and photos, on the device.
        plain_loss: the usual way to its loss.
        plain_search: the usual way to its captions.
    """

    def __init__(
        self,
        *,
        ours: AbstractCaptioner,
        batch: Batch,
        plain_loss: Callable[[], Tensor],
        plain_search: Callable[[], Any],
    ) -> None:
        self.ours, self.batch = ours, batch
        self.plain_loss, self.plain_search = plain_loss, plain_search
        trainable = [p for p in ours.parameters() if p.requires_grad]
        fused = trainable[0].device.type == "cuda"
        self.optimizer = torch.optim.AdamW(trainable, lr=1e-6, fused=fused)
        self.ledger = LossLedger(num_samples=len(batch), device=trainable[0].device)


def blip_case(options: argparse.Namespace, captions: int) -> Case:
    """BLIP of `captioning.models.blip`, compared with `BlipForConditionalGeneration`."""
    sizes = SIZES[options.size]["blip"]
    images = options.images or SIZES[options.size]["images"]
    chosen = SimpleNamespace(**sizes, images=images, captions=captions, words=options.words)
    ours, theirs = build_blip(chosen)
    ours, theirs = ours.to(options.device), theirs.to(options.device)
    batch = make_blip_batch(chosen).to(options.device)
    settings = {"num_beams": 3, "max_new_tokens": 20, "min_new_tokens": 20}
    start = torch.tensor([[1, 2]], device=options.device).expand(images, -1)
    return Case(
        ours=ours,
        batch=batch,
        plain_loss=lambda: plain_blip_loss(theirs, batch),
        plain_search=lambda: theirs.generate(batch.images, input_ids=start.clone(), **settings),
    )


def vlm_case(options: argparse.Namespace, captions: int) -> Case:
    """LLaVA with LoRA, compared with calling the network as its documentation shows."""
    sizes = SIZES[options.size]["vlm"]
    with tempfile.TemporaryDirectory() as folder:
        save_llava(Path(folder), sizes)
        tokenizer = ImageTextTokenizer.of_model(name=folder, prompt=PROMPT)
        processor = PromptedProcessor(pretrained=folder, prompt=PROMPT)
        weights = "float32" if options.device == "cpu" else "bfloat16"
        search = BeamSearch.with_settings(**SEARCH)
        ours = Vlm(pretrained=folder, tokenizer=tokenizer, search=search, weights=weights)
    add_low_rank(ours, **LORA)
    ours = ours.to(options.device)
    images = options.images or sizes["images"]
    batch = vlm_batch(processor, tokenizer, images, captions, options.words).to(options.device)
    inputs = {name.removeprefix(PREFIX): value for name, value in batch.extras.items()}
    repeated = {name: value[batch.image_index] for name, value in inputs.items()}
    text, exist = batch.tokens[:, 1:], batch.token_mask[:, 1:]
    prompt = repeated["input_ids"].shape[1]
    full = {
        "input_ids": torch.cat([repeated["input_ids"], text], dim=1),
        "attention_mask": torch.cat([repeated["attention_mask"], exist.long()], dim=1),
        "pixel_values": repeated["pixel_values"],
    }
    labels = full["input_ids"].clone()
    labels[:, :prompt] = -100
    labels[:, prompt:].masked_fill_(~exist, -100)
    settings = {"num_beams": 3, "max_new_tokens": 20, "min_new_tokens": 20}
    return Case(
        ours=ours.train(),
        batch=batch,
        plain_loss=lambda: ours.network(**full, labels=labels).loss,
        plain_search=lambda: ours.network.generate(**inputs, **settings),
    )


def save_llava(folder: Path, sizes: dict[str, Any]) -> None:
    """Save network, tokenizer and processor in the hub's format."""
    special = ["<pad>", "</s>", "<s>", "<unk>", "<image>"]
    alphabet = sorted(ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*special, *alphabet])}
    backend = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.add_special_tokens(special)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        extra_special_tokens={"image_token": "<image>"},
    )
    vision, text = sizes["vision"], sizes["text"]
    config = transformers.LlavaConfig(
        vision_config={
            **transformer(*vision),
            "model_type": "clip_vision_model",
            "image_size": sizes["side"],
            "patch_size": 14,
        },
        text_config={
            **transformer(*text),
            "model_type": "llama",
            "num_key_value_heads": text[0] // 64,
            "vocab_size": 49152,
            "pad_token_id": 0,
            "bos_token_id": 2,
            "eos_token_id": 1,
        },
        image_token_index=4,
    )
    dtype = torch.bfloat16 if sizes["side"] > 100 else torch.float32
    transformers.LlavaForConditionalGeneration(config).to(dtype).save_pretrained(folder)
    square = {"height": sizes["side"], "width": sizes["side"]}
    photos = transformers.CLIPImageProcessor(
        size={"shortest_edge": sizes["side"]}, crop_size=square
    )
    transformers.LlavaProcessor(
        photos,
        tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    ).save_pretrained(folder)


def transformer(hidden: int, layers: int) -> dict[str, int]:
    """Sizes of a transformer with head size 64."""
    return {
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
    }


def vlm_batch(
    processor: PromptedProcessor,
    tokenizer: ImageTextTokenizer,
    images: int,
    captions: int,
    words: int,
) -> Batch:
    """Grey photos, and captions of ``words / 2`` to ``words`` tokens, longest first."""
    number = images * captions
    lengths = torch.linspace(words, words / 2, number).round().long()
    tokens = torch.randint(5, 261, (number, words + 2), generator=torch.Generator().manual_seed(0))
    places = torch.arange(words + 2)
    tokens[:, 0] = tokenizer.bos_id
    tokens[places == lengths[:, None] + 1] = tokenizer.eos_id
    mask = places < lengths[:, None] + 2
    photos = [Image.new("RGB", (640, 480), (number % 256, 90, 160)) for number in range(images)]
    return Batch(
        rows=torch.arange(number),
        sample_ids=tuple(map(str, range(number))),
        image_ids=tuple(map(str, range(images))),
        image_index=torch.arange(number) % images,
        tokens=tokens.masked_fill(~mask, tokenizer.pad_id),
        token_mask=mask,
        extras=processor.joined([processor.read_photo(photo) for photo in photos]),
    )


@contextmanager
def precision(device: str) -> Iterator[None]:
    """Use bfloat16 on a GPU, as ``trainer.precision=bf16-mixed`` does."""
    with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=device != "cpu"):
        yield


def seconds(function: Callable[[], Any], device: str) -> float:
    """Seconds of one call, including the device's work."""
    synchronise(device)
    begin = time.perf_counter()
    function()
    synchronise(device)
    return time.perf_counter() - begin


def synchronise(device: str) -> None:
    """Wait until the device has finished its work."""
    if device != "cpu":
        torch.accelerator.synchronize()


def step(case: Case, way: str, device: str) -> None:
    """Run forward pass, backward pass and update."""
    with precision(device):
        if way == "plain":
            loss = case.plain_loss()
        else:
            losses = case.ours.losses(case.batch)
            loss = losses.total
            if way == "ours with ledger":
                case.ledger.add(case.batch.rows, losses.per_sample)
    loss.backward()
    case.optimizer.step()
    case.optimizer.zero_grad()


@torch.no_grad()
def search(case: Case, way: str, device: str) -> None:
    """Beam search over the batch's photos."""
    with precision(device):
        if way == "plain":
            case.plain_search()
        else:
            case.ours.candidates(case.batch, search=BeamSearch.with_settings(**SEARCH))


def medians(
    run: Callable[[str], None], ways: tuple[str, ...], options: argparse.Namespace
) -> dict[str, float]:
    """Median seconds of each implementation, measured in turn after a warm-up round."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(options.rounds + 1):
        for way in ways:
            spent = seconds(lambda way=way: run(way), options.device)
            if number:
                times[way].append(spent)
    return {way: median(values) for way, values in times.items()}


def peak(device: str) -> float:
    """Floating-point operations per second of a large matrix product, best of five."""
    size, dtype = (8192, torch.bfloat16) if device != "cpu" else (1024, torch.float32)
    left = torch.randn(size, size, dtype=dtype, device=device)
    return 2 * size**3 / min(seconds(lambda: left @ left, device) for _ in range(5))


def gib(call: Callable[[], Any]) -> float:
    """Peak GPU memory of a call in GiB, including weights."""
    torch.cuda.reset_peak_memory_stats()
    call()
    return round(torch.cuda.max_memory_allocated() / 2**30, 2)


def measured(name: str, case: Case, captions: int, options: argparse.Namespace) -> dict[str, Any]:
    """Format one line of the results."""
    with torch.no_grad(), precision(options.device):
        losses = [case.ours.eval().losses(case.batch).total, case.plain_loss()]
    case.ours.train()
    counter = FlopCounterMode(display=False)
    with counter:
        step(case, "ours", options.device)
    ways = ("plain", "ours", "ours with ledger")
    training = medians(lambda way: step(case, way, options.device), ways, options)
    memory = (
        {"gib": {way: gib(lambda way=way: step(case, way, options.device)) for way in ways}}
        if options.device == "cuda"
        else {}
    )
    case.ours.eval()
    beams = medians(lambda way: search(case, way, options.device), ways[:2], options)
    number, images = len(case.batch), len(case.batch.image_ids)
    rate = counter.get_total_flops() / training["ours"]
    return {
        "what": f"{name}, {images} photos x {captions} captions",
        "losses": [round(float(loss), 4) for loss in losses],
        "captions_per_s": {way: round(number / spent, 2) for way, spent in training.items()},
        "times_plain": round(training["plain"] / training["ours"], 2),
        **memory,
        "ledger_share": round(training["ours with ledger"] / training["ours"] - 1, 4),
        "beam_images_per_s": {way: round(images / spent, 2) for way, spent in beams.items()},
        "beam_times_plain": round(beams["plain"] / beams["ours"], 2),
        "share_of_peak": round(rate / peak(options.device), 3),
    }


def main() -> None:
    """Measure each case with each number of captions per photo."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--cases", nargs="+", choices=["blip", "vlm"], default=["blip", "vlm"])
    parser.add_argument("--captions", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--images", type=int, default=0)
    parser.add_argument("--words", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if options.device == "auto":
        options.device = "cpu" if accelerator is None else accelerator.type
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    card = torch.cuda.get_device_name() if options.device == "cuda" else options.device
    print(json.dumps({"size": options.size, "device": card, **versions()}), flush=True)
    for name in options.cases:
        for captions in options.captions:
            case = {"blip": blip_case, "vlm": vlm_case}[name](options, captions)
            print(json.dumps(measured(name, case, captions, options)), flush=True)


if __name__ == "__main__":
    main()
