"""What a run keeps of its data, and what it says when they have changed."""

from __future__ import annotations

import gzip
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from captioning.data.data_record import (
    FILE_NAME,
    ROWS_NAME,
    accept_changes,
    check_record,
    copies,
    photo_keys,
    photos_of,
    write_record,
)
from captioning.data.roster import Roster, build_roster
from captioning.types import Sample
from tests.packed_files import photo

PHOTOS = 4


def sample(folder: Path, number: int, own: int) -> Sample:
    path = folder / f"p{number}.png"
    if not path.is_file():
        path.write_bytes(photo(number))
    name = f"p{number}.png"
    caption = f"dog {number} runs {own}"
    return Sample(row=0, sample_id=f"{name}#{own}", image_id=name, image_path=path, caption=caption)


@pytest.fixture
def rosters(tmp_path: Path) -> dict[str, Roster]:
    train = [sample(tmp_path, number, own) for number in range(PHOTOS) for own in range(2)]
    test = [sample(tmp_path, PHOTOS, own) for own in range(2)]
    return {"train": build_roster("s/train", train), "test": build_roster("s/test", test)}


@pytest.fixture
def keys(rosters, tmp_path: Path) -> dict[Path, str]:
    return photo_keys(rosters.values(), tmp_path / "cache")


@pytest.fixture
def run(rosters, keys, tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    write_record(tmp_path / "run", rosters, keys)
    return tmp_path / "run"


def changed(roster: Roster, row: int, **values: str) -> Roster:
    samples = list(roster.samples)
    samples[row] = replace(samples[row], **values)
    return build_roster(roster.name, samples)


def refusal(run: Path, rosters, keys) -> str:
    with pytest.raises(ValueError, match="its data have changed since it began") as refused:
        check_record(run, rosters, keys, accept=False)
    message = str(refused.value)
    assert "\n" not in message
    assert "data.accept_changes=true" in message
    return message


def test_the_same_data_pass(run, rosters, keys) -> None:
    assert check_record(run, rosters, keys) is False
    assert check_record(run, {"test": rosters["test"]}, keys) is False
    assert check_record(run, {"test_near": rosters["test"]}, keys) is False, "not of the run"
    splits = json.loads((run / FILE_NAME).read_text())["splits"]
    assert splits["train"]["captions"] == 2 * PHOTOS
    assert splits["train"]["photos"] == PHOTOS


def test_the_same_data_give_the_same_bytes(run, rosters, keys, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    write_record(tmp_path / "second", rosters, keys)
    for name in (FILE_NAME, ROWS_NAME):
        assert (run / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_a_run_without_a_record_is_not_compared(tmp_path: Path, rosters, keys) -> None:
    assert check_record(tmp_path, rosters, keys) is False


def test_other_words_are_counted_and_named(run, rosters, keys) -> None:
    rosters["train"] = changed(rosters["train"], 3, caption="a cat sits")
    assert "1 captions have other words ('p1.png#1')" in refusal(run, rosters, keys)


def test_exchanged_captions_are_all_counted_and_three_are_named(run, rosters, keys) -> None:
    texts = [s.caption for s in rosters["train"].samples]
    for row in range(2 * PHOTOS):
        rosters["train"] = changed(rosters["train"], row, caption=texts[row - 2])
    message = refusal(run, rosters, keys)
    assert "8 captions have other words ('p0.png#0', 'p0.png#1', 'p1.png#0', ...)" in message


def test_photos_with_other_contents_are_named(run, rosters, tmp_path: Path) -> None:
    (tmp_path / "p2.png").write_bytes(photo(77))
    keys = photo_keys(rosters.values(), tmp_path / "cache")
    assert "1 photos have other contents ('p2.png')" in refusal(run, rosters, keys)


def test_photos_that_are_not_read_are_not_compared(run, rosters, tmp_path: Path) -> None:
    (tmp_path / "p2.png").unlink()
    assert check_record(run, rosters, {}) is False
    keys = photo_keys(rosters.values(), tmp_path / "cache")
    assert len(keys) == PHOTOS
    assert check_record(run, rosters, keys) is False


def test_captions_that_are_new_or_gone_are_named(run, rosters, keys) -> None:
    train = rosters["train"]
    rosters["train"] = build_roster(train.name, train.samples[1:])
    assert "1 captions are gone ('p0.png#0')" in refusal(run, rosters, keys)
    new = replace(train.samples[0], sample_id="p0.png#9")
    rosters["train"] = build_roster(train.name, [*train.samples, new])
    assert "1 captions are new ('p0.png#9')" in refusal(run, rosters, keys)


def test_captions_in_another_split_are_named(run, rosters, keys) -> None:
    train, test = rosters["train"], rosters["test"]
    rosters["train"] = build_roster(train.name, train.samples[2:])
    rosters["test"] = build_roster(test.name, [*test.samples, *train.samples[:2]])
    message = refusal(run, rosters, keys)
    assert "2 captions went from train to test ('p0.png#0', 'p0.png#1')" in message
    assert "are gone" not in message
    assert "are new" not in message
    alone = refusal(run, {"test": rosters["test"]}, keys)
    assert "2 captions went from train to test" in alone


def test_another_order_is_told(run, rosters, keys) -> None:
    train = rosters["train"]
    rosters["train"] = build_roster(train.name, train.samples[::-1])
    assert "captions are reordered" in refusal(run, rosters, keys)


def test_without_a_setting_none_is_named(run, rosters, keys) -> None:
    rosters["train"] = changed(rosters["train"], 0, caption="a cat sits")
    with pytest.raises(ValueError, match="its data have changed") as refused:
        check_record(run, rosters, keys)
    assert "accept_changes" not in str(refused.value)


def test_accepted_changes_are_kept_and_pass_from_then_on(run, rosters, keys, caplog) -> None:
    caplog.set_level(logging.WARNING)
    rosters["train"] = changed(rosters["train"], 0, caption="a cat sits")
    assert check_record(run, rosters, keys, accept=True) is True
    assert "1 captions have other words" in caplog.text
    accept_changes(run, rosters, keys)
    assert check_record(run, rosters, keys) is False
    [entry] = json.loads((run / FILE_NAME).read_text())["accepted"]
    assert entry["changes"] == ["1 captions have other words ('p0.png#0')"]
    rosters["train"] = changed(rosters["train"], 1, caption="a cat lies")
    accept_changes(run, rosters, keys)
    assert len(json.loads((run / FILE_NAME).read_text())["accepted"]) == 2


DAMAGED = {
    "missing": None,
    "empty": b"",
    "text": b"no gzip",
    "short": gzip.compress(b"[1]", mtime=0),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_rows_are_named(run, rosters, keys, content: bytes | None) -> None:
    (run / ROWS_NAME).unlink()
    if content is not None:
        (run / ROWS_NAME).write_bytes(content)
    rosters["train"] = changed(rosters["train"], 0, caption="a cat sits")
    with pytest.raises(ValueError, match=r"data_rows\.jsonl\.gz is missing or damaged"):
        check_record(run, rosters, keys)


def test_photos_of_a_split_are_found_by_content(run, rosters, keys, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "copy.png").write_bytes(photo(1))
    (other / "new.png").write_bytes(photo(50))
    samples = [
        Sample(row=0, sample_id=n, image_id=n, image_path=other / f"{n}.png", caption="a dog")
        for n in ("copy", "new")
    ]
    roster = build_roster("o/test", samples)
    theirs = photo_keys([roster], tmp_path / "cache")
    assert copies(photos_of(run), roster, theirs) == {"copy": "p1.png"}
    assert copies(photos_of(run), roster, theirs, but={"copy"}) == {}
    assert copies(photos_of(run, "test"), roster, theirs) == {}
    assert photos_of(tmp_path) == {}
