"""Each selector's own arithmetic; what all of them share is in tests/contracts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from captioning.data.roster import CurationView, build_roster
from captioning.types import Edit, Sample
from curation.base import AbstractWordScore, Context, WordDoubt, highest
from curation.loop.ramp import Ramp
from curation.score.length import Length
from curation.score.loss import Loss
from curation.select.above import Above
from curation.select.all import All
from curation.select.by_score import AbstractByScore
from curation.select.mixture import Mixture, TwoNormals, fit_two_normals
from curation.select.random import Random
from curation.select.ranking import worst_rows
from curation.select.sigma import Sigma
from curation.select.top import Top


def context_of(losses: list[float], removed: list[int] = ()) -> Context:
    samples = [
        Sample(
            row=0,
            # ids whose order is not that of the rows
            sample_id=f"id{(row * 7) % 11}-{row}",
            image_id="i",
            image_path=Path("i.jpg"),
            caption="c",
        )
        for row in range(len(losses))
    ]
    roster = build_roster("select", samples)
    edits = [Edit(sample_id=roster.samples[row].sample_id, action="remove") for row in removed]
    view = CurationView(roster=roster).apply(edits)
    values = torch.tensor(losses)
    return Context(view=view, losses=values, history=values[None], epoch=0)


def rows_of(selected) -> list[int]:
    return [candidate.sample.row for candidate in selected]


def test_top_loss_counts_a_fraction_of_what_is_live_now():
    losses = [float(row) for row in range(20)]
    assert rows_of(Top(ratio=0.25).select(context_of(losses))) == [19, 18, 17, 16, 15]
    later = context_of(losses, removed=[19, 18, 17, 16, 15, 14, 13, 12])
    assert rows_of(Top(ratio=0.25).select(later)) == [11, 10, 9]


def test_captions_that_an_epoch_has_not_shown_are_told_once(caplog):
    select = Top(ratio=0.7)
    seen = context_of([1.0, 2.0, 3.0, float("nan")], removed=[3])
    assert rows_of(select.select(seen)) == [2, 1]  # 2 of 3 that are live
    some = context_of([1.0, float("nan"), 3.0, float("nan")])
    assert rows_of(select.select(replace(some, is_over=False))) == [2, 0]
    assert not caplog.messages, "the epoch goes on"
    for _ in range(2):
        assert rows_of(select.select(some)) == [2, 0]
    [message] = caplog.messages
    assert message.startswith("epoch 0 trained on 2 of 4 captions: the other captions have no loss")


@pytest.mark.parametrize(("ratio", "total"), [(0.29, 100), (0.07, 100), (0.1, 30), (1, 7)])
def test_fractions_are_not_cut_by_rounding_error(ratio, total):
    context = context_of([0.5] * total)
    assert len(Top(ratio=ratio).select(context)) == round(ratio * total)


def test_sigma_uses_the_sample_deviation_of_live_and_seen_samples():
    losses = [1.0, 2.0, 3.0, 10.0, float("nan"), 100.0]
    context = context_of(losses, removed=[5])
    seen = np.array(losses[:4])
    reach = (10.0 - seen.mean()) / seen.std(ddof=1)
    assert rows_of(Sigma(num_std=reach - 1e-6).select(context)) == [3]
    assert rows_of(Sigma(num_std=reach + 1e-6).select(context)) == []


def test_sigma_of_one_sample_or_equal_losses_selects_none():
    assert Sigma(num_std=0).select(context_of([5.0, float("nan")])) == []
    assert Sigma(num_std=0).select(context_of([5.0, 5.0, 5.0])) == []


def test_two_known_losses_have_a_spread():
    assert rows_of(Sigma(num_std=0.5).select(context_of([1.0, float("nan"), 4.0]))) == [2]


def test_of_all_the_worst_come_first_and_the_unknown_last():
    selected = All().select(context_of([1.0, float("nan"), 3.0, 9.0], removed=[3]))
    assert rows_of(selected) == [2, 0, 1]
    assert [one.reason for one in selected] == ["loss 3.000", "loss 1.000", "no loss"]


def test_above_takes_what_exceeds_the_threshold():
    context = context_of([1.0, 5.0, float("nan"), 5.5, 9.0], removed=[4])
    assert rows_of(Above(threshold=5).select(context)) == [3]
    with pytest.raises(ValueError, match="threshold must be finite"):
        Above(threshold=float("inf"))


def two_heaps(num_low: int, num_high: int) -> list[float]:
    rng = np.random.default_rng(0)
    low, high = rng.normal(2, 0.5, num_low), rng.normal(8, 0.5, num_high)
    return np.concatenate([low, high]).astype(np.float32).tolist()


def test_a_mixture_finds_the_upper_heap_whatever_its_size():
    for num_high in (30, 150, 300):
        chosen = rows_of(Mixture().select(context_of(two_heaps(400, num_high))))
        assert set(chosen) == set(range(400, 400 + num_high))
    half = rows_of(Mixture(max_ratio=0.1).select(context_of(two_heaps(400, 100))))
    assert len(half) == 50
    assert min(half) >= 400
    # 0.29 * 100 is a little less than 29
    assert len(Mixture(max_ratio=0.29).select(context_of(two_heaps(60, 40)))) == 29
    # the share is of all live samples, whether they have a score or not
    unseen = [float("nan")] * 100
    assert len(Mixture(max_ratio=0.1).select(context_of([*two_heaps(60, 40), *unseen]))) == 20


def test_a_mixture_leaves_a_single_heap_alone():
    assert Mixture().select(context_of(two_heaps(400, 0))) == []
    assert Mixture().select(context_of([1.0] * 30 + [2.0] * 5)) == []  # too few different values


def test_two_normals_are_found_again():
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.normal(-1, 1, 20_000), rng.normal(3, 0.5, 5_000)])
    fitted = fit_two_normals(values)
    assert fitted.means == pytest.approx([-1, 3], abs=0.03)
    assert fitted.stds == pytest.approx([1, 0.5], abs=0.03)
    assert fitted.weights == pytest.approx([0.8, 0.2], abs=0.01)
    # far below both means the wider, lower one owns the value; a wide upper one never does
    wide = TwoNormals(
        weights=np.array([0.5, 0.5]), means=np.array([0.0, 1]), stds=np.array([1.0, 9])
    )
    assert wide.upper(np.array([-30.0, 30.0])).tolist() == [0.0, 1.0]


def test_a_ratio_may_ramp_over_the_epochs():
    ramp = Ramp(first=0.1, last=0.5, from_epoch=1, until_epoch=3)
    assert [ramp.at(epoch) for epoch in range(6)] == pytest.approx([0.1, 0.1, 0.3, 0.5, 0.5, 0.5])
    context = context_of([float(row) for row in range(20)])
    for epoch, expected in ((0, 2), (2, 6), (9, 10)):
        later = replace(context, epoch=epoch)
        assert rows_of(Top(ratio=ramp).select(later)) == list(range(19, 19 - expected, -1))
        assert len(Random(ratio=ramp).select(later)) == expected
    with pytest.raises(ValueError, match="must end after it begins"):
        Ramp(first=0, last=1, from_epoch=2, until_epoch=2)


def test_random_takes_unseen_samples_too():
    context = context_of([float("nan")] * 40)
    assert len(Random(ratio=0.5).select(context)) == 20


@given(
    st.lists(st.one_of(st.integers(0, 4), st.none()), min_size=2, max_size=30),
    st.integers(0, 30),
    st.sets(st.integers(0, 29)),
)
def test_worst_rows_equal_a_plain_sort(values, count, removed):
    scores = np.array([np.nan if value is None else float(value) for value in values])
    gone = sorted(row for row in removed if row < len(values))[: len(values) - 1]
    context = context_of([0.0] * len(values), removed=gone)
    ids = [sample.sample_id for sample in context.view.roster.samples]
    known = [row for row in context.live if not np.isnan(scores[row])]
    expected = sorted(known, key=lambda row: (-scores[row], ids[row]))[:count]
    assert worst_rows(context, scores, count) == expected


@pytest.mark.parametrize("select", [Top(ratio=0.5), Above(threshold=1), Sigma(), Mixture(), All()])
def test_before_training_what_no_sample_has_a_score_of_is_refused(select: AbstractByScore):
    seen = context_of([1.0, 2.0, 3.0])
    nothing = Context.before_training(seen.view)
    refusal = r"no sample has a score \(loss\) before training \(curation.schedule.from_epoch=-1\)"
    with pytest.raises(ValueError, match=refusal):
        select.select(nothing)
    select.score = Length()  # needs no losses
    select.select(nothing)
    select.score = Loss()
    # an epoch that showed nothing is told by a warning
    select.select(replace(nothing, epoch=0))


def test_before_training_no_word_need_be_in_doubt():
    class Sure(AbstractWordScore):
        name = "doubt"

        def scores(self, context: Context) -> torch.Tensor:
            return highest(self.doubts(context), len(context.view.roster))

        def doubts(self, context: Context) -> list[WordDoubt]:
            return []

    nothing = Context.before_training(context_of([1.0, 2.0]).view)
    assert Top(ratio=1.0, score=Sure()).select(nothing) == []
