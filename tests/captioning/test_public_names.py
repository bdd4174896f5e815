"""The names that users may import, and that they are found by completion."""

from __future__ import annotations

from types import ModuleType

import pytest

import captioning
import curation


@pytest.mark.parametrize("package", [captioning, curation])
def test_public_names_are_there_and_listed(package: ModuleType) -> None:
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = package.other
