"""YOLO detectors from exported ONNX files that hold their class names.

Two exports are supported. Ultralytics (YOLOv8 to YOLO26, including YOLOv10 and YOLO26 without NMS)
stores the task in the file; the YOLOv5 repository does not. Both store the class names.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.ops import box_convert

from captioning.config.ranges import Device
from captioning.vision.detectors import AbstractDetector, onnx_session, read_labels

GREY = (114, 114, 114)  # of the margins that these networks were trained with
DEFAULT_SIDE = 640  # pixels, of a file that fixes no size and names none
_UNREADABLE = (SyntaxError, TypeError, ValueError, RecursionError, MemoryError)
LARGEST_SIDE = 8192  # what a file may ask for: more is damage, and would fill the memory


class YoloDetector(AbstractDetector):
    """YOLO detector from an ONNX file, run by onnxruntime.

    A photo is scaled into the network's input with grey margins, which keeps its aspect ratio. The
    network's output is ``(1, 4 + C, N)``: centres, sizes and C confidences; ``(1, N, 6)``: corners,
    confidence and class, for networks without duplicates; or, for YOLOv5, ``(1, N, 5 + C)``,
    where every confidence is multiplied by the box's confidence.

    Args:
        model: path of the ONNX file.
        labels: file of class names, one per line, if the ONNX file holds none.
        device: device of the network; devices other than ``cpu`` need an onnxruntime built for
            them.
        **options: options of `AbstractDetector`.

    Raises:
        FileNotFoundError: a file does not exist.
        ModuleNotFoundError: onnxruntime is not installed.
        ValueError: not an ONNX file, not a detector, other inputs or outputs, no class names, or
            an invalid device.
    """

    def __init__(
        self,
        *,
        model: str | Path,
        labels: str | Path | None = None,
        device: Device = "cpu",
        **options: Any,
    ) -> None:
        super().__init__(identity=f"yolo:{Path(model).name}", **options)
        self._file = Path(model)
        self._session = onnx_session(self._file, device)
        facts = self._session.get_modelmeta().custom_metadata_map
        self._ultralytics = "task" in facts
        if facts.get("task", "detect") != "detect":
            raise ValueError(f"{model} has task {facts['task']!r}; export a YOLO for detection")
        self._names = _class_names(model, facts) if labels is None else read_labels(labels)
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or len(inputs[0].shape) != 4:
            raise ValueError(
                f"{model} must take photos (1, 3, H, W), but takes {[i.shape for i in inputs]}"
            )
        self._input = inputs[0]
        self._height, self._width = _input_size(self._file, self._input.shape[-2:], facts)

    def raw(self, photos: Sequence[Image.Image]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """See `AbstractDetector.raw`."""
        return [self._raw_of_photo(photo) for photo in photos]

    def name_of(self, number: int) -> str | None:
        """See `AbstractDetector.name_of`."""
        return self._names[number] if 0 <= number < len(self._names) else None

    def _raw_of_photo(self, photo: Image.Image) -> tuple[Tensor, Tensor, Tensor]:
        scale = min(self._width / photo.width, self._height / photo.height)
        size = (max(1, round(photo.width * scale)), max(1, round(photo.height * scale)))
        left, top = (self._width - size[0]) // 2, (self._height - size[1]) // 2
        framed = Image.new("RGB", (self._width, self._height), GREY)
        framed.paste(photo.convert("RGB").resize(size, Image.Resampling.BILINEAR), (left, top))
        kind = np.float16 if self._input.type == "tensor(float16)" else np.float32
        pixels = (np.asarray(framed, dtype=np.float32) / 255).transpose(2, 0, 1)[None].astype(kind)
        answer = self._session.run(None, {self._input.name: pixels})[0]
        boxes, scores, classes = self._read(torch.from_numpy(answer.astype(np.float32)))
        return (boxes - torch.tensor([left, top] * 2)) / scale, scores, classes

    def _read(self, answer: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Extract corners in input pixels, confidences and classes from a network's output."""
        num_classes, shape = len(self._names), tuple(answer.shape)
        if self._ultralytics and len(shape) == 3 and shape[2] == 6:
            rows = answer[0]
            return rows[:, :4], rows[:, 4], rows[:, 5]
        if self._ultralytics and len(shape) == 3 and shape[1] == 4 + num_classes:
            rows = answer[0].T
            scores, classes = rows[:, 4:].max(dim=1)
        elif not self._ultralytics and len(shape) == 3 and shape[2] == 5 + num_classes:
            rows = answer[0]
            scores, classes = (rows[:, 4:5] * rows[:, 5:]).max(dim=1)
        else:
            raise ValueError(
                f"{self._file}: output {shape} does not belong to a YOLO with "
                f"{num_classes} classes: expected (1, {4 + num_classes}, N) or (1, N, 6) of "
                f"Ultralytics, or (1, N, {5 + num_classes}) of YOLOv5"
            )
        return box_convert(rows[:, :4], "cxcywh", "xyxy"), scores, classes


def _input_size(
    model: Path, fixed: Sequence[int | str | None], facts: dict[str, str]
) -> tuple[int, int]:
    """Return height and width of the input: from the file, or as exported."""
    text = facts.get("imgsz", str([DEFAULT_SIDE] * 2))
    try:
        sides = [int(side) for side in ast.literal_eval(text)]
        height, width = (
            side if isinstance(side, int) else named
            for side, named in zip(fixed, sides, strict=True)
        )
    except _UNREADABLE as error:
        raise ValueError(f"{model}: imgsz must be two numbers, got {text!r}") from error
    if not all(0 < side <= LARGEST_SIDE for side in (height, width)):
        raise ValueError(f"{model} takes {width} x {height} pixels, not 1 to {LARGEST_SIDE}")
    return height, width


def _class_names(model: str | Path, facts: dict[str, str]) -> list[str]:
    """Return the class names that an export holds, by class number."""
    try:
        names = ast.literal_eval(facts["names"])
        return [str(names[number]) for number in range(len(names))]
    except (KeyError, *_UNREADABLE) as error:
        raise ValueError(
            f"{model} holds no class names; give them with labels=FILE, one per line"
        ) from error
