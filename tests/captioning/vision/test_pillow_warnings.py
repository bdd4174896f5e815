"""Warnings of Pillow are ignored in threads, and no filter is lost."""

from __future__ import annotations

import threading
import warnings

import pytest

from captioning.vision.photos import pillow_warnings_ignored


def test_filters_are_as_before_when_threads_overlap():
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))

    def first() -> None:
        with pillow_warnings_ignored():
            first_is_in.set()
            second_is_in.wait(5)
        first_is_out.set()

    def second() -> None:
        first_is_in.wait(5)
        with pillow_warnings_ignored():
            second_is_in.set()
            first_is_out.wait(5)
            warnings.warn("still ignored", stacklevel=1)

    before = list(warnings.filters)
    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert warnings.filters == before


def test_an_error_inside_leaves_no_filter():
    before = list(warnings.filters)
    with pytest.raises(ValueError, match="damaged"), pillow_warnings_ignored():
        raise ValueError("damaged")
    assert warnings.filters == before
