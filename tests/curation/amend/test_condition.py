"""Captions are dealt into buckets, learnt with their begin tokens, and written as in the best."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from captioning.data.batches.dataset import CaptionDataset, KnownTokens
from captioning.data.roster import CurationView, build_roster
from captioning.data.token_table import TokenTable
from captioning.text.control_tokens import begin_token
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Edit, Sample
from curation.amend.condition import Condition
from curation.base import Context, Score
from curation.loop.policy import Policy, Schedule
from curation.select.all import All

NAN = float("nan")
TOKENS = [f"<bucket{number}>" for number in range(1, 8)]


class Given(Score):
    """Scores as given."""

    name = "given"

    def __init__(self, *scores: float) -> None:
        self._scores = torch.tensor(scores)

    def scores(self, context: Context) -> torch.Tensor:
        return self._scores


def view_of(number: int) -> CurationView:
    samples = [
        Sample(
            row=k, sample_id=f"i#{k}", image_id="i", image_path=Path("i.jpg"), caption=f"dog {k}"
        )
        for k in range(number)
    ]
    return CurationView(roster=build_roster("toy", samples))


def curated(view: CurationView, *scores: float, num_buckets: int = 4, seed: int = 0):
    context = Context.before_training(view, seed=seed)
    policy = Policy(
        select=All(Given(*scores)),
        amend=Condition(num_buckets=num_buckets),
        schedule=Schedule(from_epoch=-1),
        name="condition",
    )
    decision = policy.deliberate(context)
    return view.apply(decision.edits), decision


def buckets(view: CurationView) -> list[int]:
    return [sample.bucket for sample in view.samples()]


def test_quantiles_of_the_score_are_buckets_and_equal_scores_share_one():
    after, decision = curated(view_of(8), 7, 6, 5, 4, 3, 2, 1, 0)
    assert buckets(after) == [3, 3, 2, 2, 1, 1, 0, 0]
    assert decision.notes.count("in bucket 3") == 2
    assert [edit.action for edit in decision.edits] == ["set_bucket"] * 6
    assert decision.edits[0].reason == "given 7.000"
    assert decision.unchanged == ("i#6", "i#7")
    after, _ = curated(view_of(8), 1, 1, 1, 0, 0, 0, 0, 0)
    assert len({*buckets(after)[:3]}) == len({*buckets(after)[3:]}) == 1
    assert buckets(after)[0] > buckets(after)[3] == 0


def test_buckets_change_with_the_score_and_another_caption_has_none():
    after, _ = curated(view_of(4), 3, 2, 1, 0, num_buckets=2)
    assert buckets(after) == [1, 1, 0, 0]
    again, decision = curated(after, 0, 1, 2, 3, num_buckets=2)
    assert buckets(again) == [0, 0, 1, 1]
    assert len(decision.edits) == 4
    new = Edit(sample_id="i#2", action="replace_caption", value="a cat", origin="model:x")
    assert buckets(again.apply([new])) == [0, 0, 0, 1]


def test_removed_samples_move_no_bound_of_a_bucket():
    view = view_of(6).apply([Edit(sample_id=f"i#{k}", action="remove") for k in (4, 5)])
    after, _ = curated(view, 3, 2, 1, 0, 9, 9, num_buckets=2)
    assert buckets(after) == [1, 1, 0, 0]


def test_samples_without_a_score_are_dealt_as_the_others():
    scores = [float(k) if k % 2 else NAN for k in range(400)]
    after, _ = curated(view_of(400), *scores)
    counts = np.bincount(buckets(after)[::2], minlength=4)
    assert counts.sum() == 200
    assert counts.min() > 30
    assert buckets(curated(view_of(400), *scores)[0]) == buckets(after)
    assert buckets(curated(view_of(400), *scores, seed=1)[0]) != buckets(after)
    with pytest.raises(ValueError, match="no sample has a score"):
        curated(view_of(2), NAN, NAN)


@pytest.mark.parametrize("value", ["8", "-1", "x", "1.0"])
def test_edits_to_no_bucket_are_refused(value):
    with pytest.raises(ValueError, match="edit 1: a bucket is 0 to 7"):
        view_of(1).apply([Edit(sample_id="i#0", action="set_bucket", value=value)])


@pytest.mark.parametrize("number", [1, 9, 2.5, "4"])
def test_numbers_of_buckets(number):
    with pytest.raises(ValueError, match="num_buckets must be 2 to 8"):
        Condition(num_buckets=number)


@pytest.mark.parametrize("known", [False, True])
def test_captions_begin_as_their_bucket_does(known):
    words = WordTokenizer.build(["dog cat"], min_count=1, extra_words=TOKENS)
    after, _ = curated(view_of(4), 3, 2, 1, 0)
    roster = after.roster
    table = TokenTable.encode((sample.caption for sample in roster.samples), words)
    data = CaptionDataset(
        after.samples(),
        tokenizer=words,
        readers=(),
        known=KnownTokens(table=table, samples=roster.samples) if known else None,
    )
    batch = data[[0, 1, 2, 3]]
    first = [words.words[token] for token in batch.tokens[:, 0]]
    assert first == ["<bucket3>", "<bucket2>", "<bucket1>", "<bos>"]
    plain = torch.tensor([words.encode(sample.caption) for sample in roster.samples])
    assert torch.equal(batch.tokens[:, 1:], plain[:, 1:])
    # the table of the annotations' tokens is as it was
    assert table[0][0] == words.bos_id


def test_vocabularies_without_such_tokens_are_refused():
    words = WordTokenizer.build(["dog cat"], min_count=1)
    assert begin_token(words, 0) == words.bos_id

    class Module(torch.nn.Module):
        tokenizer = words

    message = "WordTokenizer has no begin token for bucket 1, .*choose tokenizer=words"
    with pytest.raises(ValueError, match=message):
        Condition().attach(None, Module())


def test_vocabularies_of_bert_have_free_places():
    class Bert(WordTokenizer):
        def token_id(self, token):
            return {"[unused1]": 2, "[unused2]": 3}.get(token)

    words = Bert(words=["a"])
    assert [begin_token(words, bucket) for bucket in range(3)] == [words.bos_id, 2, 3]
    with pytest.raises(ValueError, match="Bert has no begin token for bucket 3"):
        begin_token(words, 3)
