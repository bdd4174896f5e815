"""The drawn world that generators train on in tests."""

from tests.augmentation.image_replacement.training.conftest import config, world

__all__ = ["config", "world"]
