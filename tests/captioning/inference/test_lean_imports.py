"""What captioning one photo imports: time before the first caption is time of imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ceilings import ceilings

PHOTO = Path(__file__).parents[3] / "docs" / "images" / "miniworld.jpg"
OWN = {"captioning", "curation", "augmentation"}
MEASURE = "own modules imported to caption a photo"
# Seconds to import each, and nothing that a caption needs.
LEFT_OUT = {
    *("pytorch_lightning", "hydra", "torchvision", "timm", "transformers"),
    *("pandas", "matplotlib", "sympy", "torch._dynamo"),
    *("captioning.data.roster", "captioning.data.batches.datamodule", "captioning.training.run"),
}
COMMAND = """
from captioning.commands.main import main
assert main(["caption", {photo!r}]) == 0
"""
IN_PYTHON = """
from captioning import Captioner
print(Captioner.load().caption([{photo!r}])[0].caption)
"""


@pytest.mark.parametrize("program", [COMMAND, IN_PYTHON], ids=["command", "Captioner"])
def test_a_caption_imports_little(program: str) -> None:
    listed = "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    script = program.format(photo=str(PHOTO)) + listed
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    caption, modules = ended.stdout.strip().splitlines()
    assert "people" in caption
    imported = set(json.loads(modules))
    assert not imported & LEFT_OUT
    own = sorted(name for name in imported if name.partition(".")[0] in OWN)
    assert len(own) <= ceilings()[MEASURE], own
