"""Every page in a browser: on a desktop, on a phone, and in dark colours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from finished_folder import EDITS, make_folder

from captioning.commands.main import main
from captioning.types import Edit
from curation.review.runs.runs_page import write_compared_page

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
        second = run_folder(tmp_path, "plain", edits=EDITS[:1], scores=[0.2] * 6)
        report(str(first), str(second), "--out", str(tmp_path / "runs.html"))
        return (tmp_path / "runs.html").as_uri()

    return address


NAMES = ("run", "runs", "compared", "edits", "check", "photo", "suspects")


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
