"""Detectors of torchvision, transformers and ONNX, on small networks written to disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision.models.detection import ssdlite320_mobilenet_v3_large
from transformers import YolosConfig, YolosForObjectDetection, YolosImageProcessor

from captioning.vision.detectors import (
    AbstractDetector,
    OnnxDetector,
    TorchvisionDetector,
    TransformersDetector,
    read_labels,
)

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install onnx onnxruntime")
PHOTO = Image.new("RGB", (80, 40), (200, 30, 30))
LABELS = "Dog\nCat\n"


class Fixed(AbstractDetector):
    """Gives the boxes it was made with."""

    def __init__(self, boxes, scores, classes, **options) -> None:
        super().__init__(identity="fixed", **options)
        self.output = (torch.tensor(boxes), torch.tensor(scores), torch.tensor(classes))

    def raw(self, photos):
        return [self.output for _ in photos]

    def name_of(self, number):
        return {0: "Dog", 1: "Cat"}.get(number)


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.txt"
    path.write_text(LABELS)
    return path


def test_the_surest_come_first_and_doubles_of_a_label_go() -> None:
    boxes = [[0.0, 0, 20, 20], [1.0, 0, 21, 20], [0.0, 0, 20, 20], [30.0, 0, 50, 20]]
    detector = Fixed(boxes, [0.6, 0.9, 0.7, 0.2], [0, 0, 1, 0], threshold=0.3)
    (regions,) = detector([PHOTO])
    assert [(r.label, r.score) for r in regions] == [("dog", 0.9), ("cat", 0.7)]
    assert regions[0].box == (1, 0, 21, 20)
    assert len(Fixed(boxes, [0.6, 0.9, 0.7, 0.2], [0] * 4, max_regions=1)([PHOTO])[0]) == 1


def test_boxes_are_cut_at_the_edge_and_those_outside_go() -> None:
    boxes = [[-5.0, -5, 200, 20], [90.0, 0, 95, 20]]
    (regions,) = Fixed(boxes, [0.9, 0.9], [0, 0])([PHOTO])
    assert [region.box for region in regions] == [(0, 0, 80, 20)]


def test_boxes_of_which_rounding_leaves_nothing_go() -> None:
    boxes = [[79.998, 5, 90, 20], [5, 3.001, 9, 3.004], [5, 3.001, 9, 3.02]]
    (regions,) = Fixed(boxes, [0.9, 0.8, 0.7], [0, 0, 0])([PHOTO])
    assert [region.box for region in regions] == [(5, 3, 9, 3.02)]
    nothing = Fixed([], [], [])
    nothing.output = (torch.zeros(0, 4), torch.zeros(0), torch.zeros(0))
    assert nothing([PHOTO]) == [()]


def test_what_a_network_must_not_give_is_an_error() -> None:
    with pytest.raises(ValueError, match="class 7 has no name"):
        Fixed([[0.0, 0, 5, 5]], [0.9], [7])([PHOTO])
    with pytest.raises(ValueError, match="not finite"):
        Fixed([[0.0, 0, float("nan"), 5]], [0.9], [0])([PHOTO])
    with pytest.raises(ValueError, match="threshold"):
        Fixed([], [], [], threshold=2)


def test_torchvision_by_a_file_of_weights(
    labels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3)
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    config = {
        "name": "ssdlite320_mobilenet_v3_large",
        "weights": str(tmp_path / "weights.safetensors"),
    }
    detector = TorchvisionDetector(**config, labels=labels, threshold=0.0, max_regions=5)
    (regions,) = detector([PHOTO])
    assert {region.label for region in regions} <= {"dog", "cat"}
    assert 0 < len(regions) <= 5
    assert regions == detector([PHOTO])[0]
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        assert TorchvisionDetector(**config, labels=labels, device="auto").device.type == "cpu"
        patch.setattr(torch.cuda, "device_count", lambda: 0)
        with pytest.raises(ValueError, match="device=cuda: torch sees none of this kind"):
            TorchvisionDetector(**config, labels=labels, device="cuda")
    labels.write_text("dog\n")
    with pytest.raises(ValueError, match="number of classes in labels="):
        TorchvisionDetector(**config, labels=labels)
    with pytest.raises(ValueError, match="needs labels=FILE"):
        TorchvisionDetector(**config)
    with pytest.raises(ValueError, match="choose from fasterrcnn"):
        TorchvisionDetector(name="resnet50")


def test_transformers_by_folder(tmp_path: Path) -> None:
    config = YolosConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        image_size=[32, 64], patch_size=16, num_detection_tokens=6, id2label={0: "Dog", 1: "Cat"},
    )  # fmt: skip
    YolosForObjectDetection(config).save_pretrained(tmp_path)
    YolosImageProcessor(size={"height": 32, "width": 64}).save_pretrained(tmp_path)
    detector = TransformersDetector(model=str(tmp_path), threshold=0.0, max_overlap=1.0)
    detections = detector([PHOTO, PHOTO])
    assert detections[0] == detections[1]
    assert TransformersDetector(model=str(tmp_path), device="auto").device.type in ("cpu", "cuda")
    assert len(detections[0]) == 6
    for region in detections[0]:
        assert 0 <= region.box[0] < region.box[2] <= 80
        assert 0 <= region.box[1] < region.box[3] <= 40
    with pytest.raises(FileNotFoundError, match="no such folder"):
        TransformersDetector(model=str(tmp_path / "nowhere"))


def onnx_file(
    path: Path, *, size: tuple[int | str, int | str], outputs=("boxes", "scores")
) -> Path:
    """A network that finds one thing of class 2 in the left half of every photo of 64 x 32."""
    values = {"boxes": [[0.0, 0.0, 32.0, 32.0]], "scores": [0.8], "labels": [2]}
    kinds = {"labels": onnx.TensorProto.INT64}
    nodes, infos = [], []
    for name in (*outputs, "labels"):
        kind = kinds.get(name, onnx.TensorProto.FLOAT)
        shape = [1, 4] if name == "boxes" else [1]
        flat = values[name][0] if name == "boxes" else values[name]
        tensor = onnx.helper.make_tensor(f"{name}_value", kind, shape, flat)
        nodes.append(onnx.helper.make_node("Constant", [], [name], value=tensor))
        infos.append(onnx.helper.make_tensor_value_info(name, kind, shape))
    photo = onnx.helper.make_tensor_value_info("photo", onnx.TensorProto.FLOAT, [1, 3, *size])
    nodes.append(onnx.helper.make_node("Identity", ["photo"], ["seen"]))
    graph = onnx.helper.make_graph(nodes, "fixed", [photo], infos)
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path


def test_onnx_boxes_are_brought_to_the_photos_pixels(labels: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    fixed = onnx_file(tmp_path / "fixed.onnx", size=(32, 64))
    (region,) = OnnxDetector(model=fixed, labels=labels)([PHOTO])[0]
    assert region.box == (0, 0, 40, 40)
    assert (region.label, region.score) == ("cat", 0.8)
    free = onnx_file(tmp_path / "free.onnx", size=("height", "width"))
    (region,) = OnnxDetector(model=free, labels=labels)([PHOTO])[0]
    assert region.box == (0, 0, 32, 32)
    with pytest.raises(ValueError, match="class 2 has no name"):
        OnnxDetector(model=free, labels=labels, first_class=0)([PHOTO])


def test_files_that_are_no_detector(labels: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    bad = tmp_path / "bad.onnx"
    with pytest.raises(FileNotFoundError, match="ONNX file"):
        OnnxDetector(model=bad, labels=labels)
    bad.write_bytes(b"no network")
    with pytest.raises(ValueError, match="cannot load this ONNX file"):
        OnnxDetector(model=bad, labels=labels)
    other = onnx_file(tmp_path / "other.onnx", size=(32, 64), outputs=("boxes",))
    with pytest.raises(ValueError, match="returns boxes, labels"):
        OnnxDetector(model=other, labels=labels)


def test_labels_are_a_name_a_line(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text("dog\n\ncat\n")
    with pytest.raises(ValueError, match="per line"):
        read_labels(path)
    path.write_text("\n")
    with pytest.raises(ValueError, match="per line"):
        read_labels(path)
    with pytest.raises(FileNotFoundError, match="labels="):
        read_labels(tmp_path / "none.txt")
