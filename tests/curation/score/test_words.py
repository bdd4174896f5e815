"""The score of words on a small world in which colours follow things, photos or other captions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from captioning.data.roster import CurationView, build_roster
from captioning.text.expected_words import PhotoFeatures
from captioning.text.judged_words import log_odds
from captioning.types import Edit, Sample
from curation.base import Context
from curation.score.words import Words, calibrate, squeezed

COLORS = ("red", "blue", "green")
TRAINING = {"num_epochs": 16, "batch_size": 4, "lr": 0.03}
NETWORK = {"width": 8, "dropout": 0.0, "num_heads": 2}


def context_of(captions: list[tuple[int, str]]) -> Context:
    """Captions with the numbers of their photos."""
    samples = [
        Sample(
            row=row,
            sample_id=f"{photo}#{row}",
            image_id=str(photo),
            image_path=Path(f"{photo}.jpg"),
            caption=caption,
        )
        for row, (photo, caption) in enumerate(captions)
    ]
    return Context.before_training(CurationView(roster=build_roster("world", samples)))


def score_of(**settings) -> Words:
    return Words(num_folds=2, network=NETWORK, training=TRAINING, **settings)


def by_text() -> list[tuple[int, str]]:
    """One caption a photo; things have one colour each, but for the last caption's."""
    things = dict(zip(COLORS, ("tomato", "sky", "leaf"), strict=True))
    captions = [(n, f"a {COLORS[n % 3]} {things[COLORS[n % 3]]}") for n in range(30)]
    return [*captions, (30, "a blue tomato"), (31, "something else")]


def by_siblings() -> list[tuple[int, str]]:
    """Four captions a photo agree on a colour, but for the last one."""
    drawn = np.random.default_rng(0).integers(3, size=30)
    captions = [(n, f"a {COLORS[drawn[n]]} thing") for n in range(30) for k in range(4)]
    wrong = COLORS[(drawn[29] + 1) % 3]
    return [*captions[:-1], (29, f"a {wrong} thing")]


def test_a_word_that_language_contradicts_is_found_and_mended():
    context, score = context_of(by_text()), score_of()
    scores = score.scores(context)
    assert int(scores.nan_to_num(-torch.inf).argmax()) == 30
    assert scores[:30].max() < scores[30]
    assert torch.isnan(scores[31])  # no word of a row
    doubt = max(score.doubts(context), key=lambda doubt: doubt.log_odds)
    assert (doubt.row, doubt.start, doubt.word, doubt.alternative) == (30, 2, "blue", "red")
    assert doubt.log_odds > 0
    assert doubt.probability == pytest.approx(float(scores[30]))
    by_odds = score_of(value="log_odds").scores(context)
    assert doubt.log_odds == pytest.approx(float(by_odds[30]))


def test_siblings_tell_what_language_does_not():
    context = context_of(by_siblings())
    right = context.live[117].caption.split()[1]
    last = max(score_of().doubts(context), key=lambda doubt: doubt.log_odds)
    assert (last.row, last.alternative) == (119, right)
    blind = score_of(siblings=False).scores(context)
    assert (blind >= blind[119]).sum() > 10


@pytest.mark.long
@pytest.mark.parametrize("told", ["cells", "means"])
def test_photos_tell_what_language_does_not(told):
    """By the photo's cells alone, which attention reads, or by its mean alone."""
    drawn = np.random.default_rng(0).integers(3, size=60)
    captions = [(n, f"a {COLORS[drawn[n]]} thing") for n in range(60)]
    captions[-1] = (59, f"a {COLORS[(drawn[59] + 1) % 3]} thing")

    def features(paths):
        colors = [int(drawn[int(path.stem)]) for path in paths]
        telling, silent = 3 * torch.eye(3)[colors], torch.ones(len(paths), 3)
        cells = telling if told == "cells" else silent
        means = telling if told == "means" else silent
        return PhotoFeatures(cells=cells[:, None].expand(-1, 4, -1), means=means)

    score, context = score_of(photos=features), context_of(captions)
    last = max(score.doubts(context), key=lambda doubt: doubt.log_odds)
    assert (last.row, last.alternative) == (59, COLORS[drawn[59]])
    right = f"a {COLORS[drawn[59]]} thing"
    mended = Edit(sample_id="59#59", action="replace_caption", value=right)
    gone = [Edit(sample_id=f"{n}#{n}", action="remove") for n in range(30)]
    after = score.doubts(replace(context, view=context.view.apply([mended, *gone])))
    assert [doubt.row for doubt in after] == list(range(30, 60))  # photos are numbered anew
    assert max(doubt.log_odds for doubt in after) < 0


@pytest.mark.long
def test_the_same_seed_gives_the_same_records_and_edited_captions_are_judged_anew():
    context, score = context_of(by_text()), score_of(seed=3)
    before = score.doubts(context)
    assert score_of(seed=3).doubts(context) == before
    assert score_of(seed=4).doubts(context) != before
    edit = Edit(sample_id="30#30", action="replace_caption", value="a red tomato")
    gone = Edit(sample_id="0#0", action="remove")
    after = score.scores(replace(context, view=context.view.apply([edit, gone])))
    assert after[30] < score.scores(context)[30]
    assert torch.isnan(after[0])


@pytest.mark.long
def test_words_outside_the_rows_are_judged_with_an_open_vocabulary():
    """Things of one place each; the last caption's is of another."""
    places = {"hill": "grassy", "pier": "wooden", "cave": "rocky"}
    captions = [(n, f"a {places[p]} {p}") for n in range(60) for p in [list(places)[n % 3]]]
    captions.append((60, "a wooden cave"))
    context = context_of(captions)
    assert score_of().doubts(context) == []
    score = score_of(vocabulary="open", siblings=False)
    doubts = score.doubts(context)
    assert {doubt.word for doubt in doubts} == {*places, *places.values()}
    assert max(doubts, key=lambda doubt: doubt.log_odds).row == 60
    mends = {doubt.word: doubt.alternative for doubt in doubts if doubt.row == 60}
    assert mends == {"wooden": "rocky", "cave": "pier"}  # each as if the other were right
    nouns = score_of(vocabulary="open", siblings=False, topics=["noun"]).doubts(context)
    assert {doubt.word for doubt in nouns} == set(places)


@pytest.mark.long
def test_negations_are_judged_where_they_are_asked_for():
    captions = [
        (n, f"a man {('with', 'without')[n % 2]} a {('hat', 'shirt')[n % 2]}") for n in range(60)
    ]
    context = context_of([*captions, (60, "a man with a shirt")])
    assert all(d.word not in ("with", "without", "a") for d in score_of().doubts(context))
    doubts = score_of(topics=["negation"]).doubts(context)
    last = max(doubts, key=lambda doubt: doubt.log_odds)
    assert (last.row, last.word, last.alternative) == (60, "with", "without")


def test_topics_are_chosen_and_settings_checked():
    context = context_of([*by_text(), (32, "two tomato")])
    doubts = score_of(topics=["number"]).doubts(context)
    assert [(doubt.row, doubt.word) for doubt in doubts] == [(32, "two")]
    with pytest.raises(ValueError, match="topics must be in .*'colour'"):
        score_of(topics=["colour"])
    with pytest.raises(ValueError, match="got 'noun' with vocabulary: open"):
        score_of(topics=["noun"])
    with pytest.raises(ValueError, match="vocabulary must be 'rows' or 'open': got 'all'"):
        score_of(vocabulary="all")
    with pytest.raises(ValueError, match="value must be one of .*: got 'odds'"):
        score_of(value="odds")
    with pytest.raises(ValueError, match="num_folds must be at least 2: got 1"):
        Words(num_folds=1)
    with pytest.raises(ValueError, match="1 images cannot be dealt into 2 folds"):
        score_of().scores(context_of([(0, "a red thing")]))


def test_log_odds_are_of_the_likeliest_other_word():
    log_probs = np.log([[0.2, 0.7, 0.1], [0.6, 0.4, 1e-300]])
    odds, best = log_odds(log_probs, np.array([0, 0]))
    assert odds == pytest.approx(np.log([0.7 / 0.2, 0.4 / 0.6]))
    assert best.tolist() == [1, 1]


def test_probabilities_are_the_shares_of_wrong_words():
    rng = np.random.default_rng(0)
    wrong = rng.random(20000) < 0.1
    written = np.where(wrong, rng.normal(3, 1, 20000), rng.normal(-3, 1, 20000))
    curve = calibrate(written, rng.normal(3, 1, 20000), np.ones(20000))
    assert curve.wrong == pytest.approx(0.1, abs=0.02)
    probabilities = curve(written)
    assert probabilities[wrong].mean() > 0.9
    assert probabilities[~wrong].mean() < 0.01
    near = (written > -0.5) & (written < 1)
    assert probabilities[near].mean() == pytest.approx(wrong[near].mean(), abs=0.15)
    assert (np.diff(curve(np.linspace(-30, 30, 50))) > 0).all()  # no two tie


def test_right_words_alone_are_wrong_with_a_probability_near_0():
    rng = np.random.default_rng(0)
    curve = calibrate(rng.normal(-3, 1, 1000), rng.normal(9, 1, 1000), np.ones(1000))
    assert 0 < curve.wrong < 0.01  # that none is wrong is never certain


@pytest.mark.parametrize(
    ("written", "others", "weight"), [([2.0] * 9, [2.0] * 9, 1.0), ([1.0, 2, 3], [4.0, 5, 6], 0.0)]
)
def test_without_words_to_compare_none_is_wrong(written, others, weight):
    curve = calibrate(np.array(written), np.array(others), np.full(len(others), weight))
    assert curve(np.array([-9.0, 9.0])).tolist() == [0, 0]


def test_estimates_above_1_keep_their_order_below_1():
    values = np.array([0.0, 0.3, 0.8, 0.9, 1.0, 2.0, 100.0, 1e9])
    squeezed_values = squeezed(values)
    assert squeezed_values[:4] == pytest.approx(values[:4])
    assert squeezed_values[4] == pytest.approx(0.95)
    assert (np.diff(squeezed_values) > 0).all()
    assert squeezed_values[-1] < 1


@pytest.mark.long
def test_what_networks_said_of_these_captions_is_kept(tmp_path, monkeypatch):
    context = context_of(by_text())
    doubts = score_of(cache_folder=tmp_path).doubts(context)
    assert doubts == score_of().doubts(context)
    assert len(list(tmp_path.iterdir())) == 1
    with monkeypatch.context() as patch:
        patch.setattr("curation.score.words.CrossFittedWords", None)  # nothing is trained
        assert score_of(cache_folder=tmp_path).doubts(context) == doubts
    gone = context.view.apply([Edit(sample_id="0#0", action="remove")])
    score_of(cache_folder=tmp_path).doubts(replace(context, view=gone))
    for place in range(2):

        def features(paths, place=place):
            means = torch.eye(2)[[place] * len(paths)]
            return PhotoFeatures(cells=torch.ones(len(paths), 1, 2), means=means)

        score_of(cache_folder=tmp_path, photos=features).doubts(context)
    assert len(list(tmp_path.iterdir())) == 4  # other captions, other evidence
