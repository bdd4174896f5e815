"""Judge by eye whether the words that ``captioning check`` flags in Flickr8k are wrong.

    python tools/studies/study_word_suspects.py draw FOLDER --round 1
    python tools/studies/study_word_suspects.py keep FOLDER judgements.tsv
    python tools/studies/study_word_suspects.py --report

``draw`` takes the first suspects among Flickr8k's training captions (round 1: of all topics; round
2: of those that the check judges, without words judged before), or among those of its validation
and test photos (round 3: by a first and by a second look), or among all (round 4: as the check
doubted them by both looks; round 5: as it doubts them now). It mixes in words of low probability,
and draws sheets of photos with caption, marked word and proposal, in random order and without
probability; those of round 5 also have the photo's other captions. The judge writes a line for each
number into judgements.tsv: number, judgement of the word, judgement of the proposal (wrong, right,
unclear). ``keep`` joins both in docs/results/records/word_suspects.jsonl; ``--report`` builds the
tables of docs/results/wrong_words*.md, which describe the protocol.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import font_manager
from page_tables import fill, read_records
from PIL import Image, ImageDraw, ImageFont
from study_check_words import evidence_of, photo_vectors, read
from study_words import composed, context_of, score_of, unseen_photos
from study_words_report import BOTH_AGAIN

from captioning.data.roster import Roster, build_roster
from captioning.runtime.files import write_lines
from captioning.text.word_rows import TOPICS as ALL
from captioning.text.word_rows import WORD, row_words, same_thing, word_rows
from curation.base import WordDoubt
from curation.check.checks import THRESHOLDS
from curation.check.evidence import Scores
from curation.check.folder_check import build_encoders
from curation.check.mend import mendable
from curation.check.result import CheckResult
from curation.check.word_checks import NAME, THRESHOLD, TOPICS, by_row, wrong_words

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs" / "results" / "records" / "word_suspects.jsonl"
PAGES = tuple(ROOT / "docs" / "results" / f"wrong_words{part}.md" for part in ("", "_tables"))
KEY = "key.jsonl"
JUDGEMENTS = ("wrong", "right", "unclear")
CONTROL_BELOW = 0.05  # probability
COLUMNS, ROWS = 4, 2
SIDE, TEXT = 330, 330  # pixels of a photo, and of the text below it
SHARES = (50, 100, 200)  # first suspects
CHANCES = (0.0, 0.05, 0.5, 0.6, 0.7, 0.8)  # from which on the table of chances counts


@dataclass(frozen=True, kw_only=True)
class Round:
    """Settings by which the words of a round are chosen.

    Attributes:
        title: title in the table.
        topics: topics of words.
        rankings: rankings of suspects.
        num_controls: number of random words of low probability.
        of: ``"training"`` captions as the check's first look doubts them, ``"unseen"`` ones of
            validation and test by all evidence, or ``"all"`` as the check doubts them.
        num_suspects: number of suspects per ranking.
        shows_others: whether the judge sees the photo's other captions. Words that were judged
            without them are judged again.
    """

    title: str
    topics: Sequence[str]
    rankings: Sequence[str]
    num_controls: int
    of: str = "training"
    num_suspects: int = 200
    shows_others: bool = False


RANKINGS: dict[str, Callable[[WordDoubt], tuple[float, float]]] = {
    "probability": lambda doubt: (doubt.probability, doubt.log_odds),
    "log_odds": lambda doubt: (doubt.log_odds, doubt.probability),
    "second look": lambda doubt: (doubt.probability, doubt.log_odds),
}
ROUNDS = {
    1: Round(title="all topics", topics=ALL, rankings=["probability"], num_controls=100),
    2: Round(
        title="four topics", topics=TOPICS, rankings=["probability", "log_odds"], num_controls=50
    ),
    3: Round(
        title="unseen photos",
        topics=TOPICS,
        rankings=["second look", "probability"],
        num_controls=50,
        of="unseen",
    ),
    4: Round(title="all photos", topics=TOPICS, rankings=["second look"], num_controls=0, of="all"),
    5: Round(
        title="as checked now",
        topics=TOPICS,
        rankings=["probability"],
        num_controls=25,
        of="all",
        num_suspects=100,
        shows_others=True,
    ),
}


def main() -> None:
    """Draw sheets, record judgements, or build the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", action="store_true")
    commands = parser.add_subparsers(dest="command")
    drawing = commands.add_parser("draw")
    drawing.add_argument("folder", type=Path)
    drawing.add_argument("--cache", default="cache", type=Path)
    drawing.add_argument("--round", type=int, choices=list(ROUNDS), default=1)
    drawing.add_argument("--seed", type=int, default=0)
    keeping = commands.add_parser("keep")
    keeping.add_argument("folder", type=Path)
    keeping.add_argument("judgements", type=Path)
    options = parser.parse_args()
    if options.command == "draw":
        draw(options.folder, options.cache, options.round, options.seed)
    if options.command == "keep":
        keep(options.folder, options.judgements)
    if options.report:
        report()


def draw(folder: Path, cache: Path, number: int, seed: int) -> None:
    """Check the captions, choose the words of a round, and draw words without a judgement."""
    judge = judged_again if ROUNDS[number].of == "unseen" else judged_by_check
    roster, doubts = judge(cache, ROUNDS[number], seed)
    rng = np.random.default_rng(seed)
    entries = chosen(roster, doubts, ROUNDS[number], rng)
    known = {place_of(one) for one in read_records(RECORDS) if is_earlier(one, number)}
    new = [one for one in entries if place_of(one) not in known]
    numbers = {place_of(new[place]): n for n, place in enumerate(rng.permutation(len(new)), 1)}
    key = [
        {"number": numbers.get(place_of(one)), "round": number, "seed": seed, **one}
        for one in entries
    ]
    folder.mkdir(parents=True, exist_ok=True)
    write_lines(folder / KEY, [json.dumps(one) for one in key])
    drawn = sorted((one for one in key if one["number"]), key=lambda one: one["number"])
    paths = {sample.image_path.name: sample.image_path for sample in roster.samples}
    per_sheet = COLUMNS * ROWS
    for start in range(0, len(drawn), per_sheet):
        shown = drawn[start : start + per_sheet]
        if not ROUNDS[number].shows_others:
            shown = [one | {"others": []} for one in shown]
        picture = sheet(shown, paths)
        picture.save(folder / f"sheet{start // per_sheet + 1:02}.png")


def judged_by_check(
    cache: Path, how: Round, seed: int
) -> tuple[Roster, dict[str, list[WordDoubt]]]:
    """Words by ranking, as ``captioning check`` flags them, by two looks if all are judged."""
    parts = [read(is_seen=True)]
    encoder = None
    if how.of == "all":
        parts.append(read(is_seen=False))
        encoder, _ = build_encoders("joint_space", cache)
    vectors = {path: own for part in parts for path, own in photo_vectors(part, cache).items()}
    roster = build_roster("flickr8k", [sample for part in parts for sample in part.samples])
    scores = wrong_words(evidence_of(roster, vectors, seed, encoder), how.topics)
    print(scores.note)
    doubts = [doubt for own in scores.words.values() for doubt in own]
    return roster, dict.fromkeys(how.rankings, doubts)


def judged_again(cache: Path, how: Round, seed: int) -> tuple[Roster, dict[str, list[WordDoubt]]]:
    """Words in captions of photos that the shipped networks never saw, by ranking."""
    config = composed("flickr8k", cache)
    roster = unseen_photos(config)
    looks = {"probability": "all", "second look": BOTH_AGAIN}
    scores = {name: score_of(config, looks[name], seed, topics=how.topics) for name in how.rankings}
    return roster, {name: score.doubts(context_of(roster)) for name, score in scores.items()}


def is_earlier(one: Mapping[str, Any], number: int) -> bool:
    """Whether a record holds an earlier judgement of a word under the same conditions."""
    before = one["round"]
    return before < number and ROUNDS[before].shows_others == ROUNDS[number].shows_others


def place_of(one: Mapping[str, Any]) -> tuple[str, int, int]:
    """Identity of the word that a record is about."""
    return one["file"], one["caption_index"], one["place"]


def chosen(
    roster: Roster,
    doubts: Mapping[str, Sequence[WordDoubt]],
    how: Round,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """Records of the first suspects by each ranking of a round, and of its controls."""
    entries: dict[tuple[str, int, int], dict[str, Any]] = {}
    for name in how.rankings:
        first = first_suspects(roster, doubts[name], name, how.num_suspects)
        mended = mended_rows(roster, doubts[name])
        for rank, doubt in enumerate(first, start=1):
            one = entry(roster, doubt) | {"mended": mended.get(doubt.row) == doubt}
            entries.setdefault(place_of(one), one)["ranks"][name] = rank
    for doubt in controls(roster, doubts[how.rankings[0]], how.num_controls, rng):
        one = entry(roster, doubt)
        entries.setdefault(place_of(one), one)
    return list(entries.values())


def mended_rows(roster: Roster, doubts: Sequence[WordDoubt]) -> dict[int, WordDoubt]:
    """Words that ``--mend words`` replaces, by row."""
    doubted = by_row(doubts)
    values = np.full(len(roster), np.nan, dtype=np.float32)
    for row, (surest, *_) in doubted.items():
        values[row] = surest.probability
    scores = {NAME: Scores(values=values, words=doubted)}
    result = CheckResult(roster=roster, scores=scores, thresholds=THRESHOLDS)
    return {row: new.doubt for row, new in mendable(result).items()}


def first_suspects(
    roster: Roster, doubts: Sequence[WordDoubt], ranking: str, number: int
) -> list[WordDoubt]:
    """Words most likely to be wrong, one per photo."""
    seen: dict[str, WordDoubt] = {}
    for doubt in sorted(doubts, key=RANKINGS[ranking], reverse=True):
        seen.setdefault(roster.samples[doubt.row].image_id, doubt)
        if len(seen) == number:
            break
    return list(seen.values())


def controls(
    roster: Roster, doubts: Sequence[WordDoubt], number: int, rng: np.random.Generator
) -> list[WordDoubt]:
    """Random words that are probably right, one per photo."""
    seen: dict[str, WordDoubt] = {}
    for place in rng.permutation(len(doubts)).tolist():
        if len(seen) == number:
            break
        doubt = doubts[place]
        if doubt.probability < CONTROL_BELOW:
            seen.setdefault(roster.samples[doubt.row].image_id, doubt)
    return list(seen.values())


def entry(roster: Roster, doubt: WordDoubt) -> dict[str, Any]:
    """Record of a word."""
    sample = roster.samples[doubt.row]
    number = next(word.row for word in row_words(sample.caption) if word.start == doubt.start)
    rows = roster.rows_by_image[sample.image_id]
    return {
        "file": sample.image_path.name,
        "caption_index": roster.rows_by_image[sample.image_id].index(doubt.row),
        "place": doubt.start,
        "word": doubt.word,
        "proposal": doubt.alternative,
        "topic": word_rows()[number].topic,
        "probability": round(doubt.probability, 4),
        "log_odds": round(doubt.log_odds, 2),
        "named": siblings_that_name(roster, doubt),
        "ranks": {},
        "caption": sample.caption,
        "others": [roster.samples[row].caption for row in rows if row != doubt.row],
    }


def siblings_that_name(roster: Roster, doubt: WordDoubt) -> dict[str, int]:
    """Number of the photo's other captions that name the word, and that name the proposal."""
    rows = roster.rows_by_image[roster.samples[doubt.row].image_id]
    others = [roster.samples[row].caption.lower() for row in rows if row != doubt.row]
    named = [set(WORD.findall(caption)) for caption in others]
    words = {"word": doubt.word.lower(), "proposal": doubt.alternative.lower()}
    return {
        kind: sum(bool(own & same_thing().get(word, frozenset([word]))) for own in named)
        for kind, word in words.items()
    }


def sheet(entries: Sequence[Mapping[str, Any]], paths: Mapping[str, Path]) -> Image.Image:
    """Sheet of photos with their captions."""
    picture = Image.new("RGB", (COLUMNS * (SIDE + 10), ROWS * (SIDE + TEXT)), "white")
    for place, one in enumerate(entries):
        left, top = place % COLUMNS * (SIDE + 10), place // COLUMNS * (SIDE + TEXT)
        with Image.open(paths[one["file"]]) as photo:
            resized = photo.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        picture.paste(resized, (left, top))
        write(ImageDraw.Draw(picture), one, left, top + SIDE + 4)
    return picture


def write(draw: ImageDraw.ImageDraw, one: Mapping[str, Any], left: int, top: float) -> None:
    """Draw the caption with the word in red and the proposal in green, then other captions."""
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 16)
    start, stop = one["place"], one["place"] + len(one["word"])
    parts = [
        (f"{one['number']}. {one['caption'][:start]}", "black"),
        (f"[{one['word']}]", "red"),
        (f"→ {one['proposal']}?", "green"),
        (one["caption"][stop:], "black"),
    ]
    top = wrapped(draw, parts, left, top, font)
    small = font.font_variant(size=13)
    for other in one["others"]:
        top = wrapped(draw, [(f"- {other}", "gray")], left, top + 4, small)


def wrapped(
    draw: ImageDraw.ImageDraw,
    parts: Sequence[tuple[str, str]],
    left: int,
    top: float,
    font: ImageFont.FreeTypeFont,
) -> float:
    """Draw coloured texts in a row with line breaks; return the position of the next line."""
    across, height = 0.0, font.size * 1.25
    for text, color in parts:
        for word in text.split():
            width = draw.textlength(word + " ", font=font)
            if across + width > SIDE:
                across, top = 0.0, top + height
            draw.text((left + across, top), word, fill=color, font=font)
            across += width
    return top + height


def keep(folder: Path, judgements: Path) -> None:
    """Join drawn words with their judgements, and record them without captions and photos.

    Raises:
        ValueError: a number has no judgement, or a judgement is unknown.
    """
    judged: dict[int, tuple[str, str]] = {}
    for line in judgements.read_text(encoding="utf-8").splitlines():
        number, word, proposal = line.split("\t")
        if {word, proposal} - set(JUDGEMENTS):
            raise ValueError(f"{judgements}: {line!r}: judgements are {', '.join(JUDGEMENTS)}")
        judged[int(number)] = word, proposal
    key = [json.loads(line) for line in (folder / KEY).read_text(encoding="utf-8").splitlines()]
    number = key[0]["round"]
    old = [line for line in read_records(RECORDS) if line["round"] < number]
    known = {
        place_of(one): (one["judgement"], one["proposal_judgement"])
        for one in old
        if is_earlier(one, number)
    }
    for one in key:
        del one["caption"], one["others"]
        if one["number"] is not None and one["number"] not in judged:
            raise ValueError(f"{judgements} lacks number {one['number']}: add its line")
        word, proposal = known[place_of(one)] if one["number"] is None else judged[one["number"]]
        old.append(one | {"judgement": word, "proposal_judgement": proposal})
    write_lines(RECORDS, [json.dumps(one) for one in old])


def report() -> None:
    """Write the tables of the pages."""
    lines = read_records(RECORDS)
    for page in PAGES:
        fill(page, {"suspects": table(lines), "judged chances": chance_table(lines)})


def table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Table of first suspects by each ranking, suspects by topic, and controls."""
    head = "| words | judged | wrong | right | cannot tell | precision (95%) | proposal right |"
    rows = [head, "|---|---:|---:|---:|---:|---:|---:|"]
    for number, how in ROUNDS.items():
        own = [line for line in lines if line["round"] == number]
        for name in how.rankings if own else ():
            ranked = [line for line in own if name in line["ranks"]]
            title = f"{how.title}, by {name.replace('_', '-')}"
            groups = [
                (f"{title}, first {n}", [x for x in ranked if x["ranks"][name] <= n])
                for n in SHARES
                if n <= how.num_suspects
            ]
            if name == how.rankings[0]:
                sure = [x for x in ranked if x["probability"] >= THRESHOLD]
                groups.append((f"{title}, from {THRESHOLD}", sure))
            agreed = [x for x in ranked if not x["named"]["word"] and x["named"]["proposal"] > 2]
            groups.append(("- 3 other captions or more name the proposal, none the word", agreed))
            groups.append(("- replaced by `--mend words`", [x for x in ranked if x.get("mended")]))
            groups += [(f"- `{t}`", [x for x in ranked if x["topic"] == t]) for t in how.topics]
            rows += [row(title, group) for title, group in groups if group]
        still = [line for line in own if not line["ranks"]]
        rows += [row(f"{how.title}, controls", still)] if still else []
    return rows


def chance_table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Table of the newest round's words by their probability of being wrong."""
    own = [line for line in lines if line["round"] == max(ROUNDS)]
    rows = ["| chance, from | judged | mean chance | wrong | right | cannot tell | share wrong |"]
    rows.append("|---" + "|---:" * 6 + "|")
    for least, most in zip(CHANCES, (*CHANCES[1:], math.inf), strict=True):
        near = [line for line in own if least <= line["probability"] < most]
        if near:
            counts = [sum(x["judgement"] == kind for x in near) for kind in JUDGEMENTS]
            mean = sum(x["probability"] for x in near) / len(near)
            cells = [f"{least:g}", str(len(near)), f"{mean:.2f}", *map(str, counts)]
            rows.append(f"| {' | '.join(cells)} | {counts[0] / len(near):.0%} |")
    return rows


def row(title: str, own: Sequence[Mapping[str, Any]]) -> str:
    """Row of counts of a group."""
    counts = [sum(x["judgement"] == kind for x in own) for kind in JUDGEMENTS]
    low, high = wilson(counts[0], len(own))
    mended = sum(x["proposal_judgement"] == "right" for x in own if x["judgement"] == "wrong")
    cells = [
        title,
        str(len(own)),
        *map(str, counts),
        f"{counts[0] / len(own):.0%} ({low:.0%} to {high:.0%})",
        f"{mended} of {counts[0]}",
    ]
    return f"| {' | '.join(cells)} |"


def wilson(hits: int, number: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson interval (95%) of a share (Wilson, 1927)."""
    share, scale = hits / number, 1 + z * z / number
    middle = (share + z * z / (2 * number)) / scale
    half = z * math.sqrt(share * (1 - share) / number + z * z / (4 * number**2)) / scale
    return middle - half, middle + half


if __name__ == "__main__":
    main()
