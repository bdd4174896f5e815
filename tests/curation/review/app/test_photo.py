"""A photo in the browser: its captions, where the captioner looks, and what goes wrong."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

import pytest
from hostile_texts import HOSTILE
from PIL import Image

from curation.review.app import app

ARROW_RIGHT, TAB, ENTER = "\ue014", "\ue004", "\ue007"
# What is drawn over the photo, and the same without anything drawn.
OVERLAY = "return document.getElementById('overlay').toDataURL()"
NOTHING = """
const blank = document.getElementById("overlay").cloneNode();
return blank.toDataURL()"""
SHOWN = "[...document.querySelectorAll('#captions bdi')].map(x => x.textContent)"
PROBLEM = "!document.getElementById('problem').hidden"


@pytest.fixture
def photo_page(open_page, browser):
    browser.open(open_page().url)
    browser.wait("document.body.dataset.ready")
    return browser


def wait_for_captions(browser) -> list[str]:
    browser.wait("document.getElementById('photo-part').ariaBusy === 'false'")
    browser.wait("document.getElementById('status').textContent === ''")
    return browser.run(f"return {SHOWN}")


def test_captions_with_attention(photo_page, shipped, hopper, tmp_path) -> None:
    browser = photo_page
    assert browser.run("return document.getElementById('tabs').hidden")  # no suspects
    browser.type("#file", str(hopper))
    expected = shipped.caption([hopper], num_captions=3)[0]
    assert wait_for_captions(browser) == [one.caption for one in expected.captions]
    assert browser.text("#captions small") == f"score {expected.score:.2f}"
    words = browser.run(
        "return [...document.querySelectorAll('#words bdi')].map(x => x.textContent)"
    )
    assert " ".join(words) == expected.caption
    nothing = browser.run(OVERLAY)
    assert nothing == browser.run(NOTHING)

    # by keyboard alone
    drawn = [nothing]
    browser.run("document.querySelector('#captions li:last-child button').focus()")
    for number, word in enumerate(words[:3]):
        browser.press(ARROW_RIGHT if number else TAB)
        assert browser.text("#looks") == f"· attention for “{word}”"
        drawn.append(browser.run(OVERLAY))
    assert len(set(drawn)) == 4
    browser.click("#captions li:nth-child(2) button")
    words = browser.run(
        "return [...document.querySelectorAll('#words bdi')].map(x => x.textContent)"
    )
    assert " ".join(words) == expected.captions[1].caption


def test_the_title_says_what_the_page_is_for_and_fields_fill_the_form(photo_page) -> None:
    browser = photo_page
    assert browser.run("return document.title").strip("\u2068\u2069") == "Caption photos"
    assert browser.text("h1").strip("\u2068\u2069") == "Caption photos"
    width = "return document.querySelector('{}').getBoundingClientRect().width"
    assert browser.run(width.format("#must_include")) == browser.run(width.format(".fields"))


def test_settings_are_followed_and_wrong_ones_said(photo_page, shipped, hopper) -> None:
    browser = photo_page
    browser.type("#file", str(hopper))
    wait_for_captions(browser)
    browser.type("#must_include", "lady or woman" + ENTER)
    assert re.search("lady|woman", wait_for_captions(browser)[0])
    fill = "document.getElementById('must_include').value = 'dog,fire truck or  lorry,'; "
    assert browser.run(f"{fill} return wanted()") == [["dog"], ["fire truck", "lorry"]]
    browser.run("document.getElementById('must_include').value = 'zyzzyva'")
    browser.click("#go")
    browser.wait(PROBLEM)
    assert "does not know the word 'zyzzyva'" in browser.text("#problem")
    browser.run("document.getElementById('must_include').value = ''")
    browser.run("document.getElementById('num_captions').value = 2")
    browser.run("document.getElementById('max_words').value = 4")
    browser.click("#diverse")
    browser.run("document.getElementById('seed').value = 7")
    browser.click("#go")
    options = {"num_captions": 2, "max_words": 4, "diverse": True, "seed": 7}
    expected = shipped.caption([Image.open(hopper)], **options)[0].captions
    assert wait_for_captions(browser) == [one.caption for one in expected]
    assert len(browser.messages()) == 1  # the browser's own, of an answer with an error's status


def bomb(path: Path) -> Path:
    """A small PNG whose head names 150 megapixels."""
    head = struct.pack(">IIBBBBB", 15_000, 10_000, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    ]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    return path


def test_photos_that_cannot_be_captioned_are_said(photo_page, hopper, tmp_path) -> None:
    browser = photo_page
    browser.click("#go")
    assert browser.text("#problem") == "Choose a photo first."
    cut = tmp_path / "cut.jpg"
    cut.write_bytes(hopper.read_bytes()[:3000])
    text = tmp_path / "text.jpg"
    text.write_text("no photo")
    empty = tmp_path / "empty.png"
    empty.touch()
    for path, message in (
        (cut, "photo is truncated or damaged"),
        (text, "photo is not an image; replace or remove it"),
        (empty, "photo is an empty file"),
        (bomb(tmp_path / "bomb.png"), "photo is too large (15000x10000"),
    ):
        browser.run("document.getElementById('problem').textContent = ''")
        browser.type("#file", str(path))
        browser.wait("document.getElementById('problem').textContent")
        assert f"{path.name}\u2069: {message}" in browser.text("#problem")
        assert str(tmp_path) not in browser.text("#problem")
        assert browser.run("return document.getElementById('shown').hidden")
    assert len(browser.messages()) == 4  # the browser's own, of answers with an error's status


def test_a_large_file_is_not_sent(open_page, browser, hopper, monkeypatch) -> None:
    monkeypatch.setattr(app, "MAX_BYTES", 50_000)
    browser.open(open_page().url)
    browser.wait("document.body.dataset.ready")
    browser.type("#file", str(hopper))
    browser.wait(PROBLEM)
    assert "at most 0.05 MB are allowed: save a smaller copy" in browser.text("#problem")


def test_other_kinds_of_photos_and_hostile_names(photo_page, tmp_path) -> None:
    browser = photo_page
    name = HOSTILE[2].replace("/", "_") + "\u202e.webp"
    Image.new("RGBA", (40, 30), (200, 30, 30, 128)).save(tmp_path / name)
    browser.type("#file", str(tmp_path / name))
    assert wait_for_captions(browser)
    assert browser.text("#file-name bdi") == name
    assert browser.run("return window.hacked") is None
    assert browser.run("return document.querySelectorAll('#shown img').length") == 1
    assert browser.run("return document.getElementById('photo').naturalWidth") == 40


def test_everything_is_reached_by_tab_and_fits_a_phone(photo_page, hopper) -> None:
    browser = photo_page
    reached: list[str] = []
    for _ in range(9):
        browser.press(TAB)
        reached.append(browser.run("return document.activeElement.id"))
    fields = ["num_captions", "beam_size", "min_words", "max_words", "must_include"]
    assert reached == ["file", "model", "go", "", *fields]  # "" opens and closes the fields
    browser.view(390, 844)
    browser.type("#file", str(hopper))
    wait_for_captions(browser)
    fits = browser.run("return document.documentElement.scrollWidth <= innerWidth")
    browser.resize(1280, 900)
    assert fits


def test_long_paths_of_captioners_show_their_end(photo_page) -> None:
    long = "/somewhere/with a long name/of experiments/runs/mine"
    assert photo_page.run(f"return tail({long!r})") == "…/runs/mine"
    for name in ("runs/mine", "a" * 50, "owner/" + "a" * 50):
        assert photo_page.run(f"return tail({name!r})") == name
