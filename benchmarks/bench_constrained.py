"""Benchmark constrained beam search with UpDown against the published implementation.

    python benchmarks/bench_constrained.py [--threads 2] [--rounds 3] [--images 16] [--bf16]

Sizes are those of nocaps-org/updown-baseline with constraints (words of 300 dimensions, output tied
to them); each image has three one-word constraints with two forms each, so eight states, of which
two constraints must be met; beam 5, two continuations of a hypothesis into a state, 20 steps.

"As published" searches all eight states with five beams each from the second step on and projects
the image features anew at every step and for every beam. Both sides run in one process on the same
weights and data, and must return the same captions. The first row's random weights never end a
caption early, so all steps are made; the second row's end captions after some ten words, as trained
ones do: then hypotheses that cannot win any more are dropped. (There the published search is left
out: its ended hypotheses keep their places in the beam, which is another search.)

Multiply-adds are counted from the rows that each layer was given; the share of the peak is against
the best matrix product of this machine, measured in the same run.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable

import torch
from bench_updown import NOCAPS, best_time, make_batch, matrix_peak
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from captioning.decoding.beam import BeamSearch
from captioning.decoding.constrained import ConstrainedBeamSearch
from captioning.decoding.machine import Machine, build_machine
from captioning.decoding.settings import SearchRequest
from captioning.interfaces import AbstractDecoderState, AbstractStepper
from captioning.models.updown import UpDown
from captioning.results.versions import versions
from captioning.text.tokenizers.words import WordTokenizer
from captioning.training.preflight import fast_bfloat16
from captioning.types import Batch

BEAM, PER_NODE, STEPS, CONSTRAINTS, FORMS, REQUIRED = 5, 2, 20, 3, 2, 2
PUBLISHED_PEER = 0.55  # images a second of the original, on two shared cores
SIZES = {"hidden_size": 1200, "attention_size": 768, "embedding_size": 300, "feature_size": 2048}
DEAD = float("-inf")


def build(tokenizer: WordTokenizer) -> UpDown:
    torch.manual_seed(0)
    search = BeamSearch.with_settings(beam_size=BEAM, max_length=STEPS)
    model = UpDown(**SIZES, tied=True, tokenizer=tokenizer, search=search).eval()
    with torch.no_grad():
        # Never produced, whatever the picture: a caption goes on until its last step.
        model.embed.weight[tokenizer.eos_id] = 0
        model.embed.weight[4:] *= 0.3
    return model


class Ending(AbstractStepper):
    """Model that, after ten words, ends a caption with the same probability as it continues."""

    def __init__(self, model: UpDown) -> None:
        self.model, self.length = model, 0

    def step(
        self, tokens: Tensor, state: AbstractDecoderState
    ) -> tuple[Tensor, AbstractDecoderState]:
        log_probs, state = self.model.step(tokens, state)
        self.length += 1
        if self.length > 10:
            log_probs[:, self.model.tokenizer.eos_id] = log_probs.amax(1)
        return log_probs, state


def cell_of(model: UpDown, inputs: list[Tensor], recurrent: Tensor, bias: Tensor) -> nn.LSTMCell:
    """LSTM cell with this framework's gate order: input, forget, output, candidate."""
    hidden = recurrent.shape[1]
    order = torch.arange(4 * hidden).view(4, hidden)[[0, 1, 3, 2]].flatten()
    weight = torch.cat(inputs, 1)[order]
    cell = nn.LSTMCell(weight.shape[1], hidden)
    cell.weight_ih.data, cell.weight_hh.data = weight, recurrent[order]
    cell.bias_ih.data, cell.bias_hh.data = bias[order], torch.zeros_like(bias)
    return cell


class Published(nn.Module):
    """UpDown step by step, with the weights of this framework's model."""

    def __init__(self, model: UpDown) -> None:
        super().__init__()
        hidden, size = SIZES["hidden_size"], SIZES["feature_size"]
        h2_part, h1_part = model.hidden_to_gates.weight.detach().split(hidden, 1)
        words, mean = model.words_to_gates.weight.detach(), model.mean_to_gates.weight.detach()
        language, bias = model.language.weight.detach(), model.words_to_gates.bias.detach()
        # The published cell reads both hidden states; its own is read by the recurrence too.
        inputs = [words, mean, torch.zeros_like(h1_part), h2_part]
        self.attend = cell_of(model, inputs, h1_part, bias)
        self.speak = cell_of(
            model, [language[:, : size + hidden]], language[:, size + hidden :], model.language.bias
        )
        self.model, self.hidden = model, hidden

    def begin(self, rows: int) -> tuple[Tensor, ...]:
        return tuple(torch.zeros(rows, self.hidden) for _ in range(4))

    def step(self, words: Tensor, regions: Tensor, state: tuple[Tensor, ...]) -> tuple:
        (h1, c1, h2, c2), model = state, self.model
        inputs = torch.cat([model.embed(words), regions.mean(1), h1, h2], 1)
        h1, c1 = self.attend(inputs, (h1, c1))
        seen = torch.tanh(model.key(regions) + model.query(h1).unsqueeze(1))
        alpha = (seen @ model.score).softmax(1)
        context = (alpha.unsqueeze(2) * regions).sum(1)
        h2, c2 = self.speak(torch.cat([context, h1], 1), (h2, c2))
        logits = functional.linear(model.to_embedding(h2), model.embed.weight)
        return functional.log_softmax(logits, 1), (h1, c1, h2, c2)

    def search(self, batch: Batch, words: Tensor) -> list[list[int]]:
        """Search all states of all images at every step, with transitions as vocabulary masks."""
        tokenizer, states = self.model.tokenizer, 2**CONSTRAINTS
        images, vocabulary = len(words), len(tokenizer)
        allowed = transition_masks(words, vocabulary)
        allowed[..., [tokenizer.unk_id, tokenizer.pad_id, tokenizer.bos_id]] = False
        log_probs, state = self.step(
            torch.full((images,), tokenizer.bos_id), batch.regions, self.begin(images)
        )
        first = log_probs[:, None].masked_fill(~allowed[:, 0], DEAD)
        scores, last = first.topk(BEAM, 2)  # (I, S, K)
        captions = last.flatten(1)[..., None]
        width = states * BEAM
        state = tuple(part.repeat_interleave(width, 0) for part in state)
        regions = batch.regions.repeat_interleave(width, 0)
        for _ in range(STEPS - 1):
            log_probs, state = self.step(captions[..., -1].flatten(), regions, state)
            scores, places, tokens = pick(log_probs.view(images, width, -1), scores, allowed)
            rows = (torch.arange(images)[:, None] * width + places).flatten()
            state = tuple(part[rows] for part in state)
            before = captions.flatten(0, 1)[rows].view(images, width, -1)
            captions = torch.cat([before, tokens[..., None]], 2)
        met = torch.tensor([bin(number).count("1") for number in range(states)])
        scores = scores.masked_fill(met[:, None] < REQUIRED, DEAD).flatten(1)
        return captions[torch.arange(images), scores.argmax(1)].tolist()


def pick(log_probs: Tensor, scores: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores ``(I, S, K)``, parents and tokens ``(I, S * K)`` of the best options in each state."""
    images, states = allowed.shape[:2]
    new_scores, places, tokens = [], [], []
    for target in range(states):
        mask = allowed[:, :, target].repeat_interleave(BEAM, dim=1)
        values, words = log_probs.masked_fill(~mask, DEAD).topk(PER_NODE, 2)
        totals = (scores.view(images, -1, 1) + values).flatten(1)
        best, where = totals.topk(BEAM, 1)
        new_scores.append(best)
        places.append(where // PER_NODE)
        tokens.append(words.flatten(1).gather(1, where))
    return torch.stack(new_scores, 1), torch.cat(places, 1), torch.cat(tokens, 1)


def transition_masks(words: Tensor, vocabulary: int) -> Tensor:
    """Masks ``(I, S, S, V) bool``: whether a token leads from the first state to the second."""
    images, states = len(words), 2**CONSTRAINTS
    masks = torch.zeros(images, states, states, vocabulary, dtype=torch.bool)
    for source in range(states):
        masks[:, source, source] = True
        for number in range(CONSTRAINTS):
            target = source | 1 << number
            if target != source:
                column = words[:, number]
                masks[:, source, target].scatter_(
                    1, column, torch.ones_like(column, dtype=torch.bool)
                )
                masks[:, source, source].scatter_(
                    1, column, torch.zeros_like(column, dtype=torch.bool)
                )
    return masks


def draw_words(images: int, vocabulary: int) -> Tensor:
    """Draw distinct words ``(I, CONSTRAINTS, FORMS)`` for each image."""
    generator = torch.Generator().manual_seed(1)
    words = [torch.randperm(vocabulary - 4, generator=generator) + 4 for _ in range(images)]
    return torch.stack([row[: CONSTRAINTS * FORMS].view(CONSTRAINTS, FORMS) for row in words])


def machines_of(words: Tensor) -> list[Machine]:
    """Build one state machine for each image."""
    phrases = [[[(word,) for word in forms] for forms in row] for row in words.tolist()]
    return [build_machine(constraints, required=REQUIRED) for constraints in phrases]


def ours(model: UpDown, batch: Batch, words: Tensor, ends: bool = False) -> list[list[int]]:
    tokenizer = model.tokenizer
    request = SearchRequest(
        num_images=len(words),
        machines=machines_of(words),
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        pad_id=tokenizer.pad_id,
    )
    search = ConstrainedBeamSearch.with_settings(
        beam_size=BEAM,
        per_node_beam=PER_NODE,
        forbidden_ids=(tokenizer.unk_id,),
        max_length=STEPS,
    )
    result = search(Ending(model) if ends else model, model.start(batch), request)
    return [
        row[:length]
        for row, length in zip(
            result.tokens[:, 0].tolist(), result.lengths[:, 0].tolist(), strict=True
        )
    ]


def counted(function: Callable[[], list]) -> tuple[list, float]:
    """Return a call's result and its multiply-adds."""
    with FlopCounterMode(display=False) as counter:
        result = function()
    return result, counter.get_total_flops() / 2


def measure(args: argparse.Namespace, dtype: torch.dtype, ends: bool) -> dict:
    """Time both searches in turn and keep the best; only this framework's if captions end."""
    tokenizer = WordTokenizer(words=[f"w{i}" for i in range(NOCAPS["vocabulary"] - 4)])
    model = build(tokenizer)
    batch = make_batch({**NOCAPS, "images": args.images}, tokenizer)
    words = draw_words(args.images, len(tokenizer))
    search = functools.partial(ours, model, batch, words, ends)
    published = functools.partial(Published(model).search, batch, words)
    half = dtype is torch.bfloat16
    best, reference, peak = float("inf"), float("inf"), 0.0
    began, rounds = time.perf_counter(), 0
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=half):
        captions, macs = counted(search)
        while rounds < args.rounds and (not rounds or time.perf_counter() - began < args.seconds):
            best = min(best, best_time(search, 1))
            peak = max(peak, matrix_peak(dtype))
            rounds += 1
            if not ends and not half:
                start = time.perf_counter()
                expected, their_macs = counted(published)
                reference = min(reference, time.perf_counter() - start)
    row = {
        "captions": "end by themselves" if ends else "of 20 words, all steps",
        "dtype": str(dtype).removeprefix("torch."),
        "rounds": rounds,
        "mean_length": sum(map(len, captions)) / len(captions),
        "ours_per_s": round(args.images / best, 2),
        "published_peer_per_s": PUBLISHED_PEER,
        "times_peer": round(args.images / best / PUBLISHED_PEER, 2),
        "giga_multiply_adds_per_image": round(macs / 1e9 / args.images, 2),
        "share_of_peak": round(macs / best / peak, 2),
        "peak_giga_multiply_adds_per_s": round(peak / 1e9, 1),
    }
    if not ends and not half:
        row |= {
            "as_published_per_s": round(args.images / reference, 2),
            "times_as_published": round(reference / best, 2),
            "as_published_giga_multiply_adds_per_image": round(their_macs / 1e9 / args.images, 2),
            "same_captions": f"{sum(map(list.__eq__, captions, expected))}/{args.images}",
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=100, help="no new round after this")
    parser.add_argument("--images", type=int, default=16)
    # Emulated where the processor has no instructions for it: the output says so.
    parser.add_argument("--bf16", action="store_true", help="also measure bfloat16 autocast")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(json.dumps({**versions(), "threads": args.threads, "images": args.images}))
    print(json.dumps({"bfloat16_instructions": fast_bfloat16("cpu")}))
    rows = [(torch.float32, False), (torch.float32, True)]
    if args.bf16:
        rows.append((torch.bfloat16, False))
    for dtype, ends in rows:
        print(json.dumps(measure(args, dtype, ends)), flush=True)


if __name__ == "__main__":
    main()
