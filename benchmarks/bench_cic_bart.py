"""Benchmark CIC-BART's training step against plain transformers code with the same weights.

python benchmarks/bench_cic_bart.py [--layers 6] [--hidden 768] [--images 4] [--captions 1]
    [--regions 4] [--words 12] [--vocabulary 50465] [--rounds 5] [--threads N]

Plain code is `BartForConditionalGeneration` with VL-BART's embedding before its encoder, padded
regions masked, and labels. Captions have ``words / 2`` to ``words`` words and ask for 1 to
``regions`` regions. Losses of both are compared first. Seconds are medians; both are measured in
every round, so that a busy moment of the machine hits both.
"""

from __future__ import annotations

import argparse
import copy
from statistics import median

import torch
from bench_blip import seconds
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import BartForConditionalGeneration

from captioning.decoding.greedy import GreedySearch
from captioning.models.cic_bart import CicBart
from captioning.text.control_tokens import CONTROL_TOKENS
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Batch, Control

FEATURES, BOXES = 2048, 9


def make_batch(options: argparse.Namespace) -> Batch:
    """Random regions and captions, longest first; each caption has its own regions."""
    generator = torch.Generator().manual_seed(0)
    number = options.images * options.captions
    lengths = torch.linspace(options.words, options.words / 2, number).round().long()
    shape = (number, options.words + 2)
    tokens = torch.randint(4, options.vocabulary - 200, shape, generator=generator)
    places = torch.arange(options.words + 2)
    tokens[:, 0] = 1
    tokens[places == lengths[:, None] + 1] = 2
    mask = places < lengths[:, None] + 2
    corners = torch.rand(options.images, BOXES, 2, 2, generator=generator).sort(dim=2).values
    controls = []
    for caption, words in enumerate(lengths.tolist()):
        requested = torch.randperm(BOXES - 1, generator=generator)[: 1 + caption % options.regions]
        controls.append(Control(regions=tuple(requested.tolist()), num_words=words))
    return Batch(
        rows=torch.arange(number),
        sample_ids=tuple(map(str, range(number))),
        image_ids=tuple(map(str, range(options.images))),
        image_index=torch.arange(number) % options.images,
        regions=torch.randn(options.images, BOXES, FEATURES, generator=generator),
        tokens=tokens.masked_fill(~mask, 0),
        token_mask=mask,
        controls=tuple(controls),
        extras={"boxes": corners.flatten(2)},
    )


def build(options: argparse.Namespace) -> CicBart:
    """Build a randomly initialised model of the requested size."""
    names = [f"w{number}" for number in range(options.vocabulary - 204)]
    names[:2] = ["caption", "region"]
    names[2 : 2 + options.words] = [str(number + 1) for number in range(options.words)]
    model = CicBart(
        feature_size=FEATURES,
        hidden_size=options.hidden,
        num_layers=options.layers,
        num_heads=options.hidden // 64,
        intermediate_size=4 * options.hidden,
        tokenizer=WordTokenizer(words=[*names, *CONTROL_TOKENS]),
        search=GreedySearch.with_settings(max_length=20),
    )
    return model.train()


class PlainCode(nn.Module):
    """Usual code around transformers: one padded row per caption, and its own forward pass.

    Args:
        model: whose parameters it shares.
    """

    def __init__(self, model: CicBart) -> None:
        super().__init__()
        self.visual, self.text = model.visual, model.text
        self.bart: BartForConditionalGeneration = copy.copy(model.bart)
        self.bart._modules = dict(model.bart._modules)
        self.bart.model = copy.copy(model.bart.model)
        self.bart.model._modules = dict(model.bart.model._modules)
        encoder = copy.copy(model.bart.model.encoder)
        encoder._modules = dict(encoder._modules)
        # The inputs come with their positions and norms, as VL-BART's encoder has them.
        self.norm, self.positions = encoder.layernorm_embedding, encoder.embed_positions
        encoder.layernorm_embedding, encoder.embed_positions = nn.Identity(), Nothing()
        self.bart.model.encoder = encoder

    def collated(self, batch: Batch) -> dict[str, Tensor]:
        """Padded inputs, as a loader would make them; not part of the timed step."""
        ids = [torch.tensor(self.text.ids(control)) for control in batch.controls]
        rows = [torch.tensor([0, *(r + 1 for r in c.regions)]) for c in batch.controls]
        images = batch.image_index.tolist()
        features = [
            batch.regions[image, selected] for image, selected in zip(images, rows, strict=True)
        ]
        boxes = [
            batch.extras["boxes"][i, selected] for i, selected in zip(images, rows, strict=True)
        ]
        lengths = ([torch.ones(len(selected)) for selected in kind] for kind in (ids, rows))
        labels = batch.tokens[:, 1:].masked_fill(~batch.token_mask[:, 1:], -100)
        return {
            "ids": pad_sequence(ids, batch_first=True),
            "features": pad_sequence(features, batch_first=True),
            "boxes": pad_sequence(boxes, batch_first=True),
            "mask": torch.cat([pad_sequence(part, batch_first=True) for part in lengths], dim=1),
            "decoder_ids": batch.tokens[:, :-1],
            "labels": labels,
        }

    def loss(self, inputs: dict[str, Tensor]) -> Tensor:
        """Loss of inputs from `collated`."""
        words = self.bart.model.shared.weight
        text = self.bart.model.encoder.embed_tokens(inputs["ids"])
        text = self.norm(text + self.positions(inputs["ids"]))
        turns = words[-inputs["features"].shape[1] :].flip(0)
        regions = self.visual(inputs["features"], inputs["boxes"], turns)
        return self.bart(
            inputs_embeds=torch.cat([text, regions], dim=1),
            attention_mask=inputs["mask"].long(),
            decoder_input_ids=inputs["decoder_ids"],
            labels=inputs["labels"],
        ).loss


class Nothing(nn.Module):
    """Position embedding that adds nothing, because positions are in the inputs already."""

    def forward(self, ids: Tensor) -> Tensor:
        """Return 0, so that no position embedding is added."""
        return torch.zeros(1, device=ids.device)


def main() -> None:
    """Compare the losses, then time both models."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    defaults = {"layers": 6, "hidden": 768, "images": 4, "captions": 1, "regions": 4, "words": 12}
    for name, value in (defaults | {"vocabulary": 50465, "rounds": 5, "threads": 0}).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model, batch = build(options), make_batch(options)
    plain = PlainCode(model)
    inputs = plain.collated(batch)
    variants = {"plain": lambda: plain.loss(inputs), "ours": lambda: model.losses(batch).total}
    with torch.no_grad():
        model.eval(), plain.eval()
        print(
            "losses: "
            + ", ".join(
                f"{name} {compute_loss().item():.6f}" for name, compute_loss in variants.items()
            )
        )
        model.train(), plain.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    times: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(options.rounds + 1):
        for name, compute_loss in variants.items():
            spent = seconds(compute_loss, optimizer)
            if number:  # the first round warms up
                times[name].append(spent)
    for name, values in times.items():
        middle = median(values)
        print(f"{name}: {middle:.3f} s a step, {len(batch) / middle:.2f} captions/s")
    print(f"plain / ours: {median(times['plain']) / median(times['ours']):.2f}")


if __name__ == "__main__":
    main()
