"""GRUEN here against its recipe written down with transformers alone, on small random BERTs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertTokenizer,
)

from captioning.metrics.gruen import Gruen, count_signs, edit_distance, sentences_of

WORDS = "a dog cat runs sits on the mat Two men in field wear ##s red . , ! A The"
SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 24, "initializer_range": 0.5,
}  # fmt: skip
CAPTIONS = (
    "A dog runs on the mat .",
    "Two men in a field wear red.",
    "a cat",
    "dog",
    "",
    "A dog runs on the mat. The cat sits!",
    "A dog runs on the red mat. A dog runs on the mat.",
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The two models with one vocabulary, as transformers saves them."""
    path = tmp_path_factory.mktemp("berts")
    vocabulary = path / "vocab.txt"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split()]
    vocabulary.write_text("\n".join(tokens) + "\n")
    config = BertConfig(vocab_size=len(tokens), num_labels=2, **SIZES)
    for name, network in (
        ("language_model", BertForMaskedLM),
        ("acceptability", BertForSequenceClassification),
    ):
        torch.manual_seed(len(name))
        network(config).save_pretrained(path / name)
        BertTokenizer(str(vocabulary), do_lower_case=False).save_pretrained(path / name)
    return {name: str(path / name) for name in ("language_model", "acceptability")}


@torch.no_grad()
def grammar(folders: dict[str, str], sentences: list[str]) -> float:
    """As the published code has it, sentence by sentence."""
    masked = BertForMaskedLM.from_pretrained(folders["language_model"]).eval()
    classifier = BertForSequenceClassification.from_pretrained(folders["acceptability"]).eval()
    words = BertTokenizer.from_pretrained(folders["acceptability"], do_lower_case=False)
    perplexities, acceptable = [], []
    for sentence in sentences:
        ids = torch.tensor([words.encode(sentence)])
        perplexities.append(math.exp(masked(ids, labels=ids).loss.item()))
        padded = words(sentence, padding="max_length", max_length=24, return_tensors="pt")
        acceptable.append(classifier(**padded).logits[0, 1].item())
    count = max(len(sentences), 1)
    total = math.exp(-0.5 * sum(perplexities) / count) + sum(acceptable) / count
    return max(0.0, total / 8 + 0.5)


def test_sentences_that_are_cut_are_told_once(
    folders: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    gruen = Gruen(**folders, device="cpu")
    gruen.score(["A dog runs on the mat."])
    assert not caplog.text
    most = SIZES["max_position_embeddings"]
    for _ in range(2):
        gruen.score([" ".join(["the dog"] * most)])
    told = [record.message for record in caplog.records]
    assert [f"reads {most} tokens of a text: 1 of 1" in text for text in told] == [True, True]
    assert all(text.startswith("GRUEN (") and "splits captions only at" in text for text in told)


def test_grammar_is_the_recipes(folders: dict[str, str]) -> None:
    scores = Gruen(**folders, batch_size=2, device="cpu").score(CAPTIONS)
    for caption, score in zip(CAPTIONS, scores, strict=True):
        expected = grammar(folders, sentences_of(caption))
        assert score.grammar == pytest.approx(expected, abs=1e-6), caption
    assert scores[4].total == scores[3].total == 0.625  # no sentence of two words
    assert len({score.grammar for score in scores}) == 6


def test_like_sentences_cost_a_tenth_a_sign(folders: dict[str, str]) -> None:
    scores = Gruen(**folders, device="cpu").score(CAPTIONS)
    assert [round(10 * score.redundancy) for score in scores] == [0, 0, 0, 0, 0, 0, 4]
    assert scores[-1].total == pytest.approx(max(0.0, scores[-1].grammar - 0.4))


@pytest.mark.parametrize(
    ("first", "second", "signs"),
    [
        ("a dog.", "a dog.", 4),
        ("a dog runs", "a dog runs on", 4),
        ("a dog", "a cat", 0),
        ("a man rides a red bicycle", "some children play football there", 0),
        ("a man rides a red bicycle", "red a bicycle rides man a", 1),
    ],
)
def test_signs_by_hand(first: str, second: str, signs: int) -> None:
    assert count_signs(first, second) == count_signs(second, first) == signs


def test_letters_to_change() -> None:
    pairs = [("", "abc"), ("kitten", "sitting"), ("flaw", "lawn"), ("same", "same")]
    assert [edit_distance(*pair) for pair in pairs] == [3, 3, 2, 0]


def test_sentences_end_at_signs_and_numbers_do_not() -> None:
    assert sentences_of("A dog runs . Two  men!\nIt has 3.5 legs? Yes.") == [
        "A dog runs .", "Two men!", "It has UNK legs?",
    ]  # fmt: skip


def test_other_models_are_refused(folders: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="weights lack 4 tensors of BertForSequenceClassification"):
        Gruen(language_model=folders["language_model"], acceptability=folders["language_model"])
    with pytest.raises(FileNotFoundError, match="give a folder of a saved model"):
        Gruen(language_model=folders["language_model"], acceptability=str(tmp_path))
    network = BertForSequenceClassification(BertConfig(vocab_size=30, num_labels=3, **SIZES))
    network.save_pretrained(tmp_path)
    BertTokenizer.from_pretrained(folders["acceptability"]).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has 3 classes"):
        Gruen(language_model=folders["language_model"], acceptability=str(tmp_path))
