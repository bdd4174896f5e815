"""Read COCO captions (Chen et al., 2015), optionally with boxes from the instances file.

The COCO 2014 captions lie inside the installed pycocoevalcap; ``pycocoevalcap:captions_val2014``
and ``pycocoevalcap:captions_train2014`` name them, so they need no download. Boxes are scaled where
the photo at hand has another size than the annotated one; crowd regions are dropped by rule.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from captioning.config.loadable import loadable
from captioning.config.setting_error import SettingError, SettingNotFoundError
from captioning.data.json_files import Record, as_record, load_json, parse_json
from captioning.data.line_files import decode, read_image_list
from captioning.data.photo_folder import photo_name
from captioning.data.readers.caption_columns import listed
from captioning.data.readers.entries import (
    LEAVE_OUT,
    BoxEntry,
    ImageEntry,
    PhotoPolicy,
    Policy,
    Rules,
    check_unique,
    numbered,
    roster_from_entries,
    selected,
    with_stated_keys,
)
from captioning.data.readers.many_samples import collector_paused
from captioning.data.readers.read_once import read_once
from captioning.data.roster import Dropped, Roster
from captioning.types import Box

JAR_PREFIX = "pycocoevalcap:"
# Captions that a data set marks as none, as VizWiz does: "Quality issues are too severe ...".
NO_CAPTIONS = {"is_precanned": "caption precanned", "is_rejected": "caption rejected"}
Paths = str | Path | Sequence[str | Path]


@loadable
@collector_paused()
def read_coco(
    *,
    name: str,
    annotations: Paths,
    image_folder: str | Path | None,
    instances: Paths | None = None,
    image_ids: Paths | None = None,
    exclude_ids: Paths | None = None,
    missing_photos: PhotoPolicy = "error",
    missing_captions: Policy = "error",
    bad_captions: Policy = "error",
    bad_boxes: Policy = "error",
) -> Roster:
    """Read the COCO captions of one split; image ids are COCO's numbers as text.

    Files of this project say other ids, too: ``roster_id`` of an image and ``sample_id`` of a
    caption.

    Captions that are marked ``is_precanned`` or ``is_rejected``, as in VizWiz, are left out.

    Args:
        annotations: ``captions_*.json``; several are read as one.
        image_folder: folder to search for ``file_name``; None: captions alone.
        instances: ``instances_*.json`` for boxes.
        image_ids, exclude_ids: lists of ids to keep or to leave out, one a line.
        missing_photos, missing_captions, bad_captions, bad_boxes: see `Rules`.

    Raises:
        FileNotFoundError, ValueError: a file or folder is not there, or is not as COCO has it.
    """
    rules = Rules(
        missing_photos=missing_photos,
        missing_captions=missing_captions,
        bad_captions=bad_captions,
        bad_boxes=bad_boxes,
    )
    files = (tuple(map(str, _listed(paths))) for paths in (annotations, instances))
    entries, dropped = _read_entries(*files, bad_captions)
    source = ", ".join(map(str, _listed(annotations)))
    return roster_from_entries(
        name=name,
        source=source,
        entries=_chosen(entries, image_ids, exclude_ids, source),
        known_files=[entry.file_name for entry in entries],
        image_folder=image_folder,
        rules=rules,
        dropped=dropped,
    )


@read_once
def _read_entries(
    annotations: tuple[str, ...], instances: tuple[str, ...], bad_captions: Policy
) -> tuple[list[ImageEntry], list[Dropped]]:
    documents = [load_annotations(path) for path in annotations]
    boxes, dropped = _read_instances(instances)
    bad = dropped if bad_captions == "drop" else None
    return coco_entries(documents, boxes, bad, dropped), dropped


def _chosen(
    entries: list[ImageEntry], image_ids: Paths | None, exclude_ids: Paths | None, source: str
) -> list[ImageEntry]:
    chosen = selected(entries, _read_lists(image_ids), source)
    excluded = _read_lists(exclude_ids)
    if excluded is None:
        return chosen
    selected(entries, excluded, source)  # an unknown id here is a wrong list, too
    return [entry for entry in chosen if entry.image_id not in excluded]


def load_annotations(path: str | Path) -> Record:
    """Load a COCO file from disk, or from the pycocoevalcap package (``pycocoevalcap:NAME``).

    Raises:
        FileNotFoundError: no such file, package or member.
        ValueError: not an object of strict JSON.
    """
    text = str(path)
    if not text.startswith(JAR_PREFIX):
        return load_json(path)
    member = f"coco/annotations/{text.removeprefix(JAR_PREFIX)}.json"
    jar = _jar_path()
    try:
        with zipfile.ZipFile(jar) as archive:
            data = archive.read(member)
    except KeyError as error:
        raise SettingNotFoundError(
            text, f"{jar} holds no {member}", "it has captions_train2014 and captions_val2014"
        ) from error
    except (zipfile.BadZipFile, OSError) as error:
        raise SettingNotFoundError(
            text, f"{jar} cannot be read", "reinstall pycocoevalcap"
        ) from error
    return as_record(parse_json(decode(data, text), text), text)


def _jar_path() -> Path:
    spec = importlib.util.find_spec("pycocoevalcap")
    if spec is None or not spec.submodule_search_locations:
        raise SettingNotFoundError("pycocoevalcap", "not installed", "pip install pycocoevalcap")
    return Path(next(iter(spec.submodule_search_locations))) / "spice" / "spice-1.0.jar"


def coco_entries(
    documents: Sequence[Record],
    boxes: dict[str, list[BoxEntry]] | None = None,
    dropped: list[Dropped] | None = None,
    marked: list[Dropped] | None = None,
) -> list[ImageEntry]:
    """Return images in file order, each with its captions in file order.

    Bad captions are added to ``dropped`` if it is given, and marks of `NO_CAPTIONS` to ``marked``.

    Raises:
        ValueError: ids twice, captions of unknown images, empty captions, wrong types.
    """
    images = [record for document in documents for record in document.records("images")]
    by_id = {record.identifier("id"): record for record in images}
    captions: dict[str, list[tuple[Any, str]]] = {image_id: [] for image_id in by_id}
    annotation_ids: dict[str, str] = {}
    sample_ids: dict[str, list[str]] = {}
    for record in (record for document in documents for record in document.records("annotations")):
        if "id" in record:  # files of others count from 0 for each image: such ids are no mistake
            shown = f"{record.identifier('id')} {record.value.get('image_id')}"
            _check_once(f"{shown} {record.value.get('caption')}", record, annotation_ids)
        image_id = record.identifier("image_id")
        if image_id not in captions:
            problem = f"caption of image {image_id}, not among the images"
            raise SettingError(record.where, problem, "add the image, or remove the caption")
        rule = next((rule for key, rule in NO_CAPTIONS.items() if record.value.get(key)), None)
        if rule is not None and marked is not None:
            marked.append(Dropped(item=f"{record.where} (image {image_id})", rule=rule))
            continue
        read = record.text if dropped is None else record.text_or_odd
        captions[image_id] += _parted(read("caption"), f"{record.where}: 'caption'", dropped)
        if isinstance(record.value.get("sample_id"), str):
            sample_ids.setdefault(image_id, []).append(record.value["sample_id"])
    unknown = next((image_id for image_id in boxes or {} if image_id not in by_id), None)
    if boxes and unknown is not None:
        problem = f"box of image {unknown}, which the captions file does not have"
        raise SettingError(boxes[unknown][0].where, problem, "are the two files of the same split?")
    entries = [_entry(record, captions, sample_ids, boxes or {}, dropped) for record in images]
    check_unique(entries)
    return entries


def _check_once(key: str, record: Record, known: dict[str, str]) -> None:
    """Raise an error for a caption id that occurs twice in the file."""
    if key in known:
        problem = f"annotation id {record.identifier('id')} occurs twice, first at {known[key]}"
        raise SettingError(record.where, problem, "remove one")
    known[key] = record.where


def _annotations(documents: Sequence[Record], known_ids: dict[str, str]) -> Iterator[Record]:
    """Return all annotations after a check that their ids are unique."""
    for document in documents:
        for record in document.records("annotations"):
            record.unique_identifier("id", known_ids, "annotation id")
            yield record


def _parted(caption: Any, where: str, dropped: list[Dropped] | None) -> list[tuple[Any, str]]:
    """Return a caption, or several if its text is a list, as in converted tables."""
    if not isinstance(caption, str) or caption.lstrip()[:1] not in ("[", "{", "("):
        return [(caption, where)]
    try:
        return [(text, where) for text in listed(caption, where)]
    except SettingError as error:
        if dropped is None:
            raise error.or_else("leave such captions out by ", LEAVE_OUT) from error
        dropped.append(Dropped(item=where, rule=error.problem))
        return []


def _entry(
    record: Record,
    captions: dict[str, list[tuple[Any, str]]],
    sample_ids: dict[str, list[str]],
    boxes: dict[str, list[BoxEntry]],
    dropped: list[Dropped] | None,
) -> ImageEntry:
    number = record.identifier("id")
    image_id = record.identifier("roster_id") if "roster_id" in record else number
    image_boxes = tuple(boxes.get(number, ()))
    found = numbered(captions[number], dropped)
    has_size = "width" in record or "height" in record or image_boxes
    return ImageEntry(
        image_id=image_id,
        file_name=photo_name(record.text("file_name"), record.where),
        where=record.where,
        captions=with_stated_keys(
            found, image_id, sample_ids.get(number, ()), len(captions[number])
        ),
        boxes=image_boxes,
        size=(record.integer("width", 1), record.integer("height", 1)) if has_size else None,
    )


def _read_instances(
    paths: Sequence[str | Path],
) -> tuple[dict[str, list[BoxEntry]], list[Dropped]]:
    """Return boxes by image id, and the crowd regions, which are left out."""
    dropped: list[Dropped] = []
    documents = [load_annotations(path) for path in paths]
    labels = [
        {
            record.identifier("id"): record.text("name").lower()
            for record in document.records("categories")
        }
        for document in documents
    ]
    boxes: dict[str, list[BoxEntry]] = {}
    for document, names in zip(documents, labels, strict=True):
        for record in _annotations([document], {}):
            image_id, category = record.identifier("image_id"), record.identifier("category_id")
            if category not in names:
                problem = f"category_id {category} is not in the categories"
                raise SettingError(record.where, problem, "add the category, or remove the box")
            if record.value.get("iscrowd"):
                item = f"{record.where} (image {image_id})"
                dropped.append(Dropped(item=item, rule="crowd region"))
                continue
            entry = BoxEntry(box=_corners(record), label=names[category], where=record.where)
            boxes.setdefault(image_id, []).append(entry)
    return boxes, dropped


def _corners(record: Record) -> Box:
    x, y, width, height = record.numbers("bbox", 4)
    return (x, y, x + width, y + height)


def _read_lists(paths: Paths | None) -> dict[str, str] | None:
    if paths is None:
        return None
    ids: dict[str, str] = {}
    for path in _listed(paths):
        ids.update(read_image_list(path))
    return ids


def _listed(paths: Paths | None) -> list[str | Path]:
    if paths is None:
        return []
    return [paths] if isinstance(paths, str | Path) else list(paths)
