"""Accuracy of a parser against reference parses.

``python -m tools.assets parser-accuracy PARSES.jsonl TRUTH.jsonl`` compares two files of the same
captions, such as a teacher's parses and manually checked parses.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from captioning.text.lemmas import universal_pos
from captioning.types import Parse, Token

COUNTED_POS = ("NOUN", "VERB", "ADJ", "ADV", "ADP", "PROPN")
# Nouns are what metrics ask for; whether one is a name is often a matter of taste.
NOUNS = ("NOUN", "PROPN")


def read_parses(path: str | Path, split: str | None = None) -> list[tuple[str, Parse]]:
    """Read captions and parses from a file of `tools.assets.annotate_spacy2`.

    Args:
        split: split to read; None: all.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a line is not a parsed caption.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist: docs/cards/caption_parser.md describes how to create it"
        )
    parses = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                if split in (None, record.get("split")):
                    parses.append((record["caption"], _parse(record)))
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path}, line {number}: not a parsed caption: {error}") from error
    return parses


def _parse(record: dict[str, list]) -> Parse:
    columns = [record[name] for name in ("words", "lemmas", "tags", "deps", "heads")]
    return tuple(
        Token(
            text=word,
            lemma=lemma,
            pos=universal_pos(tag=tag, dep=dep, lemma=lemma),
            tag=tag,
            dep=dep,
            head=head,
        )
        for word, lemma, tag, dep, head in zip(*columns, strict=True)
    )


def accuracy(parses: Sequence[Parse], truth: Sequence[Parse]) -> dict[str, float]:
    """Shares of correctly parsed words, in [0, 1].

    All words of a caption that is split into other words count as wrong. Heads are counted without
    punctuation, as is usual.

    Returns:
        ``tag``, ``pos``, ``lemma``; ``UAS`` and ``LAS``, right heads and right heads with their
        relations; ``nouns``, the F1 of noun lemmas as bags a caption; ``F1 POS`` of each common
        part of speech; ``captions``, those without a fault in tags and heads; and ``words``, their
        number.

    Raises:
        ValueError: the numbers of parses differ.
    """
    if len(parses) != len(truth):
        raise ValueError(f"one parse a caption: got {len(parses)} for {len(truth)}")
    correct: Counter[str] = Counter()
    for parse, expected in zip(parses, truth, strict=True):
        correct.update(_count(parse, expected))
    words, heads = correct["words"], correct["heads"]
    shares = {name: correct[name] / max(words, 1) for name in ("tag", "pos", "lemma")}
    shares |= {name: correct[name] / max(heads, 1) for name in ("UAS", "LAS")}
    shares |= {
        name: _f1(correct, name) for name in ("nouns", *(f"F1 {pos}" for pos in COUNTED_POS))
    }
    return shares | {"captions": correct["captions"] / max(len(truth), 1), "words": float(words)}


def _f1(correct: Counter[str], name: str) -> float:
    total = correct[f"{name} given"] + correct[f"{name} wanted"]
    return 2 * correct[name] / total if total else 1.0


def _count(parse: Parse, expected: Parse) -> Counter[str]:
    count: Counter[str] = Counter(words=len(expected))
    scored = [token.pos != "PUNCT" for token in expected]
    count["heads"] = sum(scored)
    _count_bags(count, parse, expected)
    if [token.text for token in parse] != [token.text for token in expected]:
        return count
    for actual, target, is_scored in zip(parse, expected, scored, strict=True):
        count["tag"] += actual.tag == target.tag
        count["pos"] += actual.pos == target.pos
        count["lemma"] += actual.lemma == target.lemma
        count["UAS"] += is_scored and actual.head == target.head
        count["LAS"] += is_scored and (actual.head, actual.dep) == (target.head, target.dep)
        if actual.pos == target.pos:
            count[f"F1 {actual.pos}"] += 1
    count["captions"] += count["tag"] == len(expected) and count["UAS"] == count["heads"]
    return count


def _count_bags(count: Counter[str], parse: Parse, expected: Parse) -> None:
    bags = [Counter(t.lemma for t in tokens if t.pos in NOUNS) for tokens in (parse, expected)]
    count["nouns"] += (bags[0] & bags[1]).total()
    for tokens, bag, side in zip((parse, expected), bags, ("given", "wanted"), strict=True):
        count[f"nouns {side}"] += bag.total()
        count.update(f"F1 {token.pos} {side}" for token in tokens)


def compare_files(parses: str | Path, truth: str | Path) -> dict[str, float]:
    """Compute `accuracy` for a file of parses.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the files hold different captions.
    """
    tested, expected = read_parses(parses), read_parses(truth)
    if [caption for caption, _ in tested] != [caption for caption, _ in expected]:
        raise ValueError(f"{parses} and {truth} are not of the same captions in the same order")
    return accuracy([parse for _, parse in tested], [parse for _, parse in expected])
