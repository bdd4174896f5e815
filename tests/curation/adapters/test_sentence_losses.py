"""Loops of one's own record losses by sentence, and lose the worst sentences."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from captioning.text.sentence_spans import sentence_numbers, sentence_spans
from captioning.types import Sample
from curation.adapters.curation import Curation
from curation.adapters.losses import per_sample_losses, per_sentence_losses
from curation.amend.sentences import MaskSentences, RemoveSentences
from curation.base import SENTENCE_LOSS
from curation.loop.policy import CurationPolicy
from curation.score.sentences import SentenceLoss
from curation.select.top import Top

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
    with pytest.raises(ValueError, match=r"sentences must be of the labels' shape \(2, 6\)"):
        per_sentence_losses(logits, labels, sentences[:, :5], num_sentences=4)


def test_a_loop_of_ones_own_loses_the_worst_sentence(tmp_path: Path) -> None:
    select = Top(ratio=0.5, score=SentenceLoss())
    policy = CurationPolicy(select=select, amend=RemoveSentences(), name="worst")
    options = {"samples": samples(), "policy": policy, "signals": (SENTENCE_LOSS,)}
    curation = Curation.open(tmp_path, **options)
    losses = torch.tensor([[1.0, 5.0, 1.0], [2.0, 3.0, torch.nan]])
    with pytest.raises(ValueError, match=r"losses of sentences must be \(B, S\)"):
        curation.add(torch.tensor([0, 1]), torch.ones(2), sentence_loss=torch.ones(2))
    curation.add(torch.tensor([0, 1]), torch.ones(2), sentence_loss=losses)
    curation.end_epoch()
    assert [sample.caption for sample in curation.samples()] == ["A dog. A cow.", "One. Two."]
    curation.close()


def test_masked_sentences_are_refused_as_masked_words_are(tmp_path: Path) -> None:
    select = Top(ratio=0.5, score=SentenceLoss())
    policy = CurationPolicy(select=select, amend=MaskSentences(), name="p")
    with pytest.raises(ValueError, match=r"'p' masks words in the loss, which another loop"):
        Curation.open(tmp_path, samples=samples(), policy=policy, signals=(SENTENCE_LOSS,))


def test_offsets_of_a_tokenizer_say_the_sentence() -> None:
    offsets = [(0, 0), (0, 1), (2, 5), (5, 6), (7, 8), (9, 12), (12, 13), (0, 0)]
    assert sentence_numbers(offsets, sentence_spans(CAPTIONS[0])) == [-1, 0, 0, 0, 1, 1, 1, -1]
