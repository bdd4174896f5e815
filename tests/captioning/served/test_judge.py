"""Captions judged by a served model: strict scores, and none where there is none."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from captioning.commands.command import HydraCommand
from captioning.config.compose import compose_config
from captioning.runtime.processors import image_text_folder
from captioning.served.judge import ServedJudge, read_score
from captioning.vision.pair_scores import PairScores
from tests.served_model import Body, asked, chat, photo_of, served


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        *[("87", 0.87), ("Score: 87", 0.87), ("87/100", 0.87), ("87 out of 100.", 0.87)],
        *[("87%", 0.87), ("0", 0.0), ("100", 1.0)],
        *[("101", None), ("-5", None), ("8.5", None), ("87 or 90", None), ("high", None)],
        *[("The image shows 3 dogs, so 90", None), ("", None), ("1000", None), ("87/10", None)],
    ],
)
def test_grades_are_read_strictly(answer: str, score: float | None) -> None:
    assert read_score(answer, "graded") == score


@pytest.mark.parametrize(
    ("answer", "score"),
    [("yes", 1.0), ("No.", 0.0), ("YES!", 1.0), ("yes, but", None), ("maybe", None), ("87", None)],
)
def test_yes_and_no_are_read_strictly(answer: str, score: float | None) -> None:
    assert read_score(answer, "yes_no") == score


def grades(body: Body) -> Any:
    text = asked(body)
    answers = {"a dog": "90", "a cat": "<think>Hm.</think>**5**", "a bird": "It depends."}
    found = next((answer for caption, answer in answers.items() if f'"{caption}"' in text), "50")
    return chat(found, tokens=50 if photo_of(body) else 5)


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{number}.png" for number in range(2)]
    for number, path in enumerate(paths):
        Image.new("RGB", (20, 20), (number, 0, 0)).save(path)
    return paths


def test_pairs_have_grades_and_some_have_none(photos, tmp_path: Path, caplog) -> None:
    with served(grades) as server:
        settings = {"name": f"{server.address}#m", "cache_folder": tmp_path / "kept"}
        judge = ServedJudge(**settings)
        pairs = [(photos[0], "a dog"), (photos[1], "a cat"), (photos[1], "a bird")]
        scores = PairScores(scorer=judge).scores(pairs).tolist()
        assert scores[:2] == pytest.approx([0.9, 0.05])
        assert math.isnan(scores[2])
        assert judge.num_unread == 1
        assert "1 of 3: no score could be read (It depends.)" in caplog.text
        assert (judge.is_probability, judge.name) == (False, "grade (m)")
        num = len(server.bodies)
        again = PairScores(scorer=ServedJudge(**settings)).scores(pairs).tolist()
        assert again[:2] == scores[:2]
        assert len(server.bodies) == num
        assert {(b["max_tokens"], b["temperature"]) for b in server.bodies} == {(16, 0.0)}


def test_another_scorer_may_not_leave_out(photos) -> None:
    with served(grades) as server:
        judge = ServedJudge(name=f"{server.address}#m")
        judge.leaves_out = False
        with pytest.raises(ValueError, match="is nan for 'a bird'"):
            PairScores(scorer=judge).scores([(photos[1], "a bird")])


def test_wrong_questions_and_places_are_refused() -> None:
    with pytest.raises(ValueError, match="question must hold the placeholder {caption}"):
        ServedJudge(name="http://h/v1#m", question="Good?")
    with pytest.raises(ValueError, match="scale must be one of"):
        ServedJudge(name="http://h/v1#m", scale="stars")  # pyright: ignore
    with pytest.raises(ValueError, match="an address, but this part needs a local model"):
        image_text_folder("http://h/v1#m")


def test_a_place_needs_no_quotes_on_the_command_line() -> None:
    command = HydraCommand(name="x", summary="", config="train", task="x")
    assert command.with_key("a.name=http://h:1/v1#o/m:7b") == 'a.name="http://h:1/v1#o/m:7b"'
    for other in ("a=http://h/v1", 'a="http://h/v1#m"', "a=http://h/v1#m,http://h/v1#n"):
        assert command.with_key(other) == other


def test_a_grade_is_a_score_of_curation() -> None:
    name = 'curation.score.pairs.scorer.name="http://h/v1#m"'
    config = compose_config("train", ["curation=remove", "curation/score=graded", name])
    assert config.curation.score.pairs.scorer.scale == "graded"
