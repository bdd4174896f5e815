"""Object detectors of torchvision, transformers or ONNX, which return labelled boxes of photos.

A detector is called with RGB photos, and returns each photo's `Region`s in pixels, by falling
confidence. Detectors are not trained here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.models import detection, get_model, get_model_weights, list_models
from torchvision.ops import batched_nms, clip_boxes_to_image
from torchvision.transforms.functional import pil_to_tensor
from transformers import AutoImageProcessor, AutoModelForObjectDetection

from captioning.config.ranges import Device, Fraction, NonNegativeInt, PositiveInt
from captioning.runtime.devices import chosen_device, own_gpu
from captioning.runtime.extras import import_extra
from captioning.runtime.model_folder import damage_named, load_network, model_folder
from captioning.types import Region
from captioning.vision.backbones import read_weights

ONNX_OUTPUTS = ("boxes", "scores", "labels")


class AbstractDetector(ABC):
    """Base class of detectors, which find the regions of photos.

    Args:
        identity: name of the detector, for the file of detections.
        threshold: minimum confidence, in [0, 1].
        max_regions: maximum regions per photo.
        max_overlap: maximum IoU of two boxes with one label; the less confident box is dropped.

    Raises:
        ValueError: a setting out of its range.
    """

    def __init__(
        self,
        *,
        identity: str,
        threshold: Fraction = 0.5,
        max_regions: PositiveInt = 100,
        max_overlap: Fraction = 0.5,
    ) -> None:
        if not 0 <= threshold <= 1 or not 0 <= max_overlap <= 1 or max_regions < 1:
            raise ValueError(
                "threshold and max_overlap must be in [0, 1] and max_regions at least 1: got "
                f"{threshold}, {max_overlap} and {max_regions}"
            )
        self.identity = identity
        self.threshold, self.max_overlap = threshold, max_overlap
        self.max_regions = max_regions

    def __call__(self, photos: Sequence[Image.Image]) -> list[tuple[Region, ...]]:
        """Return the regions of each photo, by falling confidence.

        Raises:
            ValueError: a class without name, or numbers that are not finite.
        """
        with torch.inference_mode():
            outputs = self.raw(photos)
        return [
            self._regions(*output, photo.size)
            for output, photo in zip(outputs, photos, strict=True)
        ]

    @abstractmethod
    def raw(self, photos: Sequence[Image.Image]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return corners ``(R, 4)`` in pixels, confidences and classes ``(R,)`` of each photo."""

    @abstractmethod
    def name_of(self, number: int) -> str | None:
        """Return the name of a class of the network; None if it has none."""

    def _regions(
        self, boxes: Tensor, scores: Tensor, classes: Tensor, size: tuple[int, int]
    ) -> tuple[Region, ...]:
        if not (boxes.isfinite().all() and scores.isfinite().all()):
            raise ValueError(f"{self.identity} returned boxes or confidences that are not finite")
        boxes = clip_boxes_to_image(boxes.float().cpu(), (size[1], size[0]))
        scores, classes = scores.float().cpu(), classes.long().cpu()
        # checked as written: rounding may leave a very thin box without area
        rounded = [tuple(round(value, 2) for value in box) for box in boxes.tolist()]
        filled = torch.tensor([x1 < x2 and y1 < y2 for x1, y1, x2, y2 in rounded], dtype=torch.bool)
        rows = torch.nonzero(filled & (scores >= self.threshold)).flatten()
        selected = rows[batched_nms(boxes[rows], scores[rows], classes[rows], self.max_overlap)]
        return tuple(
            Region(
                box=rounded[row],
                label=self._label(int(classes[row])),
                score=round(float(scores[row]), 4),
            )
            for row in selected[: self.max_regions].tolist()
        )

    def _label(self, number: int) -> str:
        name = self.name_of(number)
        if name is None:
            raise ValueError(
                f"{self.identity}: class {number} has no name; give the class names of this network"
            )
        return name.lower()


class TorchvisionDetector(AbstractDetector):
    """Detector of torchvision in evaluation mode.

    Args:
        name: torchvision's builder, such as ``fasterrcnn_resnet50_fpn_v2``.
        weights: ``DEFAULT`` or other torchvision weights, which are downloaded; or a file with a
            ``state_dict`` (``.safetensors`` or ``.pt``).
        labels: file of class names, one per line, the first for class 1 (0 is the background);
            required with your own weights.
        device: device of the network; ``"auto"`` takes a GPU if there is one.
        **options: options of `AbstractDetector`.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: an unknown builder, weights that do not match, or an invalid device.
    """

    def __init__(
        self,
        *,
        name: str,
        weights: str = "DEFAULT",
        labels: str | Path | None = None,
        device: Device = "cpu",
        **options: Any,
    ) -> None:
        super().__init__(identity=f"torchvision:{name}:{Path(weights).name}", **options)
        self.device = chosen_device(device)
        if name not in list_models(module=detection):
            known_names = ", ".join(list_models(module=detection))
            raise ValueError(f"torchvision has no detector {name!r}; choose from {known_names}")
        if labels is None:
            network, self._names = _published(name, weights)
        else:
            self._names = ["__background__", *read_labels(labels)]
            network = get_model(
                name, weights=None, weights_backbone=None, num_classes=len(self._names)
            )
            _fill(network, Path(weights))
        self.network = network.eval().to(self.device)

    def raw(self, photos: Sequence[Image.Image]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """See `AbstractDetector.raw`."""
        outputs = self.network([(pil_to_tensor(p) / 255).to(self.device) for p in photos])
        return [(output["boxes"], output["scores"], output["labels"]) for output in outputs]

    def name_of(self, number: int) -> str | None:
        """See `AbstractDetector.name_of`."""
        return self._names[number] if 0 < number < len(self._names) else None


class TransformersDetector(AbstractDetector):
    """Detector of transformers, such as DETR, RT-DETR or YOLOS; its config names the classes.

    Args:
        model: folder of a saved model and its image processor, or a name on the hub.
        device: device of the network; ``"auto"`` takes a GPU if there is one.
        **options: options of `AbstractDetector`.

    Raises:
        FileNotFoundError, ConnectionError: see `captioning.runtime.model_folder.model_folder`.
        ValueError: weights are missing, or the device is invalid.
    """

    def __init__(self, *, model: str, device: Device = "cpu", **options: Any) -> None:
        super().__init__(identity=f"transformers:{Path(model).name}", **options)
        self.device = chosen_device(device)
        folder = model_folder(model, instead="detector=torchvision or annotated boxes")
        network = load_network(
            AutoModelForObjectDetection, folder, name=model, kind="a detector of objects"
        )
        with damage_named(model):
            self.processor = AutoImageProcessor.from_pretrained(folder, local_files_only=True)
        self.network = network.eval().to(self.device)

    def raw(self, photos: Sequence[Image.Image]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """See `AbstractDetector.raw`."""
        inputs = self.processor(images=list(photos), return_tensors="pt").to(self.device)
        outputs = self.processor.post_process_object_detection(
            self.network(**inputs),
            threshold=self.threshold,
            target_sizes=[(photo.height, photo.width) for photo in photos],
        )
        return [(output["boxes"], output["scores"], output["labels"]) for output in outputs]

    def name_of(self, number: int) -> str | None:
        """See `AbstractDetector.name_of`."""
        return self.network.config.id2label.get(number)


class OnnxDetector(AbstractDetector):
    """User's own detector as an ONNX file, run by onnxruntime.

    The only input is a photo ``(1, 3, H, W)`` or ``(3, H, W)`` with values in [0, 1]; if the file
    fixes H and W, photos are resized. The outputs must be named ``boxes``, ``scores`` and
    ``labels``, as in exports of torchvision's detectors, with corners in pixels of the input.

    Args:
        model: path of the ONNX file.
        labels: file of class names, one per line.
        first_class: class of the first line; 1 if 0 is the background.
        device: device of the network; devices other than ``cpu`` need an onnxruntime built for
            them, and ``"auto"`` takes a GPU if there is one and onnxruntime supports it.
        **options: options of `AbstractDetector`.

    Raises:
        FileNotFoundError: a file does not exist.
        ModuleNotFoundError: onnxruntime is not installed.
        ValueError: not an ONNX file, other inputs or outputs, or an invalid device.
    """

    def __init__(
        self,
        *,
        model: str | Path,
        labels: str | Path,
        first_class: NonNegativeInt = 1,
        device: Device = "cpu",
        **options: Any,
    ) -> None:
        super().__init__(identity=f"onnx:{Path(model).name}", **options)
        self._labels, self._first_class = read_labels(labels), first_class
        self._session = onnx_session(Path(model), device)
        (self._input,) = self._session.get_inputs()
        outputs = {output.name for output in self._session.get_outputs()}
        if not outputs >= set(ONNX_OUTPUTS) or len(self._input.shape) not in (3, 4):
            raise ValueError(
                f"{model} must take photos (1, 3, H, W) and return {', '.join(ONNX_OUTPUTS)}, but "
                f"it takes {self._input.shape} and returns {', '.join(sorted(outputs))}"
            )

    def raw(self, photos: Sequence[Image.Image]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """See `AbstractDetector.raw`."""
        return [self._raw_of_photo(photo) for photo in photos]

    def _raw_of_photo(self, photo: Image.Image) -> tuple[Tensor, Tensor, Tensor]:
        height, width = self._input.shape[-2:]
        fixed = isinstance(height, int) and isinstance(width, int)
        resized = photo.resize((width, height), Image.Resampling.BILINEAR) if fixed else photo
        pixels = (pil_to_tensor(resized) / 255).numpy()
        inputs = pixels[None] if len(self._input.shape) == 4 else pixels
        outputs = self._session.run(list(ONNX_OUTPUTS), {self._input.name: inputs})
        boxes, scores, classes = (torch.from_numpy(np.asarray(output).copy()) for output in outputs)
        scale = torch.tensor([photo.width / resized.width, photo.height / resized.height] * 2)
        return boxes.reshape(-1, 4) * scale, scores.flatten(), classes.flatten()

    def name_of(self, number: int) -> str | None:
        """See `AbstractDetector.name_of`."""
        position = number - self._first_class
        return self._labels[position] if 0 <= position < len(self._labels) else None


def read_labels(path: str | Path) -> list[str]:
    """Read class names from a file, one per line.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is empty or has an empty line.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file; labels= must be a file of class names")
    names = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    while names and not names[-1]:
        names.pop()
    if not names or not all(names):
        raise ValueError(f"{path} must hold one class name per line: fill or remove the empty line")
    return names


def _published(name: str, weights: str) -> tuple[nn.Module, Sequence[str]]:
    """Return a torchvision network with its published weights, and its class names."""
    published = get_model_weights(name)
    if weights not in published.__members__:
        raise ValueError(
            f"torchvision has no weights {weights!r} for {name} (it has "
            f"{', '.join(published.__members__)}); a weights file also needs labels=FILE"
        )
    try:
        network = get_model(name, weights=published[weights])
    except OSError as error:
        raise ConnectionError(
            f"the weights of {name!r} could not be downloaded ({error}); download them on a "
            f"machine with "
            "network and give weights=FILE labels=FILE"
        ) from error
    return network, published[weights].meta["categories"]


def _fill(network: nn.Module, path: Path) -> None:
    """Load weights strictly."""
    try:
        network.load_state_dict(read_weights(path))
    except RuntimeError as error:
        raise ValueError(
            f"{path} does not hold weights of this detector with the number of classes in labels= "
            f"plus the background: {error}"
        ) from error


def onnx_session(path: Path, device: str) -> Any:
    """Open an ONNX file with onnxruntime.

    Args:
        path: path of the ONNX file.
        device: ``"auto"`` takes a GPU if onnxruntime supports one.

    Raises:
        FileNotFoundError: the file does not exist.
        ModuleNotFoundError: onnxruntime is not installed.
        ValueError: not an ONNX file, or onnxruntime does not support the device.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; model= must be a detector's ONNX file")
    onnxruntime = import_extra("onnxruntime", extra="onnx", purpose="ONNX detectors")
    available = onnxruntime.get_available_providers()
    if device == "auto":
        has_gpu = torch.cuda.is_available() and "CUDAExecutionProvider" in available
        device = "cuda" if has_gpu else "cpu"
    kind, _, number = device.partition(":")
    provider = f"{kind.upper()}ExecutionProvider"
    if provider not in available:
        raise ValueError(
            f"device={device}: this onnxruntime lacks {provider}; for NVIDIA GPUs install "
            "onnxruntime-gpu instead of onnxruntime, or set device=cpu"
        )
    number = number or (str(own_gpu()) if kind == "cuda" else "")
    options = {"device_id": number} if number else {}
    try:
        return onnxruntime.InferenceSession(path.read_bytes(), providers=[(provider, options)])
    except Exception as error:  # onnxruntime's errors share no other class
        raise ValueError(f"{path}: onnxruntime cannot load this ONNX file: {error}") from error
