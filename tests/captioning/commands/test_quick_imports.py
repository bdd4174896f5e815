from __future__ import annotations

import gc
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from captioning.commands.quick_imports import put_off, quick_imports


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package with a class in a submodule, another submodule, and an ``__init__``."""
    folder = tmp_path / "package_to_put_off"
    folder.mkdir()
    (folder / "__init__.py").write_text("from package_to_put_off import parts, rest\nready = 1\n")
    (folder / "parts.py").write_text("class Part:\n    pass\n")
    (folder / "rest.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder.name
    for module in [name for name in sys.modules if name.startswith(folder.name)]:
        del sys.modules[module]


def test_what_is_listed_comes_without_the_init(package: str) -> None:
    put_off({package: {"Part": f"{package}.parts", "parts": f"{package}.parts"}})
    lazy = importlib.import_module(package)
    assert lazy.Part is lazy.parts.Part
    assert f"{package}.rest" not in sys.modules
    assert importlib.import_module(f"{package}.parts") is lazy.parts


def test_another_name_runs_the_init_first(package: str) -> None:
    put_off({package: {"Part": f"{package}.parts"}})
    lazy = importlib.import_module(package)
    part = lazy.Part
    assert lazy.ready == 1
    assert f"{package}.rest" in sys.modules
    assert lazy.Part is part
    assert not hasattr(lazy, "missing")


@pytest.mark.parametrize("shortcuts", [{"Gone": "{}.parts"}, {"Part": "{}.gone"}])
def test_a_package_of_another_version_is_imported_as_always(
    package: str, shortcuts: dict[str, str]
) -> None:
    put_off({package: {name: module.format(package) for name, module in shortcuts.items()}})
    assert package not in sys.modules
    assert importlib.import_module(package).ready == 1


def test_an_imported_package_stays_and_a_missing_one_is_no_error(package: str) -> None:
    before = importlib.import_module(package)
    put_off({package: {}, "no_such_package": {}})
    assert importlib.import_module(package) is before
    assert "no_such_package" not in sys.modules


def test_garbage_is_collected_again_afterwards() -> None:
    with quick_imports():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with quick_imports():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_training_does_without_what_it_does_not_use() -> None:
    code = (
        "import sys\nfrom captioning.commands.quick_imports import quick_imports\n"
        "with quick_imports():\n    import captioning.training.run\n"
        "unused = {'torchmetrics.functional', 'scipy', 'sklearn', 'transformers'}\n"
        "assert not unused & set(sys.modules)\n"
        "import nltk, torchmetrics\n"
        "assert float(torchmetrics.MeanMetric()(3.0)) == 3\n"
        "assert issubclass(torchmetrics.MeanMetric, torchmetrics.Metric)\n"
        "assert nltk.wordpunct_tokenize('two words') == ['two', 'words']\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
