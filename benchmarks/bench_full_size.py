"""Benchmark captioners at the sizes of their papers: training steps, search and memory.

python benchmarks/bench_full_size.py [--models updown cos_cvae ...] [--precisions 32 tf32 bf16]
    [--rounds 5] [--photos 32] [--dropout torch|sample] [--cuda-graphs yes|no]
    [--device auto] [--size full|small] [--threads N]

BLIP reads ``--photos`` of 384 pixels a step. Regions are 36 of 2,048 numbers (CIC-BART: 9), ViECap
reads embeddings of texts; captions have COCO's lengths. Weights are random. ``small`` has a
hundredth of the weights, to try the script.

A line of JSON a model: captions per second in training (AdamW; losses go to curation's ledger), by
precision, and of the usual way to write the model where there is one, on the same weights and
batch, turn by turn; GiB of the GPU in training; photos per second in the search of the paper.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace

import bench_blip
import bench_cic_bart
import bench_updown
import bench_viecap
import torch
from bench_pretrained import medians
from torch import Tensor

from captioning.decoding.beam import BeamSearch
from captioning.decoding.latent_draws import LatentSearch
from captioning.decoding.search import AbstractSearch
from captioning.models.base import AbstractCaptioner
from captioning.models.cos_cvae import CosCvae
from captioning.models.updown import UpDown
from captioning.results.versions import versions
from captioning.runtime.devices import chosen_device
from captioning.runtime.sample_dropout import use_torchs
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Batch
from curation.loop.ledger import LossLedger

BEAM = {"beam_size": 5, "max_length": 20, "min_length": 20}
EMBEDDING = 512  # of CLIP's text encoder


@dataclass(kw_only=True)
class Case:
    """A captioner with its batch; ``plain_loss`` is the loss of the usual implementation."""

    model: AbstractCaptioner
    batch: Batch
    search: AbstractSearch
    plain_loss: Callable[[], Tensor] | None = None


def regions_batch(model: AbstractCaptioner, device: str, images: int, each: int) -> Batch:
    """Batch with photos of 36 regions, and captions with COCO's lengths."""
    sizes = {"images": images, "captions_per_image": each, "regions": 36, "feature_size": 2048}
    return bench_updown.make_batch(sizes, model.tokenizer).to(device)


def words(number: int) -> WordTokenizer:
    """Made-up vocabulary of a given size with two object words for COS-CVAE."""
    return WordTokenizer(words=["dog", "cat", *(f"w{place}" for place in range(number - 6))])


def updown(options: argparse.Namespace, settings: dict[str, int | float]) -> Case:
    """UpDown, compared with two LSTM cells under autograd."""
    sizes = {key: settings[key] for key in ("hidden_size", "attention_size", "embedding_size")}
    if options.size == "small":
        sizes = {key: value // 10 for key, value in sizes.items()}
    further = {key: settings[key] for key in ("projection_size", "dropout") if key in settings}
    model = UpDown(
        feature_size=2048,
        tokenizer=words(int(settings["vocabulary"])),
        search=BeamSearch.with_settings(**BEAM),
        **sizes,
        **further,
    ).to(options.device)
    plain = bench_updown.UsualUpDown(model, 2048).to(options.device)
    batch = regions_batch(model, options.device, images=30, each=5)
    return Case(
        model=model,
        batch=batch,
        search=BeamSearch.with_settings(**BEAM),
        plain_loss=lambda: plain.loss(batch),
    )


def cos_cvae(options: argparse.Namespace) -> Case:
    """COS-CVAE, which writes the best captions of 20 draws."""
    names = ("attention_lstm_size", "language_lstm_size", "attention_size", "embedding_size")
    sizes = dict.fromkeys(names, 64) if options.size == "small" else {}
    search = LatentSearch.with_settings(
        num_captions=20, max_length=20, min_length=20, beam_size=2, temperature=0.7
    )
    model = CosCvae(
        feature_size=2048,
        tokenizer=words(10_000),
        search=BeamSearch.with_settings(**BEAM),
        reduction="caption_sum",
        **sizes,
    ).to(options.device)
    batch = regions_batch(model, options.device, images=30, each=5)
    return Case(model=model, batch=batch, search=search)


def cic_bart(options: argparse.Namespace) -> Case:
    """CIC-BART on BART-base, compared with `BartForConditionalGeneration` on padded regions."""
    small = options.size == "small"
    sizes = {"layers": 6, "hidden": 64 if small else 768}
    chosen = SimpleNamespace(**sizes, images=100, captions=1, regions=4, words=12, vocabulary=50465)
    model = bench_cic_bart.build(chosen).to(options.device)
    batch = bench_cic_bart.make_batch(chosen)
    plain = bench_cic_bart.PlainCode(model)
    inputs = {name: value.to(options.device) for name, value in plain.collated(batch).items()}
    return Case(
        model=model,
        batch=batch.to(options.device),
        search=BeamSearch.with_settings(**BEAM),
        plain_loss=lambda: plain.loss(inputs),
    )


def viecap(options: argparse.Namespace) -> Case:
    """ViECap on GPT-2, trained on texts only; captions photos."""
    sizes = (
        {"layers": 1, "hidden": 64} if options.size == "small" else {"layers": 12, "hidden": 768}
    )
    chosen = SimpleNamespace(**sizes, vocabulary=50257, beam=5, words=20)
    model = bench_viecap.build(chosen).to(options.device)
    number = 80
    photos = regions_batch(model, "cpu", images=number, each=1)
    generator = torch.Generator().manual_seed(2)
    entities = torch.randint(bench_viecap.NUM_ENTITIES, (number, 3), generator=generator)
    embeddings = torch.randn(number, EMBEDDING, generator=generator).half()
    batch = replace(
        photos,
        regions=torch.randn(number, 1, EMBEDDING, generator=generator),
        extras={"text_embeddings": embeddings, "text_entities": entities},
    )
    return Case(
        model=model,
        batch=batch.to(options.device),
        search=BeamSearch.with_settings(**BEAM),
    )


def blip(options: argparse.Namespace) -> Case:
    """BLIP-base at 384 pixels, compared with `BlipForConditionalGeneration`."""
    sizes = {"layers": 12, "hidden": 768, "side": 384}
    if options.size == "small":
        sizes = {"layers": 2, "hidden": 128, "side": 96}
    chosen = SimpleNamespace(**sizes, images=options.photos, captions=1, words=12, vocabulary=30524)
    ours, theirs = bench_blip.build(chosen)
    ours, theirs = ours.to(options.device), theirs.to(options.device)
    batch = bench_blip.make_batch(chosen).to(options.device)
    return Case(
        model=ours,
        batch=batch,
        search=BeamSearch.with_settings(**BEAM | {"beam_size": 3}),
        plain_loss=lambda: bench_blip.plain_loss(theirs, batch),
    )


CASES: dict[str, Callable[[argparse.Namespace], Case]] = {
    "updown": lambda options: updown(options, bench_updown.RUOTIANLUO),
    "updown_nocaps": lambda options: updown(options, bench_updown.NOCAPS),
    "cos_cvae": cos_cvae,
    "cic_bart": cic_bart,
    "viecap": viecap,
    "blip": blip,
}


@contextmanager
def computing(precision: str, device: str) -> Iterator[None]:
    """Context manager: float32 or TF32 matrix products, or bfloat16 as in ``bf16-mixed``."""
    torch.set_float32_matmul_precision("highest" if precision == "32" else "high")
    with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=precision == "bf16"):
        yield
    torch.set_float32_matmul_precision("highest")


def measured(case: Case, options: argparse.Namespace) -> dict[str, object]:
    """Median times, measured in turn after a warm-up round."""
    device, number = options.device, len(case.batch)
    case.model.train()
    parameters = [part for part in case.model.parameters() if part.requires_grad]
    on_gpu = torch.device(device).type == "cuda"
    optimizer = torch.optim.AdamW(parameters, lr=1e-6, fused=on_gpu)
    ledger = LossLedger(num_samples=number, device=torch.device(device))

    gib = {}

    def step(way: str) -> None:
        kind, precision = way.split()
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        with computing(precision, device):
            if kind == "usual" and case.plain_loss is not None:
                loss = case.plain_loss()
            else:
                losses = case.model.losses(case.batch)
                loss = losses.total
                ledger.add(case.batch.rows, losses.per_sample.detach())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if on_gpu:
            gib[way] = round(torch.cuda.max_memory_allocated() / 2**30, 2)

    kinds = ("ours",) if case.plain_loss is None else ("usual", "ours")
    ways = [f"{kind} {precision}" for precision in options.precisions for kind in kinds]
    training = medians(step, tuple(ways), options)
    case.model.eval()

    @torch.inference_mode()
    def search(precision: str) -> None:
        with computing(precision, device):
            case.model.candidates(case.batch, search=case.search)

    searching = medians(search, tuple(options.precisions), options)
    photos = len(case.batch.image_ids)
    return {
        "captions_a_step": number,
        "captions_per_s": {way: round(number / spent) for way, spent in training.items()},
        "gib": gib,
        "photos_per_s": {name: round(photos / spent, 1) for name, spent in searching.items()},
    }


def main() -> None:
    """Print one line for each model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument(
        "--precisions", nargs="+", choices=["32", "tf32", "bf16"], default=["32", "tf32", "bf16"]
    )
    parser.add_argument("--photos", type=int, default=32, help="batch size of BLIP")
    parser.add_argument("--dropout", choices=["sample", "torch"], default="torch")
    parser.add_argument("--cuda-graphs", choices=["yes", "no"], default="yes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--size", choices=["full", "small"], default="full")
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    options.device = str(chosen_device(options.device))
    print(json.dumps({"size": options.size, "device": options.device, **versions()}), flush=True)
    use_torchs(options.dropout == "torch")
    for name in options.models:
        torch.manual_seed(0)
        case = CASES[name](options)
        if options.cuda_graphs == "yes":
            case.model.use_cuda_graphs()
        print(json.dumps({"model": name, **measured(case, options)}), flush=True)


if __name__ == "__main__":
    main()
