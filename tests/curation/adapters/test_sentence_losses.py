"""Loops of one's own record losses by sentence, and lose the worst sentences."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from captioning.text.sentence_spans import sentence_numbers, sentence_spans
from captioning.types import Sample
from curation.adapters.curated_dataset import CuratedDataset, with_rows
from curation.adapters.curation import Curation
from curation.adapters.losses import label_spans, per_sample_losses, per_sentence_losses
from curation.amend.sentences import MaskSentences, RemoveSentences
from curation.base import SENTENCE_LOSS
from curation.loop.policy import Policy, Schedule
from curation.score.sentences import SentenceLoss
from curation.select.top import Top
from tests.curation.toy_words import ToySentences

CAPTIONS = ("A dog. A cat. A cow.", "One. Two.")


def samples() -> list[Sample]:
    return [
        Sample(row=row, sample_id=text[:3], image_id=text[:3], image_path=Path("a"), caption=text)
        for row, text in enumerate(CAPTIONS)
    ]


@pytest.mark.parametrize("shift", [True, False])
def test_losses_by_sentence_are_means_of_their_tokens(shift: bool) -> None:
    logits = torch.randn(2, 6, 11, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[3, 4, 5, 6, 7, -100], [1, 2, 3, -100, -100, -100]])
    sentences = torch.tensor([[0, 0, 0, 1, 2, 2], [0, 1, 1, -1, -1, -1]])
    found = per_sentence_losses(logits, labels, sentences, num_sentences=4, shift=shift)
    assert found.shape == (2, 4)
    for row in range(2):
        for number in range(4):
            kept = labels[row].clone()
            kept[sentences[row] != number] = -100
            own = per_sample_losses(logits[row : row + 1], kept[None], shift=shift)
            torch.testing.assert_close(found[row, number], own[0], equal_nan=True)
    with pytest.raises(ValueError, match=r"sentences must have the shape of labels \(2, 6\)"):
        per_sentence_losses(logits, labels, sentences[:, :5], num_sentences=4)


def test_a_loop_of_ones_own_loses_the_worst_sentence(tmp_path: Path) -> None:
    select = Top(ratio=0.5, score=SentenceLoss())
    policy = Policy(select=select, amend=RemoveSentences(), name="worst")
    options = {"samples": samples(), "policy": policy, "signals": (SENTENCE_LOSS,)}
    curation = Curation.open(tmp_path, **options)
    losses = torch.tensor([[1.0, 5.0, 1.0], [2.0, 3.0, torch.nan]])
    with pytest.raises(ValueError, match=r"losses of sentences must be \(B, S\)"):
        curation.add(torch.tensor([0, 1]), torch.ones(2), sentence_loss=torch.ones(2))
    curation.add(torch.tensor([0, 1]), torch.ones(2), sentence_loss=losses)
    curation.end_epoch()
    assert [sample.caption for sample in curation.samples()] == ["A dog. A cow.", "One. Two."]
    curation.close()


def masking(weight: float = 0.0) -> Policy:
    select = Top(ratio=0.5, score=ToySentences({"A cat.": 2.0, "A cow.": 1.0}))
    schedule = Schedule(until_epoch=-1, from_epoch=-1)
    amend = MaskSentences(weight=weight)
    return Policy(select=select, amend=amend, schedule=schedule, name="p")


def test_masked_sentences_are_refused_unless_the_loop_leaves_them_out(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'p' masks words in the loss, .* open with masks=True"):
        Curation.open(tmp_path, samples=samples(), policy=masking())
    select = Top(ratio=0.5, score=SentenceLoss())
    policy = Policy(select=select, amend=RemoveSentences(), name="p")
    with pytest.raises(ValueError, match=r"'p' needs sentence losses: open with sig"):
        Curation.open(tmp_path, samples=samples(), policy=policy)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Pieces of bytes whose offsets have the space before them, and a piece that ends a line."""
    letters = dict.fromkeys("ĠĊ.\nabcdeghijklmnopqrstuvwxyzACOT")
    pieces = ["Ġc", "at", "Ġcat", "do", "dog", "Ġdog", ".Ċ", "Ġ<", "e>"]
    merges = [("Ġ", "c"), ("a", "t"), ("Ġc", "at"), ("d", "o"), ("do", "g"), (".", "Ċ")]
    vocabulary = {piece: number for number, piece in enumerate([*letters, *pieces])}
    model = models.BPE(vocab=vocabulary, merges=merges)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def test_labels_are_found_in_their_caption_whatever_stands_around_it() -> None:
    tokenizer, caption = byte_tokenizer(), "A dog. A cat.  A cow."
    whole = tokenizer(f"see {caption}\n{caption}\n", add_special_tokens=False)["input_ids"]
    prompt = len(tokenizer(f"see {caption}\n", add_special_tokens=False)["input_ids"])
    labels = torch.tensor([[-100] * prompt + whole[prompt:] + [-100, -100]])
    (spans,) = label_spans(labels, [caption], tokenizer)
    assert len(spans) == labels.shape[1]
    assert all(span == (0, 0) for span in [*spans[:prompt], *spans[-2:]])
    texts = [caption[start:stop] for start, stop in spans[prompt:-2]]
    # the last stop and the end of the line are one token
    assert "".join(texts) == caption.replace(" ", "")
    numbers = sentence_numbers(spans, sentence_spans(caption))
    assert [numbers[prompt:].count(number) for number in range(3)] == [
        sum(start < 6 < stop or stop <= 6 for start, stop in spans[prompt:-2] if stop),
        sum(6 < start < 13 for start, stop in spans[prompt:-2]),
        sum(start > 13 for start, stop in spans[prompt:-2]),
    ]
    after_space = tokenizer(f"see {caption}", add_special_tokens=False)["input_ids"]
    (spans,) = label_spans(torch.tensor([after_space]), [caption], tokenizer)
    assert "".join(caption[start:stop] for start, stop in spans) == caption.replace(" ", "")
    with pytest.raises(ValueError, match=r"labels lack tokens of 'A dog\. .*max_length"):
        label_spans(labels[:, :-5], [caption], tokenizer)
    with pytest.raises(ValueError, match=r"object gives no character offsets"):
        label_spans(labels, [caption], object())


def test_a_collator_leaves_masked_sentences_out_of_the_labels(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()

    def collate(items: list[dict[str, str]]) -> dict[str, torch.Tensor]:
        ids = [tokenizer(item["text"], add_special_tokens=False)["input_ids"] for item in items]
        most = max(map(len, ids))
        return {"labels": torch.tensor([own + [-100] * (most - len(own)) for own in ids])}

    for weight in (0.0, 0.5):
        curation = Curation.open(
            tmp_path / str(weight), samples=samples(), policy=masking(weight), masks=True
        )
        data = CuratedDataset(lambda sample: {"text": sample.caption}, curation)
        collator = with_rows(collate, curation=curation, tokenizer=tokenizer)
        if weight:
            with pytest.raises(ValueError, match=r"has a mask of weight 0\.5, .*weight=0"):
                collator([data[0], data[1]])
            continue
        batch = collator([data[1], data[0]])
        assert curation.needs_sentences
        plain = collate([{"text": CAPTIONS[1]}, {"text": CAPTIONS[0]}])["labels"]
        assert torch.equal(batch["labels"][0], plain[0])
        assert torch.equal(batch["labels"][1] == -100, batch["sentences"][1] == 1)
        assert torch.equal(batch["labels"][1] != -100, batch["labels"][1] == plain[1])
        assert batch["sentences"][0].max() == 1
        curation.close()
    with pytest.raises(ValueError, match=r"both curation= and tokenizer="):
        with_rows(collate, tokenizer=tokenizer)


def test_offsets_of_a_tokenizer_say_the_sentence() -> None:
    offsets = [(0, 0), (0, 1), (2, 5), (5, 6), (7, 8), (9, 12), (12, 13), (0, 0)]
    assert sentence_numbers(offsets, sentence_spans(CAPTIONS[0])) == [-1, 0, 0, 0, 1, 1, 1, -1]
