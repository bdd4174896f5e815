"""The names that users may import, and that they are found by completion."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import captioning
import curation

PROMISED = """Amender Captioner CuratedDataset Curation Edit LightningCuration Policy Sample Score
Selector TrainerCuration augment check evaluate per_sample_losses score train"""
RESULTS = ["CaptionScores", "CaptionedPhoto", "CheckResult", "Evaluation", "Prediction"]
RESULTS += ["TrainedRun"]


@pytest.mark.parametrize("package", [captioning, curation])
def test_public_names_are_there_and_listed(package: ModuleType) -> None:
    assert package.__all__ == sorted(package.__all__) == dir(package)
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = package.other


def test_no_name_beside_the_promised_ones_and_their_results_is_public() -> None:
    assert captioning.__all__ == sorted([*PROMISED.split(), *RESULTS])


def test_the_reference_lists_the_public_names_and_where_bases_are(repository: Path) -> None:
    page = (repository / "docs" / "reference" / "api.md").read_text("utf-8")
    public = page.partition("\n## Public names\n")[2].partition("\n## ")[0]
    places = re.findall(r"^::: (\S+)\.(\w+)$", public, re.MULTILINE)
    assert sorted(name for _, name in places) == captioning.__all__
    for module, name in places:
        assert getattr(importlib.import_module(module), name) is getattr(captioning, name)
    bases = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| `([\w.]+)` \| \[", page, re.MULTILINE)
    assert len(bases) == len(re.findall("/extend/", page))
    for names, module in bases:
        for name in re.findall(r"\w+", names):
            assert inspect.isabstract(getattr(importlib.import_module(module), name))
    extended = {path.name for path in (repository / "docs" / "extend").glob("*.md")}
    assert set(re.findall(r"extend/(\w+\.md)", page)) == extended


def test_importing_imports_nothing_slow_and_sets_no_variable() -> None:
    text = """
import os, sys
before = dict(os.environ)
import captioning
slow = {"torch", "pytorch_lightning", "lightning", "hydra"} & set(sys.modules)
print(sorted(slow), os.environ == before)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "[] True\n"
