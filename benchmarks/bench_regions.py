"""Benchmark region augmentation on one core: pairs per second and memory.

python benchmarks/bench_regions.py [--num 400] [--size 224] [--suffix jpg]
python benchmarks/bench_regions.py --samples 100000

Photos of noise and shapes are drawn to a folder first. "paste" is blending alone, of patches from
decoded photos; "render" is all that a process does for a picture: reading the photos, pasting and
writing the file; "CutSwap" is all that comes before its re-ranking, for captions made up here:
parsing, swapping, choosing patches, reading photos and pasting. All are processor seconds of this
process.

With ``--samples N`` it is memory alone: CutSwap makes a set of N captions, those of up to 1,000
scenes of MiniWorld again and again under new ids. All candidates of every caption are drawn (n_p =
32, n_i = 4; things of 2% of the picture and more), but none is ranked, and only the first of each
caption is pasted and written; its picture is removed when the next is asked for. Statistics and
clusters are written as for any set. The most memory that the process has held is printed when all
captions were read, after each tenth of them, and at the end: the roster and the index of what can
be cut out grow with N, what comes after them should not. Records and annotations lie in a temporary
folder meanwhile, about 1 KB a caption.
"""

from __future__ import annotations

import argparse
import platform
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from PIL import Image

from augmentation.cutswap.clusters import Clustering
from augmentation.cutswap.embeddings import by_texts
from augmentation.cutswap.method import CutSwap
from augmentation.cutswap.patches import Areas
from augmentation.cutswap.text import SwapRules
from augmentation.regions.boxes import Limits
from augmentation.regions.paste import Blending, Paste, paste
from augmentation.regions.proposal import Proposal
from augmentation.regions.rendering import PictureFormat, Renderer
from augmentation.regions.set_writer import write_set
from captioning.data.roster import Roster, build_roster
from captioning.miniworld.dataset import read_miniworld
from captioning.text.parser import build_caption_parser
from captioning.text.sentences import build_sentence_encoder
from captioning.types import Region, Sample
from captioning.vision.photos import load_rgb

CAPTIONS = 60  # whose candidates are made
SCENES = 1000  # of MiniWorld, at most
CAPTIONS_OF_SCENE = 5
SMALL = 0.02  # share of a picture that is replaced, at least: MiniWorld's things are small


def draw_photos(folder: Path, number: int, size: int, draw: np.random.Generator) -> list[Path]:
    """Photos of coarse noise as JPEG files of quality 90."""
    paths = [folder / f"{n}.jpg" for n in range(number)]
    for path in paths:
        coarse = draw.integers(0, 256, (size // 8, size // 8, 3), np.uint8)
        Image.fromarray(coarse).resize((size, size)).save(path, quality=90)
    return paths


def random_box(size: int, draw: np.random.Generator) -> tuple[float, float, float, float]:
    """Box with at least a third of the photo's width and height."""
    width, height = draw.integers(size // 3, size // 2, 2)
    x, y = draw.integers(0, size - width), draw.integers(0, size - height)
    return (float(x), float(y), float(x + width), float(y + height))


def make_proposals(paths: list[Path], num: int, size: int) -> list[Proposal]:
    """One paste per image, between random photos."""
    draw, proposals = np.random.default_rng(0), []
    for number in range(num):
        target, source = (paths[n] for n in draw.integers(0, len(paths), 2))
        boxes = random_box(size, draw), random_box(size, draw)
        move = Paste(source=source, source_box=boxes[0], target_box=boxes[1], label="dog")
        proposals.append(
            Proposal(
                name=f"p{number}",
                image_id=target.stem,
                image_path=target,
                before=("A cat.",),
                pastes=(move,),
                captions=("A dog.",),
                regions=(Region(box=boxes[1], label="dog"),),
                notes={},
            )
        )
    return proposals


def made_up(paths: list[Path], size: int) -> Roster:
    """Photos of an animal and of a person, with boxes and one caption."""
    draw, samples = np.random.default_rng(2), []
    animals, people = ("dog", "cat", "horse", "cow", "sheep"), ("man", "woman", "boy", "girl")
    looks = ("black", "white", "brown", "small", "young")
    for n, path in enumerate(paths):
        look, animal, person = (str(draw.choice(choices)) for choices in (looks, animals, people))
        caption = f"A {look} {animal} is running near a {draw.choice(looks[2:])} {person} ."
        boxes = [Region(box=random_box(size, draw), label=label) for label in (animal, person)]
        sample = Sample(row=n, sample_id=f"{n}#0", image_id=str(n), image_path=path,
                        caption=caption, regions=tuple(boxes))  # fmt: skip
        samples.append(sample)
    return build_roster("made up", samples)


def build_cutswap(**more: object) -> CutSwap:
    """Build CutSwap with its own networks, without ranking."""
    settings = {
        "parser": build_caption_parser(num_processes=1),
        "embed": by_texts(build_sentence_encoder()),
        "encoder": SimpleNamespace(space="none"),  # nothing is ranked
        "rules": SwapRules(),
        "clustering": Clustering(),
        "areas": Areas(),
        "limits": Limits(smallest_area=0),
        "seed": 0,
        "keep": None,
    }
    return CutSwap(**settings | more)


def measure_cutswap(folder: Path, paths: list[Path], size: int) -> None:
    """Print the rate of CutSwap's candidates, 32 captions by 4 patches."""
    method = build_cutswap()
    renderer = Renderer(folder=folder, picture_format=PictureFormat(blending=Blending()))
    roster = made_up(paths, size)
    next(method.candidates(roster))  # networks are loaded
    start, number, before = time.process_time(), 0, peak()
    for group in islice(method.candidates(roster), CAPTIONS):
        for proposal in group:
            renderer.paste_patches(proposal)
            number += 1
    spent = time.process_time() - start
    print(f"CutSwap: {number / spent:6.0f} candidate pairs/s, {number} of {CAPTIONS} captions,")
    print(f"        {peak() - before:.0f} MiB more than at the start")


def repeated(roster: Roster, number: int) -> Roster:
    """Repeat samples under new ids up to a given number."""
    samples = []
    for n in range(number):
        again, row = divmod(n, len(roster))
        sample = roster.samples[row]
        ids = {"sample_id": f"{again}-{sample.sample_id}", "image_id": f"{again}-{sample.image_id}"}
        samples.append(replace(sample, **ids))
    return build_roster(roster.name, samples)


def watched(method: CutSwap, roster: Roster, images: Path) -> Iterator[tuple[Proposal, ...]]:
    """Yield the first candidate of each caption, delete its image, and print memory."""
    pairs = tenths = 0
    start = time.process_time()
    for number, group in enumerate(method.candidates(roster), start=1):
        if number == 1:
            print(f"all read {peak():7.0f} MiB, {time.process_time() - start:.0f} s", flush=True)
        yield group[:1]
        (images / f"{group[0].name}.jpg").unlink(missing_ok=True)
        pairs += len(group)
        left_out = sum(method.report()["captions left out, by reason"].values())
        if 10 * (number + left_out) // len(roster) > tenths:
            tenths = 10 * (number + left_out) // len(roster)
            spent = f"{pairs} candidate pairs, {time.process_time() - start:.0f} s"
            print(f"{10 * tenths:7}% {peak():7.0f} MiB, {spent}", flush=True)


def measure_samples(folder: Path, number: int) -> None:
    """Print CutSwap's memory for a given number of captions."""
    scenes = min(SCENES, -(-number // CAPTIONS_OF_SCENE))
    drawn = read_miniworld(name="miniworld", folder=folder, split="train", num_scenes=scenes)
    roster, out = repeated(drawn, number), folder / "out"
    method = build_cutswap(captions_per_photo=None, areas=Areas(smallest=SMALL))
    print(f"roster   {peak():7.0f} MiB, {number} captions of {scenes} scenes", flush=True)
    counts = write_set(
        watched(method, roster, out / "images"),
        folder=out,
        picture_format=PictureFormat(blending=Blending()),
        settings={},
        sheet_number=0,
    )
    print(f"written  {peak():7.0f} MiB, {counts['pictures']} pictures", flush=True)
    method.finish(out, roster)
    print(f"finished {peak():7.0f} MiB, {time.process_time():.0f} s in all")


def peak() -> float:
    """Peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(folder: Path, num: int, size: int, suffix: str) -> None:
    """Print the rates."""
    paths = draw_photos(folder, 300, size, np.random.default_rng(1))
    proposals = make_proposals(paths, num, size)
    blending = Blending()
    photos = {path: load_rgb(path) for path in paths}
    pictures = {path: np.asarray(photo) for path, photo in photos.items()}
    start = time.process_time()
    for proposal in proposals:
        sources = [photos[move.source] for move in proposal.pastes]
        paste(pictures[proposal.image_path], proposal.pastes, sources, blending=blending)
    print(f"paste:  {num / (time.process_time() - start):7.0f} pairs/s")
    form = PictureFormat(blending=blending, suffix=suffix)
    renderer = Renderer(folder=folder / "out", picture_format=form)
    renderer.record(proposals[0])
    wall, start, before = time.perf_counter(), time.process_time(), peak()
    for proposal in proposals:
        renderer.record(proposal)
    spent = time.process_time() - start
    print(f"render: {num / spent:7.0f} pairs/s of processor time, {suffix}, {size} pixels")
    print(f"        {num / (time.perf_counter() - wall):7.0f} pairs/s by the clock, disk included")
    print(f"memory: {peak():.0f} MiB at most, {peak() - before:.0f} MiB more than at the start")
    measure_cutswap(folder, paths, size)


def main() -> None:
    """Run the measurements that the arguments request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=400)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--suffix", choices=("jpg", "png"), default="jpg")
    parser.add_argument("--samples", type=int, help="measure CutSwap's memory for these captions")
    options = parser.parse_args()
    if options.samples is not None and options.samples < 1:
        parser.error(f"--samples must be at least 1: got {options.samples}")
    print(f"{platform.machine()}, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as folder:
        if options.samples is not None:
            measure_samples(Path(folder), options.samples)
            return
        measure(Path(folder), options.num, options.size, options.suffix)


if __name__ == "__main__":
    main()
