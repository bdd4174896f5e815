"""What the page's server answers, to whom, and where the captioner looks."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from captioning.inference.attention import AttendedWord, attended_words
from captioning.types import Batch, CaptionedPhoto, Prediction, Region
from curation.review.app.app import NUM_KEPT, App, PhotoCaptions, Uploads
from curation.review.page_server import PageServer, Refused, serve
from tests.curation.review.test_page_server import ask_plainly
from tests.tiny import build, make_batch

BYTES = "application/octet-stream"


def ask(server, path: str, body, kind: str = "application/json", **headers):
    address = f"/{server.token}{path}"
    status, _, content = ask_plainly(server, "POST", address, body, Content_Type=kind, **headers)
    return status, content.decode()


def test_nobody_else_is_answered(page, checked, hopper) -> None:
    photo = hopper.read_bytes()
    decision = {"number": 0, "verdict": "remove", "correction": ""}
    own = f"http://127.0.0.1:{page.server_address[1]}"
    for path, body, kind in (
        ("/api/photo", photo, BYTES),
        ("/api/decide", json.dumps(decision), "application/json"),
    ):
        other = "y" if page.token.endswith("x") else "x"
        wrong = f"/{page.token[:-1]}{other}{path}"
        assert ask_plainly(page, "POST", wrong, body, Content_Type=kind)[0] == 404
        assert ask(page, path, body, kind, Host="evil.example")[0] == 421
        assert ask(page, path, body, kind, Origin="http://evil.example")[0] == 403
        assert ask(page, path, body, kind, Sec_Fetch_Site="cross-site")[0] == 403
        assert ask(page, path, body, "text/plain")[0] == 415
    assert not (checked / "decisions.json").exists()
    assert ask(page, "/api/decide", decision, Origin=own)[0] == 200
    assert (checked / "decisions.json").exists()


BAD = (
    ("/api/decide", {"number": 3, "verdict": "keep"}, "this caption does not exist"),
    ("/api/decide", {"number": True, "verdict": "keep"}, "this caption does not exist"),
    ("/api/decide", {"number": 0, "verdict": "maybe"}, "verdict must be keep"),
    ("/api/decide", {"number": 0, "verdict": ["keep"]}, "must be texts"),
    ("/api/decide", {"number": 0, "verdict": "correct"}, "needs a caption"),
    ("/api/caption", {"photo": 7}, "no longer keeps this photo; choose the photo again"),
    ("/api/caption", {"photo": "../x"}, "photo must be a number"),
    ("/api/caption", {"photo": 1, "model": 1}, "this captioner is not loaded"),
    ("/api/caption", {"photo": 1, "model": 0, "beam_size": 51}, "beam size must be a whole"),
    ("/api/caption", {"photo": 1, "model": 0, "must_include": ["dog"]}, "list of lists"),
    ("/api/caption", {"photo": 1, "model": 0, "min_words": 9, "max_words": 4}, "at most"),
    ("/api/suggest", {"number": 0, "model": -1}, "this captioner is not loaded"),
    ("/api/other", {}, "page does not exist"),
)


def test_bad_requests_are_answered_and_change_nothing(page, checked, hopper) -> None:
    assert ask(page, "/api/photo", hopper.read_bytes(), BYTES)[0] == 200
    for path, body, message in BAD:
        status, content = ask(page, path, body)
        assert 400 <= status < 500, (path, body)
        assert message in content
    assert not (checked / "decisions.json").exists()


def test_only_the_latest_photos_are_kept(tmp_path, hopper) -> None:
    uploads = Uploads(tmp_path)
    numbers = [uploads.add(hopper.read_bytes()) for _ in range(NUM_KEPT + 1)]
    assert len(list(tmp_path.iterdir())) == NUM_KEPT
    with pytest.raises(Refused, match="choose the photo again"):
        uploads.photo(numbers[0])
    assert uploads.photo(numbers[1]).size == (512, 600)


def photo_alone(place: int) -> Batch:
    """A picture of the tiny batch."""
    batch, one = make_batch(), slice(place, place + 1)
    return replace(
        batch,
        regions=batch.regions[one],
        region_mask=batch.region_mask[one],
        image_ids=batch.image_ids[one],
    )


@torch.no_grad()
def test_words_have_the_weights_and_chances_of_the_search() -> None:
    model, photo = build("updown").eval(), photo_alone(3)
    (best, *_) = model.candidates(photo)[0]
    long = "a red bird sits on the grass"
    words, others = attended_words(model, photo, [best.caption, long])
    assert " ".join(word.text for word in words) == best.caption
    assert " ".join(word.text for word in others) == long
    state = model.start(photo)
    tokens = model.tokenizer.encode(best.caption)
    for read, told, word in zip(tokens[:-2], tokens[1:-1], words, strict=True):
        log_probs, state, weights = model.attend_step(torch.tensor([read]), state)
        assert word.probability == pytest.approx(float(log_probs[0, told].exp()), rel=1e-4)
        torch.testing.assert_close(torch.tensor(word.weights), weights[0])
        assert sum(word.weights) == pytest.approx(1)
        assert word.weights[3:] == (0, 0)  # regions that this picture has not
    (plain,) = attended_words(build("viecap").eval(), photo, ["a dog"])
    assert [word.weights for word in plain] == [(), ()]


@pytest.fixture
def on_boxes(hopper) -> SimpleNamespace:
    """A captioner on regions, whose caption tells what it was given."""
    words = [AttendedWord(text=t, probability=0.5, weights=w) for t, w in WORDS]

    def caption(photos, *, boxes, **settings):
        found = Prediction(image_id="x", caption=f"{len(boxes[0])} boxes", score=-inf)
        return [CaptionedPhoto(photo=str(photos[0]), captions=(found,))]

    return SimpleNamespace(
        model=build("updown"),
        takes_boxes=True,
        grid_size=None,
        caption=caption,
        attention=lambda photo, captions, boxes: [words],
    )


WORDS = (("2", (0.2, 0.1, 0.7)), ("boxes", (0.5, 0.5, 0.0)))
REGIONS = (
    Region(box=(128.0, 60.0, 256.0, 300.0), label="<b>woman</b>"),
    Region(box=(0.0, 0.0, 512.0, 600.0), label="flag"),
)


def test_boxes_are_found_by_the_files_name(on_boxes, hopper) -> None:
    captions = PhotoCaptions({"regions": on_boxes}, {"a": REGIONS})
    result = captions.caption(hopper, (512, 600), "a.jpg", {"model": 0})
    assert [found["score"] for found in result["captions"]] == [None]
    assert [shown["box"] for shown in result["boxes"]] == [[0.25, 0.1, 0.5, 0.5], [0, 0, 1, 1]]
    with pytest.raises(ValueError, match=r"'b.jpg' has none: run captioning find-objects"):
        captions.caption(hopper, (512, 600), "b.jpg", {"model": 0})


def start(captions: PhotoCaptions, folder: Path) -> PageServer:
    page = App(captions=captions, uploads=Uploads(folder), review=None)
    server = serve(page, host="127.0.0.1", port=0, token="t" * 32)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


def stop(server: PageServer) -> None:
    server.shutdown()
    server.server_close()


def show(browser, server: PageServer, photo: Path) -> None:
    """Open a photo, and wait for the two words of its caption."""
    browser.open(server.url)
    browser.wait("document.body.dataset.ready")
    browser.type("#file", str(photo))
    browser.wait("document.querySelectorAll('#words button').length === 2")


def captions_of(model: str, *weights: tuple[float, ...]) -> PhotoCaptions:
    """Of a captioner that says "a dog" and looks as ``weights`` say."""
    words = [
        AttendedWord(text=text, probability=0.5, weights=share)
        for text, share in zip(("a", "dog"), weights, strict=True)
    ]
    found = Prediction(image_id="x", caption="a dog", score=-1.0)
    captioner = SimpleNamespace(
        model=build(model),
        takes_boxes=False,
        grid_size=None,
        caption=lambda photos, **_: [CaptionedPhoto(photo="x", captions=(found,))],
        attention=lambda photo, captions, boxes: [words],
    )
    return PhotoCaptions({"stub": captioner}, {})


@pytest.mark.parametrize("whole", [(), (0.25,)])
def test_a_square_grid_is_drawn_with_or_without_the_whole_photo(
    whole, hopper, tmp_path, browser
) -> None:
    rest = 1 - sum(whole)
    server = start(
        captions_of("blip", (*whole, *[rest / 4] * 4), (*whole, 0, 0, 0, rest)), tmp_path
    )
    show(browser, server, hopper)
    corner = """
        const shown = document.getElementById("overlay");
        const one = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        Object.assign(one.canvas, { width: shown.width, height: shown.height });
        one.drawImage(shown, 0, 0);
        return [[2, 2], [510, 598]].map((at) => [...one.getImageData(...at, 1, 1).data])"""
    browser.run("document.querySelector('#words button:nth-child(2)').focus()")
    dark, tinted = browser.run(corner)
    assert dark == [0, 0, 0, pytest.approx(204, abs=3)]
    assert tinted[0] > 200 > tinted[1] > 100 > tinted[2]
    assert tinted[3] == pytest.approx(76, abs=20)  # made larger smoothly
    share = "; the whole photo gets 25 %" if whole else ""
    assert browser.text("#looks") == f"· attention for “dog”{share}"
    stop(server)


def test_a_captioner_that_looks_nowhere_says_so(hopper, tmp_path, browser) -> None:
    server = start(captions_of("viecap", (), ()), tmp_path)
    show(browser, server, hopper)
    assert "does not attend to parts" in browser.text("#words-hint")
    assert browser.run("return document.querySelectorAll('#words canvas').length") == 0
    assert browser.run("return document.querySelector('#words small').textContent") == "50 %"
    browser.run("document.querySelector('#words button:nth-child(2)').focus()")
    assert browser.text("#looks") == ""
    assert browser.run("return looksAt(word, result)") == ""
    stop(server)


def test_boxes_are_drawn_by_their_weights(on_boxes, hopper, tmp_path, browser) -> None:
    captions = PhotoCaptions({"regions": on_boxes}, {"grace_hopper": REGIONS})
    server = start(captions, tmp_path)
    show(browser, server, hopper)
    inside = """
        const one = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        one.drawImage(document.getElementById("overlay"), -200, -200);
        return one.getImageData(0, 0, 1, 1).data[3] / 255"""
    assert browser.run(inside) == 0  # outlines alone
    weights = []
    for place in (1, 2):
        browser.run(f"document.querySelector('#words button:nth-child({place})').focus()")
        weights.append(browser.run(inside))
        assert ("20 %", "50 %")[place - 1] in browser.text("#looks")
    stop(server)
    # The first word looks at both boxes, the second at the first box alone.
    assert weights == [pytest.approx(v, abs=0.02) for v in (1 - (1 - 0.45 / 7) * 0.55, 0.45)]
