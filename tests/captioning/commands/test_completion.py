"""The script of ``captioning completion bash``, in a real bash."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from captioning.commands.completion import bash_script
from captioning.commands.main import COMMANDS

BASH = shutil.which("bash") or ""
pytestmark = pytest.mark.skipif(not BASH, reason="no bash")
BREAKS = " \t\n\"'><=;|&(:"  # COMP_WORDBREAKS of an interactive shell
# As bash calls the function that it was given.
ASK = r"""
COMP_WORDBREAKS="$2" COMP_LINE="$1" COMP_POINT=${#1}
eval "$(complete -p captioning | sed -E 's/.*-F ([^ ]+) .*/\1/')"
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "captioning.bash"
    path.write_text(bash_script(COMMANDS))
    return path


def completed(script: Path, line: str, breaks: str = BREAKS) -> list[str]:
    asked = f"source {script}\n{ASK}"
    done = subprocess.run(
        [BASH, "--norc", "-c", asked, "bash", line, breaks],
        capture_output=True, text=True, check=True, cwd=script.parent,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("captioning eva", ["evaluate"]),
        ("captioning curate exp", ["export"]),
        ("captioning curate export runs/a b --form", ["--format", "--form"]),
        ("captioning check x --format ", ["text", "json"]),
        ("captioning train num_ep", ["num_epochs="]),
        ("captioning train model=updown_s", ["updown_small"]),
        ("captioning -m evaluate", []),
        ("captioning evaluate model", ["model="]),
        ("captioning curate journal rep", ["repair"]),
        ("captioning evaluate captioning.b", ["captioning.bash"]),
        ("captioning evaluate run=captioning.b", ["captioning.bash"]),
    ],
)
def test_bash_completes(script: Path, line: str, offered: list[str]) -> None:
    assert sorted(completed(script, line)) == sorted(offered)


def test_settings_that_bash_does_not_split_are_completed_whole(script: Path) -> None:
    offered = completed(script, "captioning train model=updown_s", " \t\n")
    assert offered == ["model=updown_small"]


def test_every_command_is_offered(script: Path) -> None:
    assert set(completed(script, "captioning ")) == {name.split()[0] for name in COMMANDS}
