from __future__ import annotations

import hashlib
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from captioning.metrics.fid import (
    INCEPTION,
    FeatureStatistics,
    feature_statistics,
    frechet_distance,
    frechet_image_distance,
    inception_features,
    paired_image_distance,
)


def points(seed: int, number: int, dim: int) -> Tensor:
    """Points with correlated coordinates and a mean."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    return torch.randn(number, dim, generator=generator, dtype=torch.float64) @ mixing + seed


def identity(images: Tensor) -> Tensor:
    return images


def statistics(values: Tensor, *, batch: int = 1000, network: str = "net") -> FeatureStatistics:
    return feature_statistics(values.split(batch), features=identity, network=network)


def gaussian(mean: list[float], covariance: list[list[float]]) -> FeatureStatistics:
    return FeatureStatistics(
        network="net",
        num_images=2,
        mean=torch.tensor(mean, dtype=torch.float64),
        scatter=torch.tensor(covariance, dtype=torch.float64),
    )


@settings(max_examples=30)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.sampled_from([0.0, 1e6]))
def test_batches_of_any_size_give_the_statistics_of_all(sizes: list[int], offset: float) -> None:
    values = points(3, sum(sizes), 4) + offset
    merged = feature_statistics(values.split(sizes), features=identity, network="net")
    assert merged.num_images == len(values)
    torch.testing.assert_close(merged.mean, values.mean(0), rtol=1e-12, atol=1e-12)
    if len(values) > 1:
        # a running sum of squares would have lost ten digits at this offset
        torch.testing.assert_close(merged.covariance(), values.T.cov(), rtol=1e-8, atol=1e-8)


def test_merging_parts_is_reading_all() -> None:
    values = points(1, 30, 3)
    parts = [statistics(values[a:b]) for a, b in pairwise([0, 1, 12, 30])]
    for merged in (parts[0].merged(parts[1]).merged(parts[2]), parts[2].merged(parts[0])):
        expected = statistics(values if merged.num_images == 30 else values[[*range(12, 30), 0]])
        torch.testing.assert_close(merged.mean, expected.mean)
        torch.testing.assert_close(merged.scatter, expected.scatter)


def test_diagonal_gaussians_in_closed_form() -> None:
    first = gaussian([0, 0, 1], [[4, 0, 0], [0, 9, 0], [0, 0, 0]])
    second = gaussian([3, 4, 1], [[1, 0, 0], [0, 25, 0], [0, 0, 2]])
    # |(3, 4, 0)|² and (2 - 1)² + (3 - 5)² + (0 - √2)²
    assert frechet_distance(first, second) == pytest.approx(25 + 1 + 4 + 2, rel=1e-12)


def test_correlated_gaussians_in_closed_form() -> None:
    first, second = [[2.0, 1.0], [1.0, 3.0]], [[5.0, -2.0], [-2.0, 1.0]]
    product = torch.tensor(first, dtype=torch.float64) @ torch.tensor(second, dtype=torch.float64)
    # the root of a 2x2 matrix M has the trace √(tr M + 2 √det M)
    trace = float((product.trace() + 2 * product.det().sqrt()).sqrt())
    result = frechet_distance(gaussian([0, 0], first), gaussian([0, 0], second))
    assert result == pytest.approx(5 + 6 - 2 * trace, rel=1e-12)


def test_samples_of_gaussians_come_near_the_closed_form() -> None:
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randn(20_000, 3, generator=generator, dtype=torch.float64) for _ in range(2)]
    result = frechet_distance(statistics(draws[0] * 2 + 1), statistics(draws[1]))
    assert result == pytest.approx(3 * 1 + 3 * (2 - 1) ** 2, rel=0.03)


@pytest.mark.parametrize(("number", "dim"), [(200, 8), (12, 20)])
def test_torchmetrics_agrees(number: int, dim: int) -> None:
    fid = pytest.importorskip("torchmetrics.image.fid")
    network = nn.Flatten()
    network.num_features = dim
    reference = fid.FrechetInceptionDistance(feature=network, normalize=True).set_dtype(
        torch.float64
    )
    first, second = points(1, number, dim), points(2, number + 3, dim)
    for values, real in ((first, True), (second, False)):
        reference.update(values, real=real)
    distance = frechet_image_distance(
        first.split(7), second.split(5), features=network.eval(), network="flat"
    )
    assert distance.value == pytest.approx(float(reference.compute()), rel=1e-6)
    assert distance.to_dict() | {"value": None} == {
        "name": "FID(flat)",
        "value": None,
        "num_images": (number, number + 3),
        "num_features": dim,
    }


@pytest.mark.parametrize("number", [2, 5, 300])
def test_equal_sets_lie_at_zero_whatever_the_rank(number: int) -> None:
    values = points(4, number, 40)
    shuffled = values[torch.randperm(number, generator=torch.Generator().manual_seed(1))]
    spread = float(statistics(values).covariance().trace())
    assert frechet_distance(statistics(values), statistics(shuffled)) <= 1e-11 * spread


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(2, 30), st.integers(2, 30))
def test_distance_is_symmetric_and_moves_with_the_mean(
    seed: int, num_first: int, num_second: int
) -> None:
    first, second = points(seed, num_first, 6), points(seed + 1, num_second, 6)
    result = frechet_distance(statistics(first), statistics(second))
    scale = float(statistics(torch.cat([first, second])).covariance().trace())
    assert result == pytest.approx(
        frechet_distance(statistics(second), statistics(first)), abs=1e-9 * scale
    )
    # covariances stay, so only the distance of the means changes
    shift = torch.arange(6, dtype=torch.float64)
    gap = first.mean(0) - second.mean(0)
    moved = frechet_distance(statistics(first + shift), statistics(second))
    expected = float((gap + shift).square().sum() - gap.square().sum())
    assert moved - result == pytest.approx(expected, abs=1e-9 * scale)


def test_order_of_images_and_size_of_batches_change_nothing() -> None:
    first, second = points(1, 40, 5), points(2, 40, 5)
    expected = frechet_distance(statistics(first), statistics(second))
    turned = frechet_distance(statistics(first.flip(0), batch=3), statistics(second, batch=1))
    assert turned == pytest.approx(expected, rel=1e-10)


def test_all_images_alike_have_no_spread() -> None:
    first, second = torch.zeros(3, 4), torch.ones(5, 4)
    assert frechet_distance(statistics(first), statistics(second)) == 4


def test_only_inception_is_called_fid() -> None:
    images = points(1, 5, 3)
    result = frechet_image_distance([images], [images], features=identity, network=INCEPTION)
    assert (result.name, result.value) == ("FID", pytest.approx(0, abs=1e-9))


def test_pairs_by_hand() -> None:
    first = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]])
    second = torch.tensor([[3.0, 4.0], [1.0, 1.0], [2.0, 1.0]])
    result = paired_image_distance(
        first.split(2), second.split(2), features=identity, network="net"
    )
    assert result.to_dict() == {
        "name": "paired L2(net)",
        "value": 2.0,
        "num_images": (3, 3),
        "num_features": 2,
    }


def test_pairs_depend_on_who_stands_with_whom_and_not_on_order() -> None:
    first = points(1, 12, 3)
    second = first + 1

    def distance(order: Tensor, other: Tensor) -> float:
        pairs = (first[order].split(5), second[other].split(5))
        return paired_image_distance(*pairs, features=identity, network="net").value

    same, turned = torch.arange(12), torch.arange(12).flip(0)
    assert distance(same, same) == pytest.approx(3**0.5)
    assert distance(turned, turned) == pytest.approx(3**0.5)
    assert distance(same, turned) > 2
    single = paired_image_distance([first], [first], features=identity, network="net")
    assert single.value == 0


def test_one_pair_is_enough_for_pairs_but_not_for_a_covariance() -> None:
    features = torch.tensor([[3.0, 4.0]])
    zero = torch.zeros(1, 2)
    assert paired_image_distance([features], [zero], features=identity, network="net").value == 5
    with pytest.raises(ValueError, match="at least 2 images: got 1"):
        frechet_image_distance([features], [zero], features=identity, network="net")


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "net received no images"),
        ([torch.zeros(0, 3)], "at least one image"),
        ([torch.zeros(2, 7, 3)], r"\(B, D\) features: got \(2, 7, 3\) for 2 images"),
        ([torch.zeros(3)], r"got \(3,\) for 3"),
        ([torch.tensor([[1.0, float("nan")]])], "must be finite"),
        ([torch.zeros(2, 3), torch.zeros(2, 4)], "net with 3 and net with 4"),
    ],
)
def test_bad_images_are_named(batches: list[Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        feature_statistics(batches, features=identity, network="net")


def test_features_that_lose_images_are_named() -> None:
    with pytest.raises(ValueError, match=r"got \(1, 3\) for 2 images"):
        feature_statistics([torch.zeros(2, 3)], features=lambda images: images[:1], network="net")


def test_statistics_of_two_networks_are_not_compared() -> None:
    first, second = statistics(points(1, 5, 3)), statistics(points(1, 5, 3), network="other")
    with pytest.raises(ValueError, match="net with 3 and other with 3"):
        frechet_distance(first, second)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([torch.zeros(2, 3)], [torch.zeros(3, 3)], "got lengths 2 and 3 after 0 pairs"),
        ([torch.zeros(2, 3)] * 2, [torch.zeros(2, 3)], "got lengths 2 and 0 after 2 pairs"),
        ([], [], "net received no images"),
    ],
)
def test_pairs_that_do_not_fit_are_named(first: list, second: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        paired_image_distance(first, second, features=identity, network="net")


def test_no_gradients_are_kept() -> None:
    network = nn.Linear(3, 2)
    statistics_of_ones = feature_statistics([torch.ones(4, 3)], features=network, network="net")
    assert not statistics_of_ones.mean.requires_grad
    assert statistics_of_ones.scatter.dtype == torch.float64


MODULE = "torch_fidelity.feature_extractor_inceptionv3"


class Extractor(nn.Module):
    """Stands for torch-fidelity's network."""

    def __init__(self, name: str, names: list[str], feature_extractor_weights_path: object):
        super().__init__()
        assert Path(str(feature_extractor_weights_path)).is_file()
        self.asked = (name, names)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return (images.float().mean((2, 3)),)


@pytest.fixture
def fidelity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    url = (tmp_path / "published-0000aaaa.pth").as_uri()
    stand_in = SimpleNamespace(FeatureExtractorInceptionV3=Extractor, URL_INCEPTION_V3=url)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setitem(sys.modules, "torch_fidelity", SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, MODULE, stand_in)


def test_inception_gives_the_first_of_its_outputs(fidelity: None, tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(1)}, tmp_path / "weights.pth")
    features = inception_features(tmp_path / "weights.pth")
    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    result = frechet_image_distance([images], [images], features=features, network=INCEPTION)
    assert (result.name, result.num_features) == ("FID", 3)


def test_inception_without_its_package_or_weights_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # parts of it that another test has loaded would still be found
    for name in {"torch_fidelity", *(n for n in sys.modules if n.startswith("torch_fidelity."))}:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match="torch_fidelity.* is not installed.*'inception'"):
        inception_features()


def test_inception_weights_that_cannot_be_had_are_named(fidelity: None, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="could not be downloaded .*weights=FILE"):
        inception_features()
    with pytest.raises(FileNotFoundError, match="weights.pth"):
        inception_features(tmp_path / "weights.pth")
    torch.save({"weight": Path("code")}, tmp_path / "code.pth")  # no tensor: pickled code
    with pytest.raises(ValueError, match="code.pth is not a readable weights file"):
        inception_features(tmp_path / "code.pth")


def test_inception_weights_are_those_of_the_digest_in_their_name(
    fidelity: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"weight": torch.ones(1)}, tmp_path / "published-0000aaaa.pth")
    with pytest.raises(ConnectionError, match="invalid hash"):
        inception_features()
    assert list((tmp_path / "hub" / "checkpoints").iterdir()) == []
    digest = hashlib.sha256((tmp_path / "published-0000aaaa.pth").read_bytes()).hexdigest()[:8]
    right = (tmp_path / "published-0000aaaa.pth").rename(tmp_path / f"published-{digest}.pth")
    monkeypatch.setattr(sys.modules[MODULE], "URL_INCEPTION_V3", right.as_uri())
    inception_features()
    fetched = tmp_path / "hub" / "checkpoints" / right.name
    right.unlink()
    inception_features()  # from the cache
    fetched.write_bytes(fetched.read_bytes() + b"0")
    with pytest.raises(ValueError, match="must begin with"):
        inception_features()
    monkeypatch.setattr(sys.modules[MODULE], "URL_INCEPTION_V3", "https://host/unnamed.pth")
    with pytest.raises(ValueError, match="has no hash in its name"):
        inception_features()
