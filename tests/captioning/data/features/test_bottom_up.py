"""Import of precomputed region features."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.commands.main import main
from captioning.data.features import bottom_up
from captioning.data.features.bottom_up import import_features, read_records

COUNTS = {"9": 3, "42": 10, "a": 1}


def features_of(name: str, dim: int = 4) -> np.ndarray:
    draw = np.random.default_rng(sum(map(ord, name)))
    return draw.normal(size=(COUNTS[name], dim)).astype(np.float32)


def tsv_line(name: str, dim: int = 4) -> bytes:
    values = features_of(name, dim)
    boxes = np.zeros((len(values), 4), dtype="<f4")
    cells = [name, "640", "480", str(len(values))]
    coded = [base64.b64encode(array.astype("<f4").tobytes()) for array in (boxes, values)]
    return b"\t".join([*(cell.encode() for cell in cells), *coded]) + b"\n"


def write_tsv(path: Path) -> Path:
    path.write_bytes(b"".join(map(tsv_line, COUNTS)))
    return path


def write_npz(path: Path) -> Path:
    np.savez(path, **{name: features_of(name) for name in COUNTS})
    return path


def write_h5_by_name(path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for name in COUNTS:
            file[name] = features_of(name)
    return path


def write_h5_table(path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["image_id"] = np.array(list(COUNTS), dtype="S4")
        file["num_boxes"] = list(COUNTS.values())
        kind = h5py.vlen_dtype(np.float32)
        rows = file.create_dataset("features", (len(COUNTS),), dtype=kind)
        for row, name in enumerate(COUNTS):
            rows[row] = features_of(name).ravel()
    return path


def write_h5_padded(path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    padded = np.zeros((len(COUNTS), 12, 4), dtype=np.float32)
    for row, name in enumerate(COUNTS):
        padded[row, : COUNTS[name]] = features_of(name)
    with h5py.File(path, "w") as file:
        file["image_id"] = np.array(list(COUNTS), dtype="S4")
        file["num_boxes"] = list(COUNTS.values())
        file["features"] = padded
    return path


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("f.tsv", write_tsv),
        ("f.npz", write_npz),
        ("f.h5", write_h5_by_name),
        ("f.h5", write_h5_table),
        ("f.h5", write_h5_padded),
    ],
)
def test_every_format_gives_the_same_features(
    tmp_path: Path, name: str, write: Callable[[Path], Path]
) -> None:
    store = import_features([write(tmp_path / name)], folder=tmp_path / "store")
    assert (len(store), store.dim, store.max_regions, store.kind) == (3, 4, 10, "imported")
    features, mask = store.read(store.positions_of_ids(["42", "9"]))
    assert mask is not None
    assert mask.sum(1).tolist() == [10, 3]
    assert np.allclose(features[0].numpy(), features_of("42"), atol=2e-3)
    assert np.allclose(features[1, :3].numpy(), features_of("9"), atol=2e-3)
    assert not features[1, 3:].any()


def test_one_npz_file_an_image(tmp_path: Path) -> None:
    for name in COUNTS:
        np.savez(tmp_path / f"{name}.npz", feat=features_of(name))
    store = import_features(sorted(tmp_path.glob("*.npz")), folder=tmp_path / "store")
    assert store.read(store.positions_of_ids(["9"]))[0].shape == (1, 3, 4)


def test_chosen_images_and_several_files(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(tsv_line("9"))
    (tmp_path / "b.tsv").write_bytes(tsv_line("42") + tsv_line("a"))
    sources = [tmp_path / "a.tsv", tmp_path / "b.tsv"]
    store = import_features(sources, folder=tmp_path / "s", image_ids=["9", "a"])
    assert len(store) == 2
    with pytest.raises(ValueError, match="1 images have no features.*such as 7"):
        import_features(sources, folder=tmp_path / "t", image_ids=["9", "7"])


def test_import_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_tsv(tmp_path / "f.tsv")

    def killed(path: Path) -> object:
        yield from list(read_records_before(path))[:2]
        raise KeyboardInterrupt

    read_records_before = read_records
    with monkeypatch.context() as patch:
        patch.setattr(bottom_up, "read_records", killed)
        with pytest.raises(KeyboardInterrupt):
            import_features([source], folder=tmp_path / "s", chunk_size=1)
    size = (tmp_path / "s" / "features.bin").stat().st_size
    assert size == (3 + 10) * 4 * 2
    store = import_features([source], folder=tmp_path / "s", chunk_size=1)
    assert len(store) == 3
    assert np.allclose(
        store.read(store.positions_of_ids(["9"]))[0][0].numpy(), features_of("9"), atol=2e-3
    )
    with pytest.raises(ValueError, match="choose another folder"):
        import_features([source], folder=tmp_path / "s", name="other")


def changed(**cells: bytes) -> bytes:
    parts = dict(zip(bottom_up.TSV_COLUMNS, tsv_line("9").rstrip(b"\n").split(b"\t"), strict=True))
    return b"\t".join({**parts, **cells}.values()) + b"\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no features in there"),
        (tsv_line("9")[:-9] + b"\n", "line 1: features"),
        (tsv_line("42") + tsv_line("9")[:30], "line 2: must hold"),
        (tsv_line("42") + tsv_line("42"), "line 2: image 42 occurs twice"),
        (tsv_line("42") + tsv_line("9", 5), "line 2: features must have 4 values: got 5"),
        (changed(num_boxes=b"0"), "num_boxes"),
        (changed(num_boxes=b"2"), "boxes holds 48 bytes"),
        (changed(num_boxes=b"x"), "num_boxes"),
        (changed(features=b"%%%"), "not base64"),
        (changed(image_id=b""), "image_id is empty"),
        (changed(image_id=b"\xff"), "not UTF-8"),
        (
            changed(features=base64.b64encode(np.full((3, 4), np.nan, "<f4").tobytes())),
            "line 1: features are NaN",
        ),
        (
            changed(features=base64.b64encode(np.full((3, 4), 1e9, "<f4").tobytes())),
            "too large for float16",
        ),
    ],
)
def test_damaged_tsv_names_the_line(tmp_path: Path, content: bytes, message: str) -> None:
    source = tmp_path / "f.tsv"
    source.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        import_features([source], folder=tmp_path / "s")


@settings(max_examples=2000)
@given(data=st.data())
def test_mutated_files_give_documented_errors_only(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzz"
    folder.mkdir(exist_ok=True)
    name, write = data.draw(
        st.sampled_from([("f.tsv", write_tsv), ("f.npz", write_npz), ("f.h5", write_h5_table)])
    )
    content = bytearray(write(folder / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    (folder / name).write_bytes(bytes(content))
    message, records = str(folder), []
    try:
        records = list(bottom_up._checked(read_records(folder / name), None))
    except ValueError as error:
        message = str(error)
    assert str(folder) in message
    assert all(values.dtype == np.float16 for _, values, _ in records)


def test_other_sources_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("x")
    with pytest.raises(ValueError, match=r"f\.txt"):
        import_features([tmp_path / "f.txt"], folder=tmp_path / "s")
    with pytest.raises(FileNotFoundError, match=r"gone\.tsv"):
        import_features([tmp_path / "gone.tsv"], folder=tmp_path / "s")


def test_pickled_arrays_are_not_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", a=np.array([{"x": 1}], dtype=object))
    with pytest.raises(ValueError, match=r"f\.npz"):
        import_features([tmp_path / "f.npz"], folder=tmp_path / "s")


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_tsv(tmp_path / "f.tsv")
    folder = str(tmp_path / "s")
    assert main(["import-features", str(source), "--folder", folder]) == 0
    assert "3 images, up to 10 regions of 4 values" in capsys.readouterr().out
    assert main(["import-features", "gone.tsv", "--folder", folder]) == 1
    assert "gone.tsv" in capsys.readouterr().err
