"""Benchmark UpDown's training steps and beam search against a straightforward implementation.

    python benchmarks/bench_updown.py [--threads 2] [--repeat 3] [--bf16]

Both sides run in the same process on the same data. "The usual way" is UpDown with two LSTM cells,
captions padded to their longest and the mean feature fed at every step, differentiated by autograd.
In the nocaps form it projects image features anew at every step (and for every beam), in the
ruotianluo form once an image, as the originals do. Multiply-adds are counted for
our side; the share of the peak is against the best matrix product of this machine, measured in the
same run.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioning.decoding.beam import BeamSearch
from captioning.models.updown import UpDown
from captioning.results.versions import versions
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Batch

# Published speeds of the originals on two shared cores, captions or images a second.
NOCAPS = {
    "hidden_size": 1200, "attention_size": 768, "embedding_size": 1000, "feature_size": 2048,
    "vocabulary": 10_000, "regions": 36, "images": 32, "captions_per_image": 1,
}  # fmt: skip
RUOTIANLUO = {
    "hidden_size": 1000, "attention_size": 512, "embedding_size": 1000, "feature_size": 2048,
    "projection_size": 1000, "dropout": 0.5, "vocabulary": 9_487, "regions": 36, "images": 10,
    "captions_per_image": 5,
}  # fmt: skip
MAX_WORDS = 19


class UsualUpDown(nn.Module):
    """Usual implementation of UpDown, step by step."""

    def __init__(self, model: UpDown, feature_size: int) -> None:
        super().__init__()
        hidden = model.hidden_to_gates.out_features // 4
        size = model.embed.embedding_dim
        values = model.key.in_features
        self.project = nn.Linear(feature_size, values) if model.project is not None else None
        self.embed = nn.Embedding(model.embed.num_embeddings, size)
        self.attend = nn.LSTMCell(size + values + 2 * hidden, hidden)
        self.speak = nn.LSTMCell(values + 2 * hidden, hidden)
        self.key = nn.Linear(values, model.key.out_features, bias=False)
        self.query = nn.Linear(hidden, model.key.out_features, bias=False)
        self.score = nn.Linear(model.key.out_features, 1, bias=False)
        self.output = nn.Linear(hidden, model.embed.num_embeddings)
        self.dropout = nn.Dropout(model.dropout.p)
        self.hidden = hidden

    def begin(self, rows: int) -> tuple[Tensor, ...]:
        return tuple(
            torch.zeros(rows, self.hidden, device=self.output.weight.device) for _ in range(4)
        )

    def look(self, regions: Tensor) -> tuple[Tensor, Tensor]:
        """Compute values and keys of the regions."""
        values = regions
        if self.project is not None:
            values = self.dropout(functional.relu(self.project(regions)))
        return values, self.key(values)

    def step(self, words: Tensor, seen: tuple[Tensor, Tensor], state: tuple[Tensor, ...]) -> tuple:
        (values, keys), (h1, c1, h2, c2) = seen, state
        inputs = torch.cat([self.dropout(self.embed(words)), values.mean(1), h1, h2], 1)
        h1, c1 = self.attend(inputs, (h1, c1))
        scores = self.score(torch.tanh(keys + self.query(h1).unsqueeze(1)))
        context = (scores.softmax(1) * values).sum(1)
        h2, c2 = self.speak(torch.cat([context, h1, h2], 1), (h2, c2))
        log_probs = functional.log_softmax(self.output(self.dropout(h2)), 1)
        return log_probs, (h1, c1, h2, c2)

    def loss(self, batch: Batch) -> Tensor:
        state, total = self.begin(len(batch)), 0.0
        if self.project is not None:
            seen = tuple(part[batch.image_index] for part in self.look(batch.regions))
        for t in range(batch.tokens.shape[1] - 1):
            if self.project is None:
                seen = self.look(batch.regions[batch.image_index])
            log_probs, state = self.step(batch.tokens[:, t], seen, state)
            nll = -log_probs.gather(1, batch.tokens[:, t + 1 : t + 2]).squeeze(1)
            total = total + (nll * batch.token_mask[:, t + 1]).sum()
        return total / batch.token_mask[:, 1:].sum()

    def beam(self, batch: Batch, beam: int, bos: int) -> None:
        images, vocabulary = len(batch.image_ids), self.output.out_features
        state = self.begin(images)
        first = torch.full((images,), bos)
        log_probs, state = self.step(first, self.look(batch.regions), state)
        scores, words = log_probs.topk(beam, 1)
        state = tuple(s.repeat_interleave(beam, 0) for s in state)
        regions = batch.regions.repeat_interleave(beam, 0)
        for _ in range(MAX_WORDS):
            log_probs, state = self.step(words.flatten(), self.look(regions), state)
            totals = scores.unsqueeze(2) + log_probs.view(images, beam, vocabulary)
            scores, places = totals.flatten(1).topk(beam, 1)
            words = places % vocabulary
            rows = (torch.arange(images).unsqueeze(1) * beam + places // vocabulary).flatten()
            state = tuple(s[rows] for s in state)


def make_batch(settings: dict[str, int], tokenizer: WordTokenizer) -> Batch:
    """Random features and words; caption lengths as in COCO (mean 10.5 words, at most 19)."""
    generator = torch.Generator().manual_seed(0)
    images, each = settings["images"], settings["captions_per_image"]
    number = images * each
    lengths = (torch.randn(number, generator=generator) * 2.4 + 10.5).round().clamp(5, MAX_WORDS)
    width = int(lengths.max()) + 2
    tokens = torch.randint(4, len(tokenizer), (number, width), generator=generator)
    mask = torch.arange(width).unsqueeze(0) < (lengths + 2).unsqueeze(1)
    tokens[:, 0] = tokenizer.bos_id
    tokens[torch.arange(number), lengths.long() + 1] = tokenizer.eos_id
    tokens[~mask] = tokenizer.pad_id
    return Batch(
        rows=torch.arange(number),
        sample_ids=tuple(map(str, range(number))),
        image_ids=tuple(map(str, range(images))),
        image_index=torch.arange(images).repeat_interleave(each),
        regions=torch.randn(
            images, settings["regions"], settings["feature_size"], generator=generator
        ),
        tokens=tokens,
        token_mask=mask,
    )


def multiply_adds(model: UpDown, batch: Batch) -> tuple[float, float]:
    """Multiply-adds of a forward pass; image and token products are computed once."""
    tokens = int(batch.token_mask[:, 1:].sum())
    images, regions, size = batch.regions.shape
    values, attention = model.key.in_features, model.key.out_features
    hidden = model.hidden_to_gates.out_features // 4
    per_image = regions * values * attention + values * 4 * hidden
    if model.project is not None:
        per_image += regions * size * values
    per_token = sum(
        layer.weight.numel()
        for layer in (model.words_to_gates, model.hidden_to_gates, model.query, model.language)
    )
    per_token += regions * (attention + values) + hidden * len(model.tokenizer)
    return images * per_image, tokens * per_token


def best_time(function: Callable[[], None], repeat: int) -> float:
    """Seconds of the fastest of some calls, after a warm-up call."""
    function()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def matrix_peak(dtype: torch.dtype) -> float:
    """Multiply-adds per second of the best matrix product tried."""
    best = 0.0
    for rows, inner, columns in ((2048, 2048, 2048), (1024, 1024, 4096), (512, 2048, 2048)):
        a, b = torch.randn(rows, inner).to(dtype), torch.randn(columns, inner).to(dtype)
        seconds = best_time(functools.partial(functional.linear, a, b), 8)
        best = max(best, rows * inner * columns / seconds)
    return best


def build(settings: dict[str, int], tokenizer: WordTokenizer) -> UpDown:
    skipped = ("vocabulary", "regions", "images", "captions_per_image")
    sizes = {key: value for key, value in settings.items() if key not in skipped}
    search = BeamSearch.with_settings(beam_size=5, max_length=20)
    torch.manual_seed(0)
    return UpDown(**sizes, tokenizer=tokenizer, search=search)


def train_step(loss: Callable[[], Tensor], optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()


def measure(name: str, settings: dict[str, int], peer: float, args: argparse.Namespace) -> dict:
    """Time training steps of both implementations in turn."""
    tokenizer = WordTokenizer(words=[f"w{i}" for i in range(settings["vocabulary"] - 4)])
    model, batch = build(settings, tokenizer), make_batch(settings, tokenizer)
    usual = UsualUpDown(model, settings["feature_size"])
    ours_step = functools.partial(
        train_step, lambda: model.losses(batch).total, torch.optim.SGD(model.parameters(), lr=1e-3)
    )
    usual_step = functools.partial(
        train_step, lambda: usual.loss(batch), torch.optim.SGD(usual.parameters(), lr=1e-3)
    )
    dtype = torch.bfloat16 if args.bf16 else torch.float32
    with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
        ours, theirs = best_time(ours_step, args.repeat), best_time(usual_step, args.repeat)
    image_macs, token_macs = multiply_adds(model, batch)
    # Backward: gradients of inputs and of weights; frozen image features need only the latter.
    macs = (2 if model.project is None else 2.2) * image_macs + 3 * token_macs
    peak = matrix_peak(dtype)
    return {
        "what": f"training step, {name}",
        "ours_per_s": round(len(batch) / ours, 1),
        "usual_way_per_s": round(len(batch) / theirs, 1),
        "times_usual_way": round(theirs / ours, 2),
        "published_peer_per_s": peer,
        "times_peer": round(len(batch) / ours / peer, 2),
        "giga_multiply_adds": round(macs / 1e9, 1),
        "share_of_peak": round(macs / ours / peak, 2),
        "peak_giga_multiply_adds_per_s": round(peak / 1e9, 1),
    }


def measure_beam(args: argparse.Namespace) -> dict:
    """Beam 5 over 32 images for 20 steps; with random weights, hypotheses rarely end early."""
    tokenizer = WordTokenizer(words=[f"w{i}" for i in range(NOCAPS["vocabulary"] - 4)])
    model, batch = build(NOCAPS, tokenizer).eval(), make_batch(NOCAPS, tokenizer)
    usual = UsualUpDown(model, NOCAPS["feature_size"]).eval()
    with torch.inference_mode():
        ours = best_time(lambda: model.generate(batch), args.repeat)
        theirs = best_time(lambda: usual.beam(batch, 5, tokenizer.bos_id), 1)
    image_macs, _ = multiply_adds(model, batch)
    _, token_macs = multiply_adds(model, batch)
    tokens = int(batch.token_mask[:, 1:].sum())
    macs = image_macs + token_macs / tokens * len(batch.image_ids) * (1 + 19 * 5)
    images = len(batch.image_ids)
    return {
        "what": "beam 5, nocaps sizes, 20 steps",
        "ours_per_s": round(images / ours, 2),
        "usual_way_per_s": round(images / theirs, 2),
        "times_usual_way": round(theirs / ours, 2),
        "published_peer_per_s": 4.4,
        "times_peer": round(images / ours / 4.4, 2),
        "giga_multiply_adds": round(macs / 1e9, 1),
        "share_of_peak": round(macs / ours / matrix_peak(torch.float32), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--bf16", action="store_true", help="train in bfloat16 autocast")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(json.dumps({**versions(), "threads": args.threads, "bf16": args.bf16}))
    print(json.dumps(measure("nocaps sizes, 32 captions", NOCAPS, 5.3, args)))
    print(json.dumps(measure("ruotianluo form, 10 x 5 captions", RUOTIANLUO, 27.0, args)))
    print(json.dumps(measure_beam(args)))


if __name__ == "__main__":
    main()
