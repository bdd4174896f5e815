"""Tokenize captions before scoring: pycocoevalcap's Penn Treebank tokenizer, and one in Python.

pycocoevalcap runs Stanford's ``PTBTokenizer`` (Java), lower-cases, and drops the tokens listed in
``PUNCTUATION``. `tokenize_ptb` returns the same tokens, with two safeguards: line separators
inside a caption cannot shift later captions, and no file is written beside the installed package.
`tokenize_python` needs no Java and no start-up time; its rules are close enough for
validation during training (the tests measure the share of equal captions). Results record
which tokenizer was used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pycocoevalcap.tokenizer.ptbtokenizer as ptb

from captioning.metrics.java import JavaError, run_java, try_twice
from captioning.text.spaceless import MARKS, is_spaceless, say_characters, spaced

PUNCTUATION = frozenset(ptb.PUNCTUATIONS)
_LINE_BREAKS = re.compile("[\r\n\v\f\u2028\u2029]")
_JAR = Path(ptb.__file__).parent / ptb.STANFORD_CORENLP_3_4_1_JAR

_ABBREVIATIONS = (
    "ala|al|apr|ariz|assn|aug|ave|bldg|blvd|bros|calif|capt|cf|"
    "co|col|colo|conn|corp|ct|dec|dept|dist|dr|esq|est|etc|ext|"
    "feb|fla|fri|ft|ga|gen|gov|hon|inc|ind|jan|jr|kan|ky|lt|"
    "ltd|mar|md|messrs|mich|minn|mo|mont|mr|mrs|ms|mt|natl|"
    "neb|nev|nov|oct|okla|pa|penn|pl|plc|pres|prof|pty|rd|rep|"
    "rev|sen|sept|sgt|sq|sr|st|tenn|thurs|tues|univ|va|vs|vt|"
    "wed|wis|wyo"
)

# Alternatives in order: the first match wins. `\w` without the underscore is written [^\W_].
_TOKEN = re.compile(
    r"""
      https?://[^\s"]*[^\s".,!?)] | www\.[^\s"]*[^\s".,!?)] | [\w.]{1,64}@[\w.]*[^\W_]
    | </?[a-z][^<>]*>                               # markup is one token
    | [^\W\d_][MARKS]+                             # a character of Thai with what is above it
    | [:;=]-?[()]                                   # so is a smile
    | (?-i:[A-Z]+(?:&[A-Z]+)+)(?![^\W_])            # AT&T, but not salt&pepper
    | can(?=not\b) | (?:gon|wan)(?=na\b) | got(?=ta\b) | (?:lem|gim)(?=me\b)
    | 't(?=is\b|was\b)
    | [^\W\d_]+?(?=n't(?![^\W_])) | n't(?![^\W_])   # do n't
    | '(?:s|d|m|re|ve|ll)(?![^\W_])                 # it 's
    | '(?:em|till?|cause)(?![^\W_]) | '\d\ds(?![^\W_]) | '?n'(?![^\W_])
    | (?:o'[^\W\d_]{2,} | [dl]'[^\W\d_]+ | ma'am | c'mon | s'mores | dunkin') (?![^\W_])
    | [^\W\d_]*[aeiou]'[aeiou][^\W\d_]* | [jy]'(?=[^\W_])
    | (?:[^\W\d_]\.)+(?![^\W_]) | ph\.d\.           # t.v.
    | [^\W\d_]+\.(?=[,;])                            # the full stop of "a can.," stays
    | (?:ABBREVIATIONS)\.(?![^\W_]) | no\.(?=\s*\d)
    | [^\W\d_][^\W_]*(?:[.!?][^\W\d_][^\W_]*)*(?:[-/_][^\W_]+)*  # t-shirt, his/her, bed.on
    | \d+(?:[.,:/]\d+)+ | \d[^\W_]*(?:[-/_][^\W_]+)* | [-+]?[.,:]?\d+(?:[.,:/]\d+)*
    | [@\#][^\W\d_]\w*
    | [!?]+ | \.{3} | -+ | _+ | \*+ | << | >> | \S
    """.replace("ABBREVIATIONS", _ABBREVIATIONS).replace("MARKS", MARKS),
    re.VERBOSE | re.IGNORECASE,
)
_ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&nbsp;": " "}
_ENTITY = re.compile("|".join(_ENTITIES), re.IGNORECASE)
_ESCAPES = {
    "(": "-lrb-",
    ")": "-rrb-",
    "[": "-lsb-",
    "]": "-rsb-",
    "{": "-lcb-",
    "}": "-rcb-",
    **{f"{eyes}(": f"{eyes}-lrb-" for eyes in (":", ";", "=", ":-", ";-", "=-")},
    **{f"{eyes})": f"{eyes}-rrb-" for eyes in (":", ";", "=", ":-", ";-", "=-")},
    '"': "''",
}
_SIGNS = {
    **dict.fromkeys("\u2018\x91", "`"),
    **dict.fromkeys("\u2019\x92", "'"),
    **dict.fromkeys("\u201c\u201d\xab\xbb\x93\x94", '"'),
    **dict.fromkeys("\u2013\u2014\x96\x97", " -- "),
    **dict.fromkeys("\u2026\x85", " ... "),
    "\xbd": " 1/2 ",
    "\xbc": " 1/4 ",
    "\xbe": " 3/4 ",
    "\u20ac": "$",
    "\xa3": " # ",
    "\xa2": " cents ",
    "\xa0": " ",
    "\xad": "",
    "\ufffd": "",
    "\x80": "$",
}
# Control characters, joiners, direction marks, variation selectors, private use, and all beyond
# the basic plane: PTB has no token for them, and they end words.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u20dd-\u20e0\u20e2-\u20e4\ud800-\uf8ff\ufe00-\ufe0f\ufeff\U00010000-\U0010ffff]"
)


def tokenize_ptb(captions: Sequence[str], *, timeout: float | None = None) -> list[str]:
    """Tokenize captions with Stanford's PTBTokenizer: lower case, punctuation dropped.

    Args:
        captions: raw text; line separators count as spaces.
        timeout: seconds before Java is killed; default: 120 s plus 5 ms per caption.

    Returns:
        One string per caption, with tokens joined by one space.

    Raises:
        JavaError: Java is missing, or twice crashed, hung, or returned the wrong number of lines.
    """
    if not captions:
        return []
    captions = _by_character(captions)
    lines = [_LINE_BREAKS.sub(" ", caption) for caption in captions]
    seconds = timeout or 120 + 0.005 * len(lines)
    tokenized = try_twice(lambda again: _run_ptb(lines, seconds))
    words = [_without_punctuation(line.rstrip().split(" ")) for line in tokenized]
    for row, caption in enumerate(captions):
        if is_spaceless(caption):  # Java loses the marks of these scripts
            words[row] = _split(caption)
    return words


def _run_ptb(lines: Sequence[str], timeout: float) -> list[str]:
    # Java's optimising compiler and parallel collector cost more than they save within a second.
    options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(_JAR))
    output = run_java(
        [*options, "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"],
        name="PTB tokenizer",
        timeout=timeout,
        text="\n".join(lines) + "\n",
    )
    tokenized = output.split("\n")[:-1]
    if len(tokenized) != len(lines):
        raise JavaError(
            f"PTB tokenizer: Java returned {len(tokenized)} lines for {len(lines)} captions"
        )
    return tokenized


def _without_punctuation(tokens: Sequence[str]) -> str:
    return " ".join(token for token in tokens if token not in PUNCTUATION)


def tokenize_python(captions: Sequence[str]) -> list[str]:
    """Tokenize captions in Python with the PTB rules that captions need.

    Args:
        captions: raw text.

    Returns:
        One string per caption: lower-case tokens joined by one space, punctuation dropped.
    """
    return [_split(caption) for caption in _by_character(captions)]


def _by_character(captions: Sequence[str]) -> list[str]:
    say_characters(captions, "metrics count each character as a word")
    return [spaced(caption) for caption in captions]


def _split(caption: str) -> str:
    is_plain = caption.isascii() and caption.isprintable()
    text = caption if is_plain else _to_ascii_signs(caption)
    if "&" in text:
        text = _ENTITY.sub(lambda match: _ENTITIES[match.group().lower()], text)
    tokens = (token.lower() for token in _TOKEN.findall(text))
    # dashes of any length become the punctuation "--"
    words: list[str] = [str(_ESCAPES.get(token, token)) for token in tokens if token.strip("-")]
    return _without_punctuation(words)


def _to_ascii_signs(text: str) -> str:
    """Replace typographic characters by PTB's spelling."""
    return _INVISIBLE.sub(" ", "".join(_SIGNS.get(char, char) for char in text))
