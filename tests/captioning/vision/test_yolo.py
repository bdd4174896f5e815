"""YOLO's exports to ONNX, on networks of fixed answers written to disk."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.vision.yolo import YoloDetector

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install onnx onnxruntime")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
PHOTO = Image.new("RGB", (80, 40), (200, 30, 30))
NAMES = {"names": "{0: 'dog', 1: 'Cat'}"}
ULTRALYTICS = {**NAMES, "task": "detect", "imgsz": "[64, 64]"}
# In the network's 64 x 64 pixels a photo of 80 x 40 is 64 x 32, below a margin of 16.
CENTRES = np.array([[16.0, 32, 32, 32], [16, 32, 32, 32], [48, 40, 16, 16]])


def network(
    path: Path, answer: np.ndarray, facts: dict[str, str], *, side: int | str = 64, kind: str = ""
) -> Path:
    """A network that answers the same to every photo, plus a thousandth of its mean."""
    element = getattr(onnx.TensorProto, kind or "FLOAT")
    numbers = answer.astype(np.float16 if kind else np.float32)
    value = onnx.numpy_helper.from_array(numbers, "value")
    scale = onnx.numpy_helper.from_array(np.array(0.001, dtype=numbers.dtype), "scale")
    nodes = [
        onnx.helper.make_node("ReduceMean", ["images"], ["mean"], keepdims=0),
        onnx.helper.make_node("Mul", ["mean", "scale"], ["small"]),
        onnx.helper.make_node("Add", ["value", "small"], ["output0"]),
    ]
    photo = onnx.helper.make_tensor_value_info("images", element, [1, 3, side, side])
    output = onnx.helper.make_tensor_value_info("output0", element, answer.shape)
    graph = onnx.helper.make_graph(nodes, "yolo", [photo], [output], [value, scale])
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    onnx.helper.set_model_props(model, facts)
    onnx.save(model, path)
    return path


def with_doubles() -> np.ndarray:
    """``(1, 4 + C, N)``: a dog twice, and a cat."""
    scores = np.array([[0.9, 0.1], [0.8, 0.1], [0.2, 0.6]])
    return np.concatenate([CENTRES, scores], axis=1).T[None]


def of_yolov5() -> np.ndarray:
    """``(1, N, 5 + C)``: the confidences of the same, each that of its box and of its class."""
    scores = np.array([[0.9, 1.0, 0.1], [1.0, 0.8, 0.1], [0.6, 0.3, 1.0]])
    return np.concatenate([CENTRES, scores], axis=1)[None]


def without_doubles() -> np.ndarray:
    """``(1, N, 6)``: corners, confidence and class of the same."""
    return np.array([[[0, 16, 32, 48, 0.9, 0], [40, 32, 56, 48, 0.6, 1], [0, 0, 0, 0, 0, 0]]])


@pytest.mark.parametrize(
    ("answer", "facts"),
    [
        (with_doubles(), ULTRALYTICS),
        (without_doubles(), ULTRALYTICS),
        (of_yolov5(), NAMES),
    ],
)
@pytest.mark.parametrize("kind", ["", "FLOAT16"])
def test_every_export_finds_the_same_in_the_photos_pixels(tmp_path, answer, facts, kind) -> None:
    model = network(tmp_path / "yolo.onnx", answer, facts, kind=kind)
    dog, cat = YoloDetector(model=model, threshold=0.3)([PHOTO])[0]
    assert (dog.label, cat.label) == ("dog", "cat")
    assert dog.box == pytest.approx((0, 0, 40, 40), abs=0.1)
    assert cat.box == pytest.approx((50, 20, 70, 40), abs=0.1)
    assert (dog.score, cat.score) == pytest.approx((0.9, 0.6), abs=0.002)


def test_a_photo_lies_in_grey_margins(tmp_path: Path) -> None:
    answer = without_doubles()
    model = network(tmp_path / "yolo.onnx", answer, ULTRALYTICS)
    black, white = (Image.new("RGB", (80, 40), colour) for colour in ("black", "white"))
    (dark,), (light,) = YoloDetector(model=model, threshold=0.8)([black, white])
    margins = 114 / 255 / 2
    assert dark.score == pytest.approx(0.9 + margins / 1000, abs=1e-4)
    assert light.score == pytest.approx(0.9 + (margins + 0.5) / 1000, abs=1e-4)


def test_a_file_of_free_size_names_its_size_and_labels_may_be_given(tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("horse\nbike\n")
    model = network(tmp_path / "yolo.onnx", with_doubles(), ULTRALYTICS, side="side")
    horse, _ = YoloDetector(model=model, labels=labels)([PHOTO])[0]
    assert horse.label == "horse"
    assert horse.box == pytest.approx((0, 0, 40, 40), abs=0.1)
    (bare,) = YoloDetector(
        model=network(tmp_path / "bare.onnx", of_yolov5(), {}, side="side"),
        labels=labels,
        threshold=0.85,
    )([Image.new("RGB", (640, 640))])[0]
    assert bare.box == pytest.approx((0, 16, 32, 48), abs=0.1)


def test_a_photo_may_be_as_narrow_as_a_line(tmp_path: Path) -> None:
    model = network(tmp_path / "yolo.onnx", without_doubles(), ULTRALYTICS)
    (region,) = YoloDetector(model=model)([Image.new("RGB", (1000, 2))])[0]  # the other is outside
    assert region.box == pytest.approx((0, 0, 500, 2), abs=0.1)


def test_a_device_that_onnxruntime_has_not(tmp_path: Path) -> None:
    model = network(tmp_path / "yolo.onnx", with_doubles(), ULTRALYTICS)
    for device in ("cuda", "cuda:1"):
        with pytest.raises(ValueError, match=rf"device={device}: .* lacks CUDA.* onnxruntime-gpu"):
            YoloDetector(model=model, device=device)


def test_auto_takes_the_processor_where_there_is_no_gpu(tmp_path: Path, monkeypatch) -> None:
    model = network(tmp_path / "yolo.onnx", with_doubles(), ULTRALYTICS)
    onnxruntime = importlib.import_module("onnxruntime")
    available = ["AzureExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: available)
    for has_gpu in (False, True):  # of which this onnxruntime knows nothing
        monkeypatch.setattr(torch.cuda, "is_available", lambda has_gpu=has_gpu: has_gpu)
        detector = YoloDetector(model=model, device="auto")
        assert detector._session.get_providers() == ["CPUExecutionProvider"]


def test_files_that_are_no_yolo(tmp_path: Path) -> None:
    path = tmp_path / "yolo.onnx"
    with pytest.raises(FileNotFoundError, match="yolo.onnx"):
        YoloDetector(model=path)
    path.write_bytes(b"no network")
    with pytest.raises(ValueError, match="cannot load this ONNX file"):
        YoloDetector(model=path)
    with pytest.raises(ValueError, match=r"'segment'; export a YOLO for detection"):
        YoloDetector(
            model=network(path, with_doubles(), {**ULTRALYTICS, "task": "segment"}),
        )
    unreadable = ["dog, cat", "{1: 'dog'}", "(" * 10_000]
    for facts in ({}, *({"names": text} for text in unreadable)):
        with pytest.raises(ValueError, match=r"holds no class names; give them with labels=FILE"):
            YoloDetector(model=network(path, with_doubles(), facts))
    for size, problem in (
        ("64", "two numbers"),
        ("[64, 10**6]", "two numbers"),
        ("[9999, 9]", "8192"),
    ):
        with pytest.raises(ValueError, match=problem):
            YoloDetector(
                model=network(path, with_doubles(), {**ULTRALYTICS, "imgsz": size}, side="side")
            )
    network(path, with_doubles(), {**ULTRALYTICS, "names": "['dog', 'cat', 'cow']"})
    with pytest.raises(ValueError, match=r"output \(1, 6, 3\) does not belong"):
        YoloDetector(model=path)([PHOTO])
