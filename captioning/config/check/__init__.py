"""Config values are checked before any work, by the types and ranges beside the constructors."""

from captioning.config.check.check import check_config

__all__ = ["check_config"]
