"""The reader of MiniWorld: draws a split once, then reads it from its folder."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.progress import track

from captioning.data.miniworld.captions import DECOR, PLACE, Caption, caption_scene
from captioning.data.miniworld.draw import Drawing, draw_scene
from captioning.data.miniworld.icons import font_version
from captioning.data.miniworld.sample import SPLITS, sample_scene
from captioning.data.miniworld.scene import Scene
from captioning.data.roster import Roster, build_roster
from captioning.types import Phrase, Region, Sample

VERSION = 1
"""Raised whenever the same settings would give other scenes, captions or pictures."""

ANNOTATIONS = "annotations.jsonl"
MANIFEST = "manifest.json"
QUALITY = 92
CHUNK = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What decides the bytes of a split; the name of its folder is made of it."""

    split: str
    num_scenes: int
    seed: int
    size: int
    version: int = VERSION
    font: str = ""

    def folder_name(self) -> str:
        """A name that differs whenever the contents do."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
        return f"{self.split}-{self.num_scenes}x{self.size}-seed{self.seed}-{digest[:8]}"


def read_miniworld(
    *, name: str, folder: str | Path, split: str, num_scenes: int, seed: int = 0, size: int = 128,
    workers: int = 0,
) -> Roster:  # fmt: skip
    """The samples of a MiniWorld split, five captions a scene; drawn on first use.

    Pictures and annotations lie in a folder of ``folder`` whose name tells the settings, so that
    other settings never mix. It appears whole or not at all, whoever else builds it meanwhile.

    Args:
        name: name of the data set, the first part of the roster's.
        folder: where MiniWorld is kept.
        split: ``"train"``, ``"val"``, ``"test_in"``, ``"test_near"`` or ``"test_out"``.
        num_scenes: number of pictures, at least 1.
        seed: of all scenes, at least 0.
        size: side of the pictures in pixels, 32 to 1024.
        workers: processes that draw; 0 draws in this one. The result is the same.

    Returns:
        roster ``"{name}/{split}"`` with regions and phrases.

    Raises:
        ValueError: a setting out of its range, or a broken annotation file.
        FileNotFoundError: a picture that was drawn is gone.
    """
    settings = _settings(split=split, num_scenes=num_scenes, seed=seed, size=size)
    if workers < 0:
        raise ValueError(f"workers must be at least 0: got {workers}")
    target = Path(folder) / settings.folder_name()
    if not (target / MANIFEST).exists():
        build(settings, target, workers=workers)
    return build_roster(f"{name}/{split}", list(_read(settings, target)))


def _settings(*, split: str, num_scenes: int, seed: int, size: int) -> Settings:
    if split not in SPLITS:
        raise ValueError(f"split must be one of {SPLITS}: got {split!r}")
    if num_scenes < 1 or seed < 0:
        raise ValueError(
            f"num_scenes must be at least 1 and seed at least 0: got {num_scenes} and {seed}"
        )
    if not 32 <= size <= 1024:
        raise ValueError(f"size must be in [32, 1024] pixels: got {size}")
    return Settings(split=split, num_scenes=num_scenes, seed=seed, size=size, font=font_version())


# -- building ------------------------------------------------------------------------------------


def render(settings: Settings, index: int) -> tuple[Scene, tuple[Caption, ...], Drawing]:
    """Scene number ``index`` with its captions and picture: a pure function."""
    scene = sample_scene(seed=settings.seed, split=settings.split, index=index)
    rng = np.random.default_rng([settings.seed, SPLITS.index(settings.split), index, 1])
    return scene, caption_scene(scene, rng), draw_scene(scene, size=settings.size)


def build(settings: Settings, target: Path, *, workers: int = 0) -> None:
    """Draw a split into a temporary folder beside ``target``, then give it its name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        (made / "images").mkdir()
        lines = list(_draw_all(settings, made, workers))
        _write(made / ANNOTATIONS, "".join(line + "\n" for line in lines))
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        _write(made / MANIFEST, json.dumps({**asdict(settings), "sha256": digest}, indent=1))
        made.chmod(0o755)
        _publish(made, target)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _publish(made: Path, target: Path) -> None:
    """Rename; where another process was first, its folder, which is the same, stays."""
    if target.exists() and not (target / MANIFEST).exists():
        raise FileExistsError(
            f"{target} exists but has no {MANIFEST}, so MiniWorld did not make it; remove it"
        )
    try:
        made.rename(target)
    except OSError:
        if not (target / MANIFEST).exists():
            raise


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _draw_all(settings: Settings, made: Path, workers: int) -> Iterator[str]:
    starts = range(0, settings.num_scenes, CHUNK)
    work = partial(_draw_chunk, settings, made)
    title, total = f"drawing MiniWorld {settings.split}", len(starts)
    if workers == 0:
        for lines in track(map(work, starts), description=title, total=total, transient=True):
            yield from lines
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        done = pool.map(work, starts)
        for lines in track(done, description=title, total=total, transient=True):
            yield from lines


def _draw_chunk(settings: Settings, made: Path, start: int) -> list[str]:
    lines = []
    for index in range(start, min(start + CHUNK, settings.num_scenes)):
        scene, captions, drawing = render(settings, index)
        (made / "images" / f"{scene.scene_id}.jpg").write_bytes(encode(drawing.image))
        lines.append(json.dumps(annotate(scene, captions, drawing)))
    return lines


def encode(image: Image.Image) -> bytes:
    """A picture as JPEG bytes, colours at full resolution."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, subsampling=0)
    return buffer.getvalue()


def annotate(scene: Scene, captions: tuple[Caption, ...], drawing: Drawing) -> dict[str, Any]:
    """A scene as one line of the annotation file: regions, captions with phrases, and the graph."""
    regions, by_node = [], {}
    for thing, boxes in zip(scene.things, drawing.boxes, strict=True):
        by_node[thing.node] = list(range(len(regions), len(regions) + len(boxes)))
        regions += [{"box": list(box), "label": thing.key} for box in boxes]
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
        kind = scene.things[node].kind.family if node >= 0 else "scene" if node == PLACE else "sky"
        phrases.append(
            {"start": start, "text": text, "node": node, "kind": kind, "regions": by_node[node]}
        )
    return {"text": caption.text, "focus": caption.focus, "phrases": phrases}


# -- reading -------------------------------------------------------------------------------------


def read_graphs(
    *, folder: str | Path, split: str, num_scenes: int, seed: int = 0, size: int = 128
) -> dict[str, dict[str, Any]]:
    """Graphs of a split that was drawn, by image id.

    Raises:
        FileNotFoundError: the split was not drawn with these settings.
    """
    settings = _settings(split=split, num_scenes=num_scenes, seed=seed, size=size)
    return {
        record["image_id"]: record["graph"]
        for record in _records(settings, Path(folder) / settings.folder_name())
    }


def _records(settings: Settings, target: Path) -> list[dict[str, Any]]:
    """The annotation lines, checked against the manifest."""
    path = target / ANNOTATIONS
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; remove {target} and it is drawn anew")
    text = path.read_text(encoding="utf-8")
    manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
    digest = hashlib.sha256(text.rstrip("\n").encode()).hexdigest()
    if manifest != {**asdict(settings), "sha256": digest}:
        raise ValueError(
            f"{path} does not match {MANIFEST} beside it: it was changed or cut short; "
            f"remove {target} and it is drawn anew"
        )
    return [json.loads(line) for line in text.splitlines()]


def _read(settings: Settings, target: Path) -> Iterator[Sample]:
    for record in _records(settings, target):
        path = target / "images" / f"{record['image_id']}.jpg"
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; remove {target} and it is drawn anew")
        regions = tuple(
            Region(box=tuple(float(side) for side in found["box"]), label=found["label"])
            for found in record["regions"]
        )
        for number, caption in enumerate(record["captions"]):
            yield Sample(
                row=0, sample_id=f"{record['image_id']}#{number}", image_id=record["image_id"],
                image_path=path, caption=caption["text"], regions=regions,
                phrases=tuple(_phrase(found) for found in caption["phrases"]),
            )  # fmt: skip


def _phrase(found: dict[str, Any]) -> Phrase:
    node = found["node"]
    return Phrase(
        start=found["start"], text=found["text"], kinds=(found["kind"],),
        chain_id={PLACE: "place", DECOR: "sky"}.get(node, str(node)),
        regions=tuple(found["regions"]),
    )  # fmt: skip
