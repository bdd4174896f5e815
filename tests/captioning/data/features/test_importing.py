"""Import of region features and boxes that others have computed, in the layouts of laboratories."""

from __future__ import annotations

import base64
import io
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import msgpack
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.commands.main import main
from captioning.data.features import importing
from captioning.data.features.formats import COLUMNS, Record, TsvSource
from captioning.data.features.importing import import_features, open_sources, read_photo_sizes
from tests.captioning.data.damage import NUM_FILES
from tests.captioning.data.features import layouts
from tests.captioning.data.features.layouts import make_photo

PHOTOS = {"9": make_photo("9", 3), "42": make_photo("42", 10), "7": make_photo("7", 1)}
WITH_BOXES = [
    ("f.tsv", layouts.write_tsv),
    ("f.tsv.0", layouts.write_tsv),
    ("folder", layouts.write_npz_folder),
    ("folder", layouts.write_mcan_folder),
    ("f.h5", layouts.write_vl_bart),
    ("f.hdf5", layouts.write_updown_baseline),
    ("f.h5", layouts.write_padded_h5),
    ("feat_db", layouts.write_uniter),
]
Write = Callable[[Path, layouts.Photos], Path]


@pytest.mark.parametrize(("name", "write"), [*WITH_BOXES, ("f.npz", layouts.write_npz)])
def test_every_layout_gives_the_same_features_and_boxes(
    tmp_path: Path, name: str, write: Write
) -> None:
    store = import_features([write(tmp_path / name, PHOTOS)], folder=tmp_path / "store")
    assert (len(store), store.dim, store.max_regions, store.kind) == (3, 4, 10, "imported")
    positions = store.positions_of_ids(["42", "9"])
    features, mask = store.read(positions)
    assert mask is not None
    assert mask.sum(1).tolist() == [10, 3]
    assert np.allclose(features[0].numpy(), PHOTOS["42"].features, atol=2e-3)
    assert np.allclose(features[1, :3].numpy(), PHOTOS["9"].features, atol=2e-3)
    assert not features[1, 3:].any()
    assert store.has_boxes == (name != "f.npz")
    if store.has_boxes:
        boxes = store.read_boxes(positions)
        assert np.allclose(boxes[0], PHOTOS["42"].shares, atol=5e-4)
        assert np.allclose(boxes[1, :3], PHOTOS["9"].shares, atol=5e-4)
        size = None if name == "feat_db" else (640, 480)
        assert store.sizes_of_ids(["42", "9", "gone"]) == [size, size, None]
    else:
        with pytest.raises(ValueError, match="have no boxes"):
            store.read_boxes(positions)


def test_cocobu_folders_with_boxes_and_sizes_of_their_own(tmp_path: Path) -> None:
    features, boxes, sizes = layouts.write_cocobu(tmp_path / "data", PHOTOS)
    options = {"folder": tmp_path / "s", "boxes": boxes}
    with pytest.raises(ValueError, match=r"42\.npz: boxes are in pixels.*--sizes"):
        import_features([features], **options)
    store = import_features([features], **options, sizes=read_photo_sizes(sizes))
    assert np.allclose(store.read_boxes([1])[0], PHOTOS["7"].shares, atol=1e-6)
    (boxes / "9.npy").unlink()
    options["folder"] = tmp_path / "t"
    with pytest.raises(FileNotFoundError, match=r"9\.npy: no boxes for image 9"):
        import_features([features], **options, sizes=read_photo_sizes(sizes))
    with pytest.raises(ValueError, match="needs features in a folder of"):
        import_features([layouts.write_tsv(tmp_path / "f.tsv", PHOTOS)], **options)


def test_vectors_of_whole_photos_and_cells_of_grids(tmp_path: Path) -> None:
    for folder, shape in (("cocobu_fc", (4,)), ("cocotalk_att", (2, 3, 4))):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "9.npy", np.ones(shape, dtype=np.float32))
    store = import_features([tmp_path / "cocobu_fc"], folder=tmp_path / "fc")
    assert store.read_boxes([0]).tolist() == [[[0, 0, 1, 1]]]
    store = import_features([tmp_path / "cocotalk_att"], folder=tmp_path / "att")
    assert store.max_regions == 6
    torch.testing.assert_close(store.read_boxes([0])[0, 1], torch.tensor([1 / 3, 0, 2 / 3, 0.5]))


def test_parts_folders_patterns_and_chosen_images(tmp_path: Path) -> None:
    parts = tmp_path / "trainval"
    parts.mkdir()
    for number, (name, photo) in enumerate(PHOTOS.items()):
        layouts.write_tsv(parts / f"karpathy_train.tsv.{number * 5}", {name: photo})
    for sources in ([parts], [str(parts / "*.tsv.*")], sorted(parts.iterdir())):
        names = [Path(source.name).suffix for source in open_sources(sources)]
        assert names == [".0", ".5", ".10"] or sources == sorted(parts.iterdir())
        store = import_features(sources, folder=tmp_path / str(len(names) + len(str(sources))))
        assert len(store) == 3
    store = import_features([parts], folder=tmp_path / "chosen", image_ids=["9", "7"])
    assert len(store) == 2
    with pytest.raises(ValueError, match="1 of 2 images have no features.*such as 8"):
        import_features([parts], folder=tmp_path / "t", image_ids=["9", "8"])


def test_photos_are_known_by_the_names_of_their_files(tmp_path: Path) -> None:
    photos = {"COCO_val2014_000000000042": PHOTOS["42"], "31.jpg": PHOTOS["7"]}
    store = import_features([layouts.write_vl_bart(tmp_path / "f.h5", photos)], folder=tmp_path)
    names = ["42", "31", "000000000042.jpg", "COCO_val2014_000000000042"]
    assert store.positions_of_ids(names).tolist() == [1, 0, 1, 1]
    with pytest.raises(ValueError, match="no features for 1 of 2 images.*import-features"):
        store.positions_of_ids(["42", "420"])


def test_import_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = layouts.write_tsv(tmp_path / "f.tsv", PHOTOS)
    records = TsvSource.records

    def killed(source: TsvSource, wanted: Callable[[str, str], bool]) -> Iterator[Record]:
        for number, record in enumerate(records(source, wanted)):
            if number == 2:
                raise KeyboardInterrupt
            yield record

    with monkeypatch.context() as patch:
        patch.setattr(TsvSource, "records", killed)
        with pytest.raises(KeyboardInterrupt):
            import_features([source], folder=tmp_path / "s", chunk_size=1)
    assert (tmp_path / "s" / "features.bin").stat().st_size == (3 + 10) * 4 * 2
    read: list[str] = []

    def watched(source: TsvSource, wanted: Callable[[str, str], bool]) -> Iterator[Record]:
        for record in records(source, wanted):
            read.append(record.image_id)
            yield record

    monkeypatch.setattr(TsvSource, "records", watched)
    store = import_features([source], folder=tmp_path / "s", chunk_size=1)
    assert read == ["9", "7"]  # the first tells the form of all; the rest is what was missing
    assert len(store) == 3
    features, _ = store.read(store.positions_of_ids(["9"]))
    assert np.allclose(features[0].numpy(), PHOTOS["9"].features, atol=2e-3)
    with pytest.raises(ValueError, match="choose another folder"):
        import_features([source], folder=tmp_path / "s", name="other")


def test_space_is_checked_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = layouts.write_npz_folder(tmp_path / "folder", PHOTOS)
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(OSError, match="features of 3 photos need about 0.06 GiB, but only 0.00"):
        import_features([source], folder=tmp_path / "s")
    assert not (tmp_path / "s" / "features.bin").exists()
    with pytest.raises(OSError, match="features of 1 photos need"):
        import_features([source], folder=tmp_path / "s", image_ids=["42", "000000000042.jpg"])
    usage.free = 2**30
    import_features([source], folder=tmp_path / "s", image_ids=["42"])
    usage.free = 10
    for image_ids, number in ((["42", "9"], 1), (["42"], 0), (None, 2)):
        with pytest.raises(OSError, match=f"features of {number} photos need"):
            import_features([source], folder=tmp_path / "s", image_ids=image_ids)


def line_of(path: Path, name: str = "9", dim: int = 4, **cells: bytes) -> bytes:
    """A line, some of its cells replaced."""
    photo = make_photo(name, 3, dim)
    layouts.write_tsv(path / "one.tsv", {name: photo})
    parts = (path / "one.tsv").read_bytes().rstrip(b"\r\n").split(b"\t")
    return b"\t".join({**dict(zip(COLUMNS, parts, strict=True)), **cells}.values()) + b"\n"


def coded(value: float) -> bytes:
    return base64.b64encode(np.full((3, 4), value, "<f4").tobytes())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda line: b"", "hold no features"),
        (lambda line: line()[:-9] + b"\n", "line 1: features"),
        (lambda line: line("42") + line()[:30], "line 2: must hold"),
        (lambda line: line("42") + line("42"), "line 2: image 42 occurs twice"),
        (lambda line: line("42") + line("9", 5), "line 2: features must have 4 values: got 5"),
        (lambda line: line(num_boxes=b"0"), "num_boxes"),
        (lambda line: line(num_boxes=b"2"), "boxes holds 48 bytes"),
        (lambda line: line(num_boxes=b"x"), "num_boxes"),
        (lambda line: line(features=b"%%%"), "not base64"),
        (lambda line: line(image_id=b""), "image_id is empty"),
        (lambda line: line(image_id=b"\xff"), "not UTF-8"),
        (lambda line: line(image_w=b"0"), "image_w must be a number of pixels"),
        (lambda line: line(image_w=b"320"), r"line 1: box \d .* of 320x480 pixels"),
        (lambda line: line(features=coded(np.nan)), "line 1: features are NaN"),
        (lambda line: line(boxes=coded(np.nan)), r"line 1: box 0 \(nan"),
        (lambda line: line(features=coded(1e9)), "too large for float16"),
        (lambda line: line(features=coded(0)), "line 1: all features are zero"),
    ],
)
def test_damaged_tsv_names_the_line(
    tmp_path: Path, content: Callable[..., bytes], message: str
) -> None:
    source = tmp_path / "f.tsv"
    source.write_bytes(content(lambda *args, **cells: line_of(tmp_path, *args, **cells)))
    with pytest.raises(ValueError, match=message):
        import_features([source], folder=tmp_path / "s")


def test_mixed_sources_and_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("x")
    with pytest.raises(ValueError, match=r"f\.txt: features must be one of"):
        import_features([tmp_path / "f.txt"], folder=tmp_path / "s")
    with pytest.raises(FileNotFoundError, match=r"gone\.tsv"):
        import_features([tmp_path / "gone.tsv"], folder=tmp_path / "s")
    with pytest.raises(FileNotFoundError, match=r"\*\.tsv"):
        import_features([tmp_path / "*.tsv"], folder=tmp_path / "s")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty: no features in there"):
        import_features([tmp_path / "empty"], folder=tmp_path / "s")
    folder = layouts.write_npz_folder(tmp_path / "folder", PHOTOS)
    bare = layouts.write_npz(tmp_path / "f.npz", {"8": make_photo("8", 2)})
    with pytest.raises(ValueError, match="array 8: has no boxes, unlike the images before"):
        import_features([folder, bare], folder=tmp_path / "s")
    layouts.write_tsv(folder / "f.tsv", PHOTOS)
    with pytest.raises(ValueError, match=r"holds f\.tsv beside files of numpy"):
        import_features([folder], folder=tmp_path / "s")


class Bomb:
    """What must never be unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("a pickle was run",))


def test_pickles_are_not_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", a=np.array([Bomb()], dtype=object))
    with pytest.raises(ValueError, match=r"f\.npz"):
        import_features([tmp_path / "f.npz"], folder=tmp_path / "s")
    archive = io.BytesIO()
    np.savez(archive, features=np.array([Bomb()], dtype=object))
    packed = {
        b"nd": True,  # codespell:ignore nd
        b"type": "O",
        b"kind": b"O",
        b"shape": [1],
        b"data": pickle.dumps(Bomb()),
    }
    for number, value in enumerate(
        [pickle.dumps(Bomb()), archive.getvalue(), msgpack.packb({"features": packed}), b"x"]
    ):
        path = layouts.write_lmdb(tmp_path / f"db{number}", {"9": value})
        message = "is a pickle.*write the features as .npz" if number == 0 else f"{path}, key b'9'"
        with pytest.raises(ValueError, match=message):
            import_features([path], folder=tmp_path / "s")


def test_lmdb_of_npz_values_and_a_file_that_was_cut(tmp_path: Path) -> None:
    archive = io.BytesIO()
    np.savez_compressed(archive, features=PHOTOS["9"].features, norm_bb=PHOTOS["9"].shares)
    path = layouts.write_lmdb(tmp_path / "db", {"9": archive.getvalue()})
    store = import_features([path / "data.mdb"], folder=tmp_path / "s")
    assert np.allclose(store.read_boxes([0])[0], PHOTOS["9"].shares, atol=1e-6)
    data = (path / "data.mdb").read_bytes()
    (path / "data.mdb").write_bytes(data[:9000])
    with pytest.raises(ValueError, match="was it cut off"):
        import_features([path], folder=tmp_path / "t")


@pytest.mark.long
@settings(max_examples=NUM_FILES)
@given(data=st.data())
def test_mutated_files_give_documented_errors_only(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzz"
    folder.mkdir(exist_ok=True)
    formats = [
        ("f.tsv", layouts.write_tsv),
        ("f.npz", layouts.write_npz),
        ("f.h5", layouts.write_updown_baseline),
        ("g.h5", layouts.write_vl_bart),
    ]
    name, write = data.draw(st.sampled_from(formats))
    content = bytearray(write(folder / name, PHOTOS).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    (folder / name).write_bytes(bytes(content))
    message, check = str(folder), importing._Check()
    rows: list[importing._Rows] = []
    try:
        selection = importing._Selection(imported={})
        rows = list(importing._rows(open_sources([folder / name]), selection, check))
    except ValueError as error:
        message = str(error)
    assert str(folder) in message
    assert all(record.features.dtype == np.float16 for record in rows)
    assert all(np.isfinite(r.boxes).all() for r in rows if r.boxes is not None)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    features, boxes, sizes = layouts.write_cocobu(tmp_path / "data", PHOTOS)
    (tmp_path / "images.txt").write_text("9\n42\n")
    folder = str(tmp_path / "s")
    options = ["--boxes", str(boxes), "--sizes", str(sizes), "--images", f"{tmp_path}/images.txt"]
    assert main(["import-features", str(features), "--folder", folder, *options]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "features of 2 photos need about 0.06 GiB" in shown
    assert "2 images, up to 10 regions of 4 values, with boxes" in shown
    assert main(["import-features", "gone.tsv", "--folder", folder]) == 1
    assert "gone.tsv" in capsys.readouterr().err
