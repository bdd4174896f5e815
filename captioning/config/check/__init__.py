"""Check config values before any work, using types and ranges in the constructors' signatures."""

from captioning.config.check.check import check_config

__all__ = ["check_config"]
