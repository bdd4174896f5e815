"""Makers answer as commands do, under the name that they are called by."""

from __future__ import annotations

import contextlib

import pytest

from tools.assets.__main__ import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_every_maker_answers_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    maker = name.removeprefix("assets ")
    with contextlib.suppress(SystemExit):  # as argparse ends
        main([maker, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert COMMANDS[name].summary in shown
    assert f"python -m tools.assets {maker}" in shown


def test_the_overview_names_all_makers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name.removeprefix('assets ')} " in shown for name in COMMANDS)
    assert main(["no-such-maker"]) == 2


def test_wrong_settings_end_in_a_line() -> None:
    with pytest.raises(SystemExit, match=r"^assets autoencoder: num_val: must be "):
        main(["autoencoder", "num_val=0"])
