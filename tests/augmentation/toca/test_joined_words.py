"""Words that the tagger has cut, put together again."""

from __future__ import annotations

import pytest

from augmentation.toca.joined_words import join_word_parts
from augmentation.toca.templates import deconstruct
from augmentation.writing.acceptance import Judge
from augmentation.writing.writers import Answer
from captioning.text.tagger import CaptionTagger


@pytest.fixture(scope="module")
def tagger() -> CaptionTagger:
    return CaptionTagger()


@pytest.mark.parametrize(
    ("caption", "structure", "words"),
    [
        ("A man can't ride the t-shirt.", "[N] can't [VB] [N] .", "man ride t-shirt"),
        ("A person cannot see", "[N] cannot [VB] .", "person see"),
        ("the  men do n't go", "[N] [VBP] [VB] .", "men don't go"),
        ("the man's well-dressed", "[N] [VBN] .", "man well-dressed"),
        ("a dog won't run", "[N] won't [VB] .", "dog run"),
        ("a close-up of a black-and-white cat", "[N] of [J] [N] .", "close-up black-and-white cat"),
        ("he is gonna go", "[VBZ] [VB] [VB] .", "is gonna go"),
        ("a man - in red - sits", "[N] in [J] [VBZ] .", "man red sits"),
        ("a 20-inch pizza", "[N] .", "pizza"),
    ],
)  # fmt: skip
def test_whole_words(tagger: CaptionTagger, caption: str, structure: str, words: str) -> None:
    (tagged,) = tagger.tag([caption])
    parts = deconstruct(join_word_parts(caption, tagged))
    assert parts.structure == structure
    assert " ".join(word for word, _ in parts.words) == words
    # the caption is a right answer to its own template
    lexical_words = [word for word, _ in parts.words]
    assert Judge().judge(Answer(text=caption), lexical_words).problem == ""


@pytest.mark.parametrize("caption", ["", "two dogs run", "a -sign- here", "- a dog -", "n't"])
def test_nothing_is_lost(tagger: CaptionTagger, caption: str) -> None:
    (tagged,) = tagger.tag([caption])
    letters = "".join(text for text, _ in join_word_parts(caption, tagged)).replace("-", "")
    assert letters == caption.replace(" ", "").replace("-", "")
