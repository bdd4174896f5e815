"""Generate annotations and narrow features of any size from a seed, for `bench_size.py`.

Captions are as long as COCO's (10.5 words) and their words are as unevenly frequent; of 100, some
90 end in a full stop, 5 hold a comma and 3 an apostrophe.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from captioning.data.features.index import FeatureIndex
from captioning.data.features.writer import FeatureWriter

NUM_WORDS = 30_000
KNOWN = """
a on man dog in the woman with cat is street horse sitting bicycle of table standing car boy next
bus train bird girl sheep red boat field chair pizza ball people water cow beach truck umbrella kite
"""  # the most frequent words: entities, for training on captions alone
CAPTIONS_PER_IMAGE = 5
EVALUATED = 50  # images of the validation and of the test split
ROWS, DIM = 4, 8  # of the features of an image
CHUNK = 10_000


def captions(number: int, seed: int = 0) -> Iterator[str]:
    """Generate a given number of captions."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    lengths = rng.integers(3, 10, NUM_WORDS)
    words = ["".join(rng.choice(letters, length)) for length in lengths.tolist()]
    words[: len(KNOWN.split())] = KNOWN.split()
    share = 1 / np.arange(1, NUM_WORDS + 1) ** 1.1
    for start in range(0, number, CHUNK):
        size = min(CHUNK, number - start)
        counts = 8 + rng.poisson(2.5, size)
        drawn = rng.choice(NUM_WORDS, int(counts.sum()), p=share / share.sum()).tolist()
        marks = rng.random((size, 3)).tolist()
        end = 0
        for count, (stop, comma, apostrophe) in zip(counts.tolist(), marks, strict=True):
            begin, end = end, end + count
            chosen = [words[place] for place in drawn[begin:end]]
            chosen[3] += "," if comma < 0.05 else ""
            chosen[1] += "'s" if apostrophe < 0.03 else ""
            text = " ".join(chosen)
            yield text[0].upper() + text[1:] + ("." if stop < 0.9 else "")


def num_images(num_captions: int) -> int:
    """Number of images in the training split."""
    return -(-num_captions // CAPTIONS_PER_IMAGE)


def write_karpathy(path: Path, num_captions: int) -> None:
    """Write a Karpathy file, including the words of every caption."""
    texts = captions(num_captions + 2 * EVALUATED * CAPTIONS_PER_IMAGE)
    training = num_images(num_captions)
    splits = ["train"] * training + ["val"] * EVALUATED + ["test"] * EVALUATED
    sentence_id = 0
    with path.open("w", encoding="utf-8") as file:
        file.write('{"images": [')
        for number, split in enumerate(splits):
            size = CAPTIONS_PER_IMAGE
            if number == training - 1:
                size = num_captions - CAPTIONS_PER_IMAGE * (training - 1)
            sentences = []
            for _ in range(size):
                raw = next(texts)
                tokens = raw.lower().rstrip(".").replace(",", "").split()
                sentences.append(
                    {"tokens": tokens, "raw": raw, "imgid": number, "sentid": sentence_id}
                )
                sentence_id += 1
            image = {
                "filepath": "train2014",
                "sentids": [sentence["sentid"] for sentence in sentences],
                "filename": f"COCO_train2014_{number:012d}.jpg",
                "imgid": number,
                "split": split,
                "sentences": sentences,
                "cocoid": number,
            }
            file.write((", " if number else "") + json.dumps(image))
        file.write('], "dataset": "coco"}')


def write_features(folder: Path, num_captions: int) -> None:
    """Write imported features of all images."""
    total = num_images(num_captions) + 2 * EVALUATED
    index = FeatureIndex(identity="drawn", kind="imported", image_size=0, dim=DIM)
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    with FeatureWriter(folder=folder, index=index) as writer:
        for start in range(0, total, CHUNK):
            size = min(CHUNK, total - start)
            rows = rng.standard_normal((size, ROWS, DIM)).astype(np.float16)
            for number in range(size):
                writer.append(str(start + number), rows[number])
            writer.commit()


def write_lines(path: Path, num_captions: int) -> None:
    """Write a corpus with one caption per line."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{caption}\n" for caption in captions(num_captions))
