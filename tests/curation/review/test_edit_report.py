"""The page of a report: what it carries, its size, and how it behaves in a browser."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import page_data
import pytest
from foreign import make_roster
from PIL import Image

from captioning.data.roster import CurationView, build_roster
from captioning.types import Edit, Sample
from curation.loop.keep import KeepList, read_keep
from curation.record import RunRecord
from curation.review import edit_report
from curation.review.edit_report import write_report
from curation.review.html_page import thumbnail, thumbnails

HOSTILE = (
    "<script>window.hacked=1</script>",
    "</script><img src=x onerror=window.hacked=1>",
    '" onmouseover="window.hacked=1" x="',
    "\u202egnp.txe\u202c \u2067right to left",
    "line\u2028and paragraph\u2029 separators & &amp; \\u003c",
    "{{script}} ${window.hacked=1} `x`",
)


@pytest.fixture
def roster(tmp_path):
    """Six images with photos, and captions that would do harm as markup."""
    rng = np.random.default_rng(0)
    for image in range(6):
        pixels = rng.integers(0, 255, (60, 90, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"img{image}.jpg")
    samples = [
        replace(sample, image_path=tmp_path / sample.image_path, caption=caption)
        for sample, caption in zip(
            make_roster().samples,
            [f"{text} {k}" for k in range(3) for text in HOSTILE],
            strict=True,
        )
    ]
    return build_roster("toy/<b>train</b>", samples)


def edits_of(roster) -> list[Edit]:
    """One of each kind in epoch 0, and a second for the first sample in epoch 1."""
    ids = [sample.sample_id for sample in roster.samples]
    fields = {"policy": "p <i>", "reason": "loss 5 <b>", "epoch": 0}
    return [
        Edit(sample_id=ids[0], action="replace_caption", value=HOSTILE[1], **fields),
        *(Edit(sample_id=sample_id, action="remove", **fields) for sample_id in ids[1:6]),
        Edit(
            sample_id=ids[6],
            action="replace_image",
            value=str(roster.samples[0].image_path),
            **fields,
        ),
        Edit(sample_id=ids[0], action="replace_caption", value="again", **fields | {"epoch": 1}),
    ]


@pytest.fixture
def record(roster):
    view = CurationView(roster=roster).apply(edits_of(roster))
    history = np.linspace(1, 4, 2 * len(roster), dtype=np.float32).reshape(2, -1)
    truth = {roster.samples[1].sample_id: "swap"}
    return RunRecord(policy="p <i>", seed=0, view=view, epochs=(0, 1), history=history, truth=truth)


def test_the_page_carries_all_edits_and_no_markup_of_the_data(record, tmp_path):
    path = tmp_path / "report.html"
    assert write_report(record, path, num_pictures=5) == 8
    columns = page_data.listed(path)
    assert columns["id"] == [edit.sample_id for edit in record.view.journal]
    assert columns["before"][0] == f"{HOSTILE[0]} 0"
    assert columns["after"][:2] == [HOSTILE[1], None]
    assert columns["fault"][:2] == ["", "swap"]
    assert len(page_data.blocks(path, "picture")) == 3
    text = path.read_text(encoding="utf-8")
    assert "hacked" not in text
    assert "<title>\u2068Curation of toy/&lt;b&gt;train&lt;/b&gt;\u2069</title>" in text
    assert str(tmp_path) not in text
    # nothing is fetched: no address, and a policy that forbids it
    assert "default-src 'none'" in text
    assert not re.findall(r"(?:src|href)=\"?(?:https?:)?//", text)


def test_the_page_depends_on_the_record_alone(record, tmp_path):
    for name in ("a.html", "b.html"):
        write_report(record, tmp_path / name, num_pictures=3)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_page_that_would_grow_too_large_lists_fewer_edits(record, tmp_path, monkeypatch):
    monkeypatch.setattr("curation.review.edit_report.CHUNK", 3)
    path = tmp_path / "report.html"
    write_report(record, path, num_pictures=0)
    monkeypatch.setattr(edit_report, "MAX_BYTES", path.stat().st_size - 1)
    num_listed = write_report(record, path, num_pictures=0)
    assert num_listed in (3, 6)
    assert page_data.facts(path)["num_listed"] == num_listed
    assert page_data.facts(path)["num_edits"] == 8
    assert path.stat().st_size <= edit_report.MAX_BYTES


def test_notes_say_where_a_value_comes_from(record, tmp_path):
    fields = {"sample_id": "img5#2", "policy": "p", "epoch": 1}
    edits = [
        Edit(action="replace_caption", value="other", origin="sibling:img5#0", **fields),
        Edit(action="down_weight", value="0.5", **fields),
    ]
    write_report(
        replace(record, view=record.view.apply(edits)), tmp_path / "r.html", num_pictures=0
    )
    columns = page_data.listed(tmp_path / "r.html")
    assert columns["note"][-2:] == ["sibling:img5#0", "weight 0.5"]
    assert columns["after"][-2:] == ["other", None]


def masked_record(record: RunRecord) -> RunRecord:
    """The last caption with its first word and its last character masked."""
    sample = record.view.samples()[-1]
    end = len(sample.caption)
    masks = f"0-4,{end - 1}-{end}:0.5"
    edit = Edit(sample_id=sample.sample_id, action="mask_words", value=masks, policy="p", epoch=1)
    return replace(record, view=record.view.apply([edit]))


def test_a_replaced_word_stands_beside_the_one_that_took_its_place(roster, tmp_path):
    sample = roster.samples[0]
    caption = sample.caption
    words = {"value": f"{caption[:3]}blue{caption[6:]}", "origin": f"word:3:{caption[3:6]}>blue"}
    elsewhere = {"value": "other", "origin": "word:3:nothing>blue"}
    edits = [
        Edit(sample_id=sample.sample_id, action="replace_caption", policy="p", epoch=0, **words),
        Edit(sample_id=sample.sample_id, action="replace_caption", policy="p", **elsewhere),
    ]
    view = CurationView(roster=roster).apply(edits)
    nothing = np.zeros((0, len(roster)), dtype=np.float32)
    record = RunRecord(policy="p", seed=0, view=view, epochs=(), history=nothing, truth={})
    path = tmp_path / "report.html"
    write_report(record, path, num_pictures=0)
    first = [caption[:3], caption[3:6], "blue", caption[6:]]
    assert page_data.listed(path)["changed"] == [first, None]


def test_masked_words_are_pieces_of_their_caption(record, tmp_path):
    write_report(masked_record(record), tmp_path / "r.html", num_pictures=0)
    columns = page_data.listed(tmp_path / "r.html")
    caption = record.view.samples()[-1].caption
    assert columns["pieces"][-1] == ["", caption[:4], caption[4:-1], caption[-1], ""]
    assert columns["pieces"][:-1] == [None] * 8
    assert columns["note"][-1].startswith("characters 0-4,")


def test_removed_and_replaced_sentences_are_pieces_of_the_caption_that_had_them(roster, tmp_path):
    samples = [replace(roster.samples[0], caption="A dog. A cat. A cow.")]
    view = CurationView(roster=build_roster("long", samples))
    own = {"sample_id": samples[0].sample_id, "action": "replace_caption", "policy": "p"}
    removal = Edit(**own, value="A dog. A cow.", origin="sentence:7-13", epoch=0)
    by_hand = Edit(**own, value="other", origin="sentence:0-6", epoch=1)
    nothing = np.zeros((0, 1), dtype=np.float32)
    mended = Edit(**own, value="new", origin="sentence:0-5>0-3;model:toy", epoch=2)
    view = view.apply([removal, by_hand, mended])
    record = RunRecord(policy="p", seed=0, view=view, epochs=(), history=nothing, truth={})
    write_report(record, tmp_path / "report.html", num_pictures=0)
    listed = page_data.listed(tmp_path / "report.html")
    assert listed["pieces"] == [["A dog. ", "A cat.", " A cow."], None, None]
    assert listed["after"] == ["A dog. A cow.", "other", "new"]
    assert listed["changed"] == [None, None, ["", "other", "new", ""]]


def test_in_a_browser_masked_words_are_struck_out(record, tmp_path, browser):
    write_report(masked_record(record), tmp_path / "r.html", num_pictures=0)
    open_page(browser, tmp_path / "r.html")
    caption = record.view.samples()[-1].caption
    struck = "return [...document.querySelectorAll('.row del')].map(x => x.textContent)"
    assert browser.run(struck) == [caption[:4], caption[-1]]
    texts = "return [...document.querySelectorAll('.row .before')].map(x => x.textContent)"
    assert browser.run(texts)[-1] == caption
    badge = "return document.querySelector('.badge.mask_words').textContent"
    assert browser.run(badge) == "words masked"


def test_long_texts_are_shortened(record, tmp_path):
    long = Edit(sample_id="img5#2", action="replace_caption", value="word " * 600)
    write_report(
        replace(record, view=record.view.apply([long])), tmp_path / "r.html", num_pictures=0
    )
    after = page_data.listed(tmp_path / "r.html")["after"][-1]
    assert len(after) == 2400
    assert after.endswith("…")


def test_thumbnails_are_small_and_skip_what_cannot_be_opened(roster, tmp_path):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no photo")
    large = tmp_path / "large.png"
    Image.new("RGB", (800, 300), "red").save(large)
    assert thumbnail(broken) is None
    assert thumbnail(tmp_path / "nowhere.jpg") is None
    paths = [broken, large, large, *(sample.image_path for sample in roster.samples)]
    texts = thumbnails(paths, max_pictures=3, max_bytes=10**6)
    assert list(texts)[:2] == [large, roster.samples[0].image_path]
    assert len(texts) == 3
    first = len(texts[large])
    assert list(thumbnails(paths, max_pictures=9, max_bytes=first)) == [large]
    assert first < 4000


def open_page(browser, path: Path) -> None:
    browser.open(path.as_uri())
    browser.wait("document.body.dataset.ready === 'yes'")


def rows(browser) -> list[str]:
    return browser.run("return [...document.querySelectorAll('.row')].map(row => row.dataset.id)")


def test_in_a_browser_texts_are_texts(record, tmp_path, browser):
    write_report(record, tmp_path / "report.html", num_pictures=9)
    open_page(browser, tmp_path / "report.html")
    assert browser.run("return window.hacked") is None
    shown = browser.run("return [...document.querySelectorAll('.row bdi')].map(x => x.textContent)")
    for text in HOSTILE:
        assert f"{text} 0" in shown
    assert browser.text("h1") == "Curation of toy/<b>train</b>"
    # set apart, so that a mark of direction does not turn around what stands beside it
    assert browser.run(
        "return [...document.querySelectorAll('.row')].every(row => [...row.querySelectorAll("
        "'.before,.after')].every(x => x.tagName === 'BDI' && x.dir === 'auto'))"
    )
    assert browser.run("return [...document.images].every(x => x.complete && x.naturalWidth > 0)")
    assert (
        browser.run("return document.querySelectorAll('#by-epoch svg[role=img] rect').length") == 6
    )
    assert browser.run("return performance.getEntriesByType('resource').length") == 0


def test_in_a_browser_the_list_is_searched_and_decided(record, tmp_path, browser):
    write_report(record, tmp_path / "report.html", num_pictures=9)
    open_page(browser, tmp_path / "report.html")
    ids = [edit.sample_id for edit in record.view.journal]
    assert rows(browser) == ids
    browser.type("#search", "GNP.TXE")
    browser.wait("document.querySelectorAll('.row').length === 1")
    assert rows(browser) == [ids[3]]
    browser.click(".row .undo")
    browser.run("document.getElementById('search').value = ''")
    browser.type("#search", " ")
    browser.wait("document.querySelectorAll('.row').length === 8")
    browser.click(f".row[data-id='{ids[1]}'] .accept")
    assert browser.text("#decided") == "1 accepted, 1 undone"
    browser.run(
        "const s = document.getElementById('by-decision-filter'); s.value = 'undone';"
        "s.dispatchEvent(new Event('change'))"
    )
    assert rows(browser) == [ids[3]]
    browser.click("#save")
    keep = read_keep(browser.downloaded("keep.json"))
    keep.check(record.view.roster, "keep.json")
    assert (keep.sample_ids, keep.accepted) == ((ids[3],), (ids[1],))


def test_in_a_browser_decisions_survive(record, tmp_path, browser):
    roster = record.view.roster
    keep = KeepList(roster=roster.name, fingerprint=roster.fingerprint, sample_ids=("img0#2",))
    record = replace(record, keep=keep, seed=77)
    write_report(record, tmp_path / "report.html", num_pictures=0)
    open_page(browser, tmp_path / "report.html")
    assert browser.text("#decided") == "0 accepted, 1 undone"
    # by keys: the first edit is accepted, the second undone
    browser.run(
        "for (const key of ['j', 'a', 'j', 'u'])"
        "document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}))"
    )
    assert browser.text("#decided") == "1 accepted, 2 undone"
    time.sleep(0.5)
    open_page(browser, tmp_path / "report.html")
    assert browser.text("#decided") == "1 accepted, 2 undone"
    other = tmp_path / "keep.json"
    other.write_text(json.dumps(keep.to_dict() | {"sample_ids": ["img5#0"]}))
    browser.type("#load-file", str(other))
    browser.wait("document.getElementById('decided').textContent === '1 accepted, 3 undone'")
    other.write_text(json.dumps(keep.to_dict() | {"fingerprint": "0"}))
    browser.type("#load-file", str(other))
    browser.wait("/to other annotations/.test(document.getElementById('decided').textContent)")


def large_record(num_samples: int) -> RunRecord:
    """Every caption edited once, in four epochs, with words as frequent as in English."""
    rng = np.random.default_rng(0)
    ranks = np.minimum(rng.zipf(1.4, size=(num_samples, 11)), 20_000)
    ids = rng.integers(10**9, 10**10, num_samples)
    samples = [
        Sample(
            row=0,
            sample_id=f"{ids[row]}_{row:06x}.jpg#{row % 5}",
            image_id=f"{ids[row]}_{row:06x}.jpg",
            image_path=Path(f"{row}.jpg"),
            caption=" ".join(f"w{rank}" for rank in words),
        )
        for row, words in enumerate(ranks.tolist())
    ]
    roster = build_roster("large/train", samples)
    losses = rng.normal(3, 1, num_samples)
    edits = [
        Edit(
            sample_id=sample.sample_id,
            action="replace_caption" if sample.row else "remove",
            value=roster.samples[sample.row - 1].caption if sample.row else None,
            reason=f"loss {losses[sample.row]:.3f}, rank {sample.row} of {num_samples} (top 5%)",
            origin="sibling:x",
            policy="replace_caption-select.ratio_0.05",
            epoch=sample.row * 4 // num_samples,
        )
        for sample in roster.samples
    ]
    view = CurationView(roster=roster).apply(edits)
    return RunRecord(policy="large", seed=0, view=view)


@pytest.mark.slow
def test_fifty_thousand_edits(tmp_path, browser):
    path = tmp_path / "large.html"
    assert write_report(large_record(50_000), path, num_pictures=100) == 50_000
    assert path.stat().st_size <= 5_000_000
    browser.open(path.as_uri())
    browser.wait("document.body.dataset.ready === 'yes'", seconds=180)
    assert browser.text("#found") == (
        "50,000 of 50,000 edits. No photo is shown: none could be opened when the page was made"
    )
    assert len(rows(browser)) == 25
    browser.type("#search", "rank 49999 of")
    browser.wait("document.querySelectorAll('.row').length === 1")
    assert rows(browser)[0].endswith("_00c34f.jpg#4")
