"""Benchmark the rewards of a batch of 250 sampled captions, with references of many photos.

    python benchmarks/bench_rewards.py [--photos 113000]   COCO has so many

Captions are drawn from 10,000 words by Zipf's law: as many different n-grams as COCO has, or more.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from captioning.training.objectives.rewards import AbstractReward, BleuReward, CiderReward
from captioning.types import Sample

WORDS, PER_PHOTO, LENGTH, BATCH, REPEATS = 10_000, 5, 10, 250, 20


def references(num_photos: int) -> list[Sample]:
    shares = 1 / np.arange(1, WORDS + 1)
    rng = np.random.default_rng(0)
    size = (num_photos * PER_PHOTO, LENGTH)
    drawn = rng.choice(WORDS, size, p=shares / shares.sum())
    samples = []
    for row, words in enumerate(drawn.tolist()):
        photo, caption = f"p{row // PER_PHOTO}", " ".join(f"w{word}" for word in words)
        key = {"row": row, "sample_id": str(row), "image_id": photo, "image_path": Path(photo)}
        samples.append(Sample(**key, caption=caption))
    return samples


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--photos", type=int, default=20_000)
    samples = references(parser.parse_args().photos)
    batch = samples[: BATCH * PER_PHOTO : PER_PHOTO]
    captions = [sample.caption for sample in samples[1 : BATCH * PER_PHOTO : PER_PHOTO]]
    rewards: dict[str, AbstractReward] = {"CIDEr-D": CiderReward(), "BLEU-4": BleuReward()}
    for name, reward in rewards.items():
        start = time.perf_counter()
        reward.start(samples)
        reward.open(samples)
        opened, seconds = time.perf_counter() - start, []
        for _ in range(REPEATS):
            start = time.perf_counter()
            reward.rewards(captions, batch, [True] * BATCH)
            seconds.append(time.perf_counter() - start)
        print(
            f"{name}: references of {len(samples)} captions {opened:.1f} s, "
            f"rewards of {BATCH} captions {1000 * statistics.median(seconds):.1f} ms (median)"
        )


if __name__ == "__main__":
    main()
