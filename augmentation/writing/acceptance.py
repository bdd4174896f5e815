"""Rules that accept or reject answers of a language model as captions (section 3.2)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from augmentation.writing.writers import Answer
from captioning.text.entities import as_sentence

NO_ANSWER = "no answer"
REFUSAL = "the model declined"
ESSAY = "more than a sentence"
NOT_TEXT = "gaps, addresses or signs that captions have not"
TOO_LONG = "too long"
TOO_SHORT = "too short"
REPEATS = "repeats itself"
MISSING = "lexical words missing"
COPY = "is in the corpus or in the examples"
DUPLICATE = "made before"

MIN_WORDS = 3
# Latin letters, hyphens and apostrophes inside: no numbers, addresses, emoji or other scripts.
WORD = re.compile(r"[a-zà-öø-ÿ]+(?:['’-][a-zà-öø-ÿ]+)*")  # noqa: RUF001
_LETTERS = re.compile(r"[a-zà-öø-ÿ]+")
_LABEL = re.compile(r"^(?:[-*•>]|\d+[.)]|(?:sentence|caption|answer|output)\s*:)\s*", re.IGNORECASE)
_DECLINED = re.compile(r"\b(?:i|we) (?:cannot|can't|am unable|am sorry)\b|\bas an ai\b|^sorry\b")
_STRANGE = re.compile(r"[\[\]{}<>|\\_=~^@#*\n]|https?:|www\.|[^\x20-\x7eà-öø-ÿÀ-ÖØ-ß‘’“”–—]")  # noqa: RUF001
_NEXT_SENTENCE = re.compile(r"[.!?][\"'”’)]*\s+\S")  # noqa: RUF001
_END = re.compile(r"[\s.!?…]+([\"'”’)]*)$")  # noqa: RUF001
_TWICE = re.compile(r"\b(\w+) \1 \1\b|\b(\w+ \w+) \2\b|\b(\w+ \w+ \w+)\b.*\b\3\b.*\b\3\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result for an answer: a caption, or the reason for rejecting it."""

    caption: str = ""
    problem: str = ""


def first_line(answer: str) -> str:
    """Line of an answer with its sentence, without labels and quotation marks."""
    lines = [line.strip() for line in answer.strip().splitlines()]
    line = next((line for line in lines if line and not line.endswith(":")), "")
    line = _LABEL.sub("", line).strip()
    while len(line) > 1 and line[0] in "\"'“" and line[-1] in "\"'”":
        line = line[1:-1].strip()
    return line


def wordlist(text: str) -> Counter[str]:
    """Numbered lower-case words of a text, split like the words of structures."""
    return Counter(WORD.findall(text.lower().replace(" n't", "n't")))


def _word_parts(words: Mapping[str, int]) -> Counter[str]:
    """Words with hyphens and possessives split, so that "T shirt" equals "t-shirt"."""
    counts: Counter[str] = Counter()
    for word, number in words.items():
        for part in word.replace("’", "'").split("-"):  # noqa: RUF001
            counts[part.removesuffix("'s")] += number
    return counts


def caption_key(caption: str) -> str:
    """Comparison key of a caption: its letters, without hyphens, punctuation and spaces."""
    return "".join(_LETTERS.findall(caption.lower()))


def _without_end(line: str) -> str:
    """Sentence without its final punctuation; the caller adds the full stop."""
    return _END.sub(r"\1", line)


class Judge:
    """Accepts answers that are one new plain sentence with all requested words.

    Args:
        known_captions: captions that must not be made again, such as the corpus'.
        max_words: maximum words of a caption.
        whole_words: False: a requested word may be a part of another, such as "walk" of "walks".
    """

    def __init__(
        self,
        *,
        known_captions: Sequence[str] = (),
        max_words: int = 30,
        whole_words: bool = True,
    ) -> None:
        self._known_keys = {hash(caption_key(caption)) for caption in known_captions}
        self._max_words, self._whole_words = max_words, whole_words
        self._accepted: set[str] = set()

    def remember(self, caption: str) -> None:
        """Record a caption of an earlier run."""
        self._accepted.add(caption_key(caption))

    def judge(self, answer: Answer, words: Sequence[str]) -> Verdict:
        """Accept or reject an answer; accepted captions are recorded."""
        line = first_line(answer.text)
        problem = answer.problem or self._problem(line, words)
        if problem:
            return Verdict(problem=problem)
        self.remember(line)
        return Verdict(caption=as_sentence(_without_end(line)))

    def _problem(self, line: str, words: Sequence[str]) -> str:
        if not line:
            return NO_ANSWER
        if _DECLINED.search(line.lower()):
            return REFUSAL
        if _NEXT_SENTENCE.search(line):
            return ESSAY
        if _STRANGE.search(line):
            return NOT_TEXT
        line_words = wordlist(line)
        if line_words.total() > self._max_words:
            return TOO_LONG
        if line_words.total() < MIN_WORDS:
            return TOO_SHORT
        missing = _word_parts(Counter(words)) - _word_parts(line_words)
        if (self._whole_words and missing) or any(word not in line.lower() for word in missing):
            return MISSING
        if _TWICE.search(line.lower()):
            return REPEATS
        key = caption_key(line)
        if hash(key) in self._known_keys:
            return COPY
        return DUPLICATE if key in self._accepted else ""
