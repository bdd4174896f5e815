"""Tokenization before scoring: the Penn Treebank tokenizer of pycocoevalcap, and one in Python.

pycocoevalcap runs Stanford's ``PTBTokenizer`` (Java), lower-cases, and drops the tokens listed in
``PUNCTUATION``. `tokenize_ptb` gives the same tokens with two differences of care: line separators
inside a caption cannot shift later captions, and nothing is written beside the installed package.
`tokenize_python` needs no Java and no start-up time; it follows the same rules closely enough for
validation during training (the share of equal captions is measured in the tests), and is recorded
wherever it was used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pycocoevalcap.tokenizer.ptbtokenizer as ptb

from captioning.metrics.java import JavaError, run_java

PUNCTUATION = frozenset(ptb.PUNCTUATIONS)
_LINE_BREAKS = re.compile("[\r\n\v\f\u2028\u2029]")
_JAR = Path(ptb.__file__).parent / ptb.STANFORD_CORENLP_3_4_1_JAR


def tokenize_ptb(captions: Sequence[str], *, timeout: float | None = None) -> list[str]:
    """Captions as Stanford's PTBTokenizer splits them, lower case, punctuation dropped.

    Args:
        captions: raw text; line separators count as spaces.
        timeout: seconds before Java is killed; 120 s and 5 ms a caption by default.

    Returns:
        Tokens joined by one space, one string a caption.

    Raises:
        JavaError: Java is absent, crashed, hung, or returned another number of lines.
    """
    if not captions:
        return []
    lines = [_LINE_BREAKS.sub(" ", caption) for caption in captions]
    output = run_java(
        ["-cp", str(_JAR), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"],
        name="PTB tokenizer",
        timeout=timeout or 120 + 0.005 * len(lines),
        text="\n".join(lines) + "\n",
    )
    tokenized = output.split("\n")[:-1]
    if len(tokenized) != len(lines):
        raise JavaError(
            f"PTB tokenizer: {len(tokenized)} lines came back for {len(lines)} captions"
        )
    return [_without_punctuation(line.rstrip().split(" ")) for line in tokenized]


def _without_punctuation(tokens: Sequence[str]) -> str:
    return " ".join(token for token in tokens if token not in PUNCTUATION)


def tokenize_python(captions: Sequence[str]) -> list[str]:
    """Captions split by PTB-like rules in Python: lower case, punctuation dropped."""
    return [_without_punctuation(re.findall(r"[a-z0-9-]+|[^\w\s]", c.lower())) for c in captions]
