"""Draws against the formulas, written out for a small corpus."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import pytest

from augmentation.toca import template_sampling as sampling
from augmentation.toca.corpus_statistics import CorpusStatistics, count_corpus
from augmentation.toca.template_sampling import TemplateSampler, with_some_words
from augmentation.toca.templates import SLOTS, Deconstructed, deconstruct

NUM = 20_000


def small() -> CorpusStatistics:
    """Three nouns a caption, in few combinations; one of them is common by itself."""
    corpus = [
        "a b c",
        "a b c",
        "a b d",
        "a c d",
        "b c d",
        "b a c",
        "a d c",
        "d d d",
        "a b c",
        "e d",
    ]
    return count_corpus(map(nouns, (*corpus, *["d"] * 20)))


def nouns(text: str) -> Deconstructed:
    """A caption of nouns alone."""
    words = text.split()
    return Deconstructed(
        structure=" ".join(["[N]"] * len(words) + ["."]),
        words=tuple((word, "N") for word in words),
    )


def expected(statistics: CorpusStatistics, tau: float | None) -> dict[tuple[str, ...], float]:
    """Chances of all words drawn for the structure of three nouns, by Eq. 8, 9 and 12."""
    uses = dict(zip(statistics.words, statistics.word_counts.tolist(), strict=True))
    pairs, chances = statistics.pairs(), Counter()

    def fill(before: tuple[str, ...], slots: int, chance: float) -> None:
        if slots == 0:
            chances[before] += chance
            return
        shares = {}
        for word, count in uses.items():
            share = float(count) if not before else 1.0
            for earlier in before:
                share *= pairs[earlier, word]
            if len(before) > 1 and tau is not None:
                share /= count ** ((len(before) - 1) / tau)
            shares[word] = share
        if len(before) > 1:
            shares |= dict.fromkeys(before, 0.0)
        total = sum(shares.values())
        if total == 0:
            fill(before, slots - 1, chance)
            return
        for word, share in shares.items():
            if share:
                new = before if word in before else (*before, word)
                fill(new, slots - 1, chance * share / total)

    fill((), 3, 1.0)
    return chances


@pytest.mark.parametrize("tau", [None, 1.0, 0.5])
@pytest.mark.parametrize("min_dense", [0, 10**6], ids=["dense", "sparse"])
def test_words_are_drawn_by_equation_12(tau, min_dense, monkeypatch) -> None:
    monkeypatch.setattr(sampling, "MIN_DENSE", min_dense)
    statistics = small()
    sampler, draws = TemplateSampler(statistics, tau=tau), np.random.default_rng(0)
    drawn = [sampler.draw(draws) for _ in range(NUM)]
    drawn = [template for template in drawn if template.structure == "[N] [N] [N] ."]
    counts, chances = Counter(template.words for template in drawn), expected(statistics, tau)
    assert set(counts) <= set(chances)
    for words, chance in chances.items():
        deviation = (chance * (1 - chance) / len(drawn)) ** 0.5
        assert abs(counts[words] / len(drawn) - chance) < 5 * deviation + 1e-9, words
    shares = Counter(template.structure for template in drawn)
    assert len(shares) == 1


@pytest.mark.parametrize("tau", [0.01, 1e-4])
def test_a_small_tau_prefers_rare_words_and_drops_no_slot(tau: float) -> None:
    """Thousands to the power of 1 / tau fit no float."""
    statistics = count_corpus([nouns("a b c"), nouns("a b d"), nouns("c")] * 2000)
    sampler, draws = TemplateSampler(statistics, tau=tau), np.random.default_rng(0)
    drawn = [sampler.draw(draws) for _ in range(500)]
    words = {template.words for template in drawn if template.structure == "[N] [N] [N] ."}
    # after a and b come c and d equally often, but d is rarer
    assert ("a", "b", "d") in words
    assert ("a", "b", "c") not in words
    assert ("a", "b") not in words


def test_no_text_is_drawn_into_two_slots() -> None:
    words = (("park", "N"), ("park", "VB"))
    statistics = count_corpus([Deconstructed(structure="[N] [VB] .", words=words)])
    sampler, draws = TemplateSampler(statistics), np.random.default_rng(0)
    assert sampler.draw(draws).words == ("park",)
    assert sampler.draw(draws, complete=True) is None


def test_structures_are_drawn_by_their_counts() -> None:
    sampler, draws = TemplateSampler(small()), np.random.default_rng(0)
    counts = Counter(sampler.draw(draws).structure for _ in range(NUM))
    assert counts["[N] ."] / NUM == pytest.approx(2 / 3, abs=0.02)
    assert counts["[N] [N] ."] / NUM == pytest.approx(1 / 30, abs=0.005)


def test_without_relations_words_have_nothing_to_do_with_each_other() -> None:
    sampler = TemplateSampler(small(), use_relations=False)
    draws = np.random.default_rng(0)
    counts = Counter(sampler.draw(draws).words for _ in range(NUM))
    assert any(words[:2] == ("e", "a") for words in counts)  # e is never followed by a
    with_relations = TemplateSampler(small())
    assert not any(with_relations.draw(draws).words[:2] == ("e", "a") for _ in range(2000))


def test_without_structures_no_function_word_is_given(gold) -> None:
    statistics = count_corpus(deconstruct(tags) for _, tags in gold)
    plain = TemplateSampler(statistics, use_structures=False)
    draws = np.random.default_rng(0)
    for _ in range(200):
        template = plain.draw(draws)
        assert template.text == " ".join(f"[ ] {token}" for token in (*template.words, "."))
        assert len(template.words) <= template.structure.count("[")


@pytest.mark.long
def test_56_captions_give_a_thousand_templates(gold) -> None:
    statistics = count_corpus(deconstruct(tags) for _, tags in gold[:56])
    sampler = TemplateSampler(statistics)
    templates = list(islice(sampler.templates(np.random.default_rng(0)), 1000))
    assert len({template.text for template in templates}) == 1000
    again = list(islice(sampler.templates(np.random.default_rng(0)), 100))
    assert templates[:100] == again
    words_with_slots = zip(statistics.words, statistics.slots.tolist(), strict=True)
    slots = {(word, f"[{SLOTS[slot]}]") for word, slot in words_with_slots}
    for template in templates:
        parts = [part for part in template.structure.split() if part[0] == "["]
        assert (template.words[0], parts[0]) in slots
        assert len(set(template.words)) == len(template.words) <= len(parts)


@pytest.mark.long
def test_whole_templates_come_first(gold, monkeypatch) -> None:
    monkeypatch.setattr(sampling, "MAX_REPEATS", 2000)
    statistics = count_corpus(deconstruct(tags) for _, tags in gold[:56])

    def completeness(**settings) -> list[bool]:
        drawn = TemplateSampler(statistics, **settings).templates(np.random.default_rng(0))
        return [len(t.words) == t.structure.count("[") for t in islice(drawn, 1000)]

    first = completeness()
    number = first.index(False)
    assert 200 < number < 1000
    assert sum(first[number:]) < 50  # the few that were not found before
    assert False in completeness(complete_first=False)[:50]


@pytest.mark.long
def test_of_a_template_some_words_are_given(gold) -> None:
    statistics = count_corpus(deconstruct(tags) for _, tags in gold)
    full, partial = (
        [*islice(TemplateSampler(statistics, max_given_words=max_given).templates(draws), 300)]
        for max_given, draws in ((None, np.random.default_rng(1)), (2, np.random.default_rng(1)))
    )
    assert Counter(len(template.words) for template in partial).keys() == {1, 2}
    for template in full:
        few = with_some_words(template, 3, np.random.default_rng(2))
        places = [template.words.index(word) for word in few.words]
        assert places == sorted(places)
        assert few.structure == template.structure
    for template in partial:
        assert [word for word, slot in template.tokens if slot] == [*template.words]
        assert template.text == " ".join(f"[ ] {word}" for word in (*template.words, "."))
    with pytest.raises(
        ValueError, match="max_given_words must be at least 1, or null for no limit: got 0"
    ):
        TemplateSampler(statistics, max_given_words=0)


def test_an_exhausted_corpus_ends(monkeypatch) -> None:
    monkeypatch.setattr(sampling, "MAX_REPEATS", 200)
    statistics = count_corpus([Deconstructed(structure="[N] .", words=(("dog", "N"),))])
    templates = list(TemplateSampler(statistics).templates(np.random.default_rng(0)))
    assert [template.text for template in templates] == ["[ ] dog [ ] ."]


def test_tau_is_checked() -> None:
    with pytest.raises(ValueError, match="tau must be above 0, or null for an infinite tau: got 0"):
        TemplateSampler(small(), tau=0)
