"""Speed of constrained beam search with UpDown, beside the usual way of writing it.

    python benchmarks/bench_constrained.py [--threads 2] [--repeat 3] [--images 8] [--bf16]

Sizes are those of nocaps-org/updown-baseline; each image has three one-word constraints with two
forms each, so eight states; beam 5, 20 steps, random weights that seldom end a caption. "The usual
way" keeps all eight beams of five from the first step on and projects the image features anew at
every step and for every beam; both sides run in one process on the same data. Multiply-adds are
counted for our side, from the rows that it stepped; the share of the peak is against the best
matrix product of this machine, measured in the same run.
"""

from __future__ import annotations

import argparse
import json

import torch
from bench_updown import NOCAPS, UsualUpDown, best_time, build, make_batch, matrix_peak
from torch import Tensor

from captioning.data.tokenizers import WordTokenizer
from captioning.decoding.constrained import constrained_beam_search
from captioning.decoding.machine import Machine, build_machine
from captioning.interfaces import AbstractDecoderState, AbstractStepper
from captioning.models.updown import UpDown
from captioning.training.folder import versions
from captioning.types import Batch

BEAM, STEPS, CONSTRAINTS, FORMS = 5, 20, 3, 2
PUBLISHED_PEER = 0.55  # images a second of the original, on two shared cores


class CountedStepper(AbstractStepper):
    """A model that counts the rows it is asked to step."""

    def __init__(self, model: UpDown) -> None:
        self.model, self.rows = model, 0

    def step(
        self, tokens: Tensor, state: AbstractDecoderState
    ) -> tuple[Tensor, AbstractDecoderState]:
        self.rows += len(tokens)
        return self.model.step(tokens, state)


def draw_words(images: int, vocabulary: int) -> Tensor:
    """Distinct words ``(I, CONSTRAINTS, FORMS)`` for each image."""
    generator = torch.Generator().manual_seed(1)
    words = [torch.randperm(vocabulary - 4, generator=generator) + 4 for _ in range(images)]
    return torch.stack([row[: CONSTRAINTS * FORMS].view(CONSTRAINTS, FORMS) for row in words])


def machines_of(words: Tensor) -> list[Machine]:
    """One machine an image; none of its states is left out."""
    return [build_machine([[(w,) for w in forms] for forms in row]) for row in words.tolist()]


def usual_way(usual: UsualUpDown, batch: Batch, words: Tensor, bos: int) -> None:
    """All states of all images at every step; transitions as a mask over the vocabulary."""
    images, vocabulary, states = len(words), usual.output.out_features, 2**CONSTRAINTS
    allowed = transition_masks(words, vocabulary)
    width = states * BEAM
    state = usual.begin(images * width)
    regions = batch.regions.repeat_interleave(width, 0)
    last = torch.full((images * width,), bos)
    scores = torch.full((images, states, BEAM), float("-inf"))
    scores[:, 0, 0] = 0
    for _ in range(STEPS):
        log_probs, state = usual.step(last, usual.look(regions), state)
        totals = scores.flatten(1)[..., None] + log_probs.view(images, width, vocabulary)
        picked = []
        for target in range(states):
            mask = allowed[:, :, target].repeat_interleave(BEAM, dim=1)
            some = totals.masked_fill(~mask, float("-inf")).flatten(1).topk(BEAM, 1)
            picked.append((some.values, some.indices))
        scores = torch.stack([values for values, _ in picked], 1)
        places = torch.stack([where for _, where in picked], 1).flatten(1)
        last = (places % vocabulary).flatten()
        rows = (torch.arange(images)[:, None] * width + places // vocabulary).flatten()
        state = tuple(part[rows] for part in state)


def transition_masks(words: Tensor, vocabulary: int) -> Tensor:
    """``(I, S, S, V) bool``: whether a token leads from the first state to the second."""
    images, states = len(words), 2**CONSTRAINTS
    masks = torch.zeros(images, states, states, vocabulary, dtype=torch.bool)
    for source in range(states):
        masks[:, source, source] = True
        for number in range(CONSTRAINTS):
            target = source | 1 << number
            if target != source:
                some = words[:, number]
                masks[:, source, target].scatter_(1, some, torch.ones_like(some, dtype=torch.bool))
                masks[:, source, source].scatter_(1, some, torch.zeros_like(some, dtype=torch.bool))
    return masks


def multiply_adds(model: UpDown, batch: Batch, rows: int) -> float:
    """Products done once an image, and for each row of a step."""
    images, regions, _ = batch.regions.shape
    values, attention = model.key.in_features, model.key.out_features
    hidden = model.hidden_to_gates.out_features // 4
    layers = (model.words_to_gates, model.hidden_to_gates, model.query, model.language)
    per_row = sum(layer.weight.numel() for layer in layers)
    per_row += regions * (attention + values) + hidden * len(model.tokenizer)
    per_image = regions * values * attention + values * 4 * hidden
    return images * per_image + rows * per_row


def measure(args: argparse.Namespace) -> dict:
    """Both ways, side by side."""
    settings = {**NOCAPS, "images": args.images}
    tokenizer = WordTokenizer(words=[f"w{i}" for i in range(settings["vocabulary"] - 4)])
    model, batch = build(settings, tokenizer).eval(), make_batch(settings, tokenizer)
    usual = UsualUpDown(model, settings["feature_size"]).eval()
    words = draw_words(args.images, settings["vocabulary"])
    stepper, calls = CountedStepper(model), []

    def ours() -> None:
        calls.append(
            constrained_beam_search(
                stepper,
                model.start(batch),
                num_images=args.images,
                machines=machines_of(words),
                beam_size=BEAM,
                bos_id=tokenizer.bos_id,
                eos_id=tokenizer.eos_id,
                pad_id=tokenizer.pad_id,
                forbidden_ids=(tokenizer.unk_id,),
                max_length=STEPS,
            )
        )

    dtype = torch.bfloat16 if args.bf16 else torch.float32
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
        seconds = best_time(ours, args.repeat)
        theirs = best_time(lambda: usual_way(usual, batch, words, tokenizer.bos_id), 1)
    rows = stepper.rows / len(calls)
    macs, peak = multiply_adds(model, batch, rows), matrix_peak(dtype)
    return {
        "what": "constrained search: 3 constraints, beam 5, nocaps sizes, 20 steps",
        "bf16": args.bf16,
        "ours_per_s": round(args.images / seconds, 2),
        "usual_way_per_s": round(args.images / theirs, 2),
        "times_usual_way": round(theirs / seconds, 2),
        "published_peer_per_s": PUBLISHED_PEER,
        "times_peer": round(args.images / seconds / PUBLISHED_PEER, 2),
        "rows_per_image_and_step": round(rows / args.images / STEPS, 1),
        "giga_multiply_adds": round(macs / 1e9, 1),
        "share_of_peak": round(macs / seconds / peak, 2),
        "peak_giga_multiply_adds_per_s": round(peak / 1e9, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--bf16", action="store_true", help="a second row in bfloat16 autocast")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(json.dumps({**versions(), "threads": args.threads}))
    for bf16 in (False, True) if args.bf16 else (False,):
        print(json.dumps(measure(argparse.Namespace(**{**vars(args), "bf16": bf16}))))


if __name__ == "__main__":
    main()
