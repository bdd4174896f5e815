"""Suspected captions in the browser: decisions on the disk, undone, gone on with, and applied."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hostile_texts import HOSTILE
from PIL import Image

from captioning.commands.main import main
from captioning.data.readers.own.own import read_own
from captioning.runtime.files import write_json
from curation.review.app import app
from curation.review.suspects.label_studio import Decision, Decisions
from curation.review.suspects.suspects import Suspect, read_suspects
from tests.curation.review.conftest import CAPTIONS

SAVED = "document.getElementById('status').textContent === 'all decisions are saved'"
RIGHT, LEFT, ENTER, ESCAPE = "\ue014", "\ue012", "\ue007", "\ue00c"


def decided(path: Path) -> dict[str, list[str]]:
    """What a file says of each caption: the verdict, and the new caption."""
    return {
        task["data"]["caption"]: [
            value
            for annotation in task["annotations"]
            for part in annotation["result"]
            for value in part["value"].get("choices") or part["value"]["text"]
        ]
        for task in json.loads(path.read_text())
    }


def open_review(browser, url: str) -> None:
    browser.open(url)
    browser.wait("document.body.dataset.ready")
    browser.wait("document.getElementById('suspect-photo').naturalWidth")


def test_by_keyboard_alone(page, checked, photos, browser, tmp_path, capsys) -> None:
    file = checked / "decisions.json"
    open_review(browser, page.url)
    assert browser.text("#suspect-caption") == "IMG_2043.JPG"
    assert browser.text("#place") == "1 of 3"
    browser.press("a")  # what the check proposes
    browser.wait(SAVED)
    assert decided(file) == {"IMG_2043.JPG": ["remove"]}
    assert browser.text("#place") == "2 of 3"
    browser.press("k")
    browser.press("u")  # the last one is taken back, and shown
    browser.wait(SAVED)
    assert browser.text("#place") == "2 of 3"
    assert decided(file)[CAPTIONS["c.jpg"]] == []
    browser.press("u")
    browser.wait(SAVED)
    assert decided(file) == {"IMG_2043.JPG": [], CAPTIONS["c.jpg"]: []}

    browser.press("c")
    browser.type("#text", " k" + ESCAPE)  # a text's letters decide nothing
    browser.press("c")
    browser.run("document.getElementById('text').value = ''")
    browser.type("#text", "A  woman in uniform." + ENTER)
    browser.press(RIGHT + "k" + LEFT)
    browser.wait(SAVED)
    assert browser.text("#verdict") == ""
    assert browser.text("#counts").startswith("2 of 3 decided: 1 kept, 0 removed, 1 corrected")
    page.shutdown()

    command = browser.text("#command")
    assert command.endswith(f"'{file}' '{photos}' corrected")
    arguments = [str(file), str(photos), str(tmp_path / "corrected"), "--format", "imagefolder"]
    assert main(["curate", "corrections", *arguments]) == 0
    assert "4 captions; 1 x replace_caption, 1 x keep" in capsys.readouterr().out
    captions = [s.caption for s in read_own(name="new", folder=tmp_path / "corrected").samples]
    expected = CAPTIONS | {"hopper.jpg": "A woman in uniform."}
    assert sorted(captions) == sorted(expected.values())


def test_one_goes_on_where_one_stopped_with_hints_of_the_captioner(
    open_page, checked, photos, browser, shipped, hopper
) -> None:
    suspects = read_suspects(checked)
    earlier = Decisions(path=checked / "decisions.json", suspects=suspects)
    earlier.decide(suspects[1], Decision(verdict="keep"))
    url = open_page(suspects=str(checked), photos=[str(photos)]).url
    open_review(browser, url)
    assert browser.text("#to-review") == "Review captions: 2 left"
    browser.press("k")
    assert browser.text("#place") == "3 of 3"  # over what was decided before
    browser.press(LEFT + LEFT)
    browser.press("c")
    browser.click("#suggest")
    browser.wait("document.getElementById('text').value !== 'IMG_2043.JPG'")
    browser.type("#text", ENTER)
    browser.wait(SAVED)
    caption = shipped.caption([hopper])[0].caption
    assert decided(checked / "decisions.json")["IMG_2043.JPG"] == ["correct", caption]
    with pytest.raises(ValueError, match=r"decisions\.json is in use by process"):
        open_page(suspects=str(checked), photos=[str(photos)])


def test_on_a_phone_and_with_hostile_texts(open_page, checked, photos, browser) -> None:
    with (checked / "issues.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = [text.replace("/", "_").replace("\0", "")[:60] + ".jpg" for text in HOSTILE]
    for name in names:
        Image.new("RGB", (40, 30)).save(photos / name)
    texts = [text.replace("\0", "") for text in HOSTILE]
    with (checked / "issues.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        for name, text in zip(names, texts, strict=True):
            changed = {"file": str(photos / name), "sample_id": f"{text}#0", "caption": text}
            writer.writerow(rows[1] | changed | {"reason": text, "issues": f"{text};fit"})
    browser.view(390, 844)
    open_review(browser, open_page(suspects=str(checked), photos=[str(photos)]).url)
    for name, text in zip(names, texts, strict=True):
        assert browser.text("#suspect-caption") == text
        assert browser.text("#reason") == text
        assert browser.text("#suspect-file") == name
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
        browser.press("k")
    browser.wait(SAVED)
    assert browser.run("return window.hacked") is None
    browser.resize(1280, 900)
    kept = json.loads((checked / "decisions.json").read_text())
    assert [task["data"]["caption"] for task in kept] == texts


def test_the_new_caption_of_a_run_is_taken(
    open_page, tmp_path, hopper, browser, monkeypatch
) -> None:
    changed = [replace(suspect(str(n), "old"), photo=hopper, proposal="new") for n in range(2)]
    monkeypatch.setattr(app, "read_suspects", lambda source, top: list(changed))
    url = open_page(suspects=str(tmp_path), photos=[str(hopper.parent)]).url
    open_review(browser, url)
    assert browser.text("#command").endswith(f"{tmp_path} corrected")
    browser.press("ar")
    browser.wait(SAVED)
    made = Decisions(path=tmp_path / "decisions.json", suspects=changed)
    assert made.of(changed[0]) == Decision(verdict="correct", correction="new")
    assert made.of(changed[1]) == Decision(verdict="remove")


def test_photos_outside_of_the_named_folders_are_not_shown(
    open_page, page, checked, photos, tmp_path
) -> None:
    application = page.application
    suspects = read_suspects(checked)
    number = next(n for n, s in enumerate(suspects) if s.photo.name == "d.jpg")
    assert application.get(f"suspect/{number}")[1].startswith(b"\xff\xd8")
    secret = tmp_path / "secret.jpg"
    (photos / "d.jpg").rename(secret)
    (photos / "d.jpg").symlink_to(secret)
    with pytest.raises(app.Refused, match="cannot be shown"):
        application.get(f"suspect/{number}")
    page.shutdown()
    options = {"suspects": str(checked), "decisions": str(tmp_path / "new.json")}
    with pytest.raises(ValueError, match=r"the photos are in .*: --photos '.*my photos'"):
        open_page(**options, photos=[str(checked)])


def test_the_page_gets_the_other_captions_of_a_photo(tmp_path, photos) -> None:
    first = replace(suspect("1"), photo=photos / "dog.jpg", others=("A dog.", "The dog."))
    decisions = Decisions(path=tmp_path / "export.json", suspects=[first])
    sheet = app.Review(
        source=tmp_path, suspects=[first], decisions=decisions, roots=[photos], whole=None
    ).sheet()
    assert sheet["suspects"][0]["others"] == ("A dog.", "The dog.")


def suspect(name: str, caption: str = "a") -> Suspect:
    known = {"photo": Path(f"{name}.jpg"), "suspicion": None, "issues": (), "reason": ""}
    return Suspect(sample_id=name, caption=caption, **known)


def test_decisions_of_others_stay_and_wrong_ones_are_refused(tmp_path) -> None:
    path = tmp_path / "export.json"
    first = Decisions(path=path, suspects=[suspect("1"), suspect("2")])
    first.decide(suspect("1"), Decision(verdict="correct", correction=" a  new\none "))
    first.decide(suspect("2"), Decision(verdict="remove"))
    second = Decisions(path=path, suspects=[suspect("2"), suspect("3")])
    second.decide(suspect("3"), Decision(verdict="keep"))
    second.decide(suspect("2"), None)
    last = Decisions(path=path, suspects=[])
    assert last.of(suspect("1")) == Decision(verdict="correct", correction="a new one")
    assert last.of(suspect("2")) is None
    assert last.of(suspect("3")) == Decision(verdict="keep")
    with pytest.raises(ValueError, match="task 1: 1 has another caption"):
        Decisions(path=path, suspects=[suspect("1", "b")])
    wrong = (("correct", " "), ("keep", "x"), ("maybe", ""), ("correct", "x" * 3000))
    for verdict, correction in wrong:
        with pytest.raises(ValueError, match="verdict must|correct needs|at most"):
            Decision(verdict=verdict, correction=correction)


def test_the_next_photos_are_there_before_they_are_wanted(page, checked, photos, browser) -> None:
    open_review(browser, page.url)
    loaded = "[...photos.values()].filter((image) => image.naturalWidth).length"
    browser.wait(f"{loaded} === 3")
    browser.press(RIGHT)
    assert browser.run("return document.getElementById('suspect-photo').naturalWidth") == 128
    assert browser.run("return photos.size") == 3  # the one before stays, too


def test_a_photo_that_cannot_be_shown_is_said_and_the_next_one_is(page, photos, browser) -> None:
    (photos / "c.jpg").write_bytes(b"no photo")
    open_review(browser, page.url)
    places = {browser.text("#suspect-file"): None}
    for _ in range(2):
        browser.press(RIGHT)
        name = browser.text("#suspect-file")
        if name == "c.jpg":
            browser.wait("!document.getElementById('no-photo').hidden")
            assert browser.run("return document.getElementById('suspect-photo').hidden")
        else:
            browser.wait("document.getElementById('suspect-photo').naturalWidth")
            assert browser.run("return document.getElementById('no-photo').hidden")
        places[name] = None
    assert set(places) == {"hopper.jpg", "c.jpg", "d.jpg"}
    browser.messages()  # the browser's own, of an answer with an error's status


def test_a_decision_of_many_is_written_as_ever_and_quickly(tmp_path, monkeypatch) -> None:
    suspects = [suspect(str(number), f"caption {number} é") for number in range(300)]
    path = tmp_path / "decisions.json"
    decisions = Decisions(path=path, suspects=suspects)
    for one in suspects:
        decisions.decide(one, Decision(verdict="keep"))
    again = Decisions(path=path, suspects=suspects)
    made = []
    text = "curation.review.suspects.label_studio._text"
    monkeypatch.setattr(text, lambda task, where: made.append(1) or '{"data": {}}')
    again.decide(suspects[7], None)
    assert len(made) == 1  # the other 299 are not made into text again
    monkeypatch.undo()
    again.decide(suspects[7], Decision(verdict="correct", correction="ü"))
    written = path.read_text(encoding="utf-8")
    write_json(path, json.loads(written))
    assert path.read_text(encoding="utf-8") == written
    assert [task["data"]["sample_id"] for task in json.loads(written)] == [
        one.sample_id for one in suspects
    ]
    path.write_text(written.replace('"sample_id": "0"', '"sample_id": "0", "x": NaN', 1))
    with pytest.raises(ValueError, match=r"cannot write .*task 1: Out of range"):
        Decisions(path=path, suspects=suspects)
