"""Pages "add a ..." are followed word by word: their files are written, and their commands taken.

What the files then do in a training, a search or an augmentation is tested beside these.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from captioning.commands.command import HydraCommand
from captioning.commands.main import find_command
from captioning.config.check import check_config
from captioning.config.compose import compose_config
from captioning.config.plugins import import_plugins
from tests.pages import write_files
from tests.test_docs import COMMANDS, REPOSITORY, words_of

PAGES = sorted(path.name for path in (REPOSITORY / "docs" / "extend").glob("add_a*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_take_its_files(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)  # packages and configs are looked for there
    monkeypatch.syspath_prepend(tmp_path)
    written = write_files(REPOSITORY / "docs" / "extend" / page, tmp_path)
    own = [command for name, command in COMMANDS if name == page and "plugins=" in command]
    used: set[str] = set()
    for command in own:
        known, arguments = find_command([shlex.split(word)[0] for word in words_of(command)])
        assert isinstance(known, HydraCommand)
        config = compose_config(known.config, arguments)
        import_plugins(config.plugins)
        check_config(config)
        used |= {name for name in written if Path(name).stem in command}

    assert own
    configs = {name for name in written if name.endswith(".yaml")}
    assert configs
    assert configs <= used
