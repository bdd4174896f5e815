"""Correlation of metrics with people: readers, Kendall's tau, and published figures."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from captioning.commands.evaluation import ASSESS
from captioning.commands.main import main
from captioning.config.setting_error import SettingError, SettingNotFoundError
from captioning.evaluation.assess import (
    JudgedCaption,
    Judgements,
    _Agreement,
    kendall_taus,
    read_composite,
    read_flickr8k_cf,
    read_flickr8k_expert,
)
from captioning.metrics.bootstrap import Bootstrap
from tests.served_model import Body, asked, served

TOKENS = """\
a_1.jpg#0\tA dog runs .
a_1.jpg#1\tA brown dog outside .
b_2.jpg#0\tTwo women sit on a bench .
b_2.jpg#1\tWomen rest in a park .
"""
PHOTOS = Path("photos")


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.txt"
    path.write_text(TOKENS)
    return path


def written(folder: Path, *lines: tuple[Any, ...]) -> Path:
    path = folder / "judged.txt"
    path.write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))
    return path


orders = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=2, max_size=30)


@given(orders)
def test_taus_are_scipys(pairs: list[tuple[int, int]]) -> None:
    table = np.zeros((6, 4), np.int64)
    for row, column in pairs:
        table[row, column] += 1
    found = kendall_taus(table)
    first, second = zip(*pairs, strict=True)
    if len({*first}) < 2 or len({*second}) < 2:
        assert all(map(math.isnan, found))
        return
    known = [kendalltau(first, second, variant=variant)[0] for variant in ("b", "c")]
    assert found == pytest.approx(known)


def test_taus_by_hand() -> None:
    # values 1, 2, 3 with ratings 1, 3, 2: two pairs agree, one does not
    assert kendall_taus(np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0]])) == pytest.approx(
        (1 / 3, 1 / 3)
    )
    # 60,000 equal judgements twice: their pairs do not overflow
    assert kendall_taus(np.array([[60_000, 0], [0, 60_000]])) == pytest.approx((1, 1))


def test_expert_ratings_count_singly_without_the_photos_own_captions(
    tmp_path: Path, tokens: Path
) -> None:
    path = written(
        tmp_path,
        ("a_1.jpg", "b_2.jpg#0", 1, 1, 2),
        ("a_1.jpg", "a_1.jpg#1", 4, 4, 4),
        ("b_2.jpg", "a_1.jpg#0", 1, 3, 2),
    )
    people = read_flickr8k_expert(annotations=path, captions=tokens, photos=PHOTOS)
    assert (people.tau, people.left_out, len(people.captions)) == ("c", 1, 2)
    first, second = people.captions
    assert first.photo == PHOTOS / "a_1.jpg"
    assert first.caption == "Two women sit on a bench ."
    assert first.ratings == (1, 1, 2)
    assert first.references == ("A dog runs .", "A brown dog outside .")
    assert second.ratings == (1, 3, 2)


def test_crowdflower_keeps_own_captions_and_takes_them_out_of_the_references(
    tmp_path: Path, tokens: Path
) -> None:
    path = written(
        tmp_path,
        ("a_1.jpg", "b_2.jpg#0", 0.25, 1, 3),
        ("a_1.jpg", "a_1.jpg#1", 1, 3, 0),
        ("b_2.jpg", "a_1.jpg#0", 0, 0, 3),
    )
    people = read_flickr8k_cf(annotations=path, captions=tokens, photos=PHOTOS)
    assert people.tau == "b"
    assert [one.ratings for one in people.captions] == [(0.25,), (1.0,), (0.0,)]
    # of earlier captions of the photo, too
    assert [len(one.references) for one in people.captions] == [1, 1, 2]
    assert people.captions[0].references == ("A dog runs .",)


def turk(address: str, captions: list[str], ratings: list[Any]) -> str:
    return ";".join([*(["x"] * 27), address, *captions, *map(str, ratings)]) + "\n"


@pytest.fixture
def composite(tmp_path: Path, tokens: Path) -> dict[str, Any]:
    header = ";".join(map(str, range(36))) + "\n"
    row = turk("http://x.org/a_1.jpg", ["a brown dog outside", "a cat", "a dog"], [5, 1, 4])
    more = turk("http://x.org/77.jpg", ["a man", "a boy", "a car", "a van"], [4, 3, 1, 5])
    photo = "COCO_val2014_000000000009.jpg"
    (tmp_path / "8k_correctness.csv").write_text(header + row + ";" * 36 + "\n")
    (tmp_path / "30k_correctness.csv").write_text(header + more)
    (tmp_path / "coco_correctness.csv").write_text(header + more.replace("77.jpg", photo))
    (tmp_path / "30k.token").write_text("77.jpg#0\tA tall man .\n77.jpg#1\tSomebody .\n")
    captions = [{"id": n, "image_id": 9, "caption": t} for n, t in enumerate(["A man.", "Two."])]
    images = [{"id": 9, "file_name": photo}]
    (tmp_path / "coco.json").write_text(json.dumps({"images": images, "annotations": captions}))
    return {
        "folder": tmp_path,
        "flickr8k": tokens,
        "flickr30k": tmp_path / "30k.token",
        "coco": tmp_path / "coco.json",
        "flickr8k_photos": "p8",
        "flickr30k_photos": "p30",
        "coco_photos": "pc",
    }


def test_composite_takes_three_captions_and_the_first_out_of_the_references(
    composite: dict[str, Any],
) -> None:
    people = read_composite(**composite)
    assert people.tau == "c"
    assert [one.ratings for one in people.captions] == [(5,), (1,), (4,), *[(4,), (3,), (1,)] * 2]
    assert {one.references for one in people.captions[:3]} == {("A dog runs .",)}
    assert {one.references for one in people.captions[3:6]} == {("Somebody .",)}
    assert people.captions[1].photo == Path("p8/a_1.jpg")
    assert people.captions[8].photo == Path("pc/COCO_val2014_000000000009.jpg")
    assert people.captions[8].references == ("Two.",)


def test_bad_files_are_refused_by_line(
    tmp_path: Path, tokens: Path, composite: dict[str, Any]
) -> None:
    def refused(read: Any, line: tuple[Any, ...], problem: str) -> None:
        path = written(tmp_path, line)
        with pytest.raises(SettingError, match=re.escape(problem)) as error:
            read(annotations=path, captions=tokens, photos=PHOTOS)
        assert error.value.place == f"{path}:1"

    expert, crowd = read_flickr8k_expert, read_flickr8k_cf
    refused(expert, ("a_1.jpg", "b_2.jpg#0", 1, 2), "three ratings")
    refused(expert, ("a_1.jpg", "b_2.jpg#0", 1, 2, 5), "must be from 1 to 4: got '5'")
    refused(expert, ("a_1.jpg", "b_2.jpg#0", 1, 2, "nan"), "got 'nan'")
    refused(expert, ("c.jpg", "b_2.jpg#0", 1, 2, 3), "has no 'c.jpg'")
    refused(crowd, ("a_1.jpg", "b_2.jpg#9", 1, 3, 0), "has no 'b_2.jpg#9'")
    refused(crowd, ("a_1.jpg", "b_2.jpg#0", 0.5, 3, 0), "not that of 3 yes and 0 no")
    refused(crowd, ("a_1.jpg", "b_2.jpg#0", 0, 0, 0), "not that of 0 yes and 0 no")
    for row in (
        turk("http://x.org/a_1.jpg", ["a", "b", "c"], [5, 1]),
        turk("http://x.org/a_1.jpg", ["a", "b"], [5, 1]),
        turk("http://x.org/a_1.jpg", ["a", "b", "c"], [5, 1, 6]),
        turk("http://x.org/zz.jpg", ["a", "b", "c"], [5, 1, 4]),
    ):
        (tmp_path / "8k_correctness.csv").write_text("header\n" + row)
        with pytest.raises(SettingError, match="8k_correctness.csv: row 2"):
            read_composite(**composite)
    (tmp_path / "coco_correctness.csv").unlink()
    with pytest.raises(SettingNotFoundError, match="coco_correctness.csv: no such file"):
        read_composite(**composite)


def people_of(ratings: Sequence[Sequence[float]], photos: Sequence[str]) -> Judgements:
    captions = [
        JudgedCaption(photo=Path(photo), caption="a", ratings=tuple(given), references=("b",))
        for given, photo in zip(ratings, photos, strict=True)
    ]
    return Judgements(name="x", captions=captions, tau="b")


def test_intervals_resample_photos_with_all_their_judgements() -> None:
    ratings, photos = [[1, 2], [3, 3], [2, 4], [1, 1]], ["a", "b", "a", "c"]
    scores = [0.1, 0.5, 0.9, 0.3]
    agreement = _Agreement(people_of(ratings, photos))
    assert (agreement.photos, agreement.judgements) == (3, 8)
    found = agreement.measure(scores, Bootstrap(resamples=400, seed=3))
    assert found == agreement.measure(scores, Bootstrap(resamples=400, seed=3))

    drawn = np.random.default_rng(3).integers(0, 3, (400, 3))
    taus = []
    for row in drawn:
        pairs = [
            (scores[n], rating)
            for photo in (["a", "b", "c"][k] for k in row)
            for n in range(4)
            if photos[n] == photo
            for rating in ratings[n]
        ]
        tau: Any = kendalltau(*zip(*pairs, strict=True), variant="c")[0]
        taus += [] if math.isnan(tau) else [tau]
    assert found["tau_c_interval"] == pytest.approx(np.quantile(taus, [0.025, 0.975]).tolist())


def test_words_are_metrics_before_the_first_option() -> None:
    given = ASSESS.as_settings(["bleu", "mine", "CIDEr-D", "data=flickr8k_cf", "--cfg", "job"])
    assert given == [
        "scores=[BLEU,CIDEr-D]",
        "extra_metrics=[mine]",
        "judgements=flickr8k_cf",
        "--cfg",
        "job",
    ]
    assert ASSESS.as_settings(["data.photos=x"]) == ["judgements.photos=x"]


@pytest.fixture
def small(tmp_path: Path, tokens: Path) -> list[str]:
    """Settings of a set of four judged captions."""
    lines = [
        (photo, caption, *ratings)
        for (photo, caption), ratings in zip(
            product(["a_1.jpg", "b_2.jpg"], ["c_3.jpg#0", "c_3.jpg#1"]),
            [(1, 2, 1), (4, 4, 3), (3, 4, 2), (1, 1, 1)],
            strict=True,
        )
    ]
    more = "c_3.jpg#0\tTwo women .\nc_3.jpg#1\tA brown dog runs outside .\n"
    tokens.write_text(TOKENS + more)
    return [f"data.annotations={written(tmp_path, *lines)}", f"data.captions={tokens}"]


def test_the_command_writes_what_it_shows(
    tmp_path: Path, small: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    options = ["metrics.tokenizer=python", "resamples=50", f"out={out}"]
    assert main(["assess", "ROUGE-L", "BLEU", *small, *options]) == 0
    shown = capsys.readouterr().out
    kept = json.loads(out.read_text())
    assert {"photos": 2, "captions": 4, "judgements": 12}.items() <= kept.items()
    assert kept["published"] == "tau_c"
    assert list(kept["agreement"]) == ["ROUGE-L", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"]
    found = kept["agreement"]["ROUGE-L"]
    assert found["tau_c"] == pytest.approx(2 / 3)
    low, high = found["tau_c_interval"]
    assert low <= found["tau_c"] <= high
    assert f"{100 * found['tau_c']:.1f}" in shown
    assert kept["assessed"]["scores"] == ["ROUGE-L", "BLEU"]
    assert kept["versions"]["commit"]


def test_a_served_judge_is_assessed_on_the_captions_that_it_scored(
    tmp_path: Path, small: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = iter([10, 90, 80])

    def answer(body: Body) -> str:
        if "JSON" not in asked(body):
            return "Yes."
        number = next(numbers, None)  # the last caption has no score
        return "Hm." if number is None else json.dumps({"score": number, "reason": "x"})

    out = tmp_path / "out.json"
    with served(answer) as server:
        options = ["metrics.tokenizer=python", "resamples=20", f"out={out}"]
        judge = [
            f"extra_metrics.judge.name={server.address}#m",
            "extra_metrics.judge.forms=[clair]",
            "extra_metrics.judge.cache_folder=null",
            "extra_metrics.judge.num_parallel=1",
        ]
        assert main(["assess", "judge", *small, *judge, *options]) == 0
    found = json.loads(out.read_text())["agreement"]["CLAIR(m)"]
    assert found["captions"] == 3
    # 10, 90 and 80 with the ratings of the first three captions, nine in all
    ratings, scores = [1, 2, 1, 4, 4, 3, 3, 4, 2], np.repeat([10, 90, 80], 3)
    assert found["tau_b"] == pytest.approx(kendalltau(scores, ratings)[0])
    assert "CLAIR(m): 3 of 4 captions have a score" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["diversity"], "compares several captions of a photo"),
        (["joint_space", "data.photos=nowhere"], "data.photos=FOLDER"),
        (["scores=[]"], "no metric: name some"),
        (["nosuch"], "extra_metrics=nosuch: there is no such choice"),
    ],
)
def test_what_cannot_be_assessed_is_refused(
    arguments: list[str], told: str, small: list[str]
) -> None:
    with pytest.raises(SystemExit, match=re.escape(told)):
        main(["assess", *arguments, *small])


# Anderson et al. (2016) and Hessel et al. (2021), table 1; their CIDEr is CIDEr-D.
PUBLISHED = {"BLEU-1": 32.3, "BLEU-4": 30.8, "ROUGE-L": 32.3, "CIDEr-D": 43.9}


@pytest.mark.long
def test_published_figures_of_flickr8k_expert(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPTIONING_DATA", str(shared_data))
    out = tmp_path / "out.json"
    main(["assess", "BLEU", "ROUGE-L", "CIDEr-D", "METEOR", "resamples=0", f"out={out}"])
    kept = json.loads(out.read_text())
    assert (kept["captions"], kept["judgements"], kept["left_out"]) == (5664, 16992, 158)
    expected = PUBLISHED | ({} if "METEOR" in kept["missing"] else {"METEOR": 41.8})
    found = {name: 100 * kept["agreement"][name]["tau_c"] for name in expected}
    assert found == pytest.approx(expected, abs=0.1)
