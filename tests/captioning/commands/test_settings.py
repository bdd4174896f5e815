from __future__ import annotations

import pytest

from captioning.config.check.check import schema_of
from captioning.config.compose import compose_config
from tests.task_calls import SCHEMAS, schema


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_key_of_the_config_is_checked(name: str) -> None:
    config = compose_config(SCHEMAS[name].config)
    assert set(map(str, config)) - set(schema_of(schema(name)).annotations) == set()
