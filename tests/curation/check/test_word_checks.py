"""Wrong words: found in a world where they are known, shown, written to tables and mended."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.commands.main import main
from captioning.data.readers.own.own import read_own
from captioning.data.roster import Roster
from captioning.metrics.detection import area_under_roc
from curation.amend.replace_word import parse_origin
from curation.base import WordDoubt
from curation.check import CheckResult, check, mend
from curation.check import word_checks as words
from curation.check.check_files import export_cleaned, write_result
from curation.check.checks import THRESHOLDS
from curation.check.evidence import Evidence, Scores
from curation.check.mend import mendable
from curation.check.support import Support
from curation.review.suspects.suspects import read_suspects
from tests.curation import page_data
from tests.curation.check.test_checks import evidence, good_photo
from tests.curation.check.worlds import colourful

EVIL = "<img src=x onerror=alert(1)> a red dog"


def seen(roster: Roster, **options: object) -> Evidence:
    """The roster with photos that nothing is wrong with."""
    photos = {s.image_path: good_photo(int(s.image_path.stem)) for s in roster.samples}
    return Evidence(roster=roster, photos=photos, **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One seed, and sets of a few captions are judged."""
    monkeypatch.setattr(words, "NUM_SEEDS", 1)
    monkeypatch.setattr(words, "MIN_WORDS_ALONE", 0)


@pytest.mark.long
def test_wrong_words_are_found_with_what_they_should_be() -> None:
    roster, wrong = colourful(400, 20)
    done: list[float] = []
    scores = words.wrong_words(seen(roster, progress=done.append))
    surest = {row: scores.words[row][0] for row in np.flatnonzero(scores.values >= 0.5).tolist()}
    assert set(surest) == set(wrong)
    for row, (word, right) in wrong.items():
        doubt, caption = surest[row], roster.samples[row].caption
        assert (doubt.word, doubt.alternative) == (word, right)
        assert caption[doubt.start :].startswith(f"{word} ")
        assert scores.reasons[row] == f"{word!r} should perhaps be {right!r}"
    assert "estimated to be wrong" in scores.note
    assert done == sorted(done)
    assert done[-1] == pytest.approx(1)


@pytest.mark.long
def test_a_photos_vector_tells_what_one_caption_cannot() -> None:
    roster, _ = colourful(1500, 0, captions=1)
    captions = [sample.caption.split() for sample in roster.samples]
    shown = np.array(
        [[float(c in caption) for c in ("red", "blue", "yellow")] for caption in captions]
    )
    for row in range(10):  # the photo shows the next colour
        shown[row] = np.roll(shown[row], 1) if shown[row].any() else (1, 0, 0)
    shown[11] = np.nan  # a photo that cannot be opened
    found = words.wrong_words(seen(roster, photo_vectors=shown.astype(np.float32))).values
    blind = words.wrong_words(seen(roster)).values
    assert found[:10].min() > 5 * found[12:].mean()
    assert (found[:10] > np.quantile(found[12:], 0.98)).all()
    assert (blind[:10] > np.quantile(blind[12:], 0.9)).sum() <= 4
    assert np.isfinite(found[11])


class Colours:
    """A space in which texts lie where photos of their colour do."""

    space, identity, dim = "colours", "colours", 3

    def __init__(self) -> None:
        self.read: list[str] = []

    def embed_texts(self, texts: Sequence[str]) -> torch.Tensor:
        self.read += texts
        return torch.tensor(
            [[float(c in text) for c in ("red", "blue", "yellow")] for text in texts]
        )


@pytest.mark.long
def test_the_space_looks_again_at_words_in_doubt() -> None:
    roster, _ = colourful(1500, 0, captions=1)
    captions = [sample.caption.split() for sample in roster.samples]
    shown = np.array(
        [[float(c in caption) for c in ("red", "blue", "yellow")] for caption in captions]
    )
    shown += np.random.default_rng(0).normal(size=shown.shape) / 2
    wrong = [row for row in range(200) if {"red", "blue", "yellow"} & set(captions[row])][:20]
    for row in wrong:  # the photo shows the next colour
        shown[row] = np.roll(shown[row], 1)
    shown[300] = np.nan  # a photo that cannot be opened
    vectors = shown.astype(np.float32)
    space = Colours()
    own = {"photo_vectors": vectors, "encoder": space, "space": "colours"}
    once = words.wrong_words(seen(roster, photo_vectors=vectors)).values
    twice = words.wrong_words(seen(roster, **own)).values
    is_wrong = np.isin(np.arange(len(roster)), wrong)
    known = np.isfinite(once)
    first, second = (area_under_roc(v[known], is_wrong[known]) for v in (once, twice))
    assert second > first - 0.001
    assert (twice[wrong] > 0.6).sum() > (once[wrong] > 0.6).sum()
    assert np.isfinite(twice[300]) == np.isfinite(once[300])
    assert len(space.read) == len(set(space.read)), "no text is embedded twice"
    assert len(space.read) < len(roster), "few words are looked at again"


def test_likeness_takes_the_vectors_that_are_there() -> None:
    roster, _ = colourful(40, 0, captions=1)
    captions = [sample.caption for sample in roster.samples]
    vectors = np.ones((len(roster), 3), np.float32)
    vectors[1] = np.nan
    space = Colours()
    look = seen(roster, caption_vectors=np.full_like(vectors, 2), space="colours")
    likeness = words._Likeness(look, vectors, space)
    paths = [sample.image_path for sample in roster.samples]
    pairs = [(paths[0], captions[0]), (paths[0], "a red one"), (paths[1], "a red one")]
    assert likeness.scores(pairs).tolist() == [6, 1, 0]
    assert space.read == ["a red one"]
    space.embed_texts = None  # nothing new: encoders refuse to embed nothing
    assert likeness.scores(pairs[:1]).tolist() == [6]


def test_small_sets_are_not_judged_and_say_why() -> None:
    scores = words.wrong_words(evidence(["A red dog.", "Two men run."]))
    assert np.isnan(scores.values).all()
    assert scores.note.startswith("words were not judged: captions hold 4 words")
    result = result_of(evidence(["A red dog."]).roster, {})
    assert f"{words.NAME}: " not in result.summary()


def test_captions_without_such_a_word_have_no_chance(monkeypatch) -> None:
    monkeypatch.setattr(words, "MIN_WORDS", 30)
    captions = [*["A red dog runs.", "A blue dog sits."] * 8, "Hello there."]
    values = words.wrong_words(evidence(captions)).values
    assert np.isnan(values).tolist() == [False] * 16 + [True]


def doubt(row: int, caption: str, word: str, other: str, probability: float) -> WordDoubt:
    """A doubt about the first such word."""
    start = caption.index(word)
    return WordDoubt(
        row=row, start=start, word=word, alternative=other, log_odds=1.0, probability=probability
    )


CAPTIONS = (
    "A red dog runs.",  # surely wrong
    "An orange cat and a boy.",  # surely wrong, with an article
    "Two dogs run.",  # likely wrong
    EVIL,  # surely wrong, and flagged by another check
    "A man in a red hat.",  # two words surely wrong
    "A horse on snow.",  # right
)
DOUBTS = {
    0: [("red", "blue", 0.97)],
    1: [("orange", "blue", 0.95), ("boy", "girl", 0.1)],
    2: [("Two", "three", 0.6)],
    3: [("red", "blue", 0.99)],
    4: [("red", "blue", 0.93), ("man", "woman", 0.91)],
    5: [("horse", "dog", 0.01)],
}


def result_of(roster: Roster, doubts: dict, **thresholds: float) -> CheckResult:
    """A result of two checks, of which one calls the fourth caption code."""
    found = {
        row: tuple(doubt(row, roster.samples[row].caption, *one) for one in own)
        for row, own in doubts.items()
    }
    values = np.full(len(roster), np.nan, np.float32)
    for row, own in found.items():
        values[row] = own[0].probability
    code = np.array([float("<" in sample.caption) for sample in roster.samples], np.float32)
    scores = {
        words.NAME: Scores(
            values=values,
            words=found,
            reasons={row: f"{own[0].word!r} should perhaps be that" for row, own in found.items()},
        ),
        "code": Scores(values=code),
    }
    limits = {**THRESHOLDS, words.NAME: 0.5, **thresholds}
    return CheckResult(roster=roster, scores=scores, thresholds=limits, source="set")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photos with those captions."""
    root = tmp_path / "set"
    root.mkdir()
    rng = np.random.default_rng(0)
    with (root / "metadata.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file_name", "text"])
        for number, caption in enumerate(CAPTIONS):
            pixels = rng.integers(0, 256, (9, 12, 3), np.uint8)
            Image.fromarray(pixels).resize((120, 90)).save(root / f"{number}.jpg")
            writer.writerow([f"{number}.jpg", caption])
    return root


@pytest.fixture
def result(folder: Path, monkeypatch: pytest.MonkeyPatch) -> CheckResult:
    """The result of that folder, whose other captions say the other word of the same thing."""
    monkeypatch.setattr(mend, "support_of", lambda *_: Support(agree=3))
    return result_of(read_own(name="set", folder=folder, part="all"), DOUBTS)


def test_the_table_has_word_place_replacement_and_chance(result, tmp_path) -> None:
    paths = write_result(result, tmp_path / "out")
    with paths[1].open(newline="") as file:
        rows = list(csv.DictReader(file))
    named = [[row[name] for name in ("word", "word_start", "replacement")] for row in rows]
    assert named[:3] == [["red", "2", "blue"], ["orange", "3", "blue"], ["Two", "0", "three"]]
    assert rows[1][words.NAME] == "0.95"
    assert [row["issues"] for row in rows] == [words.NAME] * 3 + ["wrong_word;code"] + [
        words.NAME,
        "",
    ]
    frame = result.issues.to_pandas()
    assert frame.word_start.tolist() == [2, 3, 0, CAPTIONS[3].index("red"), 11, 2]
    parquet = pytest.importorskip("pyarrow.parquet").read_table(paths[2]).to_pylist()
    assert [row["replacement"] for row in parquet] == [row["replacement"] for row in rows]
    assert parquet[5]["word"] == "horse"  # also where nothing is flagged
    without = check(result.roster, space="none", skip=[words.NAME], quiet=True)
    assert "word" not in without.issues.columns


def test_the_page_shows_the_word_struck_out_and_what_should_stand_there(result, tmp_path) -> None:
    write_result(result, tmp_path)
    facts = page_data.facts(tmp_path / "report.html")
    group = next(group for group in facts["groups"] if group["name"] == words.NAME)
    shown = [item["changed"] for item in group["items"]]
    assert shown[0] == ["A ", "red", "blue", " dog runs."]
    assert shown[1] == ["An ", "orange", "blue", " cat and a boy."]
    assert shown[-1] == [EVIL[:-7], "red", "blue", " dog"]  # elsewhere flagged, so last
    assert group["items"][0]["value"] == "0.97"
    assert group["precision"] == pytest.approx(0.888)
    others = next(group for group in facts["groups"] if group["name"] == "code")
    assert [item["changed"] for item in others["items"]] == [None]
    assert "onerror" not in (tmp_path / "report.html").read_text()


def test_in_a_browser_words_are_struck_out_and_no_text_is_markup(result, tmp_path, browser) -> None:
    write_result(result, tmp_path)
    browser.open((tmp_path / "report.html").as_uri())
    browser.wait("document.body.dataset.ready === 'yes'")
    for tag, expected in (("del", "red"), ("ins", "blue")):
        shown = browser.run(
            f"return [...document.querySelectorAll('#wrong_word {tag}')].map(x => x.textContent)"
        )
        assert shown[0] == expected
        assert len(shown) == 5
    sources = browser.run("return [...document.images].map(x => x.getAttribute('src').slice(0, 5))")
    assert set(sources) == {"data:"}
    assert EVIL.partition("red")[0] in browser.run(
        "return document.querySelector('#wrong_word').textContent"
    )


def test_only_a_word_that_is_surely_wrong_and_the_only_fault_is_mended(result) -> None:
    assert {row: new.caption for row, new in mendable(result).items()} == {
        0: "A blue dog runs.",
        1: "A blue cat and a boy.",
    }
    assert set(mendable(result, threshold=0.6)) == {0, 1, 2}
    high = result_of(result.roster, DOUBTS, wrong_word=0.96)
    assert set(mendable(high)) == {0}  # what is not flagged stays as it is
    with pytest.raises(ValueError, match=r"in \[0, 1\]: got 1.5"):
        mendable(result, threshold=1.5)


@pytest.mark.parametrize("format", ["coco", "parquet"])
def test_the_cleaned_set_has_the_mended_captions_and_the_journal_says_so(
    result, tmp_path, format, capsys
) -> None:
    count = export_cleaned(result, tmp_path / "clean", format=format, photos="copy", mend="words")
    assert count == 3
    roster = read_own(name="clean", folder=tmp_path / "clean")
    captions = [sample.caption for sample in roster.samples]
    assert captions == ["A blue dog runs.", "A blue cat and a boy.", CAPTIONS[5]]
    lines = (tmp_path / "clean" / "curation.jsonl").read_text().splitlines()
    edits = [json.loads(line) for line in lines[1:]]
    assert [edit["action"] for edit in edits] == ["replace_caption"] * 2 + ["remove"] * 3
    origin = parse_origin(edits[1]["origin"])
    assert origin is not None
    assert (origin.start, origin.old, origin.new) == (3, "orange", "blue")
    assert edits[1]["reason"] == (
        "'orange' is estimated to be wrong with a chance of 0.95; the photo's other captions say "
        "'blue'"
    )
    assert edits[2]["reason"].endswith(
        "not mended: its probability 0.60 of being wrong is below 0.8"
    )
    assert edits[4]["reason"].endswith("not mended: a second word is doubtful")
    assert "words replaced: 2; 2 flagged captions were not mended" in capsys.readouterr().out
    card = (tmp_path / "clean" / "README.md").read_text()
    assert "| `check` | caption replaced | 2 |" in card
    assert "words replaced, that were right" in card


def test_without_being_asked_nothing_is_mended(result, tmp_path) -> None:
    assert export_cleaned(result, tmp_path / "clean", format="coco", photos="copy") == 1


def test_mending_needs_words_that_were_judged(folder, tmp_path) -> None:
    small = check(folder, space="none", quiet=True)
    with pytest.raises(
        ValueError, match="cannot mend wrong words: words were not judged: captions hold"
    ):
        export_cleaned(small, tmp_path / "clean", format="coco", mend="words")
    skipped = check(folder, space="none", skip=[words.NAME], quiet=True)
    with pytest.raises(ValueError, match="cannot mend wrong words: that check was left out"):
        export_cleaned(skipped, tmp_path / "clean", format="coco", mend="words")


def test_suspects_are_proposed_the_mended_caption(result, tmp_path) -> None:
    write_result(result, tmp_path / "out")
    proposals = {s.caption: s.proposal for s in read_suspects(tmp_path / "out")}
    assert proposals[CAPTIONS[1]] == "A blue cat and a boy."
    assert proposals[EVIL] is None  # a caption that is wrong otherwise is not mended by a word


def test_the_command_finds_and_mends(tmp_path, monkeypatch, capsys) -> None:
    folder, wrong = written(tmp_path)
    monkeypatch.chdir(tmp_path)
    options = ["check", str(folder), "--space", "none", "--skip", "duplicate_photo"]
    options += ["--skip", "same_caption"]
    assert main([*options, "--mend", "words"]) == 1
    assert "--mend needs --export" in capsys.readouterr().err
    assert main([*options, "--photos", "copy"]) == 1
    assert "--photos needs --export" in capsys.readouterr().err
    assert main([*options, "--export", "coco", "--mend", "words", "--chance", "0.8"]) == 0
    assert " wrong_word       Captions with a wrong word" in capsys.readouterr().out
    cleaned = read_own(
        name="clean", folder=tmp_path / "colours-check/cleaned", image_folder=str(folder)
    )
    named: dict[str, list[str]] = {}
    for sample in cleaned.samples:
        named.setdefault(sample.image_path.name, []).append(sample.caption.split()[1])
    mended = [name for name, right in wrong.items() if named[name] == [right] * 4]
    assert len(mended) >= 0.5 * len(wrong)
    assert sum(len(set(own)) > 1 for own in named.values()) <= len(wrong) - len(mended)


def written(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The world as one photo with many names; and the right word by the photo of a wrong one."""
    folder = tmp_path / "colours"
    folder.mkdir()
    roster, wrong = colourful(500, 10, folder=folder)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (80, 90, 3), np.uint8)).save(
        folder / "0.jpg"
    )
    for path in {sample.image_path for sample in roster.samples} - {folder / "0.jpg"}:
        shutil.copy(folder / "0.jpg", path)
    with (folder / "metadata.csv").open("w", newline="") as file:
        rows = [[sample.image_path.name, sample.caption] for sample in roster.samples]
        csv.writer(file).writerows([["file_name", "text"], *rows])
    names = {roster.samples[row].image_path.name: right for row, (_, right) in wrong.items()}
    return folder, names
