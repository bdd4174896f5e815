"""Krippendorff's alpha against its inventor's own worked examples."""

from __future__ import annotations

import pytest

from curation.study.answers import Annotation, agreement, alpha

# Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), examples A, B and C.
BINARY = ("0100000010", "1110010000")
NOMINAL = ("aabbdcccedda", "babbbccceddd")
MISSING = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")


def labels(*rows: str) -> list[tuple[str, int, str]]:
    return [
        (str(coder), unit, value)
        for coder, row in enumerate(rows)
        for unit, value in enumerate(row)
        if value != "."
    ]


@pytest.mark.parametrize(
    ("rows", "published"), [(BINARY, 0.095), (NOMINAL, 0.692), (MISSING, 0.743)]
)
def test_published_examples(rows, published):
    assert alpha(labels(*rows)) == pytest.approx(published, abs=5e-4)


def test_where_nothing_can_be_disagreed_about_alpha_is_unknown():
    assert alpha([]) is None
    assert alpha(labels("aaa", "aaa")) is None
    assert alpha([("x", 0, "a"), ("x", 1, "b")]) is None


def test_agreement_by_category_and_over_all():
    def annotate(annotator: str, number: int, *categories: str) -> Annotation:
        return Annotation(annotator=annotator, number=number, categories=categories)

    everyone = [
        annotate(annotator_id, n, *(("age",) if n % 2 else ()))
        for annotator_id in "abc"
        for n in range(6)
    ]
    alphas = agreement(everyone)
    assert alphas["age"] == alphas["all"] == 1
    assert alphas["color"] is None
    partly = agreement([*everyone, *(annotate("d", n, "age", "color") for n in range(6))])
    assert 0 < partly["all"] < 1
    assert partly["age"] < 1
