from __future__ import annotations

from typing import get_type_hints

import pytest

from captioning.commands.main import COMMANDS
from captioning.commands.settings import SETTINGS
from captioning.config.compose import compose_config
from tools.assets.__main__ import COMMANDS as MAKERS


@pytest.mark.parametrize("name", SETTINGS)
def test_every_key_of_the_config_is_checked(name: str) -> None:
    config = compose_config((COMMANDS.get(name) or MAKERS[name]).config)
    assert set(map(str, config)) - set(get_type_hints(SETTINGS[name])) == set()
