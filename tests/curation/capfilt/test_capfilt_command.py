"""CapFilt of a set in shards, by a captioner and a matching head of tiny random weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioning.config.compose import compose_config
from captioning.data.readers.jsonl import read_jsonl
from captioning.data.steps.add_pairs import AddPairs
from captioning.data.steps.base import StepContext
from captioning.runtime.files import read_json
from captioning.served.answer_text import REFUSED
from captioning.served.photo_answers import data_url
from captioning.vision.blip_matching import build_blip_matching
from captioning.vision.pair_scores import PairScores
from curation.capfilt import offline_set
from curation.capfilt.offline_set import capfilt, summary
from tests.matching_folders import save_blip_captioner, save_blip_matching
from tests.served_model import asked, chat, photo_of, served
from tests.task_calls import call
from tests.tiny import CAPTIONS

NUM_PHOTOS = 7
SET_FILES = ("curation.jsonl", "captions.json", "captions.jsonl", "curation/report.html")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    path = tmp_path_factory.mktemp("hub")
    return save_blip_captioner(path / "captioner"), save_blip_matching(path / "itm")


@pytest.fixture
def data(tmp_path) -> Path:
    rng = np.random.default_rng(1)
    lines = []
    for number in range(NUM_PHOTOS):
        pixels = rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        texts = [CAPTIONS[number % 6], CAPTIONS[(number + 2) % 6]]
        lines.append({"image": f"{number}.png", "image_id": str(number), "captions": texts})
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


@pytest.fixture
def middle(folders, data) -> float:
    """A threshold between the scores, which lie near each other where weights are random."""
    pairs = PairScores(scorer=build_blip_matching(name=str(folders[1])))
    texts = [CAPTIONS[(n + k) % 6] for n in range(NUM_PHOTOS) for k in (0, 2)]
    paths = [data / f"{n}.png" for n in range(NUM_PHOTOS) for _ in (0, 2)]
    return float(pairs.scores(list(zip(paths, texts, strict=True))).median()) + 1e-6


@pytest.fixture
def run(folders, data, middle):
    captioner, matching = folders

    def judged(out: str, *overrides: str):
        options = (
            "data=jsonl",
            f"data.root={data}",
            f"data.train.annotations={data / 'train.jsonl'}",
            f"data.train.image_folder={data}",
            f"paths.cache={data / 'cache'}",
            f"captioner.captioner.name={captioner}",
            "captioner.captioner.search.max_length=8",
            f"filter.scorer.name={matching}",
            f"threshold={middle}",
            "photos_at_once=2",
            f"out={data / out}",
        )
        return call(capfilt, compose_config("capfilt", [*options, *overrides]))

    return judged


def test_counts_are_those_of_the_scores(run, data, middle):
    card = run("out", "per_photo=2")
    text = (data / "out/shards/0001-of-0001.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()[1:]]
    written = [score for line in lines for score in line["written"]]
    made = [score for line in lines for _, score in line["made"]]
    counts = card["counts"]
    assert (counts["photos"], counts["written"]) == (NUM_PHOTOS, 2 * NUM_PHOTOS)
    assert counts["written kept"] == sum(score >= middle for score in written)
    assert counts["made accepted"] == sum(score >= middle for score in made)
    assert 0 < counts["written kept"] < counts["written"]
    assert 0 < counts["made accepted"] < counts["made"] == len(made)
    assert counts["captions"] == counts["written kept"] + counts["made accepted"]
    assert len(read_json(data / "out/captions.json")["annotations"]) == counts["captions"]
    assert summary(card).startswith(f"{counts['written kept']} of 14 written captions kept")
    assert all((data / "out" / name).is_file() for name in SET_FILES)
    assert read_json(data / "out/card.json")["counts"] == counts


def test_captioner_and_filter_may_be_behind_an_address(data, monkeypatch):
    """Photo 0 is refused a caption; of photo 1 no score can be read."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    photos = {data_url(data / f"{n}.png", (data / f"{n}.png").read_bytes()): n for n in range(7)}

    def answer(body):
        number = photos.get(photo_of(body), -1)
        text = f"Photo {number} is shown."
        if "100" in asked(body):
            text = "It depends." if number == 1 else "90" if "is shown" in asked(body) else "20"
        elif number == 0:
            text = "I'm sorry, I can't help with that."
        return chat(text, tokens=50 if photo_of(body) else 5)

    with served(answer) as server:
        place = f'"{server.address}#m"'
        options = (
            "data=jsonl",
            f"data.root={data}",
            f"data.train.annotations={data / 'train.jsonl'}",
            f"data.train.image_folder={data}",
            f"paths.cache={data / 'cache'}",
            "caption_source@captioner=server",
            f"captioner.captioner.name={place}",
            "matching@filter=server",
            f"filter.scorer.name={place}",
            f"out={data / 'out'}",
        )
        card = call(capfilt, compose_config("capfilt", options))
        num = len(server.bodies)
        (data / "out/shards/0001-of-0001.jsonl").unlink()  # the answers are kept beside it
        assert call(capfilt, compose_config("capfilt", options))["counts"] == card["counts"]
        assert len(server.bodies) == num
    counts = card["counts"]
    assert counts["photos without a made caption"] == 1
    assert counts["made accepted"] == 5  # none for 0, none that is scored for 1
    assert counts["written kept"] == 2  # photo 1's, which no score speaks against
    assert counts["without a score"] == 3
    answered = counts["served"]["m"]  # captions of 7 photos, scores of 14 + 6 captions
    assert answered["answers"] == 7 + 20
    assert answered["without"] == {REFUSED: 1}
    assert answered["share without"] == round(1 / 27, 4)
    kept = [line["caption"] for line in read_json(data / "out/captions.json")["annotations"]]
    assert "Photo 2 is shown." in kept
    assert "Photo 1 is shown." not in kept
    assert card["config"]["captioner"]["captioner"]["name"] == place.strip('"')
    files = [file for file in data.rglob("*") if file.is_file()]
    assert not [file for file in files if b"sk-secret" in file.read_bytes()]


@pytest.mark.long
def test_shards_merge_into_the_same_set(run, data):
    whole = run("whole")
    for number in (3, 1, 2):
        assert run("parts", f"shard={number}/3") is None
    parts = run("parts", "shard=merge")
    assert parts["counts"] == whole["counts"]
    for name in SET_FILES:
        assert (data / "whole" / name).read_bytes() == (data / "parts" / name).read_bytes()


@pytest.mark.long
def test_a_killed_shard_goes_on(run, data, monkeypatch):
    whole = run("whole")
    judged = offline_set._judged
    blocks = []

    def dies(*arguments):
        blocks.append(len(arguments[0]))
        if len(blocks) == 3:
            raise KeyboardInterrupt
        return judged(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(offline_set, "_judged", dies)
        with pytest.raises(KeyboardInterrupt):
            run("killed")
    file = data / "killed/shards/0001-of-0001.jsonl"
    text = file.read_text()
    assert text.count("\n") == 1 + 4
    file.write_text(text[:-9])  # a line that was cut
    again = run("killed")
    assert again["counts"] == whole["counts"]
    for name in SET_FILES:
        assert (data / "whole" / name).read_bytes() == (data / "killed" / name).read_bytes()


def test_another_threshold_costs_nothing(run, data, monkeypatch):
    run("out")
    monkeypatch.setattr(offline_set, "_judged", None)
    assert run("out", "shard=merge", "threshold=0")["counts"]["written kept"] == 14
    assert run("out", "shard=merge")["counts"]["written kept"] < 14


def test_a_threshold_that_leaves_nothing_is_named(run):
    """Unlike a policy of training, this command has neither ratio nor schedule."""
    with pytest.raises(ValueError, match="would remove all") as refused:
        run("out", "parts=filter", "threshold=1")
    text = str(refused.value)
    assert "no caption scores threshold=1; give a lower threshold=, and shard=merge" in text
    assert not {"ratio", "schedule"} & {*text.replace(".", " ").split()}


@pytest.mark.parametrize("method", ["captioner", "filter"])
def test_one_half_alone(run, data, method):
    counts = run("out", f"parts={method}")["counts"]
    if method == "captioner":
        assert counts["written kept"] == 14
        assert counts["made accepted"] == counts["made"] == NUM_PHOTOS
    else:
        assert counts["made"] == 0
        assert 0 < counts["written kept"] < 14


def test_accepted_captions_are_a_set_to_add(run, data):
    counts = run("out")["counts"]
    roster = read_jsonl(name="t", annotations=data / "train.jsonl", image_folder=data)
    context = StepContext(split="train", seed=0, cache_folder=data / "cache")
    added = AddPairs(folders=[data / "out"])(roster, context)
    assert len(added) == 14 + counts["made accepted"]
    assert {s.origin for s in added.samples} == {"human", "added:out"}


@pytest.mark.long
def test_what_does_not_belong_together_is_refused(run, data, tmp_path):
    run("out", "shard=1/2")
    with pytest.raises(FileNotFoundError, match="lacks the shards 2/2"):
        run("out", "shard=merge")
    with pytest.raises(ValueError, match="shard must be I/N, such as 3/16"):
        run("out", "shard=two")
    with pytest.raises(ValueError, match="1 <= I <= N: got 3/2"):
        run("out", "shard=3/2")
    other = save_blip_matching(tmp_path / "other", seed=2)
    with pytest.raises(ValueError, match="was started with another captioner, filter or precision"):
        run("out", "shard=1/2", f"filter.scorer.name={other}")
    with pytest.raises(ValueError, match="holds a dataset with other settings or data"):
        run("out", "shard=1/2", "per_photo=3")
    file = data / "out/shards/0002-of-0002.jsonl"
    run("out", "shard=2/2")
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(ValueError, match="shard 2/2 holds 1 of 3 photos: run the shard again"):
        run("out", "shard=merge")
