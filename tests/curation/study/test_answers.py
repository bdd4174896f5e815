"""Tasks of a study for Label Studio, and what people answered."""

from __future__ import annotations

import json
import re
import sqlite3
from xml.etree import ElementTree

import pytest

from captioning.commands.main import main
from captioning.runtime.files import write_json
from curation.study.answers import CATEGORIES, KEYS, Annotation, read_answers, write_tasks
from curation.study.items import divide, fingerprint, read_items
from tests.curation.study.studies import answer, make_folder


@pytest.fixture
def placed(tmp_path):
    return divide(read_items(make_folder(tmp_path / "pictures", 4)))


@pytest.fixture
def tasks(placed, tmp_path):
    write_tasks(placed, tmp_path / "tasks")
    return json.loads((tmp_path / "tasks" / "tasks.json").read_text())


@pytest.fixture
def read(placed, tmp_path):
    """Writes an export and reads it."""

    def read_export(tasks) -> list[Annotation]:
        write_json(tmp_path / "export.json", tasks)
        return read_answers(tmp_path / "export.json", placed)

    return read_export


def test_the_interface_has_every_category_once(placed, tmp_path):
    write_tasks(placed, tmp_path / "tasks")
    root = ElementTree.parse(tmp_path / "tasks" / "interface.xml").getroot()
    assert [node.get("alias") for node in root.iter("Choice")] == list(KEYS)
    groups = {node.get("name"): len(node) for node in root.iter("Choices")}
    assert groups == {"people": 6, "main-object": 5, "other-objects": 5, "general": 9}
    assert {node.get("choice") for node in root.iter("Choices")} == {"multiple"}
    hints = [node.get("hint") for node in root.iter("Choice")]
    assert hints == [category.hint for category in CATEGORIES]
    for node in root.iter():
        if node.get("toName"):
            assert node.get("toName") == "photo"


def test_tasks_tell_neither_losses_nor_halves(placed, tasks):
    assert [task["data"]["number"] for task in tasks] == [0, 1, 2, 3]
    for task, entry in zip(tasks, placed, strict=True):
        assert set(task) == {"data"}
        assert set(task["data"]) == {"image", "captions", "set", "number", "study"}
        assert task["data"]["image"] == f"/data/local-files/?d={entry.item.name}"
        assert task["data"]["captions"].split("\n") == list(entry.item.captions)
        assert task["data"]["set"] == entry.set_number + 1


def test_answers_come_back_by_picture_and_annotator(tasks, read):
    tasks[2]["annotations"] = [
        answer(7, "number", "age", comment="six\nfingers"),
        answer({"id": 3, "email": "anna@example.org"}),
    ]
    tasks[0]["annotations"] = [answer(7, "weird-face") | {"was_cancelled": True}]
    tasks[1]["annotations"] = [
        answer(7, "text", at="2026-11-02"), answer(7, "color", at="2026-11-01"),
    ]  # fmt: skip
    tasks[3]["annotations"] = []
    assert read(tasks) == [
        Annotation(annotator="7", number=1, categories=("text",)),
        Annotation(annotator="7", number=2, categories=("age", "number"), comment="six\nfingers"),
        Annotation(annotator="anna@example.org", number=2, categories=()),
    ]
    # a task that was imported twice is one picture
    again = {"data": tasks[1]["data"], "annotations": [answer(7, "scene", at="2026-11-03")]}
    assert read([*tasks, again])[0].categories == ("scene",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda task: task.pop("annotations"), "task 1 has no 'annotations': export the project"),
        (lambda task: task["data"].pop("study"), "task 1 has no 'study'"),
        (lambda task: task["data"].update(study="0" * 16), "task 1: the answers belong to other"),
        (lambda task: task["data"].update(number=4), "number must be from 0 to 3: got 4"),
        (lambda task: task["data"].update(number=True), "number must be from 0 to 3: got True"),
        (lambda task: task["annotations"][0].pop("completed_by"), "has no 'completed_by'"),
        (lambda task: task["annotations"][0].update(completed_by=None), "has no 'completed_by'"),
        (lambda task: task["annotations"][0].pop("result"), "annotated by 7 has no 'result'"),
        (
            lambda task: task["annotations"].append(answer(8, "nose")),
            r"task 1, annotated by 8 has unknown categories \['nose'\]; known categories: age",
        ),
    ],
)
def test_what_does_not_fit_names_the_task(tasks, read, change, message):
    for task in tasks:
        task["annotations"] = [answer(7, "age")]
    change(tasks[0])
    with pytest.raises(ValueError, match=message):
        read(tasks)


def test_the_database_of_earlier_versions_is_read(placed, tmp_path):
    path = tmp_path / "study.sqlite"
    with pytest.raises(FileNotFoundError, match=r"study.sqlite does not exist"):
        read_answers(path, placed)
    path.write_text("this is a text, and long enough to be looked into " * 9)
    with pytest.raises(OSError, match=r"study.sqlite is not a readable study database"):
        read_answers(path, placed)
    path.unlink()
    rows = [("bert", 1, '["color", "age"]', "so", 1), ("anna", 1, "[]", "", 1)]
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE study (version INTEGER, fingerprint TEXT)")
        connection.execute("INSERT INTO study VALUES (1, ?)", (fingerprint(placed),))
        connection.execute(
            "CREATE TABLE annotations (annotator TEXT, number INTEGER, categories TEXT, "
            "comment TEXT, done INTEGER, saved TEXT)"
        )
        draft = ("cleo", 0, '["age"]', "", 0)
        connection.executemany("INSERT INTO annotations VALUES (?, ?, ?, ?, ?, '')", [*rows, draft])
    assert read_answers(path, placed) == [
        Annotation(annotator="anna", number=1, categories=()),
        Annotation(annotator="bert", number=1, categories=("age", "color"), comment="so"),
    ]
    with pytest.raises(ValueError, match=r"study.sqlite: the answers belong to other.*--seed"):
        read_answers(path, placed[::-1])


def test_the_command_writes_tasks(tmp_path, capsys):
    folder, out = make_folder(tmp_path / "pictures", 4), tmp_path / "tasks"
    command = ["curate", "study", str(folder)]
    root = ["--root", str(tmp_path), "--url", "https://example.org/"]
    assert main([*command, "--out", str(out), *root]) == 0
    assert f"4 tasks in 1 sets, pictures below {tmp_path}" in capsys.readouterr().out
    tasks = json.loads((out / "tasks.json").read_text())
    assert tasks[0]["data"]["image"].startswith("https://example.org/pictures/")
    assert main([*command, "--out", str(out)]) == 1
    assert "holds something already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--answers FILE --results FOLDER"),
        (("--port", "8765"), "--port no longer exists; people annotate in Label Studio"),
        (("--host", "127.0.0.1"), "write its tasks by --out FOLDER"),
        (("--store", "s", "--results", "r"), "--store no longer exists; .* as --answers FILE"),
        (("--results", "r"), "--answers FILE and --results FOLDER need each other"),
        (("--out", "o", "--answers", "a"), "need each other"),
        (("--out", "o", "--answers", "a", "--results", "r"), "give one of them"),
        (("--answers", "a", "--results", "r", "--root", "x"), "--root and --url belong to --out"),
    ],
)
def test_options_that_do_not_fit_name_the_remedy(tmp_path, capsys, options, message):
    assert main(["curate", "study", str(tmp_path), *options]) == 1
    (line,) = capsys.readouterr().err.splitlines()

    assert re.search(message, line)
