"""Speed up imports, which take most of the time of a short command."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

# What Lightning takes of it. The rest brings torchvision, transformers and scipy: 3 s.
_TAKEN = {
    "Metric": "torchmetrics.metric",
    "MetricCollection": "torchmetrics.collections",
    "__version__": "torchmetrics.__about__",
}


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Disable garbage collection while modules are imported.

    Nearly all objects of an import are kept, and the search for garbage took a fifth of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def import_torchmetrics_late() -> None:
    """Let ``import torchmetrics`` load only the modules that are used.

    The real package loads completely when anything but `_TAKEN` is used. Nothing changes if it is
    already imported or not installed.
    """
    spec = None if "torchmetrics" in sys.modules else importlib.util.find_spec("torchmetrics")
    if spec is None or spec.loader is None:
        return
    package, loader, loading = importlib.util.module_from_spec(spec), spec.loader, threading.RLock()

    def load_all(name: str) -> Any:
        with loading:
            if package.__dict__.pop("__getattr__", None) is not None:
                loader.exec_module(package)
        return getattr(package, name)

    def load(name: str) -> Any:
        if name == "_logger":  # which its modules take of it
            return logging.getLogger("torchmetrics")
        if name in _TAKEN:
            try:
                importlib.import_module("torchmetrics.utilities")  # before what imports it in turn
                return getattr(importlib.import_module(_TAKEN[name]), name)
            except ImportError:  # another version than those that are known
                return load_all(name)
        if name.startswith("__"):  # searches through all modules, such as inspect's, ask for these
            raise AttributeError(f"module 'torchmetrics' has no attribute {name!r}")
        return load_all(name)

    package.__dict__["__getattr__"] = load
    sys.modules["torchmetrics"] = package
