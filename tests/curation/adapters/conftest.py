"""A small GIT and photos, made once, and the examples as modules."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def git(tmp_path_factory) -> tuple[str, str]:
    """Folders of a model and of photos, see `tiny_git`."""
    import tiny_git

    folder = tmp_path_factory.mktemp("git")
    tiny_git.write_model(folder / "model")
    tiny_git.write_photos(folder / "photos")
    return str(folder / "model"), str(folder / "photos")


@pytest.fixture
def example(repository: Path) -> Callable[[str], ModuleType]:
    """An example by its name."""

    def function(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, repository / f"examples/{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return function
