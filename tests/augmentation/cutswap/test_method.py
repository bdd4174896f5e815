"""CutSwap from captions and boxes to pairs."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_set import Letters

from augmentation.cutswap import method as cutswap
from augmentation.cutswap.clusters import Clustering
from augmentation.cutswap.embeddings import by_texts
from augmentation.cutswap.method import CutSwap
from augmentation.cutswap.patches import SHARED, TOO_LITTLE, TOO_MUCH, Areas
from augmentation.cutswap.text import NO_BOX, SwapRules
from augmentation.regions.boxes import Limits
from augmentation.regions.paste import Blending
from augmentation.regions.proposal import Proposal
from augmentation.regions.rendering import NOT_BEST, TOO_UNLIKE, PictureFormat
from augmentation.regions.reranking import CosineScorer, Ranker, Threshold
from augmentation.regions.set_writer import write_set
from captioning.data.roster import Roster, build_roster
from captioning.runtime.files import read_json
from tests.augmentation.regions.scenes import photo, sample

SPACE = "redness"


class Redness(Letters):
    """Photos are liked the more, the more red they are; texts do not matter."""

    space = SPACE

    def embed_photos(self, images):
        red = [
            np.asarray(i, float)[..., 0].mean() / np.asarray(i, float).sum(2).mean() for i in images
        ]
        return torch.tensor([[value, 0.0] for value in red])

    def embed_texts(self, texts):
        return torch.tensor([[1.0, 0.0]] * len(texts))


@pytest.fixture
def animals(tmp_path: Path) -> Roster:
    """Four photos each of a cat beside a bird and of a dog, in which they sit or, one each, run."""
    folder = tmp_path / "animals"
    folder.mkdir()
    samples = []
    for n in range(4):
        does = "runs" if n == 3 else "sits"
        cat = [("cat", (4.0 + n, 4.0, 34.0 + n, 34.0)), ("bird", (30.0, 30.0, 40.0, 40.0))]
        path = photo(folder / f"cat{n}.png", cat, ground=100 + n)
        samples.append(sample(path, f"A white cat {does} beside a bird.", cat))
        dog = [("dog", (10.0, 10.0 + n, 40.0, 42.0 + n))]
        path = photo(folder / f"dog{n}.png", dog, ground=180)
        samples.append(sample(path, f"A black dog {does} beside a bird.", dog))
    return build_roster("animals", samples)


def method(parser, **more) -> CutSwap:
    settings = {
        "embed": by_texts(Letters()),
        "encoder": Redness(),
        "rules": SwapRules(),
        "clustering": Clustering(num_clusters=1, curve=(1,)),
        "areas": Areas(),
        "limits": Limits(smallest_area=0),
        "seed": 0,
        "min_uses": 2,
        "similarity": 0.0,
    }
    return CutSwap(parser=parser, **settings | more)


def pairs(augmenter: CutSwap, roster: Roster) -> dict[str, tuple[Proposal, ...]]:
    return {group[0].image_id: group for group in augmenter.candidates(roster)}


def test_an_object_of_caption_and_photo_gives_way_to_one_from_another_photo(parser, animals):
    proposals = pairs(method(parser), animals)
    assert sorted(proposals) == [f"{name}{n}" for name in ("cat", "dog") for n in range(4)]
    proposal = next(p for p in proposals["cat0"] if p.notes["swap"]["new_object"] == "dog")
    assert proposal.captions == ("A black dog sits beside a bird.",)
    assert proposal.before == ("A white cat sits beside a bird.",)
    (paste,) = proposal.pastes
    assert paste.target_box == (4, 4, 34, 34)
    assert paste.source.stem in {"dog0", "dog1", "dog2"}  # not dog3, which runs
    assert [(r.label, r.box) for r in proposal.regions] == [
        ("bird", (30, 30, 40, 40)),
        ("dog", (4, 4, 34, 34)),
    ]
    assert proposal.protected == ((30, 30, 40, 40),)


def test_a_patch_does_what_the_caption_says_unless_that_is_not_asked(parser, animals):
    def sources(**more):
        proposals = pairs(method(parser, num_patches=9, **more), animals)["cat3"]
        return {
            p.pastes[0].source.stem for p in proposals if p.notes["swap"]["new_object"] == "dog"
        }

    assert sources() == {"dog3"}
    assert sources(match_descriptions=False) == {"dog0", "dog1", "dog2", "dog3"}


def test_a_picture_may_have_all_captions_that_name_the_object(parser, animals):
    """As Figures A1 and A2 of the thesis show: captions without the object are left out."""
    texts = (
        "A cat is near a bird.",
        "A small white cat and a bird.",
        "A bird sits.",
        "A cat, a cat.",
    )
    more = [
        replace(s, sample_id=f"{s.image_id}#{n}", caption=text)
        for s in animals.samples
        if s.image_id == "cat0"
        for n, text in enumerate(texts, start=1)
    ]
    roster = build_roster("x", [*animals.samples, *more])
    options = {"all_captions": True, "captions_per_photo": None}
    groups = list(method(parser, **options).candidates(roster))
    found = {
        (proposal.before[0], proposal.notes["swap"]["new_object"]): proposal
        for group in groups
        for proposal in group
        if proposal.image_id == "cat0"
    }
    whole = found["A white cat sits beside a bird.", "dog"]
    assert dict(zip(whole.before, whole.captions, strict=True)) == {
        "A white cat sits beside a bird.": "A black dog sits beside a bird.",
        "A cat is near a bird.": "A dog is near a bird.",
        "A small white cat and a bird.": "A black dog and a bird.",
    }
    # its patch shows the attribute that other captions say
    plain = found["A cat is near a bird.", "dog"]
    assert plain.captions[0] == "A dog is near a bird."
    assert plain.notes["swap"]["new_attribute"] == "black"
    assert set(plain.captions) == set(whole.captions)
    alone = method(parser, captions_per_photo=None).candidates(roster)
    assert {len(proposal.captions) for group in alone for proposal in group} == {1}


def test_a_thing_whose_label_another_word_shares_is_not_covered(parser, animals):
    """Labels that say only "bird" do not tell which box is the duck."""

    def said(photo, caption, key="", **labels):
        regions = tuple(replace(r, label=labels.get(r.label, r.label)) for r in photo.regions)
        name = f"{photo.sample_id}{key}"
        return replace(photo, sample_id=name, caption=caption, regions=regions)

    cats = [s for s in animals.samples if s.image_id.startswith("cat")]
    settings = {"areas": Areas(smallest=0.0), "all_captions": True, "captions_per_photo": None}
    both = [said(s, "A white duck sits beside a bird.", cat="bird") for s in cats]
    augmenter = method(parser, **settings)
    assert list(augmenter.candidates(build_roster("x", both))) == []
    assert augmenter.report()["captions left out, by reason"][SHARED] == len(cats)
    # so a caption with both is none of a picture whose bird was replaced
    texts = ("A bird sits.", "A duck and a bird.", "A bird and a cat.", "A cat sits.")
    photos = [said(s, text, str(n)) for s in cats for n, text in enumerate(texts)]
    groups = list(method(parser, **settings).candidates(build_roster("x", photos)))
    birds = [p for group in groups for p in group if p.notes["swap"]["old_object"] == "bird"]
    assert {text for p in birds for text in p.before} == {"A bird sits.", "A bird and a cat."}


def test_a_patch_of_two_colours_is_one_of_either_only_in_the_thesis(parser, animals):
    spotted = [replace(s, caption=s.caption.replace("black", "black and white"))
               for s in animals.samples]  # fmt: skip
    roster = build_roster("x", spotted)

    def attributes(**areas):
        groups = method(parser, areas=Areas(**areas)).candidates(roster)
        swaps = [p.notes["swap"] for group in groups for p in group]
        return {s["new_attribute"] for s in swaps if s["new_object"] == "dog"}

    assert attributes() == set()
    assert attributes(one_colour=False) == {"black", "white"}


def test_neither_the_order_of_the_roster_nor_earlier_calls_matter(parser, animals):
    augmenter = method(parser)
    first = list(augmenter.candidates(animals))
    assert list(augmenter.candidates(animals)) == first
    assert list(augmenter.candidates(build_roster("x", animals.samples[::-1]))) == first
    assert list(method(parser, seed=1).candidates(animals)) != first


def test_no_more_captions_and_patches_than_asked_for(parser, animals):
    augmenter = method(parser, rules=SwapRules(num_captions=1), num_patches=2)
    assert {len(group) for group in augmenter.candidates(animals)} <= {1, 2}
    twice = build_roster("x", [*animals.samples, *(
        replace(s, sample_id=f"{s.image_id}#9") for s in animals.samples
    )])  # fmt: skip
    assert len(list(method(parser).candidates(twice))) == 8
    assert len(list(method(parser, captions_per_photo=None).candidates(twice))) == 16


@pytest.mark.parametrize(
    ("areas", "reason"),
    [(Areas(smallest=0.6), TOO_LITTLE), (Areas(smallest=0.0, largest=0.1), TOO_MUCH)],
)
def test_too_large_and_too_small_objects_are_left_and_counted(parser, animals, areas, reason):
    augmenter = method(parser, areas=areas)
    assert list(augmenter.candidates(animals)) == []
    assert augmenter.report()["captions left out, by reason"][reason] >= 4


def test_odd_patches_are_left_out(parser, animals):
    augmenter = method(parser, limits=Limits(smallest_area=2000))
    assert list(augmenter.candidates(animals)) == []
    assert augmenter.report()["captions left out, by reason"][cutswap.NO_PATCH] >= 4


def ranker(threshold: float, keep: int) -> Ranker:
    limit = Threshold(value=threshold, space=SPACE, reason="test")
    return Ranker(scorer=CosineScorer(encoder=Redness()), threshold=limit, keep=keep)


def write(augmenter: CutSwap, roster: Roster, folder: Path, **more):
    form = PictureFormat(blending=Blending(feather=0), suffix="png")
    settings = {
        "picture_format": form,
        "settings": {},
        "build_ranker": partial(ranker, 0.36, 2),
    } | more
    return write_set(augmenter.candidates(roster), folder=folder, **settings)


def test_the_best_pairs_are_kept_and_the_others_counted(parser, animals, tmp_path):
    augmenter = method(parser)
    augmenter.threshold(animals)
    counts = write(augmenter, animals, tmp_path / "out")
    lines = (tmp_path / "out" / "provenance.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    kept_records = [record for record in records if "refused" not in record]
    assert counts["pictures"] == len(kept_records) > 0
    assert min(record["similarity"] for record in kept_records) >= 0.36
    proposed = sum(len(group) for group in augmenter.candidates(animals))
    assert counts["refused"].keys() == {NOT_BEST, TOO_UNLIKE}
    assert sum(counts["refused"].values()) + len(kept_records) == proposed
    by_photo: dict[str, list[float]] = {}
    for record in kept_records:
        by_photo.setdefault(record["target"]["image_id"], []).append(record["similarity"])
    assert all(len(s) <= 2 and s == sorted(s, reverse=True) for s in by_photo.values())


@pytest.mark.long
def test_ranking_and_statistics_are_the_same_after_a_kill(parser, animals, tmp_path):
    augmenter = method(parser)
    augmenter.threshold(animals)
    complete, cut = tmp_path / "complete", tmp_path / "cut"
    write(augmenter, animals, complete)
    augmenter.finish(complete, animals)
    write(augmenter, animals, cut)
    lines = [json.loads(line) for line in (cut / "provenance.jsonl").read_text().splitlines()]
    end = next(n for n, record in enumerate(lines) if "refused" in record) + 1
    part = cut / "provenance.part.jsonl"
    part.write_text(json.dumps(lines[:end], ensure_ascii=False) + "\n[{half a line")
    (cut / "provenance.jsonl").unlink()
    write(augmenter, animals, cut)
    augmenter.finish(cut, animals)
    for name in ("provenance.jsonl", "captions.json", "statistics/statistics.json"):
        assert (cut / name).read_bytes() == (complete / name).read_bytes()
    content = json.loads((complete / "statistics" / "statistics.json").read_text())
    assert content["similarities"]["num_pairs"] == 8
    assert content["swaps"]["num_swaps"] == len(list((complete / "images").glob("*.png")))
    assert (complete / "clusters" / "clusters.md").is_file()


class Watched:
    """A parser that knows how many captions it was given at once."""

    def __init__(self, parser) -> None:
        self.parser, self.max_captions = parser, 0

    def parse(self, captions):
        self.max_captions = max(self.max_captions, len(captions))
        return self.parser.parse(captions)


@pytest.mark.long
def test_few_captions_are_parsed_at_once_to_the_same_statistics(
    parser, animals, tmp_path, monkeypatch
):
    def statistics(name: str) -> tuple[int, bytes]:
        watched = Watched(parser)
        augmenter, out = method(watched), tmp_path / name
        augmenter.threshold(animals)
        assert write(augmenter, animals, out)["pictures"] > 3
        augmenter.finish(out, animals)
        return watched.max_captions, (out / "statistics" / "statistics.json").read_bytes()

    at_once = statistics("at once")
    monkeypatch.setattr(cutswap, "PARSED_AT_ONCE", 3)
    assert at_once[0] > 3
    assert statistics("few") == (3, at_once[1])


def test_why_nothing_was_made_is_said(parser, animals, tmp_path):
    bare = build_roster("bare", [replace(sample, regions=()) for sample in animals.samples])
    augmenter = method(parser)
    augmenter.threshold(bare)
    with pytest.raises(
        ValueError, match="no image was rendered; rejected: nothing proposed"
    ) as error:
        write(augmenter, bare, tmp_path / "bare", report=augmenter.report)
    message = str(error.value)
    assert "boxes to cut out: none" in message
    assert f"captions left out, by reason: {{'{NO_BOX}': 8}}" in message
    rain = build_roster("rain", [replace(s, caption="It rains.") for s in animals.samples])
    with pytest.raises(ValueError, match="rain: no object is named 2 times or more in its 8 capt"):
        write(augmenter, rain, tmp_path / "rain", report=augmenter.report)
    with pytest.raises(ValueError, match="no object is named 1 times or more"):
        list(method(parser, min_mentions=1).candidates(rain))


def test_small_data_is_finished_with_the_default_clustering(parser, animals, tmp_path):
    augmenter, out = method(parser, clustering=Clustering()), tmp_path / "out"
    augmenter.threshold(animals)
    write(augmenter, animals, out)
    augmenter.finish(out, animals)
    num_words = augmenter.report()["words"]
    assert num_words < min(Clustering().curve)
    points = read_json(out / "clusters" / "curves.json")
    assert {point["num_clusters"] for point in points} <= set(range(1, num_words + 1))


def test_thresholds_are_set_known_or_estimated(parser, animals):
    assert method(parser, keep=None).threshold(animals) is None
    assert method(parser, similarity=0.5).threshold(animals).value == 0.5
    assert method(parser, similarity="estimate").threshold(animals).space == SPACE
    with pytest.raises(ValueError, match="estimate a threshold"):
        method(parser, similarity=None).threshold(animals)
    with pytest.raises(ValueError, match="scored in redness"):
        Ranker(
            scorer=CosineScorer(encoder=Redness()),
            threshold=Threshold(value=0.28, space="other", reason=""),
            keep=1,
        )


def test_a_threshold_is_estimated_a_few_photos_at_a_time(parser, animals, monkeypatch):
    complete = method(parser, similarity="estimate").threshold(animals)
    images = [Image.open(s.image_path).convert("RGB") for s in animals.samples]
    numbers: list[int] = []

    class Counting(Redness):
        def embed_photos(self, images):
            numbers.append(len(images))
            return super().embed_photos(images)

    monkeypatch.setattr(cutswap, "PHOTOS_AT_ONCE", 3)
    again = method(parser, similarity="estimate", encoder=Counting()).threshold(animals)
    assert (again, numbers) == (complete, [3, 3, 2])
    redness = Redness().embed_photos(images)[:, 0].tolist()
    assert any(again.value == pytest.approx(value) for value in redness)
    monkeypatch.setattr(cutswap, "NUM_PAIRS", 4)
    numbers.clear()
    method(parser, similarity="estimate", encoder=Counting()).threshold(animals)
    assert numbers == [3, 1]


def test_a_threshold_is_estimated_without_damaged_photos(parser, animals, caplog):
    animals.samples[0].image_path.unlink()
    animals.samples[1].image_path.write_bytes(b"no photo")
    estimated = method(parser, similarity="estimate").threshold(animals)
    assert estimated.reason == "tells 6 real pairs from 6 mismatched ones best"
    assert sorted(text.split(": ")[1].split("/")[-1] for text in caplog.messages) == [
        "cat0.png",
        "dog0.png",
    ]
    for path in {entry.image_path for entry in animals.samples}:
        path.unlink(missing_ok=True)
    with pytest.raises(ValueError, match="at least two different photos"):
        method(parser, similarity="estimate").threshold(animals)


def test_numbers_below_one_are_refused(parser):
    with pytest.raises(ValueError, match="num_patches"):
        method(parser, num_patches=0)
    with pytest.raises(ValueError, match="smallest <= largest"):
        Areas(smallest=0.8)
