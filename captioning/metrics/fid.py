"""Distances between two sets of images in the feature space of a network, such as FID.

The Fréchet inception distance (Heusel et al., 2017, equation 6) is the squared Fréchet distance of
two Gaussians fitted to features of Inception-v3. Its value depends on the network and the number
of images, so only distances with equal network and number are comparable. With another network's
features the same formula is not an FID, so its name includes the network, as in
``FID(efficientnet_lite0)``.

Images arrive in batches and are not stored: only the features' mean and scatter matrix are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioning.runtime.extras import import_extra

Features = Callable[[Tensor], Tensor]

INCEPTION = "inception-v3-compat"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDistance:
    """Distance between two sets of images.

    Attributes:
        name: ``"FID"`` only for Inception-v3, else ``"FID(NETWORK)"`` or ``"paired L2(NETWORK)"``.
        value: at least 0; 0 for equal sets.
        num_images: number of images of the first and of the second set.
        num_features: feature size D. With D images or fewer, covariances are rank-deficient, and
            the Fréchet distance is much too large.
    """

    name: str
    value: float
    num_images: tuple[int, int]
    num_features: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeatureStatistics:
    """Mean and scatter matrix of the features of a set of images.

    Attributes:
        network: name of the network that computed the features.
        num_images: N, at least 1.
        mean: ``(D,) float64``.
        scatter: ``(D, D) float64``, the sum over images of the outer products of deviations from
            the mean.
    """

    network: str
    num_images: int
    mean: Tensor
    scatter: Tensor

    def covariance(self) -> Tensor:
        """Return the sample covariance (divided by N - 1), ``(D, D) float64``.

        Raises:
            ValueError: only one image.
        """
        if self.num_images < 2:
            raise ValueError("a covariance needs at least 2 images: got 1")
        return self.scatter / (self.num_images - 1)

    def merged(self, other: FeatureStatistics) -> FeatureStatistics:
        """Merge with the statistics of another set, exactly (Chan et al., 1979).

        Raises:
            ValueError: features of another network or size.
        """
        _check_alike(self, other)
        total = self.num_images + other.num_images
        gap = other.mean - self.mean
        weight = self.num_images * other.num_images / total
        return FeatureStatistics(
            network=self.network,
            num_images=total,
            mean=self.mean + gap * (other.num_images / total),
            scatter=self.scatter + other.scatter + weight * torch.outer(gap, gap),
        )


def feature_statistics(
    images: Iterable[Tensor], *, features: Features, network: str
) -> FeatureStatistics:
    """Compute the statistics of all images' features, batch by batch.

    Args:
        images: batches with images in the first dimension, as ``features`` expects them.
        features: function that returns ``(B, D)`` features; modules must be in evaluation mode.
        network: name of the network.

    Raises:
        ValueError: no images, or features with a wrong shape or non-finite values.
    """
    total: FeatureStatistics | None = None
    for batch in images:
        values = _features(batch, features, network)
        mean = values.mean(0)
        deviations = values - mean
        part = FeatureStatistics(
            network=network,
            num_images=len(values),
            mean=mean,
            scatter=deviations.T @ deviations,
        )
        total = part if total is None else total.merged(part)
    if total is None:
        raise ValueError(f"{network} received no images: give at least one")
    return total


def frechet_distance(first: FeatureStatistics, second: FeatureStatistics) -> float:
    """Return the squared Fréchet distance of Gaussians with these means and covariances.

    ``|m1 - m2|² + tr(C1 + C2 - 2 (C1 C2)^(1/2))``, in float64.

    Raises:
        ValueError: features of different networks or sizes, or a set of one image.
    """
    _check_alike(first, second)
    first_covariance, second_covariance = first.covariance(), second.covariance()
    # The trace of (C1 C2)^(1/2) is that of the symmetric (R1 C2 R1')^(1/2) where R1' R1 = C1, and
    # so the sum of the singular values of R1 R2'. Computing it so, instead of by roots of the
    # product's eigenvalues, avoids the loss of half the digits at low rank.
    overlap = torch.linalg.svdvals(_root(first_covariance) @ _root(second_covariance).T).sum()
    distance = (
        (first.mean - second.mean).square().sum()
        + first_covariance.trace()
        + second_covariance.trace()
        - 2 * overlap
    )
    return max(0.0, float(distance))


def frechet_image_distance(
    first: Iterable[Tensor], second: Iterable[Tensor], *, features: Features, network: str
) -> ImageDistance:
    """Return the Fréchet distance between two sets of images without correspondence.

    Args:
        first, second: batches of images, see `feature_statistics`.
        features: function that returns the ``(B, D)`` features of a batch.
        network: name of the network; `INCEPTION` only for `inception_features`.

    Raises:
        ValueError: fewer than two images in a set, or mismatched features.
    """
    first_statistics, second_statistics = (
        feature_statistics(images, features=features, network=network) for images in (first, second)
    )
    return ImageDistance(
        name="FID" if network == INCEPTION else f"FID({network})",
        value=frechet_distance(first_statistics, second_statistics),
        num_images=(first_statistics.num_images, second_statistics.num_images),
        num_features=len(first_statistics.mean),
    )


def paired_image_distance(
    first: Iterable[Tensor], second: Iterable[Tensor], *, features: Features, network: str
) -> ImageDistance:
    """Return the mean Euclidean distance between features of corresponding images.

    Example: photos, and the same photos with a pasted object.

    Args:
        first, second: batches of equal length, with images in the same order.
        features: function that returns the ``(B, D)`` features of a batch.
        network: name of the network.

    Raises:
        ValueError: no images, sets of different sizes, or mismatched features.
    """
    total, num_images, num_features = 0.0, 0, 0
    for batches in zip_longest(first, second):
        sizes = [0 if batch is None else len(batch) for batch in batches]
        if sizes[0] != sizes[1]:
            raise ValueError(
                "paired images must come in batches of equal length: got lengths "
                f"{sizes[0]} and {sizes[1]} after {num_images} pairs"
            )
        first_features, second_features = (_features(batch, features, network) for batch in batches)
        total += float((first_features - second_features).norm(dim=1).sum())
        num_images += sizes[0]
        num_features = first_features.shape[1]
    if num_images == 0:
        raise ValueError(f"{network} received no images: give at least one pair")
    return ImageDistance(
        name=f"paired L2({network})",
        value=total / num_images,
        num_images=(num_images, num_images),
        num_features=num_features,
    )


def inception_features(
    weights: str | Path | None = None, *, device: torch.device | str = "cpu"
) -> Features:
    """Return the 2048 features of published FIDs: TensorFlow's Inception-v3, by torch-fidelity.

    The function takes batches ``(B, 3, H, W) uint8`` of any size; its network name is `INCEPTION`.

    Args:
        weights: local file with torch-fidelity's weights; None: download them and check
            the hash in their name (eight digits of SHA-256).
        device: device of the network.

    Raises:
        ModuleNotFoundError: torch-fidelity is not installed.
        FileNotFoundError: the file does not exist.
        ValueError: the file holds other objects than tensors.
        ConnectionError: the weights cannot be downloaded.
    """
    module = import_extra(
        "torch_fidelity.feature_extractor_inceptionv3",
        extra="inception",
        purpose="Inception features (inception=false compares those of features=NAME instead)",
    )
    path = _fetched(module.URL_INCEPTION_V3) if weights is None else Path(weights)
    _check_weights(path)
    network = module.FeatureExtractorInceptionV3(
        INCEPTION, ["2048"], feature_extractor_weights_path=str(path)
    ).to(device)
    return lambda images: network(images.to(device))[0].cpu()


def _fetched(url: str) -> Path:
    """Download a file whose name ends with its hash, or return it from torch's cache."""
    path = Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[-1]
    digest = re.search(r"-([0-9a-f]{8,64})\.", path.name)
    if digest is None:
        raise ValueError(
            f"{url} has no hash in its name, so it is not downloaded; pass weights=FILE"
        )
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(url, str(path), hash_prefix=digest[1], progress=False)
        except (OSError, RuntimeError) as error:  # the second: another digest
            raise ConnectionError(
                f"torch-fidelity's weights could not be downloaded ({error}); download them on a "
                f"machine "
                "with network and pass weights=FILE"
            ) from error
    with path.open("rb") as file:
        if not hashlib.file_digest(file, "sha256").hexdigest().startswith(digest[1]):
            raise ValueError(f"{path}: SHA-256 must begin with {digest[1]}; delete the file")
    return path


def _check_weights(path: Path) -> None:
    """Raise an error unless a file holds only tensors; torch-fidelity would run pickled code."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; give torch-fidelity's weights")
    try:
        torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the readers raise a dozen types, pickle's among them
        raise ValueError(f"{path} is not a readable weights file ({error})") from error


@torch.no_grad()
def _features(images: Tensor, features: Features, network: str) -> Tensor:
    """Return ``(B, D) float64`` features on the CPU."""
    if len(images) == 0:
        raise ValueError("a batch must hold at least one image: got none")
    values = features(images)
    if values.dim() != 2 or len(values) != len(images):
        raise ValueError(
            f"{network} must return (B, D) features: got {tuple(values.shape)} for {len(images)} "
            "images; average the features of regions or grid cells first"
        )
    if not values.isfinite().all():
        raise ValueError(f"features of {network} must be finite: some are NaN or infinite")
    return values.detach().cpu().to(torch.float64)


def _root(covariance: Tensor) -> Tensor:
    """Return R ``(K, D)`` such that R'R equals the covariance ``(D, D)`` of rank K."""
    values, vectors = torch.linalg.eigh(covariance)
    rounding = len(values) * torch.finfo(values.dtype).eps * values.abs().max()
    is_positive = values > rounding
    return values[is_positive].sqrt()[:, None] * vectors[:, is_positive].T


def _check_alike(first: FeatureStatistics, second: FeatureStatistics) -> None:
    if first.network != second.network or first.mean.shape != second.mean.shape:
        raise ValueError(
            "statistics must come from one network's features: got "
            f"{first.network} with {len(first.mean)} and {second.network} with {len(second.mean)}"
        )
