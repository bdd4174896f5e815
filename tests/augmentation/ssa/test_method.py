"""From a roster to a written set, and from there to training captions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from torch import Tensor

from augmentation.captions.caption_set import REPEAT, write_captions
from augmentation.ssa import filters
from augmentation.ssa import method as method_module
from augmentation.ssa.amr_models import AbstractGraphWriter
from augmentation.ssa.filters import (
    FOLDS,
    ILL_FORMED,
    NOT_REALISED,
    UNGROUNDED,
    UNSEEN,
    UNUSUAL,
    CrossFittedScores,
    Rules,
)
from augmentation.ssa.graph import Graph
from augmentation.ssa.method import UNREADABLE, Ssa
from augmentation.ssa.penman import read_penman
from augmentation.ssa.word_usage import Frames
from augmentation.ssa.written_captions import Caption
from captioning.config.compose import compose_config
from captioning.data.roster import Roster, build_roster
from captioning.data.steps.added_captions import Mixture, focus, read_added_captions
from captioning.interfaces import AbstractLanguageModel
from captioning.metrics.well_formedness import AbstractWellFormedness, WellFormed
from captioning.text.ngrams import NgramLanguageModel
from captioning.types import Phrase
from captioning.vision.region_features import coverage
from tests.augmentation.ssa.conftest import CAPTIONS, Known, ssa


def test_captions_are_written_and_read_for_training(roster: Roster, tmp_path: Path):
    folder = tmp_path / "out"
    counts = write_captions(ssa(), folder=folder, roster=roster, settings={})
    captions = read_added_captions(folder, roster)
    assert counts["captions"] == len(captions) > 3
    texts = {sample.caption for sample in captions}
    assert texts & {"A boy wears a red hat.", "A boy wearing a red hat."}
    assert not any("beach" in text for text in texts)  # it has no box
    for sample in captions:
        for phrase in sample.phrases:
            assert sample.caption[phrase.start :].startswith(phrase.text)
            assert {sample.regions[n].label for n in phrase.regions} <= set(phrase.text.split())
    first = (folder / "captions.jsonl").read_text()
    write_captions(ssa(), folder=tmp_path / "again", roster=roster, settings={})
    assert (tmp_path / "again" / "captions.jsonl").read_text() == first
    with pytest.raises(ValueError, match="other settings"):
        write_captions(ssa(), folder=folder, roster=roster, settings={"seed": 1})


def test_long_captions_have_several_events(roster: Roster):
    waves = tuple(
        Phrase(start=start, text=word, chain_id=word, regions=(region,))
        for region, (word, start) in enumerate([("boy", 2), ("hat", 18)])
    )
    samples = [
        replace(sample, caption="A boy waves a red hat.", phrases=waves)
        if sample.sample_id.endswith("#1")
        else sample
        for sample in roster.samples
    ]
    roster = build_roster("toy/train", samples)
    plain = [caption.text for photo in ssa().captions(roster) for caption in photo.captions]
    assert plain
    assert not any(" and " in text for text in plain)
    with_long = list(ssa(max_long=1, min_long_words=9).captions(roster))
    texts = [
        caption.text for photo in with_long for caption in photo.captions if " and " in caption.text
    ]
    assert texts
    for photo in with_long:
        assert sum(len(caption.text.split()) >= 9 for caption in photo.captions) <= 1
    for text in texts:
        assert {"horse", "hat"} <= set(text.strip(".").replace(",", "").split())


def test_where_long_captions_are_wanted_all_details_are_said(roster: Roster):
    def dressed(**settings) -> bool:
        photos = ssa(detail_probability=0.0, **settings).captions(roster)
        return any(
            "red hat" in caption.text and "horse" in caption.text
            for photo in photos
            for caption in photo.captions
        )

    assert not dressed()
    assert dressed(max_long=1, min_long_words=7)


def test_graphs_and_sentences_of_other_models(roster: Roster):
    models = Known()
    photos = list(ssa(graph_parser=models, graph_writer=models).captions(roster))
    texts = [[caption.text for caption in photo.captions] for photo in photos]
    assert texts == [["A boy rides a horse."]] * 3
    for photo in photos:
        phrases = {(p.text, p.regions) for caption in photo.captions for p in caption.phrases}
        assert phrases == {("A boy", (0,)), ("a horse", (2,))}
        assert photo.refused[NOT_REALISED] > 0
    assert [photo.refused[UNREADABLE] for photo in photos] == [1, 0, 0]
    by_rule = list(ssa(graph_parser=models).captions(roster))
    assert "A boy wearing a red hat." in {
        caption.text for photo in by_rule for caption in photo.captions
    }


def test_written_sentences_may_stay_in_lower_case(roster: Roster):
    models = Known()
    models.lower_case = True
    for photo in ssa(graph_parser=models, graph_writer=models).captions(roster):
        (caption,) = photo.captions
        assert caption.text == "a boy rides a horse"
        assert {p.text for p in caption.phrases} == {"a boy", "a horse"}


class Writer(AbstractGraphWriter):
    """Says the same of every graph."""

    def __init__(self, text: str) -> None:
        self.text = text

    def sentences(self, graphs: Sequence[Graph]) -> list[str]:
        return [self.text] * len(graphs)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A boy rides a horse with a cat.", UNSEEN),
        ("A boy rides a horse on a beach.", UNGROUNDED),  # a caption has it, and it has no box
        ("A kid rides a horse.", ""),  # .51 like "boy"
    ],
)
def test_nouns_of_a_written_sentence_are_those_of_the_captions(
    roster: Roster, text: str, reason: str
):
    photos = list(ssa(graph_writer=Writer(text)).captions(roster))
    texts = {caption.text for photo in photos for caption in photo.captions}
    assert texts == (set() if reason else {text})
    assert all(photo.refused[reason] > 0 for photo in photos if reason)


def test_a_noun_of_its_own_limit_has_to_be_more_alike():
    rules = Rules()
    graph = read_penman("(s / sofa)")
    caption = Caption("There is a couch.", (), nouns=("couch",))
    about = {"known_nouns": {"sofa"}, "similarity": lambda first, second: 0.7}
    assert rules.problem(graph, caption, Frames([]), **about) == UNSEEN
    caption = replace(caption, nouns=("divan",))
    assert rules.problem(graph, caption, Frames([]), **about) == UNGROUNDED


def test_published_rules_accept_unusual_arguments():
    graph = read_penman("(h / hold-01 :ARG0 (b / boy))")
    boy = graph.nodes["b"]
    boy = replace(boy, names=(replace(boy.names[0], noun=True),), regions=frozenset((0,)))
    graph = Graph({**graph.nodes, "b": boy}, graph.edges, graph.root)
    caption = Caption("A boy is holding.", (), nouns=("boy",))
    about = {"known_nouns": {"boy"}, "similarity": lambda first, second: float(first == second)}
    assert Rules().problem(graph, caption, Frames([]), **about) == UNUSUAL
    config = compose_config("augmentation", ["method=ssa_published"]).method.rules
    usual_only = config.usual_only
    assert not Rules(usual_only=usual_only).problem(graph, caption, Frames([]), **about)


class Counted(AbstractLanguageModel):
    """Trigrams that count the texts they are asked for."""

    name = "counted"

    def __init__(self, texts: Sequence[str]) -> None:
        self._model, self.num_texts = NgramLanguageModel(texts), 0

    def log_probs(self, texts: Sequence[str]) -> list[Tensor]:
        self.num_texts += len(texts)
        return self._model.log_probs(texts)


def test_a_given_language_model_judges_all_photos_by_one_scale(roster: Roster, monkeypatch):
    monkeypatch.setattr(filters, "MAX_CALIBRATED", 4)
    model = Counted(CAPTIONS)
    scores = CrossFittedScores(roster, language_model=model)
    assert model.num_texts == 2 * 4  # captions, and the same broken
    photos = {scores.fold(image_id): image_id for image_id in map(str, range(9))}
    assert len(photos) == FOLDS
    first, second = scores.score([*photos.values()], ["A boy rides a hat."] * 2)
    assert first == second
    trigrams = CrossFittedScores(roster)
    ids, texts = ["0", "1", "2", "0"], ["A boy.", "A boy rides.", "A hat rides a boy.", "Boy a."]
    one_by_one = [trigrams.score([i], [text])[0] for i, text in zip(ids, texts, strict=True)]
    assert trigrams.score(ids, texts) == one_by_one


class Short(AbstractWellFormedness):
    """.9 for captions of four words at most, .5 for others."""

    def settings(self) -> dict[str, object]:
        return {}

    def score(self, captions: Sequence[str]) -> list[WellFormed]:
        totals = [0.9 if len(caption.split()) <= 4 else 0.5 for caption in captions]
        return [WellFormed(grammar=total, redundancy=0, focus=0, total=total) for total in totals]


def test_a_score_such_as_gruen_judges_in_place_of_our_own(roster: Roster) -> None:
    method = ssa(gruen=Short())
    method.rules = Rules(min_well_formedness=0.7)
    photos = list(method.captions(roster))
    captions = [caption for photo in photos for caption in photo.captions]
    assert captions
    assert {caption.score for caption in captions} == {0.9}
    assert max(len(caption.text.split()) for caption in captions) <= 4
    assert sum(photo.refused[ILL_FORMED] for photo in photos) > 0


class Asked(Known, Short):
    """Writes and judges; counts what it is asked at once."""

    def __init__(self) -> None:
        self.graphs_at_once: list[int] = []
        self.captions_at_once: list[int] = []

    def sentences(self, graphs: Sequence[Graph]) -> list[str]:
        self.graphs_at_once.append(len(graphs))
        return super().sentences(graphs)

    def score(self, captions: Sequence[str]) -> list[WellFormed]:
        self.captions_at_once.append(len(captions))
        return super().score(captions)


def test_networks_are_asked_for_many_photos_at_once(
    roster: Roster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, asked = {}, {}
    for size in (1, 2, 64):
        monkeypatch.setattr(method_module, "PHOTOS_AT_ONCE", size)
        models = Asked()
        method = ssa(graph_writer=models, gruen=models)
        assert method.photos_at_once == size
        made[size], asked[size] = list(method.captions(roster)), models
        for skip in (1, 2, 3):  # a run that goes on has the same
            assert list(method.captions(roster, skip=skip)) == made[size][skip:]
    assert any(photo.captions for photo in made[1])
    assert made[1] == made[2] == made[64]
    together = asked[64]
    assert together.graphs_at_once[0] == sum(asked[1].graphs_at_once[:3])
    assert together.captions_at_once[0] == sum(asked[1].captions_at_once[:3])
    assert (len(together.graphs_at_once), len(asked[1].graphs_at_once)) == (4, 3 + 2 + 1)
    assert ssa().photos_at_once == 1  # rules
    assert not ssa().uses_gpu
    assert ssa(gruen=models).uses_gpu


def test_other_boxes_are_refused(roster: Roster, tmp_path: Path):
    write_captions(ssa(), folder=tmp_path / "out", roster=roster, settings={})
    moved = tuple(replace(r, box=(0, 0, 90, 90)) for r in roster.samples[0].regions)
    other = build_roster("x", [replace(s, regions=moved) for s in roster.samples])
    with pytest.raises(ValueError, match="make the captions again"):
        read_added_captions(tmp_path / "out", other)
    path = tmp_path / "out" / "captions.jsonl"
    first, *rest = path.read_text().splitlines()
    assert json.loads(first)["image_id"] == "0"
    for region in ("dog", 9, -1):
        content = json.loads(first)
        content["phrases"][0]["regions"] = [region]
        path.write_text("\n".join([json.dumps(content), *rest, ""]))
        with pytest.raises(ValueError, match=r"jsonl:1: phrases\[0\]: 'regions' must be regions"):
            read_added_captions(tmp_path / "out", roster)


def test_captions_without_boxes_are_refused(roster: Roster):
    bare = build_roster("bare", [replace(s, phrases=()) for s in roster.samples])
    with pytest.raises(ValueError, match="no caption phrase has a box"):
        list(ssa().captions(bare))


@pytest.mark.parametrize(
    "setting",
    [
        {"max_small": 0},
        {"detail_probability": 2.0},
        {"min_captions": -1},
        {"max_long": -1},
        {"max_long_words": 9},
    ],
)
def test_settings_out_of_range_are_refused(setting: dict[str, object]):
    with pytest.raises(ValueError, match=r"method\.max_"):
        ssa(**setting)


def test_long_captions_of_a_writer_are_refused():
    with pytest.raises(ValueError, match=r"max_long=2 joins .* set method\.max_long=0 or method"):
        ssa(max_long=2, graph_writer=Writer("A boy rides a horse."))


def test_the_published_preset_samples_a_photo_once_as_the_paper_does():
    published = compose_config("augmentation", ["method=ssa_published"]).method
    assert (published.rounds, published.sampling) == (1, "leaves")
    assert not published.rules.grounded  # "two men who are spending time together", Figure 21
    assert list(published.rules.banned) == []  # "one woman is sitting on a bench", Figure 24
    assert compose_config("augmentation", ["method=ssa"]).method.rounds == 3


def test_nouns_without_a_box_are_accepted_where_boxes_are_not_asked_for(roster: Roster):
    method = ssa(max_small=1000, min_captions=1000)
    strict = [new.text for photo in method.captions(roster) for new in photo.captions]
    method.rules = replace(method.rules, grounded=False)
    free = [new for photo in method.captions(roster) for new in photo.captions]
    assert not any("beach" in text for text in strict)
    assert any("beach" in new.text for new in free)
    assert all(any(phrase.regions for phrase in new.phrases) for new in free)


def test_sentences_of_earlier_photos_are_left_out_if_asked_for(roster: Roster, tmp_path: Path):
    every = write_captions(ssa(), folder=tmp_path / "every", roster=roster, settings={})
    once = ssa(keeps_repeats=False)
    new = write_captions(once, folder=tmp_path / "new", roster=roster, settings={})
    texts = [sample.caption for sample in read_added_captions(tmp_path / "new", roster)]
    assert len(set(texts)) == len(texts) == new["captions"] < every["captions"]
    assert new["left out"][REPEAT] == every["captions"] - new["captions"]


def test_captions_are_sampled_to_the_leaves(roster: Roster):
    method = ssa(sampling="leaves", max_small=1000, min_captions=1000, rounds=5)
    method.rules = replace(method.rules, grounded=False, usual_only=False)
    texts = {new.text for photo in method.captions(roster) for new in photo.captions}
    assert {"A boy rides a horse.", "A boy is riding a horse on a beach."} <= texts
    assert not any("red" in text or "brown" in text for text in texts), "no edge leads to colours"
    with pytest.raises(ValueError, match="method.sampling must be one of"):
        ssa(sampling="roots")


def test_the_report_counts_reasons(roster: Roster):
    refused = [photo.refused for photo in ssa().captions(roster)]
    assert all(counts[UNGROUNDED] > 0 for counts in refused)


def test_a_killed_set_goes_on_to_the_same_bytes(roster: Roster, tmp_path: Path):
    class Dying(Ssa):
        def captions(self, roster: Roster, *, skip: int = 0):
            yield from islice(super().captions(roster, skip=skip), 2)
            raise ConnectionError("gone")

    uninterrupted = write_captions(ssa(), folder=tmp_path / "whole", roster=roster, settings={})
    folder = tmp_path / "killed"
    with pytest.raises(ConnectionError, match="gone"):
        write_captions(ssa(Dying), folder=folder, roster=roster, settings={})
    part = folder / "captions.part.jsonl"
    assert part.read_bytes().count(b"\n") == 2
    part.write_bytes(part.read_bytes()[:-5])  # killed in the midst of a line
    assert write_captions(ssa(), folder=folder, roster=roster, settings={}) == uninterrupted
    for name in ("captions.jsonl", "statistics.json"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not part.exists()
    assert uninterrupted["left out"][UNGROUNDED] > 0


def test_coverage_counts_overlaps_once():
    assert coverage([(0, 0, 50, 100), (25, 0, 75, 100)], 100, 100) == pytest.approx(0.75)
    assert coverage([(0, 0, 10, 10), (20, 20, 30, 30)], 100, 100) == pytest.approx(0.02)
    assert coverage([], 100, 100) == 0


def test_mixtures(roster: Roster):
    samples, generated = (
        list(roster.samples),
        [replace(s, caption=f"{s.caption}!") for s in roster.samples],
    )
    assert Mixture()(samples, generated) == generated
    assert Mixture(share=0)(samples, generated) == []
    half = Mixture(share=0.5, seed=1)(samples, generated)
    assert len(half) == 3
    assert Mixture(share=0.5, seed=1)(samples, generated) == half
    # people's captions are all in one bin, so one of another bin is taken and none of theirs
    hat = replace(generated[0], phrases=generated[0].phrases[1:2])
    assert focus(hat) < 0.1 < focus(samples[0])
    assert Mixture(bins=10)([samples[0]], [generated[0], hat]) == [hat]
    with pytest.raises(ValueError, match=r"mixture\.share"):
        Mixture(share=2)
