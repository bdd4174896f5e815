from __future__ import annotations

from pathlib import Path

import pytest

from captioning.data.readers.flickr8k import read_flickr8k

TOKENS = "a.jpg#0\tA dog .\na.jpg#1\tA  brown\tdog\r\nb.jpg.1#0\tTwo cats .\n\nc.jpg#0\tA bird\n"


def write(folder: Path, tokens: str | bytes = TOKENS, split: str = "a.jpg\nc.jpg\n") -> dict:
    """A small Flickr8k: photos a.jpg, c.jpg and z.jpg; b.jpg.1 has none."""
    images = folder / "images"
    images.mkdir()
    for name in ("a.jpg", "c.jpg", "z.jpg"):
        (images / name).touch()
    data = tokens.encode() if isinstance(tokens, str) else tokens
    (folder / "tokens.txt").write_bytes(data)
    (folder / "split.txt").write_text(split)
    return {
        "name": "small/train",
        "token_file": folder / "tokens.txt",
        "image_folder": images,
        "split_file": folder / "split.txt",
    }


def test_split_is_read_and_what_is_left_out_is_recorded(tmp_path):
    roster = read_flickr8k(**write(tmp_path))
    assert [sample.sample_id for sample in roster.samples] == ["a.jpg#0", "a.jpg#1", "c.jpg#0"]
    assert [sample.caption for sample in roster.samples] == ["A dog .", "A brown dog", "A bird"]
    assert roster.samples[0].image_path == tmp_path / "images" / "a.jpg"
    assert [(drop.item, drop.rule) for drop in roster.dropped] == [
        ("b.jpg.1", "photo missing, not in this split"),
        ("z.jpg", "photo without caption or entry"),
    ]


def test_all_images_without_a_split_need_their_photos(tmp_path):
    arguments = write(tmp_path) | {"split_file": None}
    with pytest.raises(
        ValueError, match=r"tokens.txt:3: no photo 'b.jpg.1' in .*missing_photos=drop"
    ):
        read_flickr8k(**arguments)
    roster = read_flickr8k(**arguments, missing_photos="drop")
    assert len(roster) == 3
    assert ("b.jpg.1", "photo missing") in [(drop.item, drop.rule) for drop in roster.dropped]


def test_text_alone_needs_no_photos(tmp_path):
    roster = read_flickr8k(**write(tmp_path) | {"image_folder": None, "split_file": None})
    assert len(roster) == 4
    assert roster.samples[2].image_path == Path("b.jpg.1")


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ("a.jpg#0\tA dog\na.jpg#0\tA cat\n", "tokens.txt:2: a.jpg#0 occurs twice"),
        ("a.jpg#0\tA dog\na.jpg#1 A cat\n", "tokens.txt:2: must be 'NAME.jpg#K', a tab"),
        ("a.jpg#0\tA dog\nc.jpg#0\t  \n", "tokens.txt:2: the caption is empty"),
        ("a.jpg#0\tA dog\nc.jpg#0\t\u200b\n", "tokens.txt:2: the caption is empty"),
        ("../a.jpg#0\tA dog\n", "must not lead out of the photo folder"),
        (b"a.jpg#0\tA dog\na.jpg#1\tA caf\xe9\n", r"tokens.txt: line 2: not UTF-8 \(byte 0xe9\)"),
        ("", "tokens.txt"),
    ],
)
def test_bad_token_files_are_named(tmp_path, tokens, message):
    with pytest.raises(ValueError, match=message):
        read_flickr8k(**write(tmp_path, tokens))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("a.jpg\nq.jpg\nr.jpg\n", r"split.txt:2: the split names 'q.jpg'.*and 1 more"),
        ("a.jpg\na.jpg\n", "split.txt:2: 'a.jpg' is listed twice, first at .*split.txt:1"),
        ("\n", "split.txt: the list is empty"),
    ],
)
def test_bad_splits_are_named(tmp_path, split, message):
    with pytest.raises(ValueError, match=message):
        read_flickr8k(**write(tmp_path, split=split))


def test_missing_files_are_named(tmp_path):
    arguments = write(tmp_path)
    with pytest.raises(FileNotFoundError, match="nothing.txt: no such file"):
        read_flickr8k(**arguments | {"token_file": tmp_path / "nothing.txt"})
    with pytest.raises(FileNotFoundError, match="nowhere: no such photo folder"):
        read_flickr8k(**arguments | {"image_folder": tmp_path / "nowhere"})
    with pytest.raises(ValueError, match="missing_photos must be one of"):
        read_flickr8k(**arguments | {"missing_photos": "ignore"})


@pytest.mark.long
@pytest.mark.parametrize(("split", "images"), [("train", 6000), ("dev", 1000), ("test", 1000)])
def test_official_split(shared_data, split, images):
    root = shared_data / "flickr8k"
    roster = read_flickr8k(
        name=f"flickr8k/{split}",
        token_file=root / "Flickr8k.token.txt",
        image_folder=root / "images",
        split_file=root / f"Flickr_8k.{split}Images.txt",
    )
    assert len(roster.rows_by_image) == images
    assert len(roster) == 5 * images
    assert [drop.item for drop in roster.dropped] == ["2258277193_586949ec62.jpg.1"]
