"""CLAIR and FLEUR against a stand-in: strict scores, none where there is none, and smoothing."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from captioning.metrics.bootstrap import Bootstrap
from captioning.metrics.coco import MetricResult
from captioning.metrics.evaluation import with_further
from captioning.metrics.judged import JudgedCaptions, smoothed_score
from captioning.metrics.scoring import _Images
from tests.served_model import Answers, Body, asked, chat, photo_of, served

CAPTIONS = {"0": ["a dog"], "1": ["a cat"], "2": ["a bird"]}
VERDICTS = {"a dog": ("90", "0.9"), "a cat": ("5", "0.1"), "a bird": ("12.5", "1.0")}


@pytest.fixture
def images(tmp_path: Path) -> _Images:
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for number, path in enumerate(paths):
        Image.new("RGB", (20, 20), (number, 0, 0)).save(path)
    return _Images([["A dog.", "Dogs."], ["A cat."], ["A bird."]], paths)


def chances(*places: dict[str, float]) -> dict[str, Any]:
    """Log-probabilities of the likeliest tokens; the first of each place is the one chosen."""
    content = [
        {"token": next(iter(place)), "top_logprobs": [
            {"token": token, "logprob": math.log(chance)} for token, chance in place.items()
        ]}
        for place in places
    ]  # fmt: skip
    return {"content": content}


def with_chances(reply: Body, *places: dict[str, float]) -> Body:
    reply["choices"][0]["logprobs"] = chances(*places)
    return reply


def caption_in(text: str) -> str:
    found = re.search(r"List B:\n- (.*)", text) or re.search(r"Caption: (.*)", text)
    return found[1] if found else ""


def judge(body: Body) -> Any:
    """A model that follows instructions, at a server without log-probabilities."""
    text = asked(body)
    clair, fleur = VERDICTS.get(caption_in(text), ("50", "0.5"))
    if "JSON" in text:
        return chat(json.dumps({"score": float(clair), "reason": f"so {clair}"}))
    return chat(fleur, tokens=50 if photo_of(body) else 5)


def scored(server: Answers, images: _Images, **settings: Any) -> MetricResult:
    return JudgedCaptions(name=f"{server.address}#m", **settings).score(CAPTIONS, images)


def test_both_forms_are_scores_of_captions_with_their_reasons(images, tmp_path, caplog) -> None:
    with served(judge) as server:
        result = scored(server, images, cache_folder=tmp_path / "kept")
        assert result.per_image["1"] == {"CLAIR(m)": 0.05, "FLEUR(m)": 0.1}
        assert result.corpus["CLAIR(m)"] == pytest.approx((0.9 + 0.05 + 0.125) / 3)
        assert result.corpus["FLEUR(m)"] == pytest.approx(2 / 3)
        assert result.settings["clair"]["reasons"] == {"0": "so 90", "1": "so 5", "2": "so 12.5"}
        assert result.settings["fleur"]["num_smoothed"] == 0
        assert "not smoothed" in result.settings["fleur"]["smoothed"]
        assert caplog.text.count("gives no log-probabilities") == 1
        clair = [b for b in server.bodies if "JSON" in asked(b) and "a dog" in asked(b)]
        assert "- A dog.\n- Dogs.\n" in asked(clair[0])
        assert not photo_of(clair[0])
        # asked for by one request alone, as the server gives none
        assert sum("logprobs" in body for body in server.bodies) == 1
        num = len(server.bodies)
        again = scored(server, images, cache_folder=tmp_path / "kept")
        assert again.per_image == result.per_image
        assert len(server.bodies) == num + 1  # whether there are log-probabilities


def test_an_answer_without_a_score_is_asked_again_and_then_counted(images, caplog) -> None:
    def answer(body: Body) -> Any:
        text = asked(body)
        if caption_in(text) == "a cat" and "alone, such as" not in text:
            return "It is a cat."
        return "Maybe." if caption_in(text) == "a bird" else judge(body)

    with served(answer) as server:
        result = scored(server, images)
    assert result.per_image["1"] == {"CLAIR(m)": 0.05, "FLEUR(m)": 0.1}
    assert result.per_image["2"] == {}
    assert result.corpus["CLAIR(m)"] == pytest.approx((0.9 + 0.05) / 2)  # no 0 of the bird
    for form in ("clair", "fleur"):
        record = result.settings[form]
        assert (record["num_without_score"], record["share_without_score"]) == (1, 0.3333)
    assert "CLAIR: 1 of 3 have no score (no score could be read: 'Maybe.')" in caplog.text


@pytest.mark.parametrize(
    "answer",
    ['{"score": 90}', '{"score": "90", "reason": "x"}', '{"score": 101, "reason": "x"}',
     '{"score": true, "reason": "x"}', '{"score": NaN, "reason": "x"}', "90", "[90]",
     '{"score": 90, "reason": "x"} I hope this helps!'],
)  # fmt: skip
def test_other_forms_than_the_json_asked_for_are_no_scores(images, answer: str) -> None:
    with served(lambda _: answer) as server:
        result = scored(server, images, forms=["clair"])
    assert result.corpus == {}
    reason = result.missing["CLAIR(m)"]
    assert "none of 3 answers of m is usable (no score could be read" in reason
    assert "\n" not in reason


def test_json_in_a_fence_is_read(images) -> None:
    fenced = '```json\n{"score": 40, "reason": "x"}\n```'
    with served(lambda _: fenced) as server:
        assert scored(server, images, forms=["clair"]).corpus == pytest.approx({"CLAIR(m)": 0.4})


def test_a_model_that_gives_no_score_is_not_asked_about_all(tmp_path: Path) -> None:
    images = _Images([["A dog."]] * 300, [])
    captions = {str(number): [f"dog {number}"] for number in range(300)}
    with served(lambda _: "A dog.") as server:
        metric = JudgedCaptions(name=f"{server.address}#m", forms=["clair"])
        result = metric.score(captions, images)
        assert "of 20 answers" in result.missing["CLAIR(m)"]
        assert len(server.bodies) == 40  # each twice


def test_a_blank_caption_scores_0_unasked(images) -> None:
    with served(judge) as server:
        metric = JudgedCaptions(name=f"{server.address}#m", forms=["clair"])
        result = metric.score({"0": ["a dog"], "1": [" "]}, images)
        assert result.per_image == {"0": {"CLAIR(m)": 0.9}, "1": {"CLAIR(m)": 0.0}}
        assert result.settings["clair"]["num_empty_candidates"] == 1
        assert len(server.bodies) == 1


def test_digits_are_smoothed_where_the_server_gives_probabilities(images, tmp_path) -> None:
    def answer(body: Body) -> Any:
        reply = judge(body)
        if "logprobs" not in body:
            return reply
        assert (body["logprobs"], body["top_logprobs"]) == (True, 20)
        return with_chances(reply, {"0": 1.0}, {".": 1.0}, {"9": 0.5, "8": 0.25, "!": 0.25})

    with served(answer) as server:
        first = scored(server, images, forms=["fleur"], cache_folder=tmp_path / "kept")
        assert first.per_image["0"]["FLEUR(m)"] == pytest.approx(0.5 * 0.9 + 0.25 * 0.8)
        assert first.per_image["1"]["FLEUR(m)"] == 0.1  # its tokens are not these
        assert first.settings["fleur"]["num_smoothed"] == 1
        num = len(server.bodies)
        again = scored(server, images, forms=["fleur"], cache_folder=tmp_path / "kept")
        assert again.per_image == first.per_image
        assert len(server.bodies) == num + 1


def test_a_server_that_refuses_the_field_is_asked_without(images) -> None:
    refused = (422, {}, {"detail": "unknown field logprobs"})
    with served(lambda body: refused if "logprobs" in body else judge(body)) as server:
        result = scored(server, images, forms=["fleur"])
    assert result.per_image["0"] == {"FLEUR(m)": 0.9}
    assert result.missing == {}


TOP = {"8": 0.6, "7": 0.3, " 9": 0.1}


@pytest.mark.parametrize(
    ("number", "places", "score"),
    [
        ("0.8", [{"0": 1.0}, {".": 1.0}, TOP], 0.48 + 0.21 + 0.09),
        ("0.85", [{"0": 1.0}, {".": 1.0}, TOP, {"5": 0.5, "0": 0.5}], 0.78 + 0.025),
        ("0.851", [{"0": 1.0}, {".": 1.0}, TOP, {"5": 1.0}, {"1": 1.0}], 0.83),
        ("0.85", [{"0": 1.0}, {".": 1.0}, {"85": 0.5, "9": 0.5}], 0.425 + 0.45),
        ("1.0", [{" 1": 0.75, " 0": 0.25}, {".": 1.0}, {"0": 1.0}], 0.75 + 0.225),
        ("0.5", [{"So 10": 1.0}, {".": 1.0}, {" 0": 1.0}, {".": 1.0}, {"5": 1.0}], 0.5),
        ("0", [{"0": 1.0}], None),
        ("0.8", [{"0.8": 1.0}], None),
        ("0.8", [], None),
    ],
)
def test_smoothing_by_hand(number: str, places: list[dict[str, float]], score: Any) -> None:
    tokens = [
        (next(iter(place)), {token: math.log(chance) for token, chance in place.items()})
        for place in places
    ]
    found = smoothed_score(number, tokens)
    assert found == (None if score is None else pytest.approx(score))


def test_a_model_without_eyes_is_refused_before_captions_are_made(images) -> None:
    with served(lambda _: chat("0.5", tokens=5)) as server:
        metric = JudgedCaptions(name=f"{server.address}#m")
        with pytest.raises(
            ValueError, match=r"does not see photos .*without photos: forms=\[clair\]"
        ):
            metric.check_ready()
        JudgedCaptions(name=f"{server.address}#m", forms=["clair"]).check_ready()


def test_no_server_leaves_the_other_scores_alone(images) -> None:
    metric = JudgedCaptions(name="http://127.0.0.1:9/v1#m", wait=0)
    with pytest.raises(ConnectionError, match="cannot be reached"):
        metric.check_ready()
    standard = MetricResult(
        corpus={"BLEU-1": 1.0}, per_image={i: {} for i in CAPTIONS}, settings={"missing": {}}
    )
    options = {"extra": {"judge": metric}, "bootstrap": Bootstrap(resamples=10)}
    result = with_further(standard, CAPTIONS, images, **options)
    assert result.corpus == {"BLEU-1": 1.0}
    assert "cannot be reached" in result.missing["CLAIR(m)"]


def test_wrong_settings_are_refused(images) -> None:
    with pytest.raises(ValueError, match="forms must be some of"):
        JudgedCaptions(name="http://h/v1#m", forms=["stars"])  # pyright: ignore
    with pytest.raises(ValueError, match="names no model"):
        JudgedCaptions(name="http://h/v1")
    unreferenced = _Images([[]], [])
    with served(judge) as server:
        metric = JudgedCaptions(name=f"{server.address}#m", forms=["clair"])
        missing = metric.score({"0": ["a dog"]}, unreferenced).missing
    assert "image '0' has none" in missing["CLAIR(m)"]
