"""Errors of bad input: place, problem and remedy, which the command or config layer words.

A reader knows its arguments. The same argument is ``data.bad_captions=drop`` on the command line of
a training, ``--annotations NAME`` of ``captioning check``, and ``bad_captions="drop"`` in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Setting:
    """An argument of a part, as a remedy names it.

    Attributes:
        name: the argument's name.
        value: value to set; empty if the user chooses it.
    """

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


Wording = Callable[[Setting], str | Setting]
"""How a setting is typed, or the argument of another part that it is."""


class AbstractSettingError(Exception):
    """Bad input: its file or key, the problem and the remedy.

    Args:
        place: file or folder, with line, key or member where there is one; or the argument that is
            wrong.
        problem: the problem.
        remedy, *more: the remedy in pieces; settings among them are worded later.
    """

    def __init__(
        self,
        place: str | PathLike[str] | Setting,
        problem: str,
        remedy: str | Setting,
        *more: str | Setting,
    ) -> None:
        self.remedy = (remedy, *more)
        super().__init__(f"{place}: {problem}; {''.join(map(str, self.remedy))}")
        self.place = place if isinstance(place, Setting) else fspath(place)
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.place, self.problem, *self.remedy)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The settings that are not worded yet."""
        pieces = (self.place, *self.remedy)
        return tuple(piece for piece in pieces if isinstance(piece, Setting))

    @property
    def finding(self) -> str:
        """The message without its remedy."""
        return f"{self.place}: {self.problem}"

    def worded(self, wording: Wording) -> Self:
        """The same error with other words for its settings."""
        place, *remedy = (
            wording(piece) if isinstance(piece, Setting) else piece
            for piece in (self.place, *self.remedy)
        )
        return type(self)(place, self.problem, *remedy)

    def or_else(self, *remedy: str | Setting) -> Self:
        """The same error with a further remedy."""
        return type(self)(self.place, self.problem, *self.remedy, ", or ", *remedy)


class SettingError(AbstractSettingError, ValueError):
    """Bad input that its user corrects, or that a setting takes or reads otherwise."""


class SettingNotFoundError(AbstractSettingError, FileNotFoundError):
    """A file or folder that is not there, and where to get it or the settings that name another."""
