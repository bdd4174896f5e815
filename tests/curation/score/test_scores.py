"""Each score on cases small enough to be worked out by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.data.roster import CurationView, build_roster
from captioning.types import Edit, Sample
from curation.base import Context
from curation.loop.visual_gain_probe import VisualGain
from curation.score import duplicate
from curation.score.cross_fitted import CrossFitted
from curation.score.duplicate import Duplicate, copies
from curation.score.joint import Joint, WithinImage, ranked, standardised
from curation.score.length import Length
from curation.score.loss import Loss
from curation.score.loss_history import LossHistory
from curation.score.per_image import PerImage
from curation.score.siblings import SentenceLikeness, Siblings, WordLikeness
from curation.score.similarity import Similarity
from curation.score.truth import Truth

nan = math.nan
# Two photos of three and one caption, one of two.
IMAGES = {"a": ["a dog", "the dog runs", "boats"], "b": ["boats at sea"], "c": ["dog", "a boat"]}


def context(
    history: Sequence[Sequence[float]] = ((0.0,) * 6,), removed: Sequence[str] = (), **signals
) -> Context:
    samples = [
        Sample(row=0, sample_id=f"{i}#{k}", image_id=i, image_path=Path(f"{i}.jpg"), caption=text)
        for i, texts in IMAGES.items()
        for k, text in enumerate(texts)
    ]
    view = CurationView(roster=build_roster("scores", samples))
    view = view.apply([Edit(sample_id=name, action="remove") for name in removed])
    losses = torch.tensor(history, dtype=torch.float32)
    return Context(
        view=view,
        losses=losses[-1],
        history=losses,
        epoch=len(losses) - 1,
        signals={name: torch.tensor(values) for name, values in signals.items()},
    )


def values(scores: torch.Tensor) -> list[float]:
    return [round(value, 4) for value in scores.tolist()]


class Words:
    """Unit vectors: one dimension for dogs, one for boats."""

    def embed_texts(self, texts: Sequence[str]) -> torch.Tensor:
        counts = torch.tensor([[1.0 * ("dog" in t), 1.0 * ("boat" in t)] for t in texts])
        return torch.nn.functional.normalize(counts, dim=1)


def test_loss_of_one_epoch_and_of_several() -> None:
    seen = context([[1, 2, nan, nan, 5, 6], [3, nan, nan, 4, 5, 0]])
    assert values(Loss().scores(seen)) == pytest.approx([3, nan, nan, 4, 5, 0], nan_ok=True)
    mean = values(Loss(num_epochs=2).scores(seen))
    assert mean == pytest.approx([2, 2, nan, 4, 5, 3], nan_ok=True)
    with pytest.raises(ValueError, match="num_epochs must be at least 1: got 0"):
        Loss(num_epochs=0)


def test_history_tells_what_is_hard_forgotten_or_never_learnt() -> None:
    # the median falls from 3 to 2 to 1; row 0 stays high, row 1 is forgotten twice, row 5 unseen
    history = [[5, 1, 3, 3, 2, nan], [5, 2, 2, 2, 1, nan], [5, 3, 1, 1, 0, nan]]
    area = LossHistory(kind="area").scores(context(history))
    assert values(area) == pytest.approx([3, 0, 0, 0, -1, nan], nan_ok=True)
    forgotten = LossHistory(kind="forgetting").scores(context(history))
    assert forgotten.nan_to_num(-1).argmax() == 1
    assert int(forgotten[1]) == 2
    assert forgotten[0] > forgotten[4]  # neither rose: the area decides
    hard = LossHistory(kind="hard_to_learn").scores(context(history))
    assert hard.nan_to_num(-1).argmax() == 0
    assert hard[5].isnan()
    with pytest.raises(ValueError, match="kind must be one of"):
        LossHistory(kind="best")


def test_of_one_epoch_the_area_ranks_as_the_loss() -> None:
    single = context([[5, 1, 3, 2, 4, 0]])
    assert values(LossHistory().scores(single).argsort()) == values(single.losses.argsort())


def test_words_are_counted_as_the_captions_are_now() -> None:
    assert values(Length().scores(context())) == [2, 3, 1, 3, 1, 2]
    removed = values(Length().scores(context(removed=["a#0"])))
    assert removed == pytest.approx([nan, 3, 1, 3, 1, 2], nan_ok=True)


def test_the_caption_unlike_its_siblings_stands_out() -> None:
    score = Siblings(likeness=SentenceLikeness(sentences=Words()), nearest=None)
    result = values(score.scores(context()))
    assert result == pytest.approx([0.5, 0.5, 1, nan, 1, 1], nan_ok=True)
    nearest = Siblings(likeness=SentenceLikeness(sentences=Words()), nearest=1)
    result = values(nearest.scores(context()))
    assert result == pytest.approx([0, 0, 1, nan, 1, 1], nan_ok=True)
    with pytest.raises(ValueError, match="nearest must be at least 1"):
        Siblings(likeness=WordLikeness(), nearest=0)
    alone = values(score.scores(context(removed=["a#2", "c#0"])))
    assert alone == pytest.approx([0, 0, nan, nan, nan, nan], nan_ok=True)
    nobody = score.scores(context(removed=["a#0", "a#1", "c#0"]))
    assert nobody.isnan().all()


def test_rare_words_in_common_count_more() -> None:
    (cosines,) = WordLikeness().cosines([["a dog", "A DOG!", "a boat", "-"]])
    # four captions: "a" in three, "dog" in two, "boat" in one
    a, dog, boat = (1 + math.log(5 / number) for number in (4, 3, 2))
    likeness = a * a / (math.hypot(a, dog) * math.hypot(a, boat))
    assert values(cosines[0]) == pytest.approx([1, 1, round(likeness, 4), 0])
    assert values(cosines[3]) == [0, 0, 0, 0]
    (twice,) = WordLikeness().cosines([["dog dog boat", "dog"]])
    dog, boat = 1 + math.log(3 / 3), 1 + math.log(3 / 2)
    dampened = (1 + math.log(2)) * dog
    assert values(twice[0]) == pytest.approx([1, round(dampened / math.hypot(dampened, boat), 4)])


def test_the_truth_is_that_of_the_samples_as_they_are_now() -> None:
    clean = context()
    with pytest.raises(ValueError, match="has none: set steps=.plant_swap20"):
        Truth().scores(clean)
    samples = [
        replace(s, origin="noise:swap") if s.sample_id in ("a#0", "c#1") else s
        for s in clean.view.roster.samples
    ]
    edits = [
        Edit(sample_id="a#0", action="replace_caption", value="the dog runs", origin="sibling:a#1"),
        Edit(sample_id="a#2", action="remove"),
    ]
    view = CurationView(roster=build_roster("scores", samples)).apply(edits)
    scores = Truth().scores(replace(clean, view=view))
    assert values(scores) == pytest.approx([0, 0, nan, 0, 0, 1], nan_ok=True)


def test_a_cross_fitted_measure_sees_the_roster_and_the_samples_of_today() -> None:
    calls = []

    def measure(roster, samples):
        calls.append((len(roster), [sample.caption for sample in samples]))
        return torch.arange(len(samples))

    result = CrossFitted(measure=measure).scores(context(removed=["a#1"]))
    assert calls == [(6, ["a dog", "boats", "boats at sea", "dog", "a boat"])]
    assert values(result) == pytest.approx([0, nan, -1, -2, -3, -4], nan_ok=True)


class Space:
    """Photos are told by their colour: red ones show dogs, blue ones boats."""

    space = "colours"

    def __init__(self) -> None:
        self.num_photos = self.num_texts = self.num_releases = 0
        self.sizes: set[int] = set()

    def embed_photos(self, images):
        self.num_photos += len({id(image) for image in images})  # the last one fills batches up
        self.sizes.add(len(images))
        return torch.tensor([[1.0 * (r > b), 1.0 * (b > r)] for r, _, b in map(pixel, images)])

    def embed_texts(self, texts):
        self.num_texts += len({*texts})
        self.sizes.add(len(texts))
        return Words().embed_texts(texts)

    def release(self):
        self.num_releases += 1


def pixel(image: Image.Image) -> tuple[int, int, int]:
    return image.getpixel((0, 0))


def test_photos_are_embedded_once_and_captions_as_they_are_now() -> None:
    def load(path: Path) -> Image.Image:
        return Image.new("RGB", (4, 4), "blue" if path.stem == "b" else "red")

    space = Space()
    score = Similarity(encoder=space, load=load)
    assert values(score.scores(context())) == [-1, -1, 0, -1, -1, 0]
    changed = context(removed=["a#0"])
    edit = Edit(sample_id="a#2", action="replace_caption", value="a small dog")
    changed = replace(changed, view=changed.view.apply([edit]))
    result = values(score.scores(changed))
    assert result == pytest.approx([nan, -1, -1, -1, -1, 0], nan_ok=True)
    assert space.num_photos == 3
    assert space.num_texts == 6 + 1  # a caption that is another one now
    assert space.num_releases == 2
    assert values(score.scores(context())) == [-1, -1, 0, -1, -1, 0]
    assert (space.num_texts, space.num_releases) == (7, 2)  # nothing was computed


def test_a_score_does_not_depend_on_what_was_scored_before() -> None:
    """The last bits of a batch are those of its size: a run that goes on has the same."""
    space = Space()
    score = Similarity(encoder=space, load=lambda _: Image.new("RGB", (4, 4), "red"))
    score.scores(context())
    edit = Edit(sample_id="a#2", action="replace_caption", value="a small dog")
    later = context()
    score.scores(replace(later, view=later.view.apply([edit])))
    assert space.sizes == {64, 256}


def test_scores_by_image() -> None:
    seen = context([[1, 2, 6, nan, 4, 3]], removed=["c#1"])
    for how, expected in (("mean", 3), ("max", 6), ("min", 1)):
        result = values(PerImage(score=Loss(), how=how).scores(seen))
        assert result == pytest.approx([expected, expected, expected, nan, 4, nan], nan_ok=True)
    with pytest.raises(ValueError, match="how must be one of"):
        PerImage(score=Loss(), how="median")


def test_of_two_captions_that_say_the_same_the_later_is_a_duplicate() -> None:
    same = Duplicate(max_bits=None)
    edits = [Edit(sample_id="a#1", action="replace_caption", value="A dog!")]
    seen = context(removed=["c#0"])
    seen = replace(seen, view=seen.view.apply(edits))
    assert values(same.scores(seen)) == pytest.approx([0, 1, 0, 0, nan, 0], nan_ok=True)
    # a and c are copies of one photo: "a boat" shares one of three words with "a dog"
    noise = np.random.default_rng(0).integers(0, 255, (3, 8, 9, 3), dtype=np.uint8)
    sizes = {"a": (90, 80), "b": (90, 80), "c": (180, 160)}

    def load(path: Path) -> Image.Image:
        picture = Image.fromarray(noise[1 if path.stem == "b" else 0])
        return picture.resize(sizes[path.stem], Image.Resampling.NEAREST)

    result = values(Duplicate(load=load).scores(seen))
    assert result == pytest.approx([0, 1, 0, 0, nan, 0.3333], nan_ok=True)
    with pytest.raises(ValueError, match="max_bits must be 0 to 15"):
        Duplicate(max_bits=16)


def test_copies_are_those_within_a_few_bits() -> None:
    rng = np.random.default_rng(0)
    hashes = [int(value) for value in rng.integers(0, 2**63, 60, dtype=np.uint64)]
    for number in range(20):
        flips = rng.choice(64, size=4, replace=False).tolist()
        hashes.append(hashes[number] ^ sum(1 << flip for flip in flips))
    result = copies(hashes, 4)
    for first, second in itertools.combinations(range(len(hashes)), 2):
        near = (hashes[first] ^ hashes[second]).bit_count() <= 4
        assert (result[first] == result[second]) == near


def test_equal_hashes_and_captions_are_not_compared_again_and_again(monkeypatch) -> None:
    compared = []

    class Hash(int):
        def __xor__(self, other: int) -> int:
            compared.append(other)
            return int(self) ^ int(other)

    result = copies([Hash(5)] * 100 + [Hash(4)] + [Hash(5)] * 100 + [Hash(2**60 - 1)], 1)
    assert len(compared) <= 2 * 3
    assert result[0] == result[100] == result[200] != result[201]
    jaccard = duplicate._jaccard
    monkeypatch.setattr(
        duplicate, "_jaccard", lambda *bags: compared.append(bags) or jaccard(*bags)
    )
    compared.clear()
    captions = ["a dog", "a dog runs"] * 50
    samples = [
        Sample(row=0, sample_id=f"{n}", image_id="a", image_path=Path("a.jpg"), caption=text)
        for n, text in enumerate(captions)
    ]
    view = CurationView(roster=build_roster("copies", samples))
    result = Duplicate(max_bits=None).scores(Context.before_training(view))
    assert values(result) == pytest.approx([0, 0.6667] + [1] * 98)
    assert len(compared) == 1


def test_low_visual_gain_is_suspicious() -> None:
    gains = [[1.0, 2, 3, 4, nan, 0], [nan, 0.0, 1, 4, nan, -1]]
    measured = context([[0.0] * 6] * 2, visual_gain=gains)
    last_epoch = values(VisualGain().scores(measured))
    assert last_epoch == pytest.approx([nan, 0, -1, -4, nan, 1], nan_ok=True)
    both = values(VisualGain(num_epochs=2).scores(measured))
    assert both == pytest.approx([-1, -1, -2, -4, nan, 0.5], nan_ok=True)
    with pytest.raises(ValueError, match="set curation/probe=visual_gain"):
        VisualGain().scores(context())


def test_ranks_are_shared_by_equal_scores() -> None:
    result = values(ranked(torch.tensor([10.0, nan, 30, 20, 20, 99])))
    assert result == pytest.approx([0, nan, 0.75, 0.375, 0.375, 1], nan_ok=True)
    assert ranked(torch.tensor([nan, nan])).isnan().all()
    assert values(ranked(torch.tensor([nan, 7.0])))[1] == 0


def test_joint_scores_are_weighted() -> None:
    seen = context([[0, 1, 2, 3, 4, 5]])
    plain = Joint(parts={"loss": Loss(), "words": Length()}, scale="rank").scores(seen)
    ranks = (ranked(Loss().scores(seen)) + ranked(Length().scores(seen))) / 2
    assert values(plain) == values(ranks)
    parts = {"loss": Loss(), "words": Length()}
    heavy = Joint(parts=parts, weights={"loss": 99, "words": 1}).scores(seen)
    assert heavy.argsort().tolist() == [0, 1, 2, 3, 4, 5]
    scaled = Joint(parts=parts, weights={"loss": 3, "words": 1}).scores(seen)
    losses, words = np.arange(6.0), np.array([2, 3, 1, 3, 1, 2.0])
    expected = 0.75 * (losses - 2.5) / losses.std(ddof=1) + 0.25 * (words - 2) / words.std(ddof=1)
    assert values(scaled) == pytest.approx(expected.round(4).tolist(), abs=1e-4)
    assert values(standardised(torch.tensor([2.0, nan, 2]))) == pytest.approx(
        [0, nan, 0], nan_ok=True
    )
    with pytest.raises(ValueError, match="scale must be one of"):
        Joint(parts=parts, scale="log")
    with pytest.raises(ValueError, match="at least two parts"):
        Joint(parts={"loss": Loss()})
    with pytest.raises(ValueError, match="needs one positive weight"):
        Joint(parts=parts, weights={"loss": 1, "words": 0})


def test_within_an_image_only_the_difference_to_the_others_counts() -> None:
    seen = context([[9, 9, 12, 50, 1, nan]])
    result = values(WithinImage(score=Loss()).scores(seen))
    assert result == pytest.approx([-1.5, -1.5, 3, nan, nan, nan], nan_ok=True)


def replaced(seen: Context, sample_id: str, epoch: int, action: str = "replace_caption") -> Context:
    """``seen`` after another caption or picture has come in at the end of ``epoch``."""
    edit = Edit(sample_id=sample_id, action=action, value="a new one", epoch=epoch)
    return replace(seen, view=seen.view.apply([edit]))


@pytest.mark.parametrize("action", ["replace_caption", "replace_image"])
def test_what_was_measured_of_another_pair_does_not_count(action: str) -> None:
    losses = [[9.0, 2, 3, 4, 5, 6], [9.0, 2, 3, 4, 5, 6], [1.0, 2, 3, 4, 5, 6]]
    before = context(losses, summed_loss=losses, visual_gain=losses)
    seen = replaced(before, "a#0", 1, action)
    gain = VisualGain(num_epochs=3)
    assert values(Loss(num_epochs=3).scores(seen)) == [1, 2, 3, 4, 5, 6]
    assert values(Loss(num_epochs=3, loss="sum").scores(seen)) == [1, 2, 3, 4, 5, 6]
    assert values(gain.scores(seen)) == [-1, -2, -3, -4, -5, -6]
    for kind in ("area", "forgetting", "hard_to_learn"):
        history = LossHistory(kind=kind).scores(seen)
        assert history.argmin() == 0, kind  # the easiest pair there is
        # the others are judged as if nothing had been replaced, by the medians of then
        assert torch.equal(history[1:], LossHistory(kind=kind).scores(before)[1:])
    # of a pair that no epoch has shown yet nothing is known
    unseen = replaced(before, "a#0", 2, action)
    scores = (Loss(num_epochs=3), LossHistory(), LossHistory(kind="hard_to_learn"), gain)
    for score in scores:
        assert score.scores(unseen).isnan().tolist() == [True] + [False] * 5
    # edits before training leave all epochs
    assert values(Loss(num_epochs=3).scores(replaced(before, "a#0", -1, action)))[0] == 6.3333


def test_the_loss_of_the_last_epoch_is_of_the_pair_of_now() -> None:
    seen = context([[9.0, 2, 3, 4, 5, 6], [1.0, 2, nan, 4, 5, 6]], removed=["a#2"])
    seen = replaced(seen, "a#0", 0)
    assert Loss().scores(seen) is seen.losses


def test_a_gain_that_was_measured_of_another_pair_is_none() -> None:
    gains = [[1.0, 2, 3, 4, 5, 6], [nan] * 6]  # the probe has stopped
    seen = replaced(context([[0.0] * 6] * 2, visual_gain=gains), "a#0", 0)
    result = values(VisualGain().scores(seen))
    assert result == pytest.approx([nan, -2, -3, -4, -5, -6], nan_ok=True)


def test_removed_samples_have_no_score_and_shift_no_joint_one() -> None:
    history = [[1.0, 2, 60, 3, 5, 4], [1.0, 2, nan, 3, 5, 4]]
    seen = context(history, removed=["a#2"], visual_gain=history)
    for score in (Loss(num_epochs=2), LossHistory(), VisualGain(num_epochs=2)):
        assert score.scores(seen).isnan().tolist() == [False, False, True, False, False, False]

    class Everything(Length):
        """A score that tells numbers of removed samples, too."""

        def scores(self, context: Context) -> torch.Tensor:
            return torch.tensor([1.0, 2, 60, 3, 5, 4])

    for scale in ("std", "rank"):
        joint = Joint(parts={"a": Everything(), "b": Loss()}, scale=scale).scores(seen)
        live = Joint(parts={"a": Loss(), "b": Loss()}, scale=scale).scores(seen)
        assert values(joint) == pytest.approx(values(live), nan_ok=True)
