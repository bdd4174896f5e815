"""Every page in a browser: on a desktop, on a phone, and in dark colours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from finished_folder import EDITS, make_folder

from captioning.commands.main import main
from captioning.types import Edit, Sample
from curation.record import Change
from curation.review.runs.runs_page import DemoPart, write_compared_page

FAULTS = (Path(__file__).parents[2] / "page_faults.js").read_text(encoding="utf-8")
VIEWS = {"desktop": (1280, 900, False), "phone": (390, 844, False), "dark": (1280, 900, True)}
VIEWS["dark phone"] = (390, 844, True)
READY = "document.body.dataset.ready"
LONG = "a man who is sitting on an uncharacteristically wide wooden bench beside two bicycles"
TEXTS = tuple(f"{LONG} number {number} of photo {name}" for name in "abcdef" for number in (0, 1))
ACTIONS = ("replace_caption", "down_weight", "set_bucket")
MORE_EDITS = (
    *(replace(edit, policy="losses_above_mean") for edit in EDITS),
    *(
        Edit(
            sample_id=f"{name}.jpg#0",
            action=action,
            value={"replace_caption": LONG, "down_weight": "0.5", "set_bucket": "1"}[action],
            policy="losses_above_mean",
            epoch=1,
            reason="loss 6.5 > 6 (mean + 1 SD)",
        )
        for name, action in zip("bcd", ACTIONS, strict=True)
    ),
)

_SCORES = {"metric": "CIDEr-D", "means": [0.41, 0.4], "spreads": [None, 0.1], "difference": -0.0001}
COMPARED = {
    "names": ["losses_above_mean", "plain"],
    "num_photos": 1,
    "scores": {
        "original": {
            "rows": [{**_SCORES, "low": -0.1, "high": 0.0001, "p_value": 0.5}],
            "leading": "CIDEr-D",
            "num_photos": 1,
        }
    },
    "sentences": ["CIDEr-D is not known to differ."],
    "notes": [],
    "changed": [
        {
            "name": "better",
            "number": 1,
            "items": [
                {
                    "image": "a.jpg",
                    "captions": [[LONG], [LONG]],
                    "scores": [0.1, 0.2],
                    "references": [LONG],
                }
            ],
        }
    ],
    "runs": [{"seeds": [{"folder": "runs/plain", "seed": 0, "checkpoint": "best"}]}],
    "settings": [["optimizer.lr", "0.1", "0.2"]],
}

Pages = Callable[[str], str]


def demo_part(tmp_path: Path) -> DemoPart:
    """Two removed captions, of which one was swapped, and captions whose last word is wrong."""
    sample = Sample(
        row=0, sample_id="a#0", image_id="a", image_path=tmp_path / "gone.jpg", caption=LONG
    )
    edit = replace(MORE_EDITS[0], action="remove", value=None, reason="chance of a wrong caption 1")
    return DemoPart(
        heading="Training on wrong captions, without and with curation",
        about=[
            {"text": "updown_tiny"},
            " on ",
            {"text": "miniworld"},
            ", initialised with random weights",
        ],
        removed=[Change(edit=edit, before=sample, fault=fault) for fault in ("swap", "")],
        summary="Curation removed 2 captions: 50% of them were really wrong.",
        cut=lambda caption, image_id: [caption.removesuffix("bicycles"), "bicycles", ""],
    )


def run_folder(tmp_path: Path, name: str, **changes) -> Path:
    """A finished run that began from the shipped captioner and went down a little."""
    settings = {"start_from": "shipped", "model": {"name": "updown_small"}}
    options = {"name": f"toy/{name}", "texts": TEXTS, "edits": MORE_EDITS} | changes
    folder = make_folder(tmp_path / name, settings=settings, **options)
    (folder / "start.json").write_text('{"scores": {"CIDEr-D": 0.41}}')
    return folder


@pytest.fixture
def pages(tmp_path: Path, request: pytest.FixtureRequest) -> Pages:
    """The address of a page by its name."""

    def report(*arguments: str) -> None:
        assert main(["report", *arguments, "--no-figures"]) == 0

    def address(name: str) -> str:
        if name in ("photo", "suspects"):
            return request.getfixturevalue("page").url
        if name == "check":
            return (request.getfixturevalue("checked") / "report.html").as_uri()
        first = run_folder(tmp_path, "losses_above_mean")
        if name in ("run", "edits"):
            report(str(first))
            return (first / ("report.html" if name == "run" else "curation/report.html")).as_uri()
        if name == "compared":
            write_compared_page(
                COMPARED, {"a.jpg": tmp_path / "gone.jpg"}, tmp_path / "compared.html"
            )
            return (tmp_path / "compared.html").as_uri()
        if name == "demo":
            write_compared_page(
                {**COMPARED, "names": ["without curation", "with curation"]},
                {"a.jpg": tmp_path / "gone.jpg"},
                tmp_path / "demo.html",
                demo_part(tmp_path),
            )
            return (tmp_path / "demo.html").as_uri()
        second = run_folder(tmp_path, "plain", edits=EDITS[:1], scores=[0.2] * 6)
        report(str(first), str(second), "--out", str(tmp_path / "runs.html"))
        return (tmp_path / "runs.html").as_uri()

    return address


NAMES = ("run", "runs", "compared", "demo", "edits", "check", "photo", "suspects")


def test_the_demo_shows_what_was_removed_and_strikes_wrong_words_out(pages: Pages, browser) -> None:
    browser.open(pages("demo"))
    browser.wait(READY)
    assert browser.text("h1") == "Training on wrong captions, without and with curation"
    badges = "return [...document.querySelectorAll('#removed .badge')].map(x => x.textContent)"
    assert browser.run(badges) == ["wrong: rightly removed", "correct: removed by mistake"]
    assert (
        browser.text("#removed p") == "Curation removed 2 captions: 50% of them were really wrong."
    )
    struck = "return [...document.querySelectorAll('#captions del')].map(x => x.textContent)"
    assert browser.run(struck) == ["bicycles", "bicycles"]
    names = "return [...document.querySelectorAll('.by-run span bdi')].map(x => x.textContent)"
    assert browser.run(names) == ["without curation", "with curation"]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_reads_well_on_every_screen(name: str, pages: Pages, browser, tmp_path) -> None:
    browser.open(pages(name))
    browser.wait(READY)
    found = {}
    for view, (width, height, dark) in VIEWS.items():
        browser.view(width, height, dark=dark)
        browser.run(
            "scrollTo(0, 0); document.querySelectorAll('details').forEach(x => x.open = true)"
        )
        browser.wait("[...document.images].every(x => x.complete || x.loading === 'lazy')")
        found[view] = browser.run(FAULTS)
        tall = browser.run("return document.documentElement.scrollHeight")
        browser.view(width, min(tall, 6000), dark=dark)
        browser.screenshot(tmp_path / f"{name} {view}.png")
    browser.resize(1280, 900)
    assert not any(found.values()), "\n".join(
        f"{v}: {x}" for v, lines in found.items() for x in lines
    )
