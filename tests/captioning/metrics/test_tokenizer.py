from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

import pycocoevalcap.tokenizer.ptbtokenizer as ptb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioning.metrics.tokenizer import PUNCTUATION, tokenize_ptb, tokenize_python

HARD = [
    "A dog isn't here; it's \"out\" (I can't say where)...",
    "the dogs' bowl, the man's dog and the 80's",
    "Don\u2019t! \u201cTwo\u201d men \u2013 in a café … at 1/2 price",
    "cannot gonna wanna gotta lemme gimme 'tis 'twas",
    "a T.V. in the U.S. near St. Paul on Main St.",
    "Mr. and Mrs. X, no. 5, no. etc.",
    "a t-shirt, his/her x-ray, a 4-wheeler and 3rd, 2x4, 5:30pm",
    "AT&T and M&M's, salt&pepper, h & m &amp; co",
    "o'clock hors d'oeuvres s'mores ma'am rock 'n' roll y'all",
    "bathroom.with a sink a can., www.foo.com me@x.com",
    "$5 5% #1 @home £3 €4 ½ <b>bold</b> :) ?? !! --- ..",
    "an emoji \U0001f600 and a soft\xadhyphen and\xa0space",
    "",
    "   ",
    "...",
    "'hello' `there`",
]


def test_python_and_java_agree_on_hard_captions(real_java: str) -> None:
    assert tokenize_python(HARD) == tokenize_ptb(HARD)


def test_java_tokens_are_those_of_pycocoevalcap(real_java: str) -> None:
    captions = [text for text in HARD if "\U0001f600" not in text]
    keyed = {row: [{"caption": caption}] for row, caption in enumerate(captions)}
    reference = ptb.PTBTokenizer().tokenize(keyed)
    assert tokenize_ptb(captions) == [reference[row][0] for row in keyed]


def test_line_separators_do_not_shift_later_captions(real_java: str) -> None:
    captions = ["one\ntwo", "three\r\nfour", "five\u2028six", "seven\veight\fnine", "ten", ""]
    expected = ["one two", "three four", "five six", "seven eight nine", "ten", ""]
    assert tokenize_ptb(captions) == expected
    assert tokenize_python(captions) == expected


@pytest.mark.long
def test_python_and_java_agree_on_real_captions(real_java: str, shared_data: Path) -> None:
    lines = (shared_data / "flickr8k" / "Flickr8k.token.txt").read_text("utf-8").splitlines()
    flickr = [line.split("\t", 1)[1] for line in lines if "\t" in line]
    jar = Path(ptb.__file__).parents[1] / "spice" / "spice-1.0.jar"
    with ZipFile(jar) as archive:
        annotations = json.loads(archive.read("coco/annotations/captions_val2014.json"))
    coco = [entry["caption"] for entry in annotations["annotations"][::20]]
    assert len(flickr) == 40_460
    for captions in (flickr, coco):
        pairs = zip(tokenize_python(captions), tokenize_ptb(captions), strict=True)
        assert sum(python_tokens == javas for python_tokens, javas in pairs) >= 0.9995 * len(
            captions
        )


@pytest.mark.parametrize(
    ("caption", "tokens"),
    [
        ("A man's dog.", "a man 's dog"),
        ("Two dogs, running!", "two dogs running"),
        ("He can't; they don't", "he ca n't they do n't"),
        ("red/white (striped)", "red/white -lrb- striped -rrb-"),
    ],
)
def test_python_tokens(caption: str, tokens: str) -> None:
    assert tokenize_python([caption]) == [tokens]


@given(st.text(max_size=80))
def test_python_tokens_are_clean_whatever_the_text(text: str) -> None:
    (tokens,) = tokenize_python([text])
    assert tokens.split() == tokens.split(" ") or tokens == ""
    assert not PUNCTUATION & set(tokens.split())


def test_long_runs_take_linear_time() -> None:
    # a quadratic pattern would need minutes
    for text in ("." * 100_000, "a" * 100_000, "a." * 50_000, "<a " * 30_000, "a'" * 50_000):
        assert len(tokenize_python([text])) == 1


def test_python_and_java_agree_on_invisible_characters(real_java: str) -> None:
    captions = [
        "a\x07dog \x7f runs\x00",
        "\ufeffA dog\u200druns\u200b.",
        "1\ufe0f\u20e3 dog \u2764\ufe0f",
        "\U0001f415\u200d\U0001f9ba dog\U0001f600runs \ud83d",
        "x\ue000y",
        "\x80 5",
    ]
    assert tokenize_python(captions) == tokenize_ptb(captions)
    assert tokenize_python(captions)[:2] == ["a dog runs", "a dog runs"]
