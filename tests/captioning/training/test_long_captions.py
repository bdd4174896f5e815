"""Long captions train whole, and are curated by the sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from captioning.data.batches.dataset import sentences_of_tokens
from captioning.models.layers.cross_entropy import caption_losses, padded_caption_losses
from captioning.models.layers.packing import CaptionPlaces, Packing
from captioning.text.sentence_spans import sentence_spans
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Batch, Sample
from curation.base import SENTENCE_LOSS
from curation.detect import contexts, detect_by_score
from curation.journal.journal import read_journal
from curation.loop.ledger import LossLedger, TokenLosses, read_history
from curation.loop.probes import record
from curation.score.sentences import SentenceJoint, SentenceLoss, SentenceWords
from curation.score.truth import TruthOfSentences
from tests.curation.toy_words import ToyWords
from tests.run_calls import train

LONG = (
    *("steps=[plant_sentences,compose_captions]", "tokenizer.max_words=90", "num_epochs=2"),
    "seed=3",
)

BY_LOSS = (
    *("curation/score=sentence_loss", "curation/schedule=every_epoch"),
    "curation.select.ratio=0.3",
)


def batch_of_two(*, asked: bool) -> Batch:
    numbers = torch.tensor([[-1, 0, 0, 1, 1, -1], [-1, 0, 1, -1, -1, -1]])
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    return Batch(
        rows=torch.tensor([2, 0]),
        sample_ids=("c", "a"),
        image_ids=("c", "a"),
        image_index=torch.tensor([0, 1]),
        tokens=torch.tensor([[1, 5, 6, 7, 4, 2], [1, 5, 4, 2, 0, 0]]),
        token_mask=mask,
        token_sentences=numbers if asked else None,
    )


@pytest.mark.parametrize("packed", [True, False])
def test_the_losses_of_sentences_are_the_means_of_their_tokens(packed: bool) -> None:
    batch = batch_of_two(asked=True)
    logits = torch.randn(2, 5, 9, generator=torch.Generator().manual_seed(0))
    if packed:
        places = CaptionPlaces.of(batch)
        losses = caption_losses(places.pack(logits), batch, places)
    else:
        losses = padded_caption_losses(logits, batch)
    assert batch.tokens is not None
    assert batch.token_sentences is not None
    nll = -logits.log_softmax(2).gather(2, batch.tokens[:, 1:, None]).squeeze(2)
    assert losses.token_nll is not None
    assert losses.nll is not None
    torch.testing.assert_close(losses.token_nll.sum(1), losses.nll)
    ledger = LossLedger(num_samples=3, num_parts=2)
    tokens = TokenLosses(nll=losses.token_nll, sentences=batch.token_sentences[:, 1:])
    ledger.add_tokens(batch.rows, tokens)
    expected = torch.full((3, 2), torch.nan)
    expected[2, 0], expected[2, 1] = nll[0, :2].mean(), nll[0, 2:4].mean()
    expected[0, 0], expected[0, 1] = nll[1, 0], nll[1, 1]
    torch.testing.assert_close(ledger.mean(), expected, equal_nan=True)
    ledger.add_tokens(batch.rows, tokens)  # seen twice: the mean stays
    torch.testing.assert_close(ledger.mean(), expected, equal_nan=True)
    assert padded_caption_losses(logits, batch_of_two(asked=False)).token_nll is None


def test_packed_tokens_come_back_to_their_places() -> None:
    lengths = torch.tensor([2, 4, 3])
    packing = Packing.of(lengths, torch.device("cpu"))
    padded = torch.arange(1.0, 13).view(3, 4) * (torch.arange(4) < lengths[:, None])
    assert packing.unpack(packing.pack(padded[packing.order]), padded).equal(padded)


def test_tokens_know_their_sentence_and_a_ledger_leaves_out_what_has_no_room(
    tmp_path: Path,
) -> None:
    caption = "A dog runs. It is brown."
    sample = Sample(row=0, sample_id="a", image_id="a", image_path=Path("a"), caption=caption)
    tokenizer = WordTokenizer.build([caption], min_count=1)
    numbers = sentences_of_tokens([sample], tokenizer, 9)
    assert numbers.tolist() == [[-1, 0, 0, 0, 1, 1, 1, -1, -1]]
    ledger = LossLedger(num_samples=1, num_parts=1)
    ledger.add_tokens(
        torch.tensor([0]), TokenLosses(nll=torch.arange(9.0)[None], sentences=numbers)
    )
    assert ledger.close_epoch(epoch=4).tolist() == [[2]]
    ledger.save(tmp_path / "a.npz", sample_ids=["a"])
    ids, epochs, history = read_history(tmp_path / "a.npz")
    assert (ids, epochs, history.tolist()) == (["a"], [4], [[[2]]])
    again = LossLedger(num_samples=1, num_parts=1)
    again.load_state_dict(ledger.state_dict())
    assert again.history().tolist() == [[[2]]]


def sentences(context, row: int) -> list[str]:
    caption = context.live[row].caption
    return [caption[start:stop] for start, stop in sentence_spans(caption)]


def test_the_worst_sentences_of_a_run_are_masked(small) -> None:
    config = small(*LONG, "curation=mask_sentences", *BY_LOSS)
    train(config)
    folder = Path(config.run_dir)
    ids, _, history = read_history(folder / "curation" / f"{SENTENCE_LOSS}.npz")
    first, second = contexts(folder)
    assert history.shape == (2, len(ids), max(len(sentences(first, row)) for row in first.live))
    for row in first.live:
        assert (~np.isnan(history[0, row])).sum() == len(sentences(first, row))
    doubts = {(d.row, d.start): d for d in SentenceLoss().doubts(first)}
    for doubt in SentenceLoss(within_caption=False).doubts(first):
        place = next(n for n, s in enumerate(sentences(first, doubt.row)) if s == doubt.sentence)
        own = history[0, doubt.row]
        assert doubt.suspicion == pytest.approx(own[place])
        others = np.delete(own[~np.isnan(own)], place)
        within = doubts[doubt.row, doubt.start].suspicion
        assert within == pytest.approx(own[place] - others.mean(), abs=1e-5)
    _, edits = read_journal(folder)
    masked = [edit for edit in edits if edit.epoch == 0]
    assert len(masked) == round(0.3 * len(ids))
    for edit in masked:
        assert edit.action == "mask_words"
        start, stop = map(int, (edit.value or "").split("-"))
        row = first.view.roster.by_id[edit.sample_id].row
        own = [doubt for (place, _), doubt in doubts.items() if place == row]
        worst = max(own, key=lambda doubt: doubt.suspicion)
        assert (worst.start, worst.stop) == (start, stop)
    assert any(sample.masks for sample in second.live.values())

    found = detect_by_score({"loss": SentenceLoss(), "truth": TruthOfSentences()}, first)
    truth = found["truth"]["sentences"]
    assert truth["average_precision"] == truth["worst_of_caption"] == truth["auc"] == 1
    assert truth["num_wrong"] == len(json.loads((folder / "noise_words.json").read_text()))
    assert set(truth["average_precision_by_kind"]) == {"swap", "object", "color", "number"}
    assert 0 < found["loss"]["sentences"]["average_precision"] < 1


def test_a_run_whose_wrong_sentences_an_oracle_removes_is_sound(small) -> None:
    oracle = ("curation/score=sentence_truth", "curation/select=above")
    config = small(*LONG, "curation=remove_sentences", *oracle)
    train(config)
    folder = Path(config.run_dir)
    faulty = json.loads((folder / "noise_truth.json").read_text())
    record = json.loads((folder / "curation" / "epochs.json").read_text())[0]
    detection = record["detection"]
    assert record["num_caption_replaced"] == detection["num_faulty"] == len(faulty)
    assert detection["num_mended_right"] == len(faulty)
    after = json.loads((folder / "curation" / "detection.json").read_text())[-1]
    assert after["num_faulty"] == 0
    assert not (folder / "curation" / f"{SENTENCE_LOSS}.npz").exists()


def test_a_model_without_losses_of_tokens_is_refused() -> None:
    ledger = LossLedger(num_samples=2)
    ledger.sentences = LossLedger(num_samples=2, num_parts=3)
    outputs = {"rows": torch.tensor([0, 1]), "per_sample": torch.ones(2)}
    with pytest.raises(ValueError, match=r"needs the loss of each token.*CaptionLosses\.token_nll"):
        record(ledger, outputs)
    own = {"token_nll": torch.ones(2, 4), "token_sentences": torch.zeros(2, 5).long()}
    with pytest.raises(ValueError, match=r"token_nll \(2, 4\) must have a loss for each token"):
        record(ledger, outputs | own)


def test_sentences_count_with_their_worst_word_and_parts_with_their_spread(small) -> None:
    config = small(
        *LONG, "curation=track", "curation/score=sentence_loss", "curation.select.ratio=0"
    )
    train(config)
    (context, _) = contexts(Path(config.run_dir))
    words = SentenceWords(words=ToyWords({"a": ("the", 0.4), "A": ("the", 0.9)}))
    doubts = words.doubts(context)
    for doubt in doubts:
        assert doubt.sentence in context.live[doubt.row].caption
        assert doubt.suspicion == (0.9 if doubt.sentence.startswith("A ") else 0.4)
    loss = SentenceLoss()
    joint = SentenceJoint(parts={"loss": loss, "words": words}, weights={"loss": 3.0, "words": 1.0})
    assert joint.signals == (SENTENCE_LOSS,)
    values = {(d.row, d.start): d.suspicion for d in joint.doubts(context)}

    def scaled(doubts) -> dict[tuple[int, int], float]:
        found = np.array([d.suspicion for d in doubts])
        return {(d.row, d.start): (d.suspicion - found.mean()) / found.std() for d in doubts}

    by_loss, by_word = scaled(loss.doubts(context)), scaled(doubts)
    assert values.keys() == by_loss.keys()
    for place, value in values.items():
        assert value == pytest.approx(0.75 * by_loss[place] + 0.25 * by_word.get(place, 0.0))
