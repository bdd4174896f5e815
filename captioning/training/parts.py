"""The builder of parts under the name that training has for it."""

from captioning.config.build import build_part

__all__ = ["build_part"]
