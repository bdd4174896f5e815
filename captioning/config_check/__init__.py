"""Config values are checked before any work, by the types and ranges beside the constructors."""

from captioning.config_check.check import check_config
from captioning.config_check.hydra_errors import explain_hydra_error

__all__ = ["check_config", "explain_hydra_error"]
