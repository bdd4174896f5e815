"""Flickr30k Entities in small, with the features and the models that CIC-BART-SSA reads."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertTokenizer,
)

from captioning.text.tokenizers.bart import BartTokenizer
from tests.captioning.data.byte_pairs import write_byte_pairs
from tests.captioning.data.features.layouts import Photo, write_vl_bart
from tests.papers.stand_ins import SPLITS
from tests.parity import test_cic_bart as vl_bart

SIDES = (80, 60)
PEOPLE = ("man", "woman", "boy", "girl")
ANIMALS = ("dog", "horse", "cat")
THINGS = ("ball", "stick", "hat")
COLOURS = ("red", "brown", "small")
VERBS = ("watches", "holds", "follows")
CAPTIONS = (
    "[/EN#1/people A {person}] {verb} [/EN#2/animals a {colour} {animal}] near [/EN#3/other a {thing}] .",
    "[/EN#1/people The {person}] {verb} [/EN#3/other the {thing}] .",
    "[/EN#2/animals A {colour} {animal}] stands beside [/EN#1/people a {person}] .",
    "[/EN#1/people A {person}] with [/EN#3/other a {thing}] {verb} [/EN#2/animals a {animal}] .",
    "[/EN#2/animals The {animal}] runs behind [/EN#1/people the {person}] in [/EN#4/scene a field] .",
)
CHAINS = (1, 2, 3)  # those that have boxes
BERT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
BERT |= {"intermediate_size": 24, "max_position_embeddings": 48, "initializer_range": 0.3}


def all_words() -> list[str]:
    """Words of the captions."""
    kinds = (*PEOPLE, *ANIMALS, *THINGS, *COLOURS, *VERBS)
    return [*kinds, *"a the near stands beside with runs behind in field".split()]


def boxes_of(number: int) -> np.ndarray:
    """Boxes of a photo's chains, in pixels."""
    draw = np.random.default_rng(number)
    low = draw.integers(0, 30, (len(CHAINS), 2))
    return np.concatenate([low, low + draw.integers(10, 30, low.shape)], axis=1)


def write_entities(folder: Path) -> None:
    """Twelve photos with five captions each, as ``data=flickr30k_entities`` reads them.

    Args:
        folder: gets annotations, splits and ``flickr30k-images``.
    """
    (folder / "flickr30k-images").mkdir(parents=True)
    draw, ids = random.Random(0), dict[str, list[str]](train=[], val=[], test=[])
    with zipfile.ZipFile(folder / "annotations.zip", "w") as archive:
        for number, split in enumerate(SPLITS):
            ids[split].append(str(number))
            archive.writestr(f"Sentences/{number}.txt", _sentences(draw))
            archive.writestr(f"Annotations/{number}.xml", _annotation(number))
            photo = folder / "flickr30k-images" / f"{number}.jpg"
            Image.new("RGB", SIDES, (20 * number, 90, 60)).save(photo)
    for split, numbers in ids.items():
        (folder / f"split_{split}.txt").write_text("\n".join(numbers) + "\n", encoding="utf-8")


def _sentences(draw: random.Random) -> str:
    words = {"person": PEOPLE, "animal": ANIMALS, "thing": THINGS, "colour": COLOURS}
    chosen = {kind: draw.choice(of) for kind, of in words.items()}
    return "\n".join(text.format(verb=draw.choice(VERBS), **chosen) for text in CAPTIONS) + "\n"


def _annotation(number: int) -> str:
    objects = "".join(
        f"<object><name>{chain}</name><bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin>"
        f"<xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"
        for chain, box in zip(CHAINS, boxes_of(number).tolist(), strict=True)
    )
    size = f"<size><width>{SIDES[0]}</width><height>{SIDES[1]}</height></size>"
    scene = "<object><name>4</name><scene>1</scene><nobndbox>1</nobndbox></object>"
    return f"<annotation>{size}{objects}{scene}</annotation>"


def write_box_features(path: Path) -> Path:
    """Features of each whole photo and of its boxes, in the layout that CIC-BART's authors use."""
    photos = {}
    for number in range(len(SPLITS)):
        boxes = np.concatenate([[[0, 0, *SIDES]], boxes_of(number)]).astype(np.float32)
        shape = (len(boxes), vl_bart.FEATURES)
        features = np.random.default_rng(number).normal(size=shape).astype(np.float32)
        photos[str(number)] = Photo(features, boxes, *SIDES)
    return write_vl_bart(path, photos)


def write_bart(folder: Path) -> None:
    """A BART of random weights with its tokenizer, as on the hub.

    Args:
        folder: of the BART.
    """
    folder.mkdir(parents=True)
    sizes = {"d_model": vl_bart.D, "max_position_embeddings": vl_bart.PLACES}
    for stack in ("encoder", "decoder"):
        sizes[f"{stack}_layers"] = vl_bart.LAYERS
        sizes[f"{stack}_attention_heads"] = vl_bart.HEADS
        sizes[f"{stack}_ffn_dim"] = vl_bart.INNER
    config = BartConfig(vocab_size=write_byte_pairs(folder), **sizes)
    BartForConditionalGeneration(config).save_pretrained(folder)


def write_vl_bart_weights(path: Path, bart: Path) -> None:
    """``Epoch30.pth`` of random weights, for the BART of `write_bart`.

    Args:
        path: of the checkpoint.
        bart: folder of the BART.
    """
    path.parent.mkdir(parents=True)
    size = len(BartTokenizer.of_bart(name=str(bart)))
    torch.save(vl_bart.published_state(size), path)


def write_berts(language_model: Path, acceptability: Path) -> None:
    """The two BERTs of GRUEN; the second mostly finds captions acceptable."""
    words = all_words()
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *words, *map(str.title, words)]
    config = BertConfig(vocab_size=len(tokens), num_labels=2, **BERT)
    networks = (BertForMaskedLM, BertForSequenceClassification)
    for folder, network in zip((language_model, acceptability), networks, strict=True):
        folder.mkdir(parents=True)
        (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
        torch.manual_seed(0)
        bert = network(config)
        if network is BertForSequenceClassification:
            torch.nn.init.constant_(bert.classifier.bias, 2.0)
        bert.save_pretrained(folder)
        BertTokenizer(str(folder / "vocab.txt"), do_lower_case=False).save_pretrained(folder)


def write_glove(path: Path) -> None:
    """Vectors of the captions' words in GloVe's format."""
    path.parent.mkdir(parents=True)
    values = np.random.default_rng(0).normal(size=(len(all_words()), 8))
    rows = zip(all_words(), values.tolist(), strict=True)
    lines = (f"{word} {' '.join(f'{value:.4f}' for value in row)}\n" for word, row in rows)
    path.write_text("".join(lines), encoding="utf-8")
