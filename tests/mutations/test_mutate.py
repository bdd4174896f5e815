"""Mutations are drawn, found again after a move, applied, and killed by tests that reach them."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutations import mutate, probe
from tests.mutations.mutate import Mutation

SOURCE = '''"""Größen."""

LIMIT = 3


class Counter:
    def count(self, things: list[int], most: int = 2) -> int:
        größe = 0
        for thing in things:
            if thing > 1 and not thing == 5:
                größe = größe + 1
        if größe == 1:
            raise ValueError(f"{größe + 1} of {1}", 1)
        return größe


def unused() -> bool:
    return True
'''
TEST = """from captioning.text.counts import Counter


def test_count():
    assert Counter().count([0, 1, 2, 3, 5]) == 2


def test_nothing():
    assert True
"""
MODULE, TESTS = "captioning/text/counts.py", "tests/test_counts.py"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    packages = (("captioning/__init__.py", ""), ("captioning/text/__init__.py", ""))
    for name, text in ((MODULE, SOURCE), (TESTS, TEST), *packages):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(Path(probe.__file__).read_text(encoding="utf-8"))
    return tmp_path


def all_of(tree: Path) -> list[Mutation]:
    places = mutate.places(tree / MODULE)
    return [
        mutate.as_mutation(place, tree, "captioning/text", number)
        for number, place in enumerate(places)
    ]


def test_what_a_body_evaluates_is_changed(tree: Path) -> None:
    changed = [(one.function, one.before, one.after) for one in all_of(tree)]
    count = "Counter.count"
    assert sorted(changed) == sorted(
        [
            (count, "0", "1"),
            (count, "thing > 1 and (not thing == 5)", "thing > 1 or not thing == 5"),
            (count, "thing > 1", "thing >= 1"),
            (count, "1", "2"),
            (count, "not thing == 5", "thing == 5"),
            (count, "thing == 5", "thing != 5"),
            (count, "5", "6"),
            (count, "größe + 1", "größe - 1"),
            (count, "1", "2"),
            (count, "größe == 1", "größe != 1"),
            (count, "1", "2"),
            ("unused", "True", "False"),
        ]
    )


def test_a_draw_is_of_its_seed(tree: Path) -> None:
    drawn = mutate.draw(tree, 1)
    assert [one.function for one in drawn] in (
        ["Counter.count", "unused"],
        ["unused", "Counter.count"],
    )
    assert drawn == mutate.draw(tree, 1)
    assert len({tuple(mutate.draw(tree, seed)) for seed in range(9)}) > 1


def test_each_mutation_changes_its_own_expression_alone(tree: Path) -> None:
    texts = set()
    for mutation in all_of(tree):
        place = mutate.locate(mutation, tree)
        texts.add(mutate.rewritten(place.file, [(place.node, mutation.after)]))
    assert len(texts) == 12
    assert SOURCE.encode() not in texts
    assert SOURCE.replace("größe + 1\n", "(größe - 1)\n").encode() in texts


def test_it_is_found_in_another_room_and_under_another_line(tree: Path) -> None:
    mutation = next(one for one in all_of(tree) if one.before == "thing == 5")
    moved = tree / "curation" / "select" / "counting.py"
    moved.parent.mkdir(parents=True)
    moved.write_text(SOURCE.replace("if thing > 1 and not thing == 5", "if not thing == 5"))
    (tree / MODULE).unlink()
    place = mutate.locate(mutation, tree)
    assert place.file == moved
    assert ast.unparse(place.node) == "thing == 5"


def test_what_cannot_be_found_is_named(tree: Path) -> None:
    mutation = next(one for one in all_of(tree) if one.before == "thing == 5")
    with pytest.raises(
        LookupError, match=r"Counter.count of .*counts.py: no function of that name"
    ):
        mutate.locate(replace(mutation, before="thing == 4"), tree)
    for name in ("one.py", "two.py"):
        (tree / "curation").mkdir(exist_ok=True)
        (tree / "curation" / name).write_text(SOURCE)
    with pytest.raises(LookupError, match=r"curation/one.py, curation/two.py have it: name one"):
        mutate.locate(replace(mutation, module="captioning/text/gone.py"), tree)
    with pytest.raises(LookupError, match="is there 1 times: correct its occurrence"):
        mutate.locate(replace(mutation, line="other", occurrence=3), tree)


def test_expressions_of_one_another_are_refused(tree: Path) -> None:
    afters = ("thing > 1 or not thing == 5", "thing >= 1")
    texts = [
        (mutate.locate(one, tree).node, one.after) for one in all_of(tree) if one.after in afters
    ]
    assert len(texts) == 2
    with pytest.raises(ValueError, match="counts.py:10: one expression is part of another"):
        mutate.rewritten(tree / MODULE, texts)


@pytest.mark.long
def test_a_mutation_is_killed_by_a_test_that_reaches_it(tree: Path) -> None:
    afters = ("thing >= 1", "thing == 5", "False")
    mutations = [one for one in all_of(tree) if one.after in afters]
    (tree / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    mutate.reach(mutations, tree, [TESTS])
    reach = mutate.read_reach(tree)
    assert set(reach.seconds) == {f"{TESTS}::test_count", f"{TESTS}::test_nothing"}
    results = {one.before: mutate.try_out(one, tree, reach) for one in mutations}
    assert (tree / MODULE).read_text(encoding="utf-8") == SOURCE
    for before in ("thing > 1", "not thing == 5"):
        assert results[before]["by"] == f"{TESTS}::test_count"
    assert results["thing > 1"]["error"].startswith("assert 3 == 2")
    assert not results["True"]["killed"]
    assert results["True"]["tests"] == 0
