"""Annotations in the database: at once, by several, and never lost."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from curation.study.categories import KEYS
from curation.study.items import Item, divide
from curation.study.store import Annotation, Store


@pytest.fixture
def placed(tmp_path):
    items = [
        Item(name=f"{n}.png", path=tmp_path / f"{n}.png", captions=(f"c {n}",), loss=float(n))
        for n in range(12)
    ]
    return divide(items, num_sets=3, size=4)


@pytest.fixture
def store(tmp_path, placed):
    store = Store(path=tmp_path / "study.sqlite")
    store.fill(placed)
    return store


def annotate(annotator: str, number: int, *categories: str, **fields) -> Annotation:
    return Annotation(annotator=annotator, number=number, categories=categories, **fields)


def test_what_was_said_is_there_after_reopening(store, placed):
    store.assign("anna")
    numbers = [item.number for item in store.items() if item.set_number == 0]
    store.save(annotate("anna", numbers[0], "color", "age", comment="so 'odd' --", done=False))
    store.save(annotate("anna", numbers[0], "color"))
    again = Store(path=store.path)
    again.fill(placed)
    assert again.annotations() == [annotate("anna", numbers[0], "color")]
    assert again.assign("anna") == 0


def test_sets_go_to_those_who_have_not_done_them_and_fill_evenly(store):
    assert [store.assign(f"a{n}") for n in range(6)] == [0, 1, 2, 0, 1, 2]
    assert store.assign("a0") == 0
    assert [store.assign("a0", another=True) for _ in range(3)] == [1, 2, None]
    assert store.assign("a0") == 2


def test_many_annotators_at_once_lose_nothing(store):
    def work(annotator: str) -> None:
        connection = Store(path=store.path)
        set_number = connection.assign(annotator)
        for item in connection.items():
            if item.set_number == set_number:
                for key in KEYS[:3]:
                    connection.save(annotate(annotator, item.number, key))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, [f"a{n}" for n in range(6)]))
    annotations = store.annotations()
    assert len(annotations) == 6 * 4
    assert {annotation.categories for annotation in annotations} == {(KEYS[2],)}
    assert set(Counter(annotation.number for annotation in annotations).values()) == {2}


def test_two_processes_at_once_lose_nothing(store):
    script = (
        "import sys; from curation.study.store import Annotation, Store\n"
        "store = Store(path=sys.argv[1]); mine = store.assign(sys.argv[2], another=True)\n"
        "numbers = [item.number for item in store.items() if item.set_number == mine]\n"
        "for turn in range(20):\n"
        "    for n in numbers:\n"
        "        store.save(Annotation(annotator=sys.argv[2], number=n, categories=('age',)))\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(store.path), annotator])
        for annotator in ("anna", "bert")
    ]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    assert Counter(annotation.annotator for annotation in store.annotations()) == {
        "anna": 4,
        "bert": 4,
    }


def test_a_killed_writer_leaves_the_last_whole_state(store):
    store.assign("anna")
    number = store.items()[0].number
    store.save(annotate("anna", number, "age"))
    connection = sqlite3.connect(store.path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM annotations")
    connection.close()
    assert store.annotations() == [annotate("anna", number, "age")]


def test_a_database_of_other_pictures_is_refused_and_kept(store, placed):
    store.assign("anna")
    store.save(annotate("anna", store.items()[0].number, "age"))
    with pytest.raises(ValueError, match="annotations of other pictures.*--store"):
        store.fill(placed[:-1])
    assert len(store.annotations()) == 1


def test_what_is_no_database_is_named(tmp_path, placed):
    (tmp_path / "x.sqlite").write_text("this is a text, and long enough to be looked into " * 9)
    with pytest.raises(OSError, match="x.sqlite: .*is it a study's database"):
        Store(path=tmp_path / "x.sqlite").fill(placed)


@pytest.mark.parametrize("name", ["", " ", "a b", "../x", "<b>", "é", "x" * 41, "-a", "a\n"])
def test_odd_annotator_ids_are_refused(store, name):
    with pytest.raises(ValueError, match="annotator must be 1 to 40 letters"):
        store.assign(name)


def test_what_no_page_would_send_is_refused(store):
    store.assign("anna")
    store.assign("bert")
    other = next(item.number for item in store.items() if item.set_number == 1)
    with pytest.raises(ValueError, match="is in no set of 'anna'"):
        store.save(annotate("anna", other))
    with pytest.raises(ValueError, match=r"unknown categories \['nose'\]"):
        annotate("anna", 0, "nose")
    with pytest.raises(ValueError, match="at most 2000 characters: got 2001"):
        annotate("anna", 0, comment="x" * 2001)
    assert store.annotations() == []
