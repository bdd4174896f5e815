"""The feature store and what fills it."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.utils.data import DataLoader

from captioning.data.features import build as features
from captioning.data.features import store as feature_store
from captioning.data.features.build import ensure_features, store_folder
from captioning.data.features.store import FeatureStore
from captioning.runtime.file_lock import locked
from captioning.vision.backbones import Backbone, build_backbone
from captioning.vision.photos import load_rgb

TINY = "test_efficientnet"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    torch.manual_seed(0)
    state = build_backbone(name=TINY, weights="random").network.state_dict()
    save_file({key: value.contiguous() for key, value in state.items()}, path)
    return path


@pytest.fixture(scope="module")
def backbone(weights: Path) -> Backbone:
    return build_backbone(name=TINY, weights=weights, image_size=64)


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "photos"
    folder.mkdir()
    draw = np.random.default_rng(0)
    paths = [folder / f"{number}.png" for number in range(5)]
    for number, path in enumerate(paths):
        pixels = draw.integers(0, 255, (40 + number, 60, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    return paths


class Counting:
    """A loader of photos that notes which it loaded."""

    def __init__(self) -> None:
        self.paths: list[Path] = []

    def __call__(self, path: Path) -> Image.Image:
        self.paths.append(path)
        return load_rgb(path)


def direct(backbone: Backbone, path: Path) -> torch.Tensor:
    side = backbone.image_size
    image = load_rgb(path).resize((side, side), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
    with torch.inference_mode():
        return backbone.eval().grid(backbone.normalise(pixels))[0]


def test_grid_features_are_those_of_the_backbone(
    photos: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    store = ensure_features(photos, backbone=backbone, folder=tmp_path, batch_size=2)
    features, mask = store.read(store.positions(photos))
    assert mask is None
    assert features.dtype == torch.float16
    assert features.shape == (5, backbone.num_cells, backbone.dim)
    for path, features_ in zip(photos, features, strict=True):
        expected = direct(backbone, path)
        assert torch.allclose(features_.float(), expected, atol=2e-3 * float(expected.abs().max()))


def test_order_and_repeats_of_positions(
    photos: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    store = ensure_features(photos, backbone=backbone, folder=tmp_path)
    requested = [photos[3], photos[0], photos[3]]
    features, _ = store.read(store.positions(requested))
    single, _ = store.read(store.positions([photos[3]]))
    assert torch.equal(features[0], single[0])
    assert torch.equal(features[2], single[0])
    assert not torch.equal(features[1], single[0])


def test_only_what_is_new_is_computed(
    photos: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    ensure_features(photos[:3], backbone=backbone, folder=tmp_path)
    load = Counting()
    ensure_features(photos, backbone=backbone, folder=tmp_path, load=load)
    assert sorted(load.paths) == photos[3:]
    twin = tmp_path / "same photo.png"
    twin.write_bytes(photos[0].read_bytes())
    load = Counting()
    store = ensure_features([*photos, twin], backbone=backbone, folder=tmp_path, load=load)
    assert load.paths == []
    first, again = store.positions([photos[0], twin])
    assert first == again


def test_photos_are_hashed_once(
    photos: list[Path], backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_features(photos, backbone=backbone, folder=tmp_path)

    def never(path: Path) -> str:
        raise RuntimeError(f"hashed {path} again")

    monkeypatch.setattr(features, "hash_file", never)
    monkeypatch.setattr(feature_store, "hash_file", never)
    store = ensure_features(photos, backbone=backbone, folder=tmp_path)
    assert len(set(store.positions(photos))) == 5


def test_a_run_that_ends_between_plan_and_lock_is_noticed(
    photos: list[Path], backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = features._plan
    others = [photos[:3]]

    def overtaken(*arguments):
        planned = plan(*arguments)
        if others:
            ensure_features(others.pop(), backbone=backbone, folder=tmp_path)
        return planned

    monkeypatch.setattr(features, "_plan", overtaken)
    load = Counting()
    store = ensure_features(photos, backbone=backbone, folder=tmp_path, load=load)
    assert sorted(load.paths) == photos[3:]
    assert len(set(store.positions(photos))) == len(FeatureStore.open(store.folder)) == 5


def test_replaced_photo_gets_new_features(
    photos: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    store = ensure_features(photos, backbone=backbone, folder=tmp_path)
    before, _ = store.read(store.positions(photos[:1]))
    Image.new("RGB", (50, 50), "green").save(photos[0])
    with pytest.raises(ValueError, match=r"0\.png.*captioning prepare"):
        store.positions(photos)
    store = ensure_features(photos, backbone=backbone, folder=tmp_path)
    after, _ = store.read(store.positions(photos[:1]))
    assert not torch.equal(before, after)
    assert len(store) == 6


def test_features_serve_photos_that_are_not_on_this_machine(
    photos: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    store = ensure_features(photos, backbone=backbone, folder=tmp_path)
    expected = store.positions(photos)
    for path in photos:
        path.unlink()
    assert FeatureStore.open(store.folder).positions(photos).tolist() == expected.tolist()


def test_moved_and_touched_photos_are_recognised_without_a_new_index(
    photos: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    store = ensure_features(photos, backbone=backbone, folder=tmp_path)
    expected = store.positions(photos).tolist()
    os.utime(photos[0])
    moved = [path.rename(tmp_path / path.name) for path in photos[1:]]
    assert store.positions([photos[0], *moved]).tolist() == expected


def test_region_features_begin_with_the_whole_photo(
    photos: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    boxes = [[(0.0, 0.0, 60.0, 20.0)] * number for number in range(5)]
    store = ensure_features(
        photos, backbone=backbone, folder=tmp_path, kind="regions", boxes=boxes, max_boxes=3
    )
    features, mask = store.read(store.positions(photos))
    assert features.shape == (5, 4, backbone.dim)
    assert mask is not None
    assert mask.sum(1).tolist() == [1, 2, 3, 4, 4]
    assert not features[~mask].any()
    expected = direct(backbone, photos[2]).mean(0)
    assert torch.allclose(features[2, 0].float(), expected, atol=5e-3 * float(expected.abs().max()))
    even, none = store.read(store.positions(photos[3:]))
    assert none is None
    assert torch.equal(even[0], features[3])
    with pytest.raises(ValueError, match="pass boxes="):
        FeatureStore.open(store.folder).positions(photos)
    opened = FeatureStore.open(store.folder).positions(photos[:2], boxes=boxes[:2])
    assert opened.tolist() == store.positions(photos[:2]).tolist()


def test_other_boxes_are_other_features(
    photos: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    options = {"backbone": backbone, "folder": tmp_path, "kind": "regions"}
    first = ensure_features(photos[:1], boxes=[[(0, 0, 30, 30)]], **options)
    second = ensure_features(photos[:1], boxes=[[(0, 0, 60, 40)]], **options)
    assert first.positions(photos[:1])[0] != second.positions(photos[:1])[0]
    with pytest.raises(ValueError, match="two different lists"):
        ensure_features([photos[0]] * 2, boxes=[[], [(0, 0, 9, 9)]], **options)
    with pytest.raises(ValueError, match="need boxes"):
        ensure_features(photos[:1], **options)


def test_workers_and_pickles_map_the_file_anew(
    photos: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    store = ensure_features(photos, backbone=backbone, folder=tmp_path)
    expected, _ = store.read(np.arange(5))
    assert len(pickle.dumps(store)) < 4000
    copy = pickle.loads(pickle.dumps(store))  # noqa: S301
    assert torch.equal(copy.read(copy.positions(photos))[0], store.read(store.positions(photos))[0])
    assert torch.equal(copy.read(np.arange(5))[0], expected)


def test_data_loader_workers_read(photos: list[Path], backbone: Backbone, tmp_path: Path) -> None:
    store = ensure_features(photos, backbone=backbone, folder=tmp_path)
    loader = DataLoader([0, 3], batch_size=None, num_workers=1, collate_fn=_Reader(store))
    features = torch.cat(list(loader))
    assert torch.equal(features, store.read([0, 3])[0])


class _Reader:
    def __init__(self, store: FeatureStore) -> None:
        self.store = store

    def __call__(self, position: int) -> torch.Tensor:
        return self.store.read([position])[0]


def test_store_of_another_backbone_is_refused(
    photos: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    store = ensure_features(photos[:1], backbone=backbone, folder=tmp_path)
    index = json.loads((store.folder / "index.json").read_text())
    for key, value in (("identity", "other-1"), ("dim", 7), ("image_size", 32)):
        (store.folder / "index.json").write_text(json.dumps({**index, key: value}))
        with pytest.raises(ValueError, match=key):
            ensure_features(photos, backbone=backbone, folder=tmp_path)
    other = build_backbone(name=TINY, weights="random", image_size=64)
    assert store_folder(tmp_path, backbone=other, kind="grid") != store.folder


def test_features_that_are_not_finite_name_the_photo(
    photos: list[Path], weights: Path, tmp_path: Path
) -> None:
    broken = build_backbone(name=TINY, weights=weights, image_size=64)
    with torch.no_grad():
        next(broken.network.parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match=r"\d\.png: the features are not finite"):
        ensure_features(photos, backbone=broken, folder=tmp_path)
    assert torch.get_num_threads() >= 1


@pytest.mark.parametrize("content", [b"", b"not a photo", b"\x89PNG\r\n\x1a\n" + b"0" * 30])
def test_broken_photos_name_the_file_and_keep_the_store(
    photos: list[Path], backbone: Backbone, tmp_path: Path, content: bytes
) -> None:
    store = ensure_features(photos[:2], backbone=backbone, folder=tmp_path)
    photos[4].write_bytes(content)
    with pytest.raises(ValueError, match=r"4\.png"):
        ensure_features(photos, backbone=backbone, folder=tmp_path)
    assert len(FeatureStore.open(store.folder)) >= 2
    with pytest.raises(FileNotFoundError, match=r"gone\.png"):
        ensure_features([tmp_path / "gone.png"], backbone=backbone, folder=tmp_path)


def test_too_small_a_disk_is_said_before_the_start(
    photos: list[Path], backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(OSError, match="only 0.00 GiB are free"):
        ensure_features(photos, backbone=backbone, folder=tmp_path)


SCRIPT = """
import sys, time
from pathlib import Path
from captioning.data.features.build import ensure_features
from captioning.vision.photos import load_rgb
from captioning.vision.backbones import build_backbone
folder, weights, delay = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
def slow(path):
    time.sleep(delay)
    return load_rgb(path)
backbone = build_backbone(name="test_efficientnet", weights=weights, image_size=64)
paths = sorted((folder / "photos").glob("*.png"))
ensure_features(paths, backbone=backbone, folder=folder, batch_size=1, chunk_size=1,
                num_workers=1, load=slow)
"""


def start(folder: Path, weights: Path, delay: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(folder), str(weights), str(delay)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.long
def test_killed_run_goes_on_and_two_runs_wait_for_each_other(
    photos: list[Path],
    backbone: Backbone,
    weights: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = store_folder(tmp_path, backbone=backbone, kind="grid")
    killed = start(tmp_path, weights, 0.7)
    deadline = time.monotonic() + 60
    while not (target / "index.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert killed.stdout is not None
    killed.stdout.close()
    num_saved = len(FeatureStore.open(target))
    assert 1 <= num_saved < 5
    load = Counting()
    with locked(target / "lock", subject="x", notify=print) as waited:
        assert not waited  # the dead process's lock is free
        options = {"backbone": backbone, "folder": tmp_path, "load": load}
        second = threading.Thread(target=ensure_features, args=(photos,), kwargs=options)
        second.start()
        output = ""
        while "is being built by" not in output and second.is_alive():
            output += capsys.readouterr().out.replace("\n", " ")
            time.sleep(0.02)
        assert load.paths == []
    second.join()
    assert "is being built by" in output
    assert len(load.paths) == 5 - num_saved
    assert len(FeatureStore.open(target)) == 5


def test_threads_take_turns_with_the_lock(tmp_path: Path) -> None:
    messages: list[str] = []
    order: list[str] = []

    def wait() -> None:
        with locked(
            tmp_path / "lock", subject="cache", notify=messages.append, poll_seconds=0.01
        ) as waited:
            order.append(f"second {waited}")

    with locked(tmp_path / "lock", subject="cache", notify=messages.append) as waited:
        assert not waited
        other = threading.Thread(target=wait)
        other.start()
        time.sleep(0.1)
        order.append("first")
    other.join()
    assert order == ["first", "second True"]
    assert f"process {os.getpid()}" in messages[0]


@pytest.mark.long
def test_real_photos(shared_data: Path, tmp_path: Path) -> None:
    paths = sorted((shared_data / "flickr8k" / "images").glob("*.jpg"))[:3]
    lite0 = build_backbone(name="efficientnet_lite0")
    store = ensure_features(paths, backbone=lite0, folder=tmp_path)
    features, _ = store.read(store.positions(paths))
    assert features.shape == (3, 49, 1280)
    for path, features_ in zip(paths, features, strict=True):
        expected = direct(lite0, path)
        assert torch.allclose(features_.float(), expected, atol=4e-3, rtol=2e-3)


def test_bfloat16_is_near_and_kept_apart(
    photos: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    exact = ensure_features(photos, backbone=backbone, folder=tmp_path)
    rough = ensure_features(photos, backbone=backbone, folder=tmp_path, precision="bfloat16")
    assert exact.folder != rough.folder
    first, _ = exact.read(exact.positions(photos))
    second, _ = rough.read(rough.positions(photos))
    error = (first.float() - second.float()).norm() / first.float().norm()
    assert 0 < error < 0.05
    with pytest.raises(ValueError, match="precision"):
        ensure_features(photos, backbone=backbone, folder=tmp_path, precision="int8")
