"""Draws against the formulas, written out for a small corpus."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import pytest

from augmentation.captions.toca import sampling
from augmentation.captions.toca.corpus_statistics import CorpusStatistics, count_corpus
from augmentation.captions.toca.sampling import TemplateSampler, with_some_words
from augmentation.captions.toca.templates import SLOTS, Deconstructed, deconstruct

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
    pairs, found = statistics.pairs(), Counter()

    def fill(before: tuple[str, ...], slots: int, chance: float) -> None:
        if slots == 0:
            found[before] += chance
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
    return found


@pytest.mark.parametrize("tau", [None, 1.0, 0.5])
@pytest.mark.parametrize("least_dense", [0, 10**6], ids=["dense", "sparse"])
def test_words_are_drawn_by_equation_12(tau, least_dense, monkeypatch) -> None:
    monkeypatch.setattr(sampling, "LEAST_DENSE", least_dense)
    statistics = small()
    sampler, draws = TemplateSampler(statistics, tau=tau), np.random.default_rng(0)
    drawn = [sampler.draw(draws) for _ in range(NUM)]
    drawn = [one for one in drawn if one.structure == "[N] [N] [N] ."]
    found, wanted = Counter(one.words for one in drawn), expected(statistics, tau)
    assert set(found) <= set(wanted)
    for words, chance in wanted.items():
        deviation = (chance * (1 - chance) / len(drawn)) ** 0.5
        assert abs(found[words] / len(drawn) - chance) < 5 * deviation + 1e-9, words
    shares = Counter(one.structure for one in drawn)
    assert len(shares) == 1


@pytest.mark.parametrize("tau", [0.01, 1e-4])
def test_a_small_tau_prefers_rare_words_and_drops_no_slot(tau: float) -> None:
    """Thousands to the power of 1 / tau fit no float."""
    statistics = count_corpus([nouns("a b c"), nouns("a b d"), nouns("c")] * 2000)
    sampler, draws = TemplateSampler(statistics, tau=tau), np.random.default_rng(0)
    drawn = [sampler.draw(draws) for _ in range(500)]
    found = {one.words for one in drawn if one.structure == "[N] [N] [N] ."}
    # after a and b come c and d equally often, but d is rarer
    assert ("a", "b", "d") in found
    assert ("a", "b", "c") not in found
    assert ("a", "b") not in found


def test_structures_are_drawn_by_their_counts() -> None:
    sampler, draws = TemplateSampler(small()), np.random.default_rng(0)
    found = Counter(sampler.draw(draws).structure for _ in range(NUM))
    assert found["[N] ."] / NUM == pytest.approx(2 / 3, abs=0.02)
    assert found["[N] [N] ."] / NUM == pytest.approx(1 / 30, abs=0.005)


def test_without_relations_words_have_nothing_to_do_with_each_other() -> None:
    sampler = TemplateSampler(small(), use_relations=False)
    draws = np.random.default_rng(0)
    found = Counter(sampler.draw(draws).words for _ in range(NUM))
    assert any(words[:2] == ("e", "a") for words in found)  # e is never followed by a
    with_relations = TemplateSampler(small())
    assert not any(with_relations.draw(draws).words[:2] == ("e", "a") for _ in range(2000))


def test_without_structures_no_function_word_is_given(gold) -> None:
    statistics = count_corpus(deconstruct(tags) for _, tags in gold)
    plain = TemplateSampler(statistics, use_structures=False)
    draws = np.random.default_rng(0)
    for _ in range(200):
        one = plain.draw(draws)
        assert one.text == " ".join(f"[ ] {token}" for token in (*one.words, "."))
        assert len(one.words) <= one.structure.count("[")


def test_56_captions_give_a_thousand_templates(gold) -> None:
    statistics = count_corpus(deconstruct(tags) for _, tags in gold[:56])
    sampler = TemplateSampler(statistics)
    found = list(islice(sampler.templates(np.random.default_rng(0)), 1000))
    assert len({one.text for one in found}) == 1000
    again = list(islice(sampler.templates(np.random.default_rng(0)), 1000))
    assert found == again
    named = zip(statistics.words, statistics.slots.tolist(), strict=True)
    slots = {(word, f"[{SLOTS[slot]}]") for word, slot in named}
    for one in found:
        parts = [part for part in one.structure.split() if part[0] == "["]
        assert (one.words[0], parts[0]) in slots
        assert len(set(one.words)) == len(one.words) <= len(parts)


def test_whole_templates_come_first(gold, monkeypatch) -> None:
    monkeypatch.setattr(sampling, "MOST_REPEATS", 2000)
    statistics = count_corpus(deconstruct(tags) for _, tags in gold[:56])

    def whole(**asked) -> list[bool]:
        drawn = TemplateSampler(statistics, **asked).templates(np.random.default_rng(0))
        return [len(t.words) == t.structure.count("[") for t in islice(drawn, 1000)]

    first = whole()
    number = first.index(False)
    assert 200 < number < 1000
    assert sum(first[number:]) < 50  # the few that were not found before
    assert False in whole(whole_first=False)[:50]


def test_of_a_template_some_words_are_given(gold) -> None:
    statistics = count_corpus(deconstruct(tags) for _, tags in gold)
    full, some = (
        [*islice(TemplateSampler(statistics, most_given=most).templates(draws), 300)]
        for most, draws in ((None, np.random.default_rng(1)), (2, np.random.default_rng(1)))
    )
    assert Counter(len(template.words) for template in some).keys() == {1, 2}
    for template in full:
        few = with_some_words(template, 3, np.random.default_rng(2))
        places = [template.words.index(word) for word in few.words]
        assert places == sorted(places)
        assert few.structure == template.structure
    for template in some:
        assert [word for word, slot in template.tokens if slot] == [*template.words]
        assert template.text == " ".join(f"[ ] {word}" for word in (*template.words, "."))
    with pytest.raises(ValueError, match="most_given must be at least 1, or null for all: got 0"):
        TemplateSampler(statistics, most_given=0)


def test_an_exhausted_corpus_ends(monkeypatch) -> None:
    monkeypatch.setattr(sampling, "MOST_REPEATS", 200)
    statistics = count_corpus([Deconstructed(structure="[N] .", words=(("dog", "N"),))])
    found = list(TemplateSampler(statistics).templates(np.random.default_rng(0)))
    assert [one.text for one in found] == ["[ ] dog [ ] ."]


def test_tau_is_checked() -> None:
    with pytest.raises(ValueError, match="tau must be above 0, or null for infinity: got 0"):
        TemplateSampler(small(), tau=0)
