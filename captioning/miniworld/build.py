"""Draw a MiniWorld split into a folder, atomically and with any number of processes.

`describe` and `contact_sheet` show scenes, as in ``captioning miniworld sheet``.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rich.progress import track

from captioning.miniworld.actions import ACTIONS
from captioning.miniworld.captions import DECOR, PLACE, Caption, caption_scene
from captioning.miniworld.draw import Drawing, check_size, draw_scene
from captioning.miniworld.icons import font_version
from captioning.miniworld.places import PLACES
from captioning.miniworld.sample import SPLITS, sample_scene
from captioning.miniworld.scene import Scene
from captioning.miniworld.vocabulary import CLASSES, families, held_out
from captioning.runtime.sharing import end_with_parent
from captioning.text.word_forms import words_of

VERSION = 3
"""Version, raised whenever the same settings would give other scenes, captions or images."""


LICENCE = "pictures drawn with icons of Font Awesome 6 Free by Fonticons, Inc., CC BY 4.0"

ANNOTATIONS = "annotations.jsonl"
MANIFEST = "manifest.json"
QUALITY = 92
CHUNK = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings on which the bytes of a split depend; the folder's name is derived from them."""

    split: str
    num_scenes: int
    seed: int
    size: int
    version: int = VERSION
    font: str = ""

    def folder_name(self) -> str:
        """Name of a folder, which differs whenever the contents differ."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
        return f"{self.split}-{self.num_scenes}x{self.size}-seed{self.seed}-{digest[:8]}"


def make_settings(*, split: str, num_scenes: int, seed: int, size: int) -> Settings:
    """Validate settings and add the versions of code and font.

    Raises:
        ValueError: a setting is out of its range.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {SPLITS}: got {split!r}")
    if num_scenes < 1 or seed < 0:
        raise ValueError(
            f"num_scenes must be at least 1 and seed at least 0: got {num_scenes} and {seed}"
        )
    check_size(size)
    return Settings(split=split, num_scenes=num_scenes, seed=seed, size=size, font=font_version())


def render(settings: Settings, index: int) -> tuple[Scene, tuple[Caption, ...], Drawing]:
    """Create scene number ``index`` with its captions and image; a pure function."""
    scene = sample_scene(seed=settings.seed, split=settings.split, index=index)
    captions = make_captions(scene, seed=settings.seed, split=settings.split, index=index)
    return scene, captions, draw_scene(scene, size=settings.size)


def make_captions(scene: Scene, *, seed: int, split: str, index: int) -> tuple[Caption, ...]:
    """Captions of a scene in the dataset."""
    rng = np.random.default_rng([seed, SPLITS.index(split), index, 1])
    return caption_scene(scene, rng)


def build(settings: Settings, target: Path, *, workers: int = 0) -> None:
    """Draw a split into a temporary folder beside ``target``, then rename the folder.

    Raises:
        OSError: the folder cannot be written, or the disk is full; nothing is left behind.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        (staging / "images").mkdir()
        lines = list(_draw_all(settings, staging, workers))
        _write(staging / ANNOTATIONS, "".join(line + "\n" for line in lines))
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        _write(staging / MANIFEST, json.dumps(manifest_of(settings, digest), indent=1))
        staging.chmod(0o755)
        _publish(staging, target)
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def manifest_of(settings: Settings, digest: str) -> dict[str, Any]:
    """Files beside a split: its settings, and the SHA-256 of its annotation lines."""
    return {**asdict(settings), "sha256": digest, "licence": LICENCE}


def _unwritable(target: Path, error: OSError) -> OSError:
    return OSError(
        error.errno, f"MiniWorld cannot be drawn into {target}: {error.strerror or error}; free "
                     "disk space, or set CAPTIONING_CACHE to a writable folder"
    )  # fmt: skip


def _publish(staging: Path, target: Path) -> None:
    """Rename the folder; if another process was faster, keep its folder of equal contents."""
    if target.exists() and not (target / MANIFEST).exists():
        raise FileExistsError(
            f"{target} exists but has no {MANIFEST}, so MiniWorld did not make it; remove it"
        )
    try:
        staging.rename(target)
    except OSError:
        if not (target / MANIFEST).exists():
            raise


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _draw_all(settings: Settings, staging: Path, workers: int) -> Iterator[str]:
    indices = range(settings.num_scenes)
    chunks = [indices[start : start + CHUNK] for start in range(0, settings.num_scenes, CHUNK)]
    work = partial(_draw_chunk, settings, staging)
    title, total = f"drawing MiniWorld {settings.split}", len(chunks)
    if workers == 0:
        for lines in track(map(work, chunks), description=title, total=total, transient=True):
            yield from lines
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=end_with_parent) as pool:
        done = pool.map(work, chunks)
        for lines in track(done, description=title, total=total, transient=True):
            yield from lines


def _draw_chunk(settings: Settings, staging: Path, indices: range) -> list[str]:
    lines = []
    for index in indices:
        scene, captions, drawing = render(settings, index)
        (staging / "images" / f"{scene.scene_id}.jpg").write_bytes(encode(drawing.image))
        lines.append(json.dumps(annotate(scene, captions, drawing)))
    return lines


def encode(image: Image.Image) -> bytes:
    """Encode an image as JPEG with colours at full resolution."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, subsampling=0)
    return buffer.getvalue()


def annotate(scene: Scene, captions: tuple[Caption, ...], drawing: Drawing) -> dict[str, Any]:
    """Describe a scene in one line of the annotation file: regions, captions, phrases, graph."""
    regions, by_node = [], {}
    for item, boxes in zip(scene.objects, drawing.boxes, strict=True):
        by_node[item.node] = list(range(len(regions), len(regions) + len(boxes)))
        regions += [{"box": list(box), "label": item.key} for box in boxes]
    by_node[DECOR] = list(range(len(regions), len(regions) + len(drawing.decor)))
    for (label, _), box in zip(scene.decor, drawing.decor, strict=True):
        regions.append({"box": list(box), "label": label})
    by_node[PLACE] = []
    return {
        "image_id": scene.scene_id,
        "regions": regions,
        "captions": [_annotate_caption(scene, caption, by_node) for caption in captions],
        "graph": scene.graph(),
    }


def _annotate_caption(
    scene: Scene, caption: Caption, by_node: dict[int, list[int]]
) -> dict[str, Any]:
    phrases = []
    for start, text, node in caption.mentions:
        kind = scene.objects[node].kind.family if node >= 0 else "scene" if node == PLACE else "sky"
        phrases.append(
            {"start": start, "text": text, "node": node, "kind": kind, "regions": by_node[node]}
        )
    return {"text": caption.text, "focus": caption.focus, "phrases": phrases}


def describe(*, split: str, num_scenes: int, seed: int = 0) -> dict[str, Any]:
    """Statistics of a split's captions and scenes; no image is drawn.

    Args:
        split: one of ``sample.SPLITS``.
        num_scenes: number of scenes from the first, at least 1.
        seed: seed of the dataset.
    """
    if num_scenes < 1:
        raise ValueError(f"num_scenes must be at least 1: got {num_scenes}")
    scenes = [sample_scene(seed=seed, split=split, index=index) for index in range(num_scenes)]
    captions = [
        caption
        for index, scene in enumerate(scenes)
        for caption in make_captions(scene, seed=seed, split=split, index=index)
    ]
    return {
        "classes": len(CLASSES),
        "families": len(families()),
        "held_out_classes": len(held_out()),
        "places": len(PLACES),
        "actions": len(ACTIONS),
        "objects_per_scene": _shares(len(scene.objects) for scene in scenes),
        "relations": _shares(relation.name for scene in scenes for relation in scene.relations),
        **_wording(captions),
    }


def _shares(values: Any) -> dict[str, float]:
    counts = Counter(values)
    total = sum(counts.values())
    return {str(key): round(count / total, 3) for key, count in counts.most_common()}


def _wording(captions: list[Caption]) -> dict[str, Any]:
    words = [words_of(caption.text) for caption in captions]
    lengths = np.array([len(caption_words) for caption_words in words])
    counts = Counter(word for caption_words in words for word in caption_words)
    return {
        "captions": len(captions),
        "distinct_captions": round(len({caption.text for caption in captions}) / len(captions), 3),
        "vocabulary": len(counts),
        "vocabulary_at_least_5": sum(count >= 5 for count in counts.values()),
        "words_mean": round(float(lengths.mean()), 2),
        "words_quantiles_0_25_50_75_100": [
            int(value) for value in np.quantile(lengths, (0, 0.25, 0.5, 0.75, 1))
        ],
        "focus": _shares(caption.focus for caption in captions),
        "mentions_per_caption": round(float(np.mean([len(c.mentions) for c in captions])), 2),
    }


TEXT = 150
"""Pixels under each image for its captions."""


def contact_sheet(
    *, split: str, num_scenes: int, start: int = 0, seed: int = 0, size: int = 224,
    columns: int = 5, boxes: bool = False,
) -> Image.Image:  # fmt: skip
    """Contact sheet of a split's scenes from ``start``, each above its five captions.

    Args:
        split: one of ``sample.SPLITS``.
        num_scenes: number of scenes.
        start: number of the first scene.
        seed: seed of the data set.
        size: side of a picture in pixels.
        columns: pictures in a row.
        boxes: whether to draw the regions' boxes.
    """
    settings = make_settings(split=split, num_scenes=num_scenes, seed=seed, size=size)
    rows = -(-num_scenes // columns)
    sheet = Image.new("RGB", (columns * (size + 10), rows * (size + TEXT)), "white")
    for number in range(num_scenes):
        corner = (number % columns * (size + 10) + 5, number // columns * (size + TEXT) + 5)
        _paste(sheet, settings, start + number, corner, boxes)
    return sheet


def _paste(
    sheet: Image.Image, settings: Settings, index: int, corner: tuple[int, int], boxes: bool
) -> None:
    _, captions, drawing = render(settings, index)
    if boxes:
        frame = ImageDraw.Draw(drawing.image)
        for box in (*(box for item_boxes in drawing.boxes for box in item_boxes), *drawing.decor):
            frame.rectangle((box[0], box[1], box[2] - 1, box[3] - 1), outline=(255, 0, 255))
    sheet.paste(drawing.image, corner)
    font = ImageFont.load_default(10)
    lines = []
    for caption in captions:
        lines += textwrap.wrap("- " + caption.text, width=max(20, settings.size // 5))
    text = "\n".join(lines[:11])
    spot = (corner[0], corner[1] + settings.size + 2)
    ImageDraw.Draw(sheet).multiline_text(spot, text, fill="black", font=font, spacing=1)
