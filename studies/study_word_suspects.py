"""Whether the words that ``captioning check`` doubts in Flickr8k as it is are wrong, judged by eye.

    python studies/study_word_suspects.py draw FOLDER
    python studies/study_word_suspects.py keep FOLDER judgements.tsv
    python studies/study_word_suspects.py --report

``draw`` takes the first suspects among Flickr8k's training captions, mixes in words of low
probability as controls, and draws sheets of photos with caption, marked word and proposal, in
random order and without probability. Whoever judges writes a line for each number into
judgements.tsv: number, judgement of the word, judgement of the proposal (wrong, right, unclear).
``keep`` joins both in docs/results/records/word_suspects.jsonl; ``--report`` builds the table of
docs/words.md. The protocol stands there.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont
from study_check_words import evidence_of, photo_vectors, words_check

from captioning.configuration import compose_config
from captioning.data.roster import Roster
from captioning.files import write_lines, write_text
from captioning.text.word_rows import TOPICS, row_words, word_rows
from captioning.training.parts import build_part
from curation.base import WordDoubt

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "docs" / "results" / "records" / "word_suspects.jsonl"
PAGE = ROOT / "docs" / "words.md"
BEGIN, END = "<!-- table:suspects -->", "<!-- /table:suspects -->"
KEY = "key.jsonl"
JUDGEMENTS = ("wrong", "right", "unclear")
NUM_SUSPECTS, NUM_CONTROLS = 200, 100
CONTROL_BELOW = 0.05  # probability
COLUMNS, ROWS = 4, 3
SIDE, TEXT = 330, 130  # pixels of a photo, and of the text below it
SHARES = (50, 100, 200)  # first suspects


def main() -> None:
    """Draw sheets, keep judgements, or build the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", action="store_true")
    commands = parser.add_subparsers(dest="command")
    drawing = commands.add_parser("draw")
    drawing.add_argument("folder", type=Path)
    drawing.add_argument("--cache", default="cache", type=Path)
    drawing.add_argument("--seed", type=int, default=0)
    keeping = commands.add_parser("keep")
    keeping.add_argument("folder", type=Path)
    keeping.add_argument("judgements", type=Path)
    options = parser.parse_args()
    if options.command == "draw":
        draw(options.folder, options.cache, options.seed)
    if options.command == "keep":
        keep(options.folder, options.judgements)
    if options.report:
        report()


def draw(folder: Path, cache: Path, seed: int) -> None:
    """Check the captions, choose words, and draw them."""
    roster = build_part(compose_config("train", ["data=flickr8k"]).data.train)
    evidence = evidence_of(roster, photo_vectors(roster, cache), seed)
    scores = words_check().score(evidence)
    print(scores.note)
    doubts = [doubt for own in scores.words.values() for doubt in own]
    rng = np.random.default_rng(seed)
    chosen = [*first_suspects(roster, doubts), *controls(roster, doubts, rng)]
    order = rng.permutation(len(chosen)).tolist()
    entries = [entry(roster, *chosen[place]) for place in order]
    folder.mkdir(parents=True, exist_ok=True)
    numbered = [{"number": number, **one} for number, one in enumerate(entries, start=1)]
    write_lines(folder / KEY, [json.dumps(one) for one in numbered])
    paths = {sample.image_path.name: sample.image_path for sample in roster.samples}
    per_sheet = COLUMNS * ROWS
    for start in range(0, len(numbered), per_sheet):
        picture = sheet(numbered[start : start + per_sheet], paths)
        picture.save(folder / f"sheet{start // per_sheet + 1:02}.png")


def first_suspects(
    roster: Roster, doubts: Sequence[WordDoubt]
) -> Iterator[tuple[WordDoubt, int | None]]:
    """The most likely wrong words with their ranks from 1, one of a photo."""
    seen: set[str] = set()
    for doubt in sorted(doubts, key=lambda one: (-one.probability, -one.log_odds)):
        image = roster.samples[doubt.row].image_id
        if image not in seen:
            seen.add(image)
            yield doubt, len(seen)
        if len(seen) == NUM_SUSPECTS:
            return


def controls(
    roster: Roster, doubts: Sequence[WordDoubt], rng: np.random.Generator
) -> list[tuple[WordDoubt, int | None]]:
    """Random words that are likely right, of as many photos."""
    chosen: dict[str, WordDoubt] = {}
    for place in rng.permutation(len(doubts)).tolist():
        doubt = doubts[place]
        if doubt.probability < CONTROL_BELOW:
            chosen.setdefault(roster.samples[doubt.row].image_id, doubt)
        if len(chosen) == NUM_CONTROLS:
            break
    return [(doubt, None) for doubt in chosen.values()]


def entry(roster: Roster, doubt: WordDoubt, rank: int | None) -> dict[str, Any]:
    """What is kept of a word."""
    sample = roster.samples[doubt.row]
    number = next(word.row for word in row_words(sample.caption) if word.start == doubt.start)
    return {
        "file": sample.image_path.name,
        "caption_index": roster.rows_by_image[sample.image_id].index(doubt.row),
        "place": doubt.start,
        "word": doubt.word,
        "proposal": doubt.alternative,
        "topic": word_rows()[number].topic,
        "rank": rank,
        "probability": round(doubt.probability, 4),
        "caption": sample.caption,
    }


def sheet(entries: Sequence[Mapping[str, Any]], paths: Mapping[str, Path]) -> Image.Image:
    """Photos with their captions."""
    picture = Image.new("RGB", (COLUMNS * (SIDE + 10), ROWS * (SIDE + TEXT)), "white")
    for place, one in enumerate(entries):
        left, top = place % COLUMNS * (SIDE + 10), place // COLUMNS * (SIDE + TEXT)
        with Image.open(paths[one["file"]]) as photo:
            resized = photo.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        picture.paste(resized, (left, top))
        write(ImageDraw.Draw(picture), one, left, top + SIDE + 4)
    return picture


def write(draw: ImageDraw.ImageDraw, one: Mapping[str, Any], left: int, top: int) -> None:
    """The caption, the word in red and the proposal in green, wrapped."""
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 16)
    start, stop = one["place"], one["place"] + len(one["word"])
    parts = [
        (f"{one['number']}. {one['caption'][:start]}", "black"),
        (f"[{one['word']}]", "red"),
        (f"→ {one['proposal']}?", "green"),
        (one["caption"][stop:], "black"),
    ]
    across = 0.0
    for text, color in parts:
        for word in text.split():
            width = draw.textlength(word + " ", font=font)
            if across + width > SIDE:
                across, top = 0.0, top + 20
            draw.text((left + across, top), word, fill=color, font=font)
            across += width


def keep(folder: Path, judgements: Path) -> None:
    """Join what was drawn with what was judged; captions and photos stay where they are.

    Raises:
        ValueError: a number without judgement, or an unknown judgement.
    """
    judged: dict[int, tuple[str, str]] = {}
    for line in judgements.read_text(encoding="utf-8").splitlines():
        number, word, proposal = line.split("\t")
        if {word, proposal} - set(JUDGEMENTS):
            raise ValueError(f"{judgements}: {line!r}: judgements are {', '.join(JUDGEMENTS)}")
        judged[int(number)] = word, proposal
    lines = []
    for text in (folder / KEY).read_text(encoding="utf-8").splitlines():
        one = json.loads(text)
        if one["number"] not in judged:
            raise ValueError(f"{judgements}: lacks number {one['number']}")
        word, proposal = judged[one["number"]]
        del one["caption"]
        lines.append(json.dumps(one | {"judgement": word, "proposal_judgement": proposal}))
    write_lines(RECORDS, lines)


def report() -> None:
    """The table of the page."""
    lines = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    write_text(PAGE, "\n".join([before + BEGIN, *table(lines), END + after]))


def table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """First suspects, suspects by topic, and controls."""
    suspects = [line for line in lines if line["rank"] is not None]
    groups = [(f"first {n}", [x for x in suspects if x["rank"] <= n]) for n in SHARES]
    groups += [(f"`{topic}`", [x for x in suspects if x["topic"] == topic]) for topic in TOPICS]
    groups.append(("controls", [line for line in lines if line["rank"] is None]))
    head = "| words | judged | wrong | right | cannot tell | precision (95%) | proposal right |"
    rows = [head, "|---|---:|---:|---:|---:|---:|---:|"]
    for name, own in groups:
        if not own:
            continue
        counts = [sum(x["judgement"] == kind for x in own) for kind in JUDGEMENTS]
        low, high = wilson(counts[0], len(own))
        mended = sum(x["proposal_judgement"] == "right" for x in own if x["judgement"] == "wrong")
        cells = [
            name,
            str(len(own)),
            *map(str, counts),
            f"{counts[0] / len(own):.0%} ({low:.0%} to {high:.0%})",
            f"{mended} of {counts[0]}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def wilson(hits: int, number: int, z: float = 1.96) -> tuple[float, float]:
    """The 95% interval of a share (Wilson, 1927)."""
    share, scale = hits / number, 1 + z * z / number
    middle = (share + z * z / (2 * number)) / scale
    half = z * math.sqrt(share * (1 - share) / number + z * z / (4 * number**2)) / scale
    return middle - half, middle + half


if __name__ == "__main__":
    main()
