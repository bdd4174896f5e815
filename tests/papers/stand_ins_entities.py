"""Flickr30k Entities and COCO Entities in small, with the features and models of CIC-BART-SSA."""

from __future__ import annotations

import json
import random
import re
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
NOUNS = (*PEOPLE, *ANIMALS, *THINGS)
VERBS = ("watches", "holds", "follows")
OTHERS = ("a", "the", "by", "stands", "beside", "with", "runs", "behind", "in", "field")
CAPTIONS = (
    "[/EN#1/people A {who}] {does} [/EN#2/animals a {hue} {pet}] by [/EN#3/other a {it}] .",
    "[/EN#1/people The {who}] {does} [/EN#3/other the {it}] .",
    "[/EN#2/animals A {hue} {pet}] stands beside [/EN#1/people a {who}] in [/EN#4/scene a field] .",
    "[/EN#1/people A {who}] with [/EN#3/other a {it}] {does} [/EN#2/animals a {pet}] .",
    "[/EN#2/animals The {pet}] runs behind [/EN#1/people the {who}] in [/EN#4/scene a field] .",
)
CHAINS = (1, 2, 3)  # those that have boxes
BERT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
BERT |= {"intermediate_size": 24, "max_position_embeddings": 48, "initializer_range": 0.3}


def all_words() -> list[str]:
    """Words of the captions."""
    return [*NOUNS, *COLOURS, *VERBS, *OTHERS]


def boxes_of(number: int) -> np.ndarray:
    """Boxes of a photo's chains, in pixels."""
    draw = np.random.default_rng(number)
    low = draw.integers(0, 30, (len(CHAINS), 2))
    return np.concatenate([low, low + draw.integers(10, 30, low.shape)], axis=1)


def write_entities(folder: Path) -> None:
    """Twelve photos with five captions each, as ``data=flickr30k_entities_karpathy`` reads them.

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
        (folder / f"karpathy_{split}.txt").write_text("\n".join(numbers) + "\n", encoding="utf-8")


def write_coco_entities(folder: Path) -> None:
    """The same captions and boxes as ``data=coco_entities`` reads them.

    Fields have no box. Nor have the things of the last photo of each split, so that each of its
    captions names something without a box.

    Args:
        folder: gets the released file and ``val2014``.
    """
    (folder / "val2014").mkdir(parents=True)
    draw, released = random.Random(0), {}
    for number, split in enumerate(SPLITS):
        is_last = split not in SPLITS[number + 1 :]
        sentences = _sentences(draw).splitlines()
        marked = (_of_coco(text, number, with_things=not is_last) for text in sentences)
        released[str(number)] = {text: entry | {"split": split} for text, entry in marked}
        photo = folder / "val2014" / f"COCO_val2014_{number:012d}.jpg"
        Image.new("RGB", SIDES, (20 * number, 90, 60)).save(photo)
    text = json.dumps(released)
    (folder / "coco_entities_release.json").write_text(text, encoding="utf-8")


def write_published_captions(folder: Path) -> None:
    """SSA captions of the training photos, a file a photo, as the paper's authors publish theirs.

    Args:
        folder: gets the files.
    """
    folder.mkdir(parents=True)
    for number in (number for number, split in enumerate(SPLITS) if split == "train"):
        objects = [
            {"object_id": chain, "name": name, "attributes": []}
            | dict(zip(("xmin", "ymin", "xmax", "ymax"), box.tolist(), strict=True))
            for chain, name, box in zip((1, 2), ("man", "dog"), boxes_of(number), strict=False)
        ]
        parts = {"A man stands.": objects[:1], "A dog is by a man.": objects}
        content = {
            f"{number}_{place}": {"objects": objects, "relationships": [], "phrase": phrase}
            for place, (phrase, objects) in enumerate(parts.items())
        }
        (folder / f"{number}.json").write_text(json.dumps(content), encoding="utf-8")


def _of_coco(sentence: str, number: int, *, with_things: bool) -> tuple[str, dict]:
    """A caption of ``Sentences`` as COCO Entities has it: its words, each with its class."""
    words, classes, chunks, found = [], [], [], {}
    for part in re.findall(r"\[[^\]]*\]|[^\[\] ]+", sentence.lower()):
        match = re.fullmatch(r"\[/en#(\d)/(\w+) (.*)\]", part)
        own = match[3].split() if match else [part]
        label = own[-1] if match else None
        if match and (match[2] == "scene" or (match[2] == "other" and not with_things)):
            label = "_"
        elif match:
            chunks.append([match[3], label])
            found[label] = [[int(match[1]), boxes_of(number)[int(match[1]) - 1].tolist()]]
        words += own
        classes += [label] * len(own)
    return " ".join(words), {"det_sequences": classes, "noun_chunks": chunks, "detections": found}


def _sentences(draw: random.Random) -> str:
    words = {"who": PEOPLE, "pet": ANIMALS, "it": THINGS, "hue": COLOURS}
    chosen = {kind: draw.choice(of) for kind, of in words.items()}
    return "\n".join(text.format(does=draw.choice(VERBS), **chosen) for text in CAPTIONS) + "\n"


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
    """A BART of random weights as on the hub; each word of the captions is one of its tokens."""
    folder.mkdir(parents=True)
    sizes = {"d_model": vl_bart.D, "max_position_embeddings": vl_bart.PLACES}
    for stack in ("encoder", "decoder"):
        sizes[f"{stack}_layers"] = vl_bart.LAYERS
        sizes[f"{stack}_attention_heads"] = vl_bart.HEADS
        sizes[f"{stack}_ffn_dim"] = vl_bart.INNER
    config = BartConfig(vocab_size=write_byte_pairs(folder, merges=_merges()), **sizes)
    BartForConditionalGeneration(config).save_pretrained(folder)


def _merges() -> list[tuple[str, str]]:
    """Each word grows from its blank, letter by letter."""
    pairs = ((f"Ġ{word[:end]}", word[end]) for word in all_words() for end in range(len(word)))
    return list(dict.fromkeys(pairs))


def write_vl_bart_weights(path: Path, bart: Path) -> None:
    """``Epoch30.pth`` of random weights that says nouns of the captions.

    Args:
        path: of the checkpoint.
        bart: folder of its BART, by `write_bart`.
    """
    tokenizer = BartTokenizer.of_bart(name=str(bart))
    state = vl_bart.published_state(len(tokenizer))
    words = state["model.shared.weight"]
    words[:, 0] = -1
    words[[tokenizer.token_id(f"Ġ{word}") for word in NOUNS], 0] = 1
    last = f"model.decoder.layers.{vl_bart.LAYERS - 1}.final_layer_norm"
    state[f"{last}.bias"][0] = 8  # of the value in which nouns differ from other tokens
    for name in state:
        if "encoder_attn.out_proj" in name:
            state[name] *= 4  # what is said depends on the regions
    path.parent.mkdir(parents=True)
    torch.save(state, path)


def write_berts(language_model: Path, acceptability: Path) -> None:
    """The two BERTs of GRUEN; by it some captions are above .7."""
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
            torch.nn.init.constant_(bert.classifier.bias, 1.5)
        bert.save_pretrained(folder)
        BertTokenizer(str(folder / "vocab.txt"), do_lower_case=False).save_pretrained(folder)


def write_glove(path: Path) -> None:
    """Vectors of the captions' words in GloVe's format."""
    path.parent.mkdir(parents=True)
    values = np.random.default_rng(0).normal(size=(len(all_words()), 8))
    rows = zip(all_words(), values.tolist(), strict=True)
    lines = (f"{word} {' '.join(f'{value:.4f}' for value in row)}\n" for word, row in rows)
    path.write_text("".join(lines), encoding="utf-8")
