"""Two processes (gloo) share scores and captions, and know the same of all photos."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

SCRIPT = Path(__file__).parent / "shared_scores.py"


@pytest.mark.long
def test_each_does_its_share_and_knows_all(tmp_path, repository):
    for number in range(5):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(tmp_path / f"{number}.png")
    environment = os.environ | {"PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen([sys.executable, SCRIPT, str(rank), "2", tmp_path], env=environment)
        for rank in range(2)
    ]
    assert [process.wait(timeout=200) for process in processes] == [0, 0]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    for name in ("scores", "captions"):
        assert first[name] == second[name]
    assert first["scores"][0] == pytest.approx([0.1, 0.2] * 5)
    assert first["scores"][1] == pytest.approx([0.1, 0.2] * 5 + [0.3])
    assert first["captions"] == [[f"photo {number}"] for number in range(5)]
    assert (first["scored"], second["scored"]) == (["0", "2", "4", "0"], ["1", "3"])
    assert (first["written"], second["written"]) == (["0", "2", "4"], ["1", "3"])
