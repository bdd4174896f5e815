"""Errors of user input, with place, problem and remedy; commands word the remedy's settings.

A reader knows only its argument's name. The same argument is ``data.bad_captions=drop`` in a
training command, ``--annotations NAME`` in ``captioning check``, ``bad_captions="drop"`` in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Setting:
    """An argument of a component, which the remedy of an error names.

    Attributes:
        name: the argument's name.
        value: value to set; empty if the user chooses it.
    """

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


Wording = Callable[[Setting], str | Setting]
"""Function that writes a setting as the user types it, or maps it to another argument."""


class AbstractSettingError(Exception):
    """Wrong input of the user: the file or key, the problem and the remedy.

    Args:
        place: file or folder, with line, key or member if known; or the wrong argument.
        problem: the problem.
        remedy, *more: pieces of the remedy; settings among them are worded later.
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
        """Return the remedy's parts that are settings and still need words."""
        pieces = (self.place, *self.remedy)
        return tuple(piece for piece in pieces if isinstance(piece, Setting))

    @property
    def finding(self) -> str:
        """Return the message without its remedy."""
        return f"{self.place}: {self.problem}"

    def worded(self, wording: Wording) -> Self:
        """Return the same error with its settings worded by a function."""
        place, *remedy = (
            wording(piece) if isinstance(piece, Setting) else piece
            for piece in (self.place, *self.remedy)
        )
        return type(self)(place, self.problem, *remedy)

    def or_else(self, *remedy: str | Setting) -> Self:
        """Return the same error with a second remedy after "or"."""
        return type(self)(self.place, self.problem, *self.remedy, ", or ", *remedy)


class SettingError(AbstractSettingError, ValueError):
    """Wrong input that the user can correct, or work around with a setting."""


class SettingNotFoundError(AbstractSettingError, FileNotFoundError):
    """A missing file or folder; the remedy says where to get it or which setting to change."""
