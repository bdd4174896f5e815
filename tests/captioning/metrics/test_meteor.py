"""METEOR's processes: kept, shared, and replaced when they die. Its digits: see test_coco.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from captioning.metrics import meteor
from captioning.metrics.java import JavaError
from captioning.metrics.meteor import close_meteor, measure_meteor, score_meteor

# Answers as METEOR does: statistics for SCORE; for EVAL a score for each of them and one for all.
ANSWER = """
n=0
while read -r line; do
  case "$line" in
    SCORE*) echo "$n 1.0"; n=$((n+1));;
    EVAL*) echo "$line" | tr -cd '|' | wc -c | {
        read -r bars; i=0; while [ $i -lt $((bars / 3)) ]; do echo 0.25; i=$((i+1)); done; }
      echo 0.5;;
  esac
done
"""

# Its statistics of a caption, and its score of these, tell the captions apart.
LENGTHS = """
while read -r line; do
  case "$line" in
    SCORE*) echo "${#line} 1.0";;
    EVAL*) echo "${line#EVAL ||| }" | tr '|' '\\n' | while read -r length _; do
        [ -z "$length" ] || echo "$length"; done
      echo 0.5;;
  esac
done
"""


@pytest.fixture
def starts(fake_java: Callable[[str], None], tmp_path: Path) -> Callable[[str], Callable[[], int]]:
    """Install a fake METEOR; what comes back counts how often it was started."""
    log = tmp_path / "starts"

    def install(script: str) -> Callable[[], int]:
        fake_java(f"echo x >> {log}\nstarts=$(wc -l < {log})\n{script}")
        return lambda: len(log.read_text().split())

    return install


def test_a_process_is_kept_for_the_next_call(starts) -> None:
    count = starts(ANSWER)
    for _ in range(3):
        assert score_meteor(["a dog", "a cat"], [["a dog"], ["a"]]) == (0.5, [0.25, 0.25])
    assert count() == 1
    close_meteor()
    score_meteor(["a dog"], [["a dog"]])
    assert count() == 2


def test_large_sets_are_shared_out(starts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meteor, "CAPTIONS_PER_PROCESS", 2)
    monkeypatch.setattr(meteor, "num_cores", lambda: 3)
    count = starts(ANSWER)
    assert score_meteor(["a"] * 7, [["a"]] * 7) == (0.5, [0.25] * 7)
    assert count() == 3


def test_a_crash_is_survived_once(starts) -> None:
    count = starts('[ "$starts" = 1 ] && { read -r line; exit 1; }\n' + ANSWER)
    assert score_meteor(["a dog"], [["a dog"]]) == (0.5, [0.25])
    assert count() == 2


def test_a_process_that_dies_between_calls_is_replaced(starts) -> None:
    count = starts(ANSWER)
    score_meteor(["a dog"], [["a dog"]])
    meteor._alive[0].close()
    assert score_meteor(["a dog"], [["a dog"]]) == (0.5, [0.25])
    assert count() == 2


def test_a_second_crash_is_named(starts) -> None:
    count = starts("read -r line; echo no memory >&2; exit 1")
    with pytest.raises(JavaError, match="METEOR.*ended early.*no memory"):
        score_meteor(["a dog"], [["a dog"]])
    assert count() == 2
    assert not any(process.works() for process in meteor._alive)


def test_a_line_too_many_is_no_score(starts) -> None:
    # read as the first caption's statistics, it would give every caption another one's score
    starts("echo 'Java is old'\n" + ANSWER)
    with pytest.raises(JavaError, match="METEOR: Java failed"):
        score_meteor(["a dog", "a cat"], [["a dog"], ["a"]])
    assert not any(process.works() for process in meteor._alive)


def test_captions_cannot_speak_the_protocol(real_java: str) -> None:
    # "|||" would end a reference or the caption, a line break the request
    odd = ["a dog ||| runs", "a man\nEVAL ||| 1.0 2.0", "||||||"]
    plain = ["a dog runs", "a man EVAL 1.0 2.0", ""]
    references = [["a ||| cat", "a dog ||| runs fast"], ["two men\r\nsit"], ["a cat"]]
    meant = [["a cat", "a dog runs fast"], ["two men sit"], ["a cat"]]
    assert score_meteor(odd, references) == score_meteor(plain, meant)


def test_parts_come_back_in_order(starts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meteor, "CAPTIONS_PER_PROCESS", 2)
    monkeypatch.setattr(meteor, "num_cores", lambda: 3)
    count = starts(LENGTHS)
    captions = ["a" * length for length in (3, 1, 5, 2, 4)]
    corpus, scores, statistics = measure_meteor(captions, [["r"]] * 5)
    assert statistics == ["19 1.0", "17 1.0", "21 1.0", "18 1.0", "20 1.0"]
    assert scores == [19, 17, 21, 18, 20]
    assert corpus == 0.5
    assert count() == 3


@pytest.mark.long
def test_a_locale_with_a_decimal_comma_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    close_meteor()
    # as the environment of an Italian user has it
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=it -Duser.country=IT")
    captions = ["a man is speaking", "rain falls"]
    references = [["a man speaks"], ["rain falls on a roof"]]
    assert score_meteor(captions, references)[0] == pytest.approx(0.3911028958919325, abs=1e-12)
    close_meteor()
