"""Training on imported features: boxes and controls, and no photo anywhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from captioning.commands.main import main
from captioning.data.features.importing import import_features
from tests.captioning.data.features import layouts
from tests.captioning.data.features.layouts import Photo

SIDES = (400, 300)
THINGS = ("man", "dog", "ball", "tree")
TINY = [
    *("model.module.hidden_size=16", "model.module.num_layers=1", "model.module.num_heads=2"),
    *("model.module.intermediate_size=16", "debug=smoke", "num_epochs=1", "search.max_length=8"),
]


def boxes_of(image: int) -> np.ndarray:
    """Three boxes in pixels, different for each image."""
    draw = np.random.default_rng(image)
    low = draw.integers(0, 150, (3, 2))
    return np.concatenate([low, low + draw.integers(60, 140, (3, 2))], axis=1)


def write_entities(root: Path, image_ids: Mapping[str, range]) -> Path:
    """Flickr30k Entities without its photos."""
    for split, numbers in image_ids.items():
        (root / f"split_{split}.txt").parent.mkdir(parents=True, exist_ok=True)
        (root / f"split_{split}.txt").write_text("".join(f"{number}\n" for number in numbers))
    for number in (number for numbers in image_ids.values() for number in numbers):
        first, second = THINGS[number % 4], THINGS[(number + 1) % 4]
        lines = [
            f"[/EN#1/people A {first}] near [/EN#2/other a {second}] .",
            f"There is [/EN#2/other the {second}] and [/EN#3/other a thing] .",
        ]
        objects = "".join(
            f"<object><name>{chain}</name><bndbox>"
            + "".join(f"<{tag}>{value}</{tag}>" for tag, value in zip(TAGS, box, strict=True))
            + "</bndbox></object>"
            for chain, box in enumerate(boxes_of(number), start=1)
        )
        size = f"<size><width>{SIDES[0]}</width><height>{SIDES[1]}</height></size>"
        write(root / f"annotations.zip/Sentences/{number}.txt", "\n".join(lines))
        write(
            root / f"annotations.zip/Annotations/{number}.xml",
            f"<annotation>{size}{objects}</annotation>",
        )
    return root


TAGS = ("xmin", "ymin", "xmax", "ymax")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def photo(image: int, *, own_boxes: bool) -> Photo:
    """Features of the annotated boxes after the whole photo, as CIC-BART's; or of a detector's."""
    draw = np.random.default_rng(image)
    boxes = boxes_of(image).astype(np.float32)
    if own_boxes:
        boxes = np.concatenate([[[0, 0, *SIDES]], boxes])
    else:
        others = [[0, 0, 50, 50], [300, 200, 390, 290]]
        boxes = np.concatenate([others, boxes[::-1] + draw.normal(size=(3, 4))])
    return Photo(
        features=draw.normal(size=(len(boxes), 8)).astype(np.float32),
        boxes=boxes.clip(0, [*SIDES, *SIDES]).astype(np.float32),
        width=SIDES[0],
        height=SIDES[1],
    )


SPLITS = {"train": range(100, 116), "val": range(200, 204), "test": range(300, 304)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_entities(tmp_path / "data", SPLITS)


def imported(tmp_path: Path, *, own_boxes: bool) -> Path:
    photos = {
        str(number): photo(number, own_boxes=own_boxes)
        for numbers in SPLITS.values()
        for number in numbers
    }
    source = layouts.write_vl_bart(tmp_path / "flickr30k.h5", photos)
    return import_features([source], folder=tmp_path / "store").folder


def arguments(tmp_path: Path, data: Path, store: Path) -> list[str]:
    return [
        f"paths.runs={tmp_path}/runs",
        f"paths.cache={tmp_path}/cache",
        f"run_dir={tmp_path}/run",
        "data=flickr30k_entities",
        f"data.root={data}",
        "features=bottom_up",
        f"features.imported={store}",
    ]


@pytest.mark.long
@pytest.mark.parametrize("own_boxes", [True, False])
def test_cic_bart_trains_and_is_scored_without_a_photo(
    tmp_path: Path, data: Path, own_boxes: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    store = imported(tmp_path, own_boxes=own_boxes)
    common = arguments(tmp_path, data, store)
    run = tmp_path / "run"
    assert main(["prepare", *common[1:2], *common[3:], "download=false"]) == 0
    assert "features of 24 photos are ready" in " ".join(capsys.readouterr().out.split())
    policy = ["curation=remove", "curation.select.ratio=0.2"]
    main(["train", "experiment=cic_bart/flickr8k_small", "control=set", *TINY, *common, *policy])
    assert json.loads((run / "metrics.json").read_text())
    if not own_boxes:  # whose boxes they are makes a difference before and while a run is trained
        return
    evaluated = ["evaluate", f"run={run}", f"out={tmp_path}/evaluated", "metrics.test=[BLEU]"]
    main(evaluated)
    with pytest.raises(SystemExit) as ended:
        main([*evaluated, f"imported={tmp_path}/gone"])
    assert "no features here" in str(ended.value)
    main(["controllability", f"run={run}", f"paths.cache={tmp_path}/cache", "metrics.test=[BLEU]"])
    assert list(run.glob("evaluation/*/control.json"))
    capsys.readouterr()
    assert main(["report", str(run), "--no-figures"]) == 0
    shown = capsys.readouterr().out
    assert "edits listed" in shown
    assert "no photo is shown" in shown
    assert not list(tmp_path.rglob("*.jpg"))


@pytest.mark.long
def test_features_of_other_boxes_are_refused(tmp_path: Path, data: Path) -> None:
    photos = {str(n): photo(n + 7, own_boxes=False) for s in SPLITS.values() for n in s}
    far = {
        name: Photo(features=p.features, boxes=p.boxes * 0.05, width=400, height=300)
        for name, p in photos.items()
    }
    source = layouts.write_vl_bart(tmp_path / "f.h5", far)
    store = import_features([source], folder=tmp_path / "store").folder
    common = [*TINY, *arguments(tmp_path, data, store)]
    with pytest.raises(SystemExit) as ended:
        main(["train", "experiment=cic_bart/flickr8k_small", *common])
    assert "control.min_overlap=0 takes the nearest" in str(ended.value)
    bare = {name: p.features for name, p in photos.items()}
    np.savez(tmp_path / "f.npz", **bare)
    import_features([tmp_path / "f.npz"], folder=tmp_path / "bare")
    common[-1] = f"features.imported={tmp_path}/bare"
    with pytest.raises(SystemExit) as ended:
        main(["train", "experiment=cic_bart/flickr8k_small", *common, "resume=never"])
    assert "the imported features have no boxes" in str(ended.value)


def test_a_policy_that_looks_at_photos_is_refused_before_it_trains(
    tmp_path: Path, data: Path
) -> None:
    store = imported(tmp_path, own_boxes=True)
    common = [*TINY, *arguments(tmp_path, data, store), "curation=remove"]
    with pytest.raises(SystemExit) as ended:
        main(["train", "experiment=cic_bart/flickr8k_small", *common, "curation/score=duplicate"])
    assert "reads photos, but" in str(ended.value)
    assert not list(tmp_path.glob("run/checkpoints/*.ckpt"))


def test_photos_that_were_exchanged_are_refused(tmp_path: Path, data: Path) -> None:
    store = imported(tmp_path, own_boxes=True)
    common = [*TINY, *arguments(tmp_path, data, store), "steps=[plant_image20]"]
    with pytest.raises(SystemExit) as ended:
        main(["train", "experiment=cic_bart/flickr8k_small", *common])
    assert "imported features are found by image id" in str(ended.value)


@pytest.mark.long
def test_captions_of_ssa_are_added_without_photos(tmp_path: Path, data: Path) -> None:
    phrase = {"start": 2, "text": "thing", "chain_id": "3", "kinds": ["other"], "regions": [2]}
    boxes = [{"region": 2, "box": boxes_of(100)[2].tolist()}]
    line = {"image_id": "100", "caption": "a thing", "phrases": [phrase], "boxes": boxes}
    write(tmp_path / "ssa" / "captions.jsonl", json.dumps(line))
    store = imported(tmp_path, own_boxes=True)
    common = [*TINY, *arguments(tmp_path, data, store)]
    added = [f"steps.add_pairs.folders=[{tmp_path}/ssa]", "steps.add_pairs.mixture.bins=3"]
    main(["train", "experiment=ssa/flickr8k_small", *common, *added])
    assert (tmp_path / "run" / "metrics.json").is_file()


@pytest.mark.long
def test_coco_entities_take_sizes_from_the_features(tmp_path: Path) -> None:
    entry = {
        "det_sequences": [None, "dog", None],
        "noun_chunks": [["dog", "dog"]],
        "detections": {"dog": [[7, [10, 10, 200, 150]]]},
    }
    splits = {"train": range(1, 17), "val": range(20, 22), "test": range(30, 32)}
    images = {
        str(number): {f"a dog {THINGS[number % 4]}": {**entry, "split": split}}
        for split, numbers in splits.items()
        for number in numbers
    }
    write(tmp_path / "data" / "coco_entities_release.json", json.dumps(images))
    boxes = np.array([[0, 0, *SIDES], [10, 10, 200, 150]], dtype=np.float32)
    photos = {
        f"COCO_train2014_{int(name):012d}": Photo(np.ones((2, 8), np.float32), boxes, *SIDES)
        for name in images
    }
    source = layouts.write_vl_bart(tmp_path / "coco.h5", photos)
    store = import_features([source], folder=tmp_path / "store").folder
    common = arguments(tmp_path, tmp_path / "data", store)
    common[common.index("data=flickr30k_entities")] = "data=coco_entities"
    main(["train", "experiment=cic_bart/flickr8k_small", *TINY, *common])
    assert (tmp_path / "run" / "metrics.json").is_file()


@pytest.mark.long
def test_updown_of_cutswap_trains_on_parts_of_a_tsv(tmp_path: Path) -> None:
    for split, numbers in (("train2017", range(20)), ("val2017", range(30, 34))):
        images = [{"id": n, "file_name": f"{n}.jpg", "width": 400, "height": 300} for n in numbers]
        captions = [
            {"id": n, "image_id": n, "caption": f"a {THINGS[n % 4]} and a dog ."} for n in numbers
        ]
        for kind, rows in (("captions", captions), ("instances", [])):
            content = {"images": images, "annotations": rows, "categories": []}
            write(tmp_path / f"coco/annotations/{kind}_{split}.json", json.dumps(content))
    for part, numbers in enumerate((range(12), range(12, 34))):
        photos = {str(number): photo(number, own_boxes=False) for number in numbers}
        layouts.write_tsv(tmp_path / f"resnet101.tsv.{part}", photos)
    store = import_features([str(tmp_path / "*.tsv.*")], folder=tmp_path / "store").folder
    common = arguments(tmp_path, tmp_path / "coco", store)
    common[common.index("data=flickr30k_entities")] = "data=coco"
    sizes = ["model.module.hidden_size=8", "model.module.attention_size=4"]
    vectors = ["model.module.embedding_size=4"]
    pairs = ["steps.add_pairs.folders=[]", "debug=smoke", "num_epochs=1", "search.max_length=6"]
    main(["train", "experiment=cutswap/coco_updown", *common, *sizes, *vectors, *pairs])
    assert (tmp_path / "run" / "metrics.json").is_file()
    missing = ["first_images=null", f"run_dir={tmp_path}/other"]
    layouts.write_tsv(tmp_path / "less.tsv", {str(n): photo(n, own_boxes=False) for n in range(9)})
    less = import_features([tmp_path / "less.tsv"], folder=tmp_path / "less").folder
    with pytest.raises(SystemExit) as ended:
        main(
            [
                *("train", "experiment=cutswap/coco_updown", *common, *sizes, *vectors, *pairs),
                *(*missing, f"features.imported={less}"),
            ]
        )
    assert "no features for 11 of 20 images" in str(ended.value)
    assert "such as 9, 10, 11; import the files" in str(ended.value)
