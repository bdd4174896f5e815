"""Count the real and planted faults that the photo and text checks flag, beside cleanvision.

    python benchmarks/bench_photo_checks.py PHOTOS --peer ENVIRONMENT/bin/python
    python benchmarks/bench_photo_checks.py PHOTOS --captions Flickr8k.token.txt COCO.json

The peer is a Python in which ``pip install cleanvision==0.3.7`` was run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from captioning.data.roster import build_roster
from captioning.types import Sample
from captioning.vision.photos import load_rgb, photo_sizes
from curation.check.checks import CHECKS
from curation.check.evidence import Evidence, PhotoFacts
from curation.check.photo_checks import measured

PEER_NAMES = {  # of the same faults
    "dark_photo": "dark", "light_photo": "light", "blurry_photo": "blurry",
    "low_information": "low_information", "odd_aspect": "odd_aspect_ratio",
    "grey_photo": "grayscale",
}  # fmt: skip
TEXTS = (
    "address", "file_name", "code", "mojibake", "refusal", "marker", "template", "no_caption",
    "repetition",
)  # fmt: skip
_PEER = """
import sys
from cleanvision import Imagelab
lab = Imagelab(data_path=sys.argv[1])
lab.find_issues({name: {} for name in sys.argv[3:]}, n_jobs=1, verbose=False)
lab.issues.to_json(sys.argv[2])
"""


def _levels(photo: Image.Image, factor: float) -> Image.Image:
    return Image.fromarray((np.asarray(photo) * factor).astype(np.uint8))


PLANTED: dict[str, tuple[str, Callable[[Image.Image], Image.Image]]] = {
    "a quarter of the light": ("dark_photo", lambda p: _levels(p, 0.25)),
    "small on white": ("light_photo", lambda p: ImageOps.expand(p.reduce(4), p.width, "white")),
    "blurred by 2 pixels": ("blurry_photo", lambda p: p.filter(ImageFilter.GaussianBlur(2))),
    "blurred by 3 pixels": ("blurry_photo", lambda p: p.filter(ImageFilter.GaussianBlur(3))),
    "blurred by 6 pixels": ("blurry_photo", lambda p: p.filter(ImageFilter.GaussianBlur(6))),
    "two tones": ("low_information", lambda p: p.quantize(2, dither=Image.Dither.NONE)),
    "a strip": ("odd_aspect", lambda p: p.crop((0, 0, p.width, p.height // 3))),
    "grey, saved as grey": ("grey_photo", lambda p: p.convert("L")),
    "grey, saved in colour": ("grey_photo", lambda p: p.convert("L").convert("RGB")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", type=Path, help="folder of photos")
    parser.add_argument("--number", type=int, default=300, help="photos with planted faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peer", help="Python of an environment with cleanvision")
    parser.add_argument("--captions", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    paths = sorted(path for path in options.photos.rglob("*") if path.suffix == ".jpg")
    print(f"{len(paths):,} photos as they are")
    _compare(options.photos, paths, options.peer, tuple(PEER_NAMES))
    drawn = np.random.default_rng(options.seed).permutation(len(paths))[: options.number]
    for title, (name, plant) in PLANTED.items():
        with tempfile.TemporaryDirectory() as folder:
            planted = [Path(folder) / f"{number}.png" for number in drawn]
            for number, path in zip(drawn, planted, strict=True):
                plant(load_rgb(paths[number])).save(path)
            print(f"{len(planted)} photos, {title}")
            _compare(Path(folder), planted, options.peer, (name,))
    for path in options.captions:
        _count(path)


def _compare(folder: Path, paths: list[Path], peer: str | None, names: tuple[str, ...]) -> None:
    ours = _flagged(_evidence(paths, ["A caption."] * len(paths), look=True), names)
    theirs = {} if peer is None else _of_peer(folder, peer, [PEER_NAMES[name] for name in names])
    for name in names:
        files = {paths[row].name for row in ours[name]}
        line = f"  {name:16} {len(files):6,}"
        if peer is not None:
            other = theirs[PEER_NAMES[name]]
            line += f"   cleanvision {len(other):6,}   both {len(files & other):6,}"
        print(line)


def _count(path: Path) -> None:
    captions = list(_captions(path))
    found = _flagged(_evidence([Path(f"{n}.jpg") for n in range(len(captions))], captions), TEXTS)
    print(f"{len(captions):,} captions of {path.name}")
    for name, rows in found.items():
        print(f"  {name:16} {len(rows):6,}  {'; '.join(captions[row] for row in rows[:3])[:160]}")


def _captions(path: Path) -> Iterator[str]:
    if path.suffix == ".json":
        texts = [one["caption"] for one in json.loads(path.read_text())["annotations"]]
    else:
        texts = [line.partition("\t")[2] for line in path.read_text().splitlines()]
    yield from (text for text in (" ".join(text.split()) for text in texts) if text)


def _evidence(paths: list[Path], captions: list[str], look: bool = False) -> Evidence:
    samples = [
        Sample(row=row, sample_id=f"{row}#0", image_id=str(row), image_path=path, caption=caption)
        for row, (path, caption) in enumerate(zip(paths, captions, strict=True))
    ]
    photos = {path: _facts(path) if look else PhotoFacts() for path in paths}
    return Evidence(roster=build_roster("set", samples), photos=photos)


def _facts(path: Path) -> PhotoFacts:
    return PhotoFacts(size=photo_sizes(path)[1], measured=measured(load_rgb(path)))


def _flagged(evidence: Evidence, names: tuple[str, ...]) -> dict[str, list[int]]:
    return {
        check.name: np.flatnonzero(
            check.flags(check.score(evidence).values, check.threshold)
        ).tolist()
        for check in CHECKS
        if check.name in names
    }


def _of_peer(folder: Path, python: str, names: list[str]) -> dict[str, set[str]]:
    with tempfile.TemporaryDirectory() as home:
        table = Path(home) / "issues.json"
        command = [python, "-c", _PEER, str(folder), str(table), *names]
        subprocess.run(command, check=True, capture_output=True)
        issues = json.loads(table.read_text())
    return {
        name: {Path(file).name for file, flag in issues[f"is_{name}_issue"].items() if flag}
        for name in names
    }


if __name__ == "__main__":
    main()
