"""Captions of scripts without spaces: vocabulary, metrics and words of checks go by character."""

from __future__ import annotations

import logging

import pytest

from captioning.metrics.coco import evaluate_captions
from captioning.metrics.tokenizer import tokenize_ptb, tokenize_python
from captioning.text import spaceless
from captioning.text.spaceless import joined, spaced
from captioning.text.tokenizers.words import WordTokenizer
from captioning.text.word_forms import words_of

TEXTS = {
    "一只狗在雪地里奔跑。": "一 只 狗 在 雪 地 里 奔 跑",
    "犬が雪の中を、走る\uff01": "犬 が 雪 の 中 を 走 る",
    "สุนัขวิ่งอยู่": "สุ นั ข วิ่ ง อ ยู่",
    "개가 눈 속을 달린다": "개 가 눈 속 을 달 린 다",
    "ឆ្កែរត់": "ឆ្ កែ រ ត់",
    "ໝາແລ່ນ": "ໝ າ ແ ລ່ ນ",
    "ခွေးပြေး": "ခွေး ပြေး",
    "两个T恤 3 件": "两 个 t 恤 3 件",
}
PLAIN = ("A dog's T-shirt.", "Ein Mädchen läuft über die Straße.", "Собака бежит.", "कुत्ता दौड़ता है")


@pytest.mark.long
@pytest.mark.parametrize(("text", "words"), TEXTS.items())
def test_each_character_is_a_word(text: str, words: str) -> None:
    assert spaced(text).lower() == words
    assert tokenize_python([text]) == tokenize_ptb([text]) == [words]
    assert words_of(text) == words.split()
    tokenizer = WordTokenizer.build([text], min_count=1)
    assert len(tokenizer.encode(text)) == len(words.split()) + 2
    again = tokenizer.decode(tokenizer.encode(text))
    assert spaced(again).lower() == words
    assert again == (text if text.startswith("개") else joined(words))  # Korean keeps its spaces
    spans = tokenizer.token_spans(text)[1:-1]
    assert [text[start:stop].lower() for start, stop in spans] == words.split()


@pytest.mark.parametrize("text", PLAIN)
def test_other_scripts_stay_as_they_are(text: str) -> None:
    assert spaced(text) == joined(text) == text


def test_scores_count_characters_and_say_so(caplog) -> None:
    spaceless._say.cache_clear()
    caplog.set_level(logging.INFO)
    candidate, reference = "一只狗在雪地里跑", "一只狗在雪地里奔跑。"
    scores = evaluate_captions({"1": candidate}, {"1": [reference]}, tokenizer="python")
    assert scores.corpus["BLEU-1"] == pytest.approx(pow(2.718281828459045, 1 - 9 / 8))
    assert "each character as a word: 2 of 2 captions" in caplog.text


def test_captions_that_are_cut_are_counted(caplog) -> None:
    caplog.set_level(logging.INFO)
    WordTokenizer.build(["一只狗在雪地里奔跑", "狗"], min_count=1, max_words=5)
    assert "cut after 5 (max_words): 1 of 1 captions" in caplog.text
