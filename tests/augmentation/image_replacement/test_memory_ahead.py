"""The process that makes pictures ahead holds the model while it has work."""

from __future__ import annotations

import os
import queue
import signal

import torch
from squares import Squares

from augmentation.image_replacement import generated
from augmentation.image_replacement.cache import PictureCache
from augmentation.image_replacement.generator import Job

NOTHING = "nothing"


class Noted(Squares):
    """Notes what it does."""

    def __init__(self, notes: list):
        super().__init__(batch_size=1)
        self.notes = notes

    def generate(self, jobs):
        self.notes.append(jobs[0].prompt)
        return super().generate(jobs)

    def release(self):
        self.notes.append("released")


class Script:
    """A queue that gives what a script says, one item at each look; and one that notes."""

    def __init__(self, *items: object, notes: list):
        self.items, self.notes = list(items), notes

    def get(self, timeout: float) -> object:
        if (item := self.items.pop(0)) == NOTHING:
            raise queue.Empty
        return item

    def get_nowait(self) -> object:
        raise queue.Empty

    def put(self, item: object) -> None:
        self.notes.append(item)


def test_the_model_is_freed_in_a_pause_and_where_nothing_is_left_to_make(tmp_path, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(os, "nice", lambda _: None)
    monkeypatch.setattr(generated, "end_with_parent", lambda: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    red, green, blue = (Job(prompt=f"a {word} ball", seed=1) for word in ("red", "green", "blue"))
    notes: list = []
    first, other, pause = (0, (red, green)), (0, (blue,)), (1, ())
    orders = Script(first, NOTHING, NOTHING, NOTHING, other, pause, NOTHING, None, notes=notes)
    cache = PictureCache(folder=tmp_path)
    generated._work(Noted(notes), cache, orders, Script(notes=notes), 1)
    expected = [0, "a red ball", "a green ball", "released", "a blue ball", "released", 1]
    assert notes == expected
