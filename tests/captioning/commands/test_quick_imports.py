from __future__ import annotations

import gc

import pytest

from captioning.commands.quick_imports import quick_imports


@pytest.fixture(autouse=True)
def garbage_is_collected_again():
    yield
    gc.enable()


def test_garbage_is_collected_again_afterwards() -> None:
    with quick_imports():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_caller_that_collects_none_stays_so() -> None:
    gc.disable()
    with quick_imports():
        assert not gc.isenabled()
    assert not gc.isenabled()
