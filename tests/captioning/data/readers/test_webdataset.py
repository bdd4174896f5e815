from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioning.data.readers import webdataset
from captioning.data.readers.webdataset import read_webdataset
from captioning.vision.photos import load_rgb, photo_problem
from tests.captioning.data.damage import damage_bytes
from tests.packed_files import photo, write_tar


def pairs(*keys: str) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    for number, key in enumerate(keys):
        members |= {f"{key}.jpg": photo(number), f"{key}.txt": f"caption of {key}".encode()}
    return members


def read(folder: Path, **settings):
    return read_webdataset(**({"name": "w", "folder": folder} | settings))


def pixels(data: bytes) -> bytes:
    return Image.open(io.BytesIO(data)).convert("RGB").tobytes()


def test_photos_of_shards_are_those_that_were_packed(tmp_path):
    members = pairs("a", "below/b", "c", "x" * 120, "ü")
    for format in (1, 2):  # GNU's and POSIX's headers of long names
        write_tar(tmp_path / "s.tar", members, format)
        roster = read(tmp_path)
        assert [s.image_id for s in roster.samples] == ["a", "below/b", "c", "x" * 120, "ü"]
        assert [s.sample_id for s in roster.samples][:2] == ["a#0", "below/b#0"]
        for sample in reversed(roster.samples):
            packed = members[f"{sample.image_id}.jpg"]
            assert load_rgb(sample.image_path).tobytes() == pixels(packed)
            assert sample.caption == f"caption of {sample.image_id}"


def test_names_that_begin_with_the_folder_itself(tmp_path):
    write_tar(tmp_path / "s.tar", {"./a.jpg": photo(), "./a.txt": b"A dog."})
    sample = read(tmp_path).samples[0]
    assert sample.image_id == "a"
    assert load_rgb(sample.image_path).tobytes() == pixels(photo())


def test_where_captions_are_read(tmp_path):
    def record(**values) -> bytes:
        return json.dumps(values).encode()

    members = {
        "a.jpg": photo(),
        "a.txt": b" A  dog.\n",
        "a.json": record(caption="no", other="Cat."),
        "b.JPEG": photo(),
        "b.json": record(captions=["One.", "Two."], other=["Three.", "Four."]),
        "b.npy": b"something else",
        "c.json": record(caption="Three.", other="Dog."),
        "c.webp": photo(),
    }
    write_tar(tmp_path / "s.tar", members)
    captions = [sample.caption for sample in read(tmp_path).samples]
    assert captions == ["A dog.", "One.", "Two.", "Three."]
    captions = [sample.caption for sample in read(tmp_path, caption_key="other").samples]
    assert captions == ["Cat.", "Three.", "Four.", "Dog."]


@pytest.mark.parametrize(
    ("name", "data", "rule"),
    [
        ("b.txt", b"  \n", "the caption is empty"),
        ("b.txt", b"\xff", "its .txt is not UTF-8"),
        ("b.json", b"{", "its .json is not JSON"),
        ("b.json", b"[" * 100_000, "its .json is not JSON"),
        ("b.json", b'{"caption": 3}', "photo without caption"),
        ("b.json", b'{"captions": ["a", null]}', "not a text or a list of texts"),
        ("b.json", b'{"url": "x"}', "photo without caption"),
        ("b.npy", b"", "photo without caption"),
    ],
)
def test_photos_without_captions(tmp_path, name, data, rule):
    write_tar(tmp_path / "s.tar", pairs("a") | {"b.jpg": photo(), name: data})
    with pytest.raises(ValueError, match=rf"s.tar/b: .*{rule}.*missing_captions=drop"):
        read(tmp_path)
    roster = read(tmp_path, missing_captions="drop")
    assert [sample.image_id for sample in roster.samples] == ["a"]
    assert [(d.item, rule in d.rule) for d in roster.dropped] == [(f"{tmp_path}/s.tar/b", True)]


def test_captions_without_photos(tmp_path):
    write_tar(tmp_path / "s.tar", pairs("a") | {"b.txt": b"A cat."})
    with pytest.raises(ValueError, match=r"s.tar/b: has captions and no photo"):
        read(tmp_path)
    assert len(read(tmp_path, missing_photos="drop")) == 1
    assert len(read(tmp_path, missing_photos="keep")) == 2


def test_photos_with_more_dots_in_their_names_are_not_lost_without_a_word(tmp_path):
    names = ["v1.2/a.b.jpg", "v1.2/a.c.JPG", "d.jpg", "d.left.png"]
    members = {name: photo(number) for number, name in enumerate(names)}
    write_tar(tmp_path / "0.tar", {**members, "v1.2/a.b.txt": b"A dog.", "d.txt": b"Dogs."})
    roster = read_webdataset(name="x", folder=tmp_path)
    assert [sample.caption for sample in roster.samples] == ["Dogs."]
    found = {(Path(drop.item).name, drop.rule) for drop in roster.dropped}
    rule = "its key ends at the first dot: 'v1.2/a', of which there is no photo"
    assert found == {("a.b.jpg", rule), ("a.c.JPG", rule)}  # d.left.png is a part of d


def test_keys_of_several_shards(tmp_path):
    write_tar(tmp_path / "0.tar", pairs("a", "b"))
    write_tar(tmp_path / "1.tar", pairs("c"))
    assert [s.image_id for s in read(tmp_path).samples] == ["a", "b", "c"]
    write_tar(tmp_path / "1.tar", pairs("a"))
    assert [s.image_id for s in read(tmp_path).samples] == ["0/a", "0/b", "1/a"]


def test_parts_share_the_keys_out(tmp_path):
    keys = [f"{number:04d}" for number in range(400)]
    write_tar(tmp_path / "s.tar", [(n, d) for k in keys for n, d in pairs(k).items()])
    parts = {
        part: {s.image_id for s in read(tmp_path, part=part, held_out=0.1).samples}
        for part in ("train", "val", "test", "all")
    }
    assert parts["train"] | parts["val"] | parts["test"] == parts["all"] == set(keys)
    assert sum(len(parts[part]) for part in ("train", "val", "test")) == 400
    assert 20 < len(parts["val"]) < 60 > len(parts["test"]) > 20
    assert len(read(tmp_path, part="val")) == 400
    with pytest.raises(ValueError, match="held_out must be"):
        read(tmp_path, held_out=0.5)
    with pytest.raises(ValueError, match="part must be"):
        read(tmp_path, part="dev")


def test_parts_stay_the_same_when_shards_are_added(tmp_path):
    def parts() -> dict[str, str]:
        return {
            sample.image_path.as_posix(): part
            for part in ("train", "val", "test")
            for sample in read(tmp_path, part=part, held_out=0.2).samples
        }

    write_tar(tmp_path / "0.tar", pairs(*(f"{number:03d}" for number in range(60))))
    before = parts()
    write_tar(tmp_path / "1.tar", pairs("007", "new"))  # a key that stands in two shards
    after = parts()
    assert {path: after[path] for path in before} == before
    samples = {s.image_id: s.image_path.as_posix() for s in read(tmp_path).samples}
    assert after[samples["0/007"]] == after[samples["1/007"]]


def test_names_of_shards(tmp_path):
    for name in ("a-00.tar", "a-01.tar", "a-02.tar", "b.tar"):
        write_tar(tmp_path / name, pairs(name[:-4]))

    def ids(shards) -> list[str]:
        return [sample.image_id for sample in read(tmp_path, shards=shards).samples]

    assert ids("a-{00..02}.tar") == ids("a-*.tar") == ["a-00", "a-01", "a-02"]
    assert ids(["b.tar", "a-{00,02}.tar", "?.tar"]) == ["b", "a-00", "a-02"]
    assert ids(str(tmp_path / "b.tar")) == ["b"]
    for shards, error, message in (
        ("c*.tar", FileNotFoundError, "no shard is named"),
        ("a-{00..04}.tar", FileNotFoundError, r"a-03.tar: no such shard \(nor 1 others of 5\)"),
        ("{0..9999999}.tar", ValueError, "more than"),
        ("{0..99999}{0..99}.tar", ValueError, "names more than 1000000 files"),
        ("pipe:curl x", ValueError, "download"),
        ("https://host/x.tar", ValueError, "download"),
        ([], ValueError, "no shards are named"),
    ):
        with pytest.raises(error, match=message):
            read(tmp_path, shards=shards)


def test_shards_are_listed_once(tmp_path, monkeypatch):
    shard, cache = write_tar(tmp_path / "s.tar", pairs("a", "b")), tmp_path / "cache"
    first = read(tmp_path, cache_folder=cache)
    scan = webdataset._scan
    scanned: list[Path] = []
    monkeypatch.setattr(webdataset, "_scan", lambda s, k: scanned.append(s) or scan(s, k))
    assert read(tmp_path, cache_folder=cache) == first
    assert scanned == []
    write_tar(shard, pairs("a", "b", "c"))
    assert len(read(tmp_path, cache_folder=cache)) == 3
    for file in cache.iterdir():
        file.write_text('{"version": 1}')
    assert len(read(tmp_path, cache_folder=cache)) == 3
    assert scanned == [shard, shard]
    for file in cache.iterdir():
        listing = json.loads(file.read_text())
        file.write_text(json.dumps(listing | {"items": [listing["items"][0]] * 2}))
    assert len(read(tmp_path, cache_folder=cache)) == 3


def add_hostile(path: Path) -> None:
    """Members that lead out of the folder or are no plain files, then a good pair."""
    with tarfile.open(path, "w") as shard:
        for name in (
            "../out.jpg",
            "/out.jpg",
            "a/../../out.jpg",
            "a\\out.jpg",
            "new\nline.jpg",
        ):
            member = tarfile.TarInfo(name)
            member.size = 3
            shard.addfile(member, io.BytesIO(b"bad"))
        kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)
        for number, kind in enumerate(kinds):
            member = tarfile.TarInfo(f"link{number}.jpg")
            member.type, member.linkname = kind, "/etc/passwd"
            shard.addfile(member)
        for name, data in {"folder.jpg": None, **pairs("good")}.items():
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            member.size = len(data or b"")
            shard.addfile(member, io.BytesIO(data or b""))


def test_hostile_members_are_left_out_and_nothing_is_extracted(tmp_path):
    (tmp_path / "in").mkdir()
    add_hostile(tmp_path / "in" / "s.tar")
    roster = read(tmp_path / "in")
    assert [sample.image_id for sample in roster.samples] == ["good"]
    rules = [drop.rule for drop in roster.dropped]
    assert len(rules) == 9
    assert sum("link or device, not a plain file" in rule for rule in rules) == 4
    assert sum("'..'" in rule for rule in rules) == 2
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["in", "s.tar"]


def test_limits_of_size(tmp_path, monkeypatch):
    write_tar(tmp_path / "s.tar", pairs("a") | {"b.jpg": bytes(9000), "b.txt": b"x"})
    monkeypatch.setattr(webdataset, "MAX_PHOTO_BYTES", 8000)
    monkeypatch.setattr(webdataset, "MAX_TEXT_BYTES", 20)
    roster = read(tmp_path, missing_photos="drop")
    assert [(d.item[-5:], d.rule) for d in roster.dropped] == [
        ("b.jpg", "has 9000 bytes, at most 8000"),
        ("tar/b", "photo missing"),
    ]


def blocks(content: Mapping[str, bytes], kind: bytes = b"0", size: int | None = None) -> bytes:
    """Members with any type and size, without the mark of the end."""
    data = b""
    for name, value in content.items():
        member = tarfile.TarInfo(name)
        member.type, member.size = kind, len(value) if size is None else size
        data += member.tobuf() + value + bytes(-len(value) % 512)
    return data


GOOD = blocks(pairs("a"))
END = bytes(1024)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (GOOD, "damaged at byte 3072: the file is truncated"),
        (GOOD + blocks(pairs("b"))[:-512], "truncated: 'b.txt' ends at byte"),
        (GOOD + b"x" * 512 + END, "damaged at byte 3072: not a member's header"),
        (GOOD + END + GOOD, "bytes follow the archive's end at byte 3072; were two files joined"),
        (GOOD + blocks({"b.jpg": b"x"}, b"S") + END, "'b.jpg' is a sparse file"),
        (GOOD + blocks({"b.jpg": b"x"}, size=10**9) + END, "truncated: 'b.jpg' ends at byte"),
        (GOOD + blocks({"h": b"x"}, b"x", size=2**21) + bytes(2**22), "a header has 2097152 bytes"),
        (GOOD + blocks({"h": b"9 nothing"}, b"x") + END, "a record is invalid"),
        (GOOD + blocks({"h": b"11 size=-9\n"}, b"x") + END, "a size is not a number"),
        (b"\x1f\x8b" + bytes(600), "damaged at byte 0"),
        (b"", "damaged at byte 0: the file is truncated"),
    ],
)
def test_damaged_shards(tmp_path, data, message):
    (tmp_path / "s.tar").write_bytes(data)
    with pytest.raises(ValueError, match=rf"s\.tar: .*{message}.*damaged_shards=drop"):
        read(tmp_path)
    settings = {"damaged_shards": "drop", "missing_captions": "drop", "missing_photos": "drop"}
    if b"a.jpg" in data and len(data) > 2048:
        roster = read(tmp_path, **settings)
        assert message.split(":")[0].split(";")[0] in roster.dropped[0].rule
        assert {sample.image_id for sample in roster.samples} == {"a"}
    else:
        with pytest.raises(ValueError, match=r"s.tar .*: no samples for w"):
            read(tmp_path, **settings)


def test_members_that_stand_twice(tmp_path):
    write_tar(tmp_path / "s.tar", [*pairs("a").items(), ("a.txt", b"again"), ("a.jpg", photo(5))])
    with pytest.raises(ValueError, match=r"s.tar: a.txt occurs twice"):
        read(tmp_path)
    roster = read(tmp_path, duplicate_keys="drop")
    assert [sample.caption for sample in roster.samples] == ["caption of a"]
    assert load_rgb(roster.samples[0].image_path).tobytes() == pixels(photo(0))
    assert len(roster.dropped) == 2


def test_a_shard_that_changes_is_noticed(tmp_path):
    shard = write_tar(tmp_path / "s.tar", pairs("a", "b"))
    paths = [sample.image_path for sample in read(tmp_path).samples]
    write_tar(shard, pairs("b", "a"))
    assert [photo_problem(path).partition(" (")[0] for path in paths] == [
        "photo is truncated or damaged"
    ] * 2
    with pytest.raises(ValueError, match=r"the member there is 'b.jpg'; was the shard changed\?"):
        load_rgb(paths[0])
    good = shard.read_bytes()
    shard.write_bytes(good[:700])
    assert "truncated (" in photo_problem(Path(f"{shard}/@000000000000/b.jpg"))
    shard.write_bytes(good)
    assert "not a member's header" in photo_problem(Path(f"{shard}/@000000000512/b.jpg"))
    shard.unlink()
    assert [photo_problem(path) for path in paths] == ["photo missing"] * 2


@pytest.mark.long
def test_damage_ends_in_a_line_or_is_recorded(tmp_path):
    """Bytes anywhere, and fields of headers whose sums are made right again."""
    members = [(name, data) for name, data in pairs("a", "b/c", "d" * 130, "ö").items()]
    good = write_tar(tmp_path / "s.tar", members, format=2).read_bytes()
    drop = dict.fromkeys(("missing_photos", "missing_captions", "duplicate_keys"), "drop")
    num_read, lines = 0, []
    for seed in range(250):
        rng = np.random.default_rng(seed)
        data = bytearray(damage_bytes(good, rng) if seed % 2 else good)
        if seed % 2 == 0:
            start = 512 * int(rng.integers(len(data) // 512))
            data[start + int(rng.integers(0, 345))] = int(rng.integers(256))
            data[start + 148 : start + 156] = b" " * 8
            total = sum(data[start : start + 512])
            data[start + 148 : start + 156] = b"%06o\0 " % total
        (tmp_path / "s.tar").write_bytes(data)
        try:
            for sample in read(tmp_path, damaged_shards="drop", **drop).samples:
                photo_problem(sample.image_path)
            num_read += 1
        except ValueError as error:
            lines.append(str(error))
    assert num_read > 100
    assert len(lines) > 10
    assert all(line.startswith(str(tmp_path)) and "\n" not in line for line in lines)
