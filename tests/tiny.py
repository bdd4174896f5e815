"""Every captioner at a size that runs in a blink: a line here joins the contract tests."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import torch

from captioning.decoding.beam import BeamSearch
from captioning.interfaces import AbstractTokenizer
from captioning.models.base import AbstractCaptioner
from captioning.models.blip import Blip
from captioning.models.cic_bart import CicBart
from captioning.models.cos_cvae import CosCvae
from captioning.models.updown import UpDown
from captioning.models.viecap import ViECap
from captioning.text.entity_index import EntityIndex
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Batch, Control

CAPTIONS = (
    "a dog runs on the grass",
    "two dogs run",
    "a red bird sits on a branch of a tall tree",
    "the boy throws a ball to the dog",
    "a cat sleeps",
    "the tall tree has a red bird",
)
IMAGE_INDEX = (0, 0, 1, 2, 3, 1)
NUM_IMAGES, NUM_REGIONS, FEATURE_SIZE = 4, 5, 12
CONTROLS = (
    Control(regions=(0, 2), num_words=6),
    Control(regions=(2, 0), num_words=3),
    Control(regions=(3, 1, 0), ordered=False, num_words=11, verbs=("sits",)),
    Control(regions=(1,), level=1),
    Control(regions=(), num_words=3),
    Control(),
)


def tokenizer() -> WordTokenizer:
    return WordTokenizer.build(CAPTIONS, min_count=1)


def control_tokenizer() -> WordTokenizer:
    """The same ids, then numbers and control tokens; no counts, which would drown the images."""
    extra = ["caption", "region", "3", "6", "11"]
    tokenizer = WordTokenizer.build(CAPTIONS, min_count=1, extra_words=extra, control=True)
    return WordTokenizer(words=tokenizer.words[4:])


def _parts(beam_size: int) -> dict:
    search = BeamSearch.with_settings(beam_size=beam_size, max_length=8)
    return {"tokenizer": tokenizer(), "search": search}


def _updown(beam_size: int = 3, **settings) -> UpDown:
    sizes = {"hidden_size": 10, "attention_size": 6, "embedding_size": 8}
    return UpDown(feature_size=FEATURE_SIZE, **sizes, **settings, **_parts(beam_size))


def _updown_nocaps(beam_size: int = 3) -> UpDown:
    vectors = torch.randn(len(tokenizer()), 8, generator=torch.Generator().manual_seed(3))
    return _updown(beam_size, tied=True, word_vectors=vectors, reduction="caption_sum")


def _blip(beam_size: int = 3, **settings) -> Blip:
    sizes = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "intermediate_size": 48}
    limit = {"max_positions": 24}
    return Blip(feature_size=FEATURE_SIZE, **sizes, **limit, **settings, **_parts(beam_size))


def cic_bart(beam_size: int = 3, **settings) -> CicBart:
    # With more layers of random weights all images get the same words.
    sizes = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 48}
    limits = {"max_positions": 24, "dropout": 0.0}
    parts = _parts(beam_size) | {"tokenizer": control_tokenizer()}
    return CicBart(feature_size=FEATURE_SIZE, **(sizes | limits | parts | settings))


def _viecap(beam_size: int = 3, named: int = 0, **settings) -> ViECap:
    sizes = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "max_positions": 40, "tied": False}
    projector = {"num_projected": 2, "num_learned": 3, "projector_layers": 2, "projector_heads": 2}
    parts = _parts(beam_size)
    names = ("dog", "unicorn", "bird", "tree", "cat")[:named]
    extra = ("there", "are", "something", "in", "image")
    parts["tokenizer"] = WordTokenizer.build(CAPTIONS, min_count=1, extra_words=extra)
    vectors = torch.randn(named, FEATURE_SIZE, generator=torch.Generator().manual_seed(3))
    entities = EntityIndex(names=names, embeddings=vectors) if named else None
    return ViECap(
        feature_size=FEATURE_SIZE, entities=entities, **sizes, **projector, **settings, **parts
    )


def _cos_cvae(beam_size: int = 3, **settings) -> CosCvae:
    decoder = {"attention_lstm_size": 12, "language_lstm_size": 16, "attention_size": 6}
    latents = {"context_hidden": 5, "object_hidden": 4, "context_size": 2, "object_size": 2}
    words = {"embedding_size": 16, "posterior_embedding_size": 5}
    sizes = {**decoder, **latents, **words}
    return CosCvae(feature_size=FEATURE_SIZE, **sizes, **settings, **_parts(beam_size))


MODELS: dict[str, Callable[..., AbstractCaptioner]] = {
    "updown": functools.partial(_updown, projection_size=7),
    "updown_nocaps": _updown_nocaps,
    "blip": _blip,
    "viecap_soft": _viecap,
    "viecap": functools.partial(_viecap, named=5, temperature=0.5, threshold=0.25),
    "cos_cvae": _cos_cvae,
    "cos_cvae_projected": functools.partial(_cos_cvae, projection_size=7, reduction="caption_sum"),
    "blip_prompted": functools.partial(_blip, prompt="a dog", checkpointing=True),
    "cic_bart": cic_bart,
    "cic_bart_uncontrolled": functools.partial(cic_bart, controlled=False),
}


def build(name: str, *, beam_size: int = 3, seed: int = 0) -> AbstractCaptioner:
    """A model with weights drawn from ``seed``, large enough to tell words apart."""
    torch.manual_seed(seed)
    model = MODELS[name](beam_size)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 0.5)
    return model.eval()


def make_batch(extra_padding: int = 0, words: AbstractTokenizer | None = None) -> Batch:
    """Six captions of four images; the last image has fewer regions than the others."""
    words = words if words is not None else tokenizer()
    rows = [words.encode(caption) for caption in CAPTIONS]
    width = max(map(len, rows)) + extra_padding
    tokens = torch.full((len(rows), width), words.pad_id)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = torch.tensor(row)
        mask[number, : len(row)] = True
    generator = torch.Generator().manual_seed(1)
    regions = torch.randn(NUM_IMAGES, NUM_REGIONS, FEATURE_SIZE, generator=generator)
    region_mask = torch.ones(NUM_IMAGES, NUM_REGIONS, dtype=torch.bool)
    region_mask[3, 3:] = False
    corners = torch.rand(NUM_IMAGES, NUM_REGIONS, 2, 2, generator=generator).sort(dim=2).values
    boxes = corners.flatten(2)  # x1, y1, x2, y2
    boxes[:, 0] = torch.tensor([0.0, 0.0, 1.0, 1.0])
    return Batch(
        rows=torch.arange(len(rows)),
        sample_ids=tuple(f"s{number}" for number in range(len(rows))),
        image_ids=tuple(f"i{number}" for number in range(NUM_IMAGES)),
        image_index=torch.tensor(IMAGE_INDEX),
        regions=regions,
        region_mask=region_mask,
        tokens=tokens,
        token_mask=mask,
        controls=CONTROLS,
        extras={"boxes": boxes},
    )


def only(batch: Batch, caption: int) -> Batch:
    """The batch of one of its captions."""
    image = batch.image_index[caption : caption + 1]
    return replace(
        batch,
        rows=batch.rows[caption : caption + 1],
        sample_ids=(batch.sample_ids[caption],),
        image_ids=(batch.image_ids[int(image)],),
        image_index=torch.tensor([0]),
        regions=batch.regions[image],
        region_mask=batch.region_mask[image],
        tokens=batch.tokens[caption : caption + 1],
        token_mask=batch.token_mask[caption : caption + 1],
        controls=(batch.controls[caption],),
        extras={"boxes": batch.extras["boxes"][image]},
    )
