from __future__ import annotations

import numpy as np
import pytest

from captioning.results.significance import PairedDifference, paired_bootstrap, pool_runs


def scores(values: np.ndarray) -> dict[str, dict[str, float]]:
    return {str(row): {"CIDEr-D": float(value)} for row, value in enumerate(values)}


def compare(before: np.ndarray, after: np.ndarray, seed: int = 0) -> PairedDifference:
    generator = np.random.default_rng(seed)
    return paired_bootstrap(
        scores(before), scores(after), "CIDEr-D", generator=generator, num_resamples=2000
    )


def test_interval_is_that_of_the_normal_law() -> None:
    generator = np.random.default_rng(1)
    before = generator.gamma(1, 1, 1000)
    shift = generator.normal(0.05, 0.5, 1000)
    difference = compare(before, before + shift)
    error = shift.std(ddof=1) / np.sqrt(1000)
    assert difference.mean == pytest.approx(shift.mean())
    assert difference.low == pytest.approx(shift.mean() - 1.96 * error, abs=error / 5)
    assert difference.high == pytest.approx(shift.mean() + 1.96 * error, abs=error / 5)
    assert difference.num_images == 1000


def test_pairing_makes_a_small_steady_gain_significant() -> None:
    before = np.random.default_rng(2).gamma(1, 1, 200)
    gain = compare(before, before + 0.01)
    assert gain.low == pytest.approx(0.01)
    assert gain.p_value == 0
    assert compare(before, before).p_value == 1


def test_few_images_never_make_a_gain_sure() -> None:
    for num_images, smallest in ((1, 1.0), (3, 0.25), (10, 2**-9)):
        before = np.zeros(num_images)
        assert compare(before, before + 0.01).p_value == pytest.approx(smallest, abs=1e-6)


def test_swapping_turns_the_sign_and_a_seed_repeats() -> None:
    generator = np.random.default_rng(3)
    before, after = generator.random(50), generator.random(50)
    there, back = compare(before, after), compare(after, before)
    assert (there.mean, there.low, there.high) == pytest.approx((-back.mean, -back.high, -back.low))
    assert compare(before, after) == there
    assert compare(before, after, seed=1) != there


def test_order_of_images_changes_nothing() -> None:
    generator = np.random.default_rng(4)
    before, after = scores(generator.random(20)), scores(generator.random(20))
    turned = dict(reversed(after.items()))
    first, second = (
        paired_bootstrap(before, scores_after, "CIDEr-D", generator=np.random.default_rng(0))
        for scores_after in (after, turned)
    )
    assert first == second


def test_bad_input_is_named() -> None:
    generator = np.random.default_rng(0)
    first, second = scores(np.ones(3)), scores(np.ones(4))
    with pytest.raises(ValueError, match="1 are in one only, such as '3'"):
        paired_bootstrap(first, second, "CIDEr-D", generator=generator)
    with pytest.raises(ValueError, match="before has no METEOR for image '0'"):
        paired_bootstrap(first, first, "METEOR", generator=generator)
    with pytest.raises(ValueError, match="BLEU-4 is not a mean"):
        paired_bootstrap(first, first, "BLEU-4", generator=generator)
    for wrong in (np.nan, np.inf):
        odd = scores(np.array([1, wrong, 1]))
        with pytest.raises(ValueError, match="CIDEr-D of image '1' must be a finite number"):
            paired_bootstrap(first, odd, "CIDEr-D", generator=generator)
    null = first | {"1": {"CIDEr-D": None}}
    with pytest.raises(ValueError, match="after has no CIDEr-D for image '1'"):
        paired_bootstrap(first, null, "CIDEr-D", generator=generator)
    with pytest.raises(ValueError, match="confidence"):
        paired_bootstrap(first, first, "CIDEr-D", generator=generator, confidence=95)


def test_runs_are_pooled_by_image_whatever_their_order() -> None:
    runs = [scores(np.array([1.0, 2, 6])), dict(reversed(scores(np.array([3.0, 2, 0])).items()))]
    pooled = pool_runs(runs, "CIDEr-D")
    assert pooled == scores(np.array([2.0, 2, 3]))
    assert pool_runs(runs[:1], "CIDEr-D") == runs[0]
    with pytest.raises(ValueError, match="1 are in one only, such as '3'"):
        pool_runs([runs[0], scores(np.ones(4))], "CIDEr-D")
    with pytest.raises(ValueError, match="run 0 has no METEOR"):
        pool_runs(runs, "METEOR")
    with pytest.raises(ValueError, match="got none"):
        pool_runs([], "CIDEr-D")
