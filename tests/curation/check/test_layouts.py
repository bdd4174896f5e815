"""The same photos and captions are flagged alike, in whatever layout they come."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from curation.check import CheckResult, check
from curation.check import word_checks as words
from curation.check.check_files import export_cleaned
from tests.curation.check.worlds import COLORS, colourful

Captions = Mapping[Path, list[str]]


class Colours:
    """Colours of photos and of captions; as of a network, last digits depend on the batch."""

    space, identity, dim = "toy", "toy", 3

    def embed_photos(self, photos):
        return self._unit(np.stack([np.asarray(p.convert("RGB")).mean((0, 1)) for p in photos]))

    def embed_texts(self, texts):
        shown = {"red": (255, 0, 0), "blue": (0, 0, 255), "yellow": (255, 255, 0)}
        named = [next((shown[c] for c in COLORS if c in text), (9, 9, 9)) for text in texts]
        return self._unit(np.array(named, dtype=float))

    def _unit(self, colours):
        unit = torch.nn.functional.normalize(torch.tensor(colours / 128 - 1).float(), dim=1)
        order = torch.arange(1, len(unit) + 1)[:, None] / len(unit)
        return unit + 1e-4 * (unit * order).mean(0)


def world(folder: Path) -> dict[Path, list[str]]:
    """Photos of colours, and captions of which a few name another colour."""
    folder.mkdir()
    roster, _ = colourful(60, 8, folder=folder)
    captions: dict[Path, list[str]] = {}
    for sample in roster.samples:
        captions.setdefault(sample.image_path, []).append(sample.caption)
    for number, path in enumerate(captions):
        pixels = np.random.default_rng(number).integers(0, 256, (70, 80, 3), np.uint8)
        Image.fromarray(pixels).save(path, "PNG")
    return captions


def shuffled(captions: Captions, seed: int) -> list[tuple[Path, list[str]]]:
    """Photos and their captions in another order."""
    rng = np.random.default_rng(seed)
    paths = list(captions)
    order = [paths[place] for place in rng.permutation(len(paths))]
    return [(path, [str(c) for c in rng.permutation(captions[path])]) for path in order]


def as_table(captions: Captions, root: Path) -> None:
    root.mkdir()
    with (root / "captions.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "caption"])
        for number, (path, texts) in enumerate(shuffled(captions, 1)):
            shutil.copy(path, root / f"t{number}{path.suffix}")
            writer.writerows([f"t{number}{path.suffix}", text] for text in texts)


def as_splits(captions: Captions, root: Path) -> None:
    for number, (path, texts) in enumerate(shuffled(captions, 2)):
        folder = root / ("train" if number % 3 else "test")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / f"{number}{path.suffix}")
        with (folder / "metadata.csv").open("a", newline="") as file:
            rows = [] if file.tell() else [["file_name", "text"]]
            rows += [[f"{number}{path.suffix}", text] for text in texts]
            csv.writer(file).writerows(rows)


def as_coco(captions: Captions, root: Path) -> None:
    (root / "images").mkdir(parents=True)
    images, annotations = [], []
    for number, (path, texts) in enumerate(shuffled(captions, 3)):
        name = f"{number:06}{path.suffix}"
        shutil.copy(path, root / "images" / name)
        images.append({"id": number, "file_name": name})
        annotations += [{"image_id": number, "caption": text} for text in texts]
    np.random.default_rng(4).shuffle(annotations)
    annotations = [{"id": number, **one} for number, one in enumerate(annotations)]
    content = {"images": images, "annotations": annotations}
    (root / "captions.json").write_text(json.dumps(content))


def as_texts(captions: Captions, root: Path) -> None:
    root.mkdir()
    for number, (path, texts) in enumerate(shuffled(captions, 5)):
        shutil.copy(path, root / f"p{number}{path.suffix}")
        (root / f"p{number}.txt").write_text("\n".join(texts) + "\n")


LAYOUTS: tuple[Callable[[Captions, Path], None], ...] = (as_splits, as_coco, as_texts)


def measured(result: CheckResult) -> dict[tuple[str, str], list[tuple[str, ...]]]:
    """What is said of each photo's captions, by content: to the last digit, NaN as text."""
    said: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    names = ("fit", "wrong_photo", words.NAME)
    for sample in result.roster.samples:
        key = hashlib.sha256(sample.image_path.read_bytes()).hexdigest(), sample.caption
        values = [repr(float(result.scores[name].values[sample.row])) for name in names]
        doubts = result.scores[words.NAME].words.get(sample.row, ())
        values += [repr((d.start, d.alternative, d.probability)) for d in doubts]
        values += [name for name in names if result.flags[name][sample.row]]
        said.setdefault(key, []).append(tuple(values))
    return {key: sorted(own) for key, own in said.items()}


@pytest.mark.long
def test_every_layout_has_the_same_flags(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(words, "MIN_WORDS", 100)
    monkeypatch.setattr(words, "NUM_SEEDS", 2)
    captions = world(tmp_path / "photos")
    as_table(captions, tmp_path / "as_table")
    result = check(tmp_path / "as_table", space=Colours(), quiet=True)
    expected = measured(result)
    flagged = [values for own in expected.values() for values in own if words.NAME in values]
    assert len(flagged) > 2
    for write in LAYOUTS:
        write(captions, tmp_path / write.__name__)
        again = check(tmp_path / write.__name__, space=Colours(), quiet=True)
        assert measured(again) == expected, write.__name__
    nothing = dict.fromkeys(("fit", "wrong_photo", words.NAME), 2.0)
    others = set(result.thresholds) - set(nothing)
    whole = check(
        tmp_path / "as_table", space=Colours(), quiet=True, skip=others, thresholds=nothing
    )
    export_cleaned(whole, tmp_path / "cleaned", format="imagefolder", photos="copy")
    again = check(tmp_path / "cleaned", space=Colours(), quiet=True)
    assert measured(again) == expected


@pytest.mark.long
def test_real_photos_have_the_same_flags_in_every_layout(
    shared_data: Path, tmp_path: Path, monkeypatch
) -> None:
    pytest.importorskip("transformers", reason="needs transformers")
    monkeypatch.setattr(words, "MIN_WORDS", 100)
    monkeypatch.setattr(words, "NUM_SEEDS", 1)
    root = shared_data / "flickr8k"
    captions: dict[Path, list[str]] = {}
    for line in (root / "Flickr8k.token.txt").read_text().splitlines()[:150]:
        name, text = line.split("\t")
        captions.setdefault(root / "images" / name.partition("#")[0], []).append(text)
    found = []
    for write in (as_table, as_coco):
        write(captions, tmp_path / write.__name__)
        found.append(measured(check(tmp_path / write.__name__, quiet=True)))
    assert len(found[0]) == 150
    assert found[1] == found[0]
