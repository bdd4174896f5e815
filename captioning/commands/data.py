"""Commands that prepare data."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from captioning.commands.command import HydraCommand, PlainCommand, photos


def _show_prepared(is_ready: bool, arguments: Mapping[str, Any]) -> None:
    if not is_ready:  # what is missing was printed
        raise SystemExit(1)


def _no_arguments(parser: ArgumentParser) -> None:
    """Add no arguments, as the command has none."""


def _prepare_metrics(options: Namespace) -> None:
    from captioning.metrics.spice import prepare_spice

    names = ", ".join(path.name for path in prepare_spice()) or "all files were present"
    print(f"SPICE is ready ({names})")


def _show_found(found: tuple[Path, int], arguments: Mapping[str, Any]) -> None:
    out, number = found
    print(f"{out}: boxes for {number:,} photos")


def _import_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="FILE",
        help=".tsv, .tsv.0, .npz, .h5, .lmdb; a folder of .npz or .npy, or of an LMDB; patterns",
    )
    parser.add_argument("--folder", required=True, help="name of the new feature store")
    parser.add_argument("--name", default="bottom_up", help="kind of features")
    parser.add_argument("--boxes", help="folder with a .npy file of boxes per image (cocobu_box)")
    parser.add_argument("--sizes", help="COCO's annotations, for boxes without photo sizes")
    parser.add_argument(
        "--images",
        help="file of ids or photo names, one per line: import only these, and require all of them",
    )


def _import_features(options: Namespace) -> None:
    from captioning.data.features.importing import import_features, read_photo_sizes
    from captioning.data.line_files import read_image_list

    store = import_features(
        options.sources,
        folder=options.folder,
        name=options.name,
        boxes=options.boxes,
        sizes=read_photo_sizes(options.sizes) if options.sizes else None,
        image_ids=list(read_image_list(options.images)) if options.images else None,
        progress=True,
    )
    boxes = "with boxes" if store.has_boxes else "without boxes"
    print(
        f"{len(store)} images, up to {store.max_regions} regions of {store.dim} values, {boxes}: "
        f"use features=bottom_up features.imported={options.folder}"
    )


def _scene_arguments(parser: ArgumentParser, *, num_scenes: int) -> None:
    splits = "train, val, test_in, test_near or test_out"
    parser.add_argument("--split", default="train", help=splits)
    parser.add_argument("--num-scenes", type=int, default=num_scenes)
    parser.add_argument("--seed", type=int, default=0)


def _sheet_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("out", type=Path, help="output image, .png or .jpg")
    _scene_arguments(parser, num_scenes=20)
    parser.add_argument("--start", type=int, default=0, help="first scene")
    parser.add_argument("--size", type=int, default=224, help="side length of a scene in pixels")
    parser.add_argument("--columns", type=int, default=5)
    parser.add_argument("--boxes", action="store_true", help="draw the regions' boxes")


def _sheet(options: Namespace) -> None:
    from captioning.miniworld.build import contact_sheet
    from captioning.runtime.files import write_atomically

    chosen = dict(vars(options))
    out = chosen.pop("out")
    write_atomically(out, contact_sheet(**chosen).save)


def _facts_arguments(parser: ArgumentParser) -> None:
    _scene_arguments(parser, num_scenes=4000)


def _facts(options: Namespace) -> None:
    import json

    from captioning.miniworld.build import describe

    print(json.dumps(describe(**vars(options)), indent=1))


PREPARE = HydraCommand(
    name="prepare",
    summary="Prepare a dataset: download and check its files, compute its features.",
    examples=(
        "prepare data=flickr8k",
        "prepare my_photos features=efficientnet_lite0_grid",
    ),
    config="prepare",
    task="captioning.training.prepare.prepare",
    show=_show_prepared,
    words=photos,
)
PREPARE_METRICS = PlainCommand(
    name="prepare metrics",
    summary="Download the parts of SPICE that pip does not install.",
    examples=("prepare metrics",),
    add_arguments=_no_arguments,
    call=_prepare_metrics,
)
FIND_OBJECTS = HydraCommand(
    name="find-objects",
    summary="Detect objects in photos, for constraints and for augmentation.",
    examples=(
        "find-objects data=flickr8k split=val",
        "find-objects data=flickr8k split=train first_images=100",
    ),
    config="find_objects",
    task="captioning.training.prepare.find_objects",
    show=_show_found,
)
IMPORT_FEATURES = PlainCommand(
    name="import-features",
    summary="Import region features and boxes computed elsewhere.",
    examples=(
        "import-features trainval.tsv.0 trainval.tsv.1 --folder features",
        "import-features cocobu_att --boxes cocobu_box --folder features",
    ),
    add_arguments=_import_arguments,
    call=_import_features,
)
MINIWORLD_SHEET = PlainCommand(
    name="miniworld sheet",
    summary="Draw a contact sheet of MiniWorld scenes with their captions.",
    examples=(
        "miniworld sheet scenes.png",
        "miniworld sheet scenes.png --split test_out --boxes",
    ),
    add_arguments=_sheet_arguments,
    call=_sheet,
)
MINIWORLD_FACTS = PlainCommand(
    name="miniworld facts",
    summary="Print statistics of MiniWorld: classes, places, words, lengths.",
    examples=(
        "miniworld facts",
        "miniworld facts --split val --num-scenes 100",
    ),
    add_arguments=_facts_arguments,
    call=_facts,
)
