"""Pages made of hostile texts: nothing of them runs, loads or reorders, with a browser and without.

`curation.review.html_page` builds every page of the project; a test holds that there is no other.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
import threading
from dataclasses import replace
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import page_data
import pytest
from hostile_run import hostile_run
from hostile_texts import HOSTILE
from PIL import Image

from captioning.data.roster import CurationView, Dropped, build_roster
from captioning.types import Edit, Sample
from curation.base import SentenceDoubt, WordDoubt
from curation.check.check_page import write_page
from curation.check.checks import CHECKS
from curation.check.evidence import Scores
from curation.check.mend import Replacement
from curation.check.word_checks import NAME as WORDS
from curation.loop.keep import KeepList
from curation.record import RunRecord
from curation.review.app import app
from curation.review.edit_report import write_report
from curation.review.html_page import FRAME, build_page, isolated, page_file
from curation.review.page_server import SOURCES
from curation.review.runs.run_page import write_run_page
from curation.review.runs.runs_page import write_compared_page, write_runs_page

PAGES = (*("report.html", "app.html", "check.html", "run.html", "runs.html", "compared.html"),)
TITLE = "".join(HOSTILE)
FOLDER = TITLE.replace("/", "_")


@pytest.fixture
def record(tmp_path) -> RunRecord:
    """A run in which every text that reaches the page is hostile, names of files too."""
    samples = []
    for number, text in enumerate(HOSTILE):
        name = re.sub(r"[/\x00]", "_", text) + ".jpg"
        if number % 2:
            Image.new("RGB", (9, 6), (20 * number, 0, 0)).save(tmp_path / name)
        samples.append(
            Sample(
                row=0,
                sample_id=f"{text}#0",
                image_id=name,
                image_path=tmp_path / name,
                caption=text,
            )
        )
    texts = dict(enumerate(HOSTILE))
    roster = build_roster("".join(HOSTILE), samples)
    actions = ("remove", "replace_caption", "replace_image", "down_weight")
    values = (None, HOSTILE[2], f"{re.sub(r'[/]', '_', HOSTILE[3])}.jpg", "0.5")
    edits = [
        Edit(
            sample_id=sample.sample_id,
            action=actions[row % 4],
            value=values[row % 4],
            origin=texts[row],
            reason=texts[row],
            policy=texts[row],
            epoch=row % 2,
        )
        for row, sample in enumerate(roster.samples)
    ]
    again = Edit(
        sample_id=samples[1].sample_id, action="replace_caption", value=HOSTILE[8], epoch=1
    )
    view = replace(CurationView(roster=roster), image_root=tmp_path).apply([*edits, again])
    epoch = {"num_live_before": 1, "num_selected": 1, "num_kept": 0, "num_live_after": 1}
    return RunRecord(
        policy="".join(HOSTILE),
        seed=0,
        view=view,
        records=[
            {"epoch": e, "loss_mean": 1.0, "notes": dict.fromkeys(HOSTILE, 1), **epoch}
            for e in (0, 1)
        ],
        epochs=(0, 1),
        history=np.linspace(1, 4, 2 * len(roster), dtype=np.float32).reshape(2, -1),
        truth={sample.sample_id: sample.caption for sample in samples},
        keep=KeepList(
            roster=roster.name,
            fingerprint=roster.fingerprint,
            sample_ids=(samples[0].sample_id,),
            accepted=(samples[3].sample_id,),
        ),
    )


def write_check(record: RunRecord, path: Path) -> None:
    """The page of a check that flags all captions, each for a hostile reason."""
    dropped = tuple(Dropped(item=text, rule=text) for text in HOSTILE)
    roster = replace(record.view.roster, dropped=dropped)
    checks = [*CHECKS[:2], next(check for check in CHECKS if check.name == WORDS)]
    scores = Scores(values=np.linspace(0, 1, len(roster)), note=HOSTILE[4])
    result = SimpleNamespace(
        roster=roster,
        source=f"a/{FOLDER}",
        checks=checks,
        scores=dict.fromkeys([check.name for check in checks], scores),
        thresholds=dict.fromkeys([check.name for check in checks], 0.0),
        flags={check.name: np.ones(len(roster), bool) for check in checks},
        removing=[check.name for check in checks],
        expected_precision=lambda name: 0.5,
        told=lambda: [f"{HOSTILE[4]}: {HOSTILE[4]}"],
        reason=lambda name, row: HOSTILE[row],
        second_look=lambda row: HOSTILE[row],
        replacement=lambda row: Replacement(
            doubt=WordDoubt(
                row=row,
                start=1,
                word=roster.samples[row].caption[1:3],
                alternative=HOSTILE[row],
                log_odds=1.0,
                probability=0.9,
            ),
            caption="",
        ),
        worst_sentence=lambda row: SentenceDoubt(
            row=row, start=0, sentence=roster.samples[row].caption, suspicion=1.0
        ),
        summary=lambda: HOSTILE[5],
    )
    write_page(result, path)


def write_run(record: RunRecord, path: Path) -> None:
    """The page of a hostile run, or of two as ``runs.html``."""
    if path.name == "run.html":
        write_run_page(hostile_run(record), path, defaults=dict, edits=None)
    else:
        # slashes divide the words of a name
        write_runs_page([hostile_run(record, FOLDER), hostile_run(record, "other")], path)


def write_compared(path: Path) -> None:
    """The page of two runs that were compared, whose every text is hostile."""
    row = {"metric": TITLE, "means": [0.1, 0.2], "spreads": [None, 0.1]}
    row |= {"difference": 0.1, "low": 0.0, "high": 0.2, "p_value": 0.5}
    item = {"image": TITLE, "captions": [[TITLE], [TITLE]], "scores": [0.1, 0.2]}
    facts = {
        "names": [TITLE, "other"],
        "num_photos": 1,
        "scores": {"original": {"rows": [row], "leading": TITLE, "num_photos": 1}},
        "sentences": [TITLE],
        "notes": [TITLE],
        "changed": [{"name": "better", "number": 1, "items": [{**item, "references": [TITLE]}]}],
        "runs": [{"seeds": [{"folder": TITLE, "seed": 0, "checkpoint": TITLE}]}],
        "settings": [[TITLE, TITLE, TITLE]],
    }
    write_compared_page(facts, {TITLE: path.with_name("gone.jpg")}, path)


@pytest.fixture(params=PAGES)
def page(request, record, tmp_path) -> str:
    """The text of each page."""
    if request.param == "report.html":
        write_report(record, tmp_path / "report.html", num_pictures=20)
        return (tmp_path / "report.html").read_text(encoding="utf-8")
    if request.param in ("run.html", "runs.html"):
        write_run(record, tmp_path / request.param)
        return (tmp_path / request.param).read_text(encoding="utf-8")
    if request.param == "compared.html":
        write_compared(tmp_path / "compared.html")
        return (tmp_path / "compared.html").read_text(encoding="utf-8")
    if request.param == "check.html":
        write_check(record, tmp_path / "check.html")
        return (tmp_path / "check.html").read_text(encoding="utf-8")
    return build_page(
        request.param,
        title=TITLE,
        scripts=app.SCRIPTS,
        data="",
        sources=SOURCES,
    )


class Elements(HTMLParser):
    """Start tags with their attributes, and what stands in scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags[-1:] and self.tags[-1][0] in ("script", "style") and data.strip():
            self.inside.append((*self.tags[-1], data))


def test_every_page_is_built_in_one_place(repository: Path) -> None:
    templates = {path.name for path in repository.glob("curation/review/pages/*.html")}
    assert templates == {*PAGES, FRAME}
    writers = [
        str(path.relative_to(repository))
        for package in ("captioning", "curation", "augmentation")
        for path in (repository / package).rglob("*")
        if path.suffix in (".py", ".js", ".html", ".svg")
        and re.search(r"<(?:html|body|svg|iframe|script)\b", path.read_text(encoding="utf-8"), re.I)
    ]
    blocks_of_base64 = "curation/review/html_page.py"
    assert sorted(writers) == sorted([f"curation/review/pages/{FRAME}", blocks_of_base64])


def test_pages_carry_a_strict_policy_that_names_their_own_parts(page: str) -> None:
    elements = Elements(page)
    metas = [a for tag, a in elements.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert len(metas) == 1
    places = [tag for tag, attributes in elements.tags]
    first = next(n for n, (_, a) in enumerate(elements.tags) if "http-equiv" in a)
    assert first < min(places.index("style"), places.index("script"))
    rules = dict(rule.split(" ", 1) for rule in metas[0]["content"].split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert not re.search(r"unsafe|https?:|\*", metas[0]["content"])
    assert set(rules["img-src"].split()) <= {"'self'", "data:"}
    assert set(rules) - {"img-src", "connect-src"} == {
        *("default-src", "style-src", "script-src", "base-uri", "form-action"),
        *("require-trusted-types-for", "trusted-types"),
    }
    for tag, attributes, text in elements.inside:
        if attributes.get("type") == "text/plain":
            assert re.fullmatch(r"[A-Za-z0-9+/=]+", text)
            continue
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"


def test_pages_hold_no_markup_of_the_data_and_no_address(page: str) -> None:
    titles = [html.escape(isolated(text)).strip("\u2068\u2069") for text in (TITLE, FOLDER)]
    escaped = [title for title in titles if title in page]
    assert len(escaped) == 1
    rest = page.replace(escaped[0], "")
    assert "hacked" not in rest
    for tag, attributes in Elements(page).tags:
        assert tag not in ("iframe", "object", "embed", "base")
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action"):
            assert re.match(r"#|data:,|$", attributes.get(name) or "")
    addresses = set(re.findall(r"https?://[^\s\"'<]*", rest))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, which nothing fetches
    assert not re.search(r"@import|url\(|//[a-z]+\.[a-z]+/", re.sub("http://www.w3.org/", "", rest))


def test_scripts_of_pages_never_read_text_as_markup_or_code(repository: Path) -> None:
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
    ways += r"|createContextualFragment|srcdoc|cssText|style: |import\(|importScripts|window\.open"
    scripts = [*repository.glob("curation/review/pages/*.js")]
    assert scripts
    for path in scripts:
        assert re.findall(ways, page_file(path.name)) == [], path.name


def test_titles_are_set_apart() -> None:
    assert isolated("a\u202eb\u2069\n\x1b") == "\u2068a\ufffdb\ufffd\ufffd\ufffd\u2069"
    text = build_page("app.html", title="\u202e<b>", scripts=(), data="")
    assert "<title>\u2068\ufffd&lt;b&gt;\u2069</title>" in text


# Own text of the page, character by character: on each line from left to right.
REORDERED = """
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const wrong = [];
let earlier = null;
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const parent = node.parentElement;
  if (parent.closest("bdi, script, style, noscript, option, textarea, svg")) continue;
  const block = parent.closest("p, div, td, th, h1, h2, h3, li, figcaption, button, label");
  for (let at = 0; at < node.length; at += 1) {
    const range = document.createRange();
    range.setStart(node, at);
    range.setEnd(node, at + 1);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    const here = { block, x: box.x, middle: (box.top + box.bottom) / 2 };
    const same = earlier && earlier.block === block && Math.abs(earlier.middle - here.middle) < 2;
    if (same && here.x < earlier.x) { wrong.push(block.textContent.slice(0, 90)); break; }
    earlier = here;
  }
}
return wrong;
"""


def test_in_a_browser_hostile_texts_are_shown_and_nothing_else(record, tmp_path, browser) -> None:
    write_report(record, tmp_path / "report.html", num_pictures=20)
    browser.open((tmp_path / "report.html").as_uri())
    browser.wait("document.body.dataset.ready === 'yes'")
    assert browser.run("return window.hacked") is None
    shown = browser.run("return [...document.querySelectorAll('bdi')].map(x => x.textContent)")
    for text in HOSTILE:
        assert text in shown  # as a caption, a reason, a policy, a note, a kind of fault
        assert f"{text}#0" in shown
    tags = set(browser.run("return [...document.body.querySelectorAll('*')].map(x => x.tagName)"))
    assert not tags & {"IFRAME", "OBJECT", "EMBED", "BASE", "B2", "LINK", "META", "STYLE"}
    assert browser.run("return document.scripts.length") <= 1 + len(
        page_data.blocks(tmp_path / "report.html", "picture")
    )
    attributes = (
        "return [...document.querySelectorAll('*')].flatMap(x => [...x.attributes])"
        ".filter(a => /^on/.test(a.name) || /^\\s*javascript:/i.test(a.value)).map(a => a.name)"
    )
    assert set(browser.run(attributes)) <= {"data-id", "data-epoch"}
    hints = browser.run("return [...document.querySelectorAll('[title]')].map(x => x.title)")
    assert len(hints) > 5
    assert not any(re.search("[\u202a-\u202e\u2066\u2067\n]", hint) for hint in hints)
    assert browser.run("return performance.getEntriesByType('resource').length") == 0


def test_in_a_browser_a_check_shows_hostile_texts_and_nothing_else(
    record, tmp_path, browser
) -> None:
    write_check(record, tmp_path / "check.html")
    browser.open((tmp_path / "check.html").as_uri())
    browser.wait("document.body.dataset.ready === 'yes'")
    assert browser.run("return window.hacked") is None
    shown = browser.run("return [...document.querySelectorAll('bdi')].map(x => x.textContent)")
    assert set(HOSTILE) <= set(shown)  # captions, reasons, notes, what was left out
    tags = set(browser.run("return [...document.body.querySelectorAll('*')].map(x => x.tagName)"))
    assert not tags & {"IFRAME", "OBJECT", "EMBED", "BASE", "B2", "LINK", "META", "STYLE"}
    assert browser.run(REORDERED) == []
    assert browser.run("return performance.getEntriesByType('resource').length") == 0


@pytest.mark.parametrize("name", ["run.html", "runs.html"])
def test_in_a_browser_runs_show_hostile_texts_and_nothing_else(
    record, tmp_path, browser, name
) -> None:
    write_run(record, tmp_path / name)
    browser.open((tmp_path / name).as_uri())
    browser.wait("document.body.dataset.ready === 'yes'")
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.run("return window.hacked") is None
    shown = browser.run("return [...document.querySelectorAll('bdi')].map(x => x.textContent)")
    for text in HOSTILE:
        assert any(text in one for one in shown), text
    tags = set(browser.run("return [...document.body.querySelectorAll('*')].map(x => x.tagName)"))
    assert not tags & {"IFRAME", "OBJECT", "EMBED", "BASE", "B2", "LINK", "META", "STYLE"}
    labels = "return [...document.querySelectorAll('[aria-label], [alt]')].map(x => "
    labels = browser.run(f"{labels}(x.getAttribute('aria-label') || '') + (x.alt || ''))")
    assert not any(re.search("[\u202a-\u202e\u2066\u2067\n]", label) for label in labels)
    assert browser.run(REORDERED) == []
    assert browser.run("return performance.getEntriesByType('resource').length") == 0


@pytest.mark.parametrize("width", [1280, 500])
def test_in_a_browser_no_text_reorders_the_page(record, tmp_path, browser, width) -> None:
    write_report(record, tmp_path / "report.html", num_pictures=20)
    browser.resize(width, 900)
    browser.open((tmp_path / "report.html").as_uri())
    browser.wait("document.body.dataset.ready === 'yes'")
    wrong = browser.run(REORDERED)
    browser.resize(1280, 900)
    assert wrong == []


class Listener(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.send_error(404)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


INJECTED = """
<script>window.hacked = 1</script><script src="{0}/script"></script>
<img src="{0}/picture" onerror="window.hacked = 2"><img src=x onerror="window.hacked = 3">
<style>body {{ color: rgb(1, 2, 3) }}</style><p id="styled" style="color: rgb(1, 2, 3)">x</p>
<link rel="stylesheet" href="{0}/style"><link rel="prefetch" href="{0}/prefetch">
<base href="{0}/"><iframe src="{0}/frame"></iframe><object data="{0}/object"></object>
<iframe srcdoc="<script>parent.hacked = 4</script>"></iframe><video src="{0}/video"></video>
<a id="link" href="javascript:window.hacked = 5">link</a>
<form id="form" action="{0}/form" method="post"><button id="send">x</button></form>
"""


def test_in_a_browser_the_policy_holds_even_if_markup_got_in(record, tmp_path, browser) -> None:
    write_report(record, tmp_path / "report.html", num_pictures=20)
    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as listener:
        listener.asked, listener.daemon_threads = [], True
        threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
        markup = INJECTED.format(f"http://127.0.0.1:{listener.server_address[1]}")
        text = (tmp_path / "report.html").read_text(encoding="utf-8")
        (tmp_path / "broken.html").write_text(text.replace("<main", f"{markup}<main", 1))
        browser.open((tmp_path / "broken.html").as_uri())
        browser.wait("document.body.dataset.ready === 'yes'")
        browser.run("document.getElementById('link').click()")
        browser.run("document.getElementById('send').click()")
        blocked = browser.messages()
        assert browser.run("return window.hacked") is None
        assert browser.run("return getComputedStyle(document.body).color") != "rgb(1, 2, 3)"
        color = "return getComputedStyle(document.getElementById('styled')).color"
        assert browser.run(color) != "rgb(1, 2, 3)"
        broken = "try { document.body.innerHTML = '<b>'; return 'set' } catch { return 'refused' }"
        assert browser.run(broken) == "refused"
        listener.shutdown()
    assert listener.asked == []
    for directive in ("script-src", "style-src", "img-src", "default-src", "form-action"):
        assert any(directive in message for message in blocked), directive
    browser.messages()
