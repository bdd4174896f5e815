"""What is where in photos, and a network's maps that must say it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from augmentation.image_replacement.training.denoising import (
    LabelReader,
    label_maps,
    label_names,
    object_weights,
)
from captioning.data.roster import Roster, build_roster
from captioning.types import Region, Sample

Box = tuple[float, float, float, float]


def roster(folder: Path, *photos: tuple[tuple[int, int], dict[str, Box]]) -> Roster:
    samples = []
    for number, (size, boxes) in enumerate(photos):
        path = folder / f"{number}.png"
        Image.new("RGB", size).save(path)
        regions = tuple(Region(box=box, label=label) for label, box in boxes.items())
        samples += [
            Sample(
                row=0, sample_id=f"{number}#{caption}", image_id=str(number), image_path=path,
                caption="x", regions=regions,
            )
            for caption in range(2)
        ]  # fmt: skip
    return build_roster("some", samples)


def test_the_smallest_box_that_touches_a_cell_counts(tmp_path: Path) -> None:
    boxes = {"dog": (8.0, 0.0, 15.0, 9.0), "ball": (9.0, 1.0, 12.0, 3.0), "sun": (31, 31, 32, 32)}
    photos = roster(tmp_path, ((32, 32), boxes), ((32, 32), {}))
    names = label_names(photos)
    assert names == ["ball", "dog", "sun"]
    expected = torch.zeros(2, 4, 4, dtype=torch.int64)
    expected[0, 0, 1], expected[0, 1, 1], expected[0, 3, 3] = 1, 2, 3
    assert torch.equal(label_maps(photos, names, cells=4), expected)


def test_cells_are_those_of_the_middle_square_at_any_size(tmp_path: Path) -> None:
    wide = ((80, 40), {"dog": (20.0, 0.0, 30.0, 10.0), "cut off": (0.0, 0.0, 19.0, 40.0)})
    tall = ((40, 80), {"dog": (0.0, 50.0, 10.0, 90.0)})
    photos = roster(tmp_path, wide, tall)
    expected = torch.zeros(2, 4, 4, dtype=torch.int64)
    expected[0, 0, 0], expected[1, 3, 0] = 2, 2
    assert torch.equal(label_maps(photos, label_names(photos), cells=4), expected)


def test_a_label_without_a_name(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="dog"):
        label_maps(roster(tmp_path, ((8, 8), {"dog": (0, 0, 8, 8)})), ["cat"], cells=1)


def test_maps_learn_to_say_what_is_where() -> None:
    torch.manual_seed(0)
    reader = LabelReader(4, 2, width=8)
    maps = torch.randn(2, 4, 3, 3, requires_grad=True)
    expected = torch.tensor([[[0, 0, 0], [0, 1, 1], [0, 1, 1]], [[2, 0, 0], [0, 0, 0], [0, 0, 0]]])
    optimizer = torch.optim.Adam([maps, *reader.parameters()], lr=0.05)
    for _ in range(80):
        optimizer.zero_grad()
        reader.loss(maps, expected).backward()
        optimizer.step()
    assert torch.equal(reader.layers(maps).argmax(1), expected)
    assert reader.loss(maps, expected).item() < 0.1 < reader.loss(maps, expected.flip(0)).item()


def test_things_weigh_more() -> None:
    maps = torch.tensor([[[0, 2], [0, 0]], [[0, 0], [1, 0]]])
    weights = object_weights(maps, 3.0)
    expected = torch.tensor([[[1.0, 3], [1, 1]], [[1, 1], [3, 1]]])[:, None]
    assert torch.allclose(weights, expected / 1.5)
