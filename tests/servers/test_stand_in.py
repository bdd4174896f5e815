"""The cases of `make server-test` with the stand-in, so that they stay good."""

from __future__ import annotations

import pytest

from tests.servers.__main__ import tried
from tests.servers.cases import CASES


@pytest.mark.long
def test_all_cases_pass_with_the_stand_in() -> None:
    outcomes = tried("stand-in")["outcomes"]
    assert list(outcomes) == list(CASES)
    assert not [line for line in outcomes.values() if "FAILED" in line or "not tried" in line]
