"""Errors whose remedy names a setting, which is worded by whoever knows how it is typed.

A reader knows its arguments. The same argument is ``data.bad_captions=drop`` on the command line of
a training, ``--annotations NAME`` of ``captioning check``, and ``bad_captions="drop"`` in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Setting:
    """An argument of a part, as a remedy names it.

    Attributes:
        name: of the argument.
        value: to be given; empty where the user chooses it.
    """

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


Wording = Callable[[Setting], str | Setting]
"""How a setting is typed, or the argument of another part that it is."""


class AbstractSettingError(Exception):
    """Bad input, and the settings by which it is taken or read otherwise.

    Args:
        *pieces: of the message, in order; settings among them are worded later.
    """

    def __init__(self, *pieces: str | Setting) -> None:
        super().__init__("".join(map(str, pieces)))
        self.pieces = pieces

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The settings that are not worded yet."""
        return tuple(piece for piece in self.pieces if isinstance(piece, Setting))

    def worded(self, wording: Wording) -> Self:
        """The same error with other words for its settings."""
        return type(self)(
            *(wording(piece) if isinstance(piece, Setting) else piece for piece in self.pieces)
        )


def pieces_of(error: Exception) -> tuple[str | Setting, ...]:
    """The pieces of an error's message, for an error that says more."""
    return error.pieces if isinstance(error, AbstractSettingError) else (str(error),)


class SettingError(AbstractSettingError, ValueError):
    """Bad input that a setting takes or reads otherwise."""


class SettingNotFoundError(AbstractSettingError, FileNotFoundError):
    """A file or folder that is not there, and the settings that name another."""
