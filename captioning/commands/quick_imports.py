"""Imports in less time: commands of a few seconds spend most of them on importing.

Two things help. No garbage is collected while modules are imported: nearly all that they make is
kept, and looking through it took a fifth of the time. And packages are put off whose ``__init__``
imports far more than is used here: Lightning needs two classes of torchmetrics and the tokenizer
of words one of nltk, but both packages import all of their parts, and with them scipy,
transformers and scikit-learn. Such a package stands in ``sys.modules`` before its ``__init__`` has
run. Its submodules are imported as always, and a name that is not listed below runs ``__init__``
first, so that other code sees no difference.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# For each package the names that are available without its __init__: the module that defines the
# name, or the submodule of that name. torchmetrics.metric itself cannot be imported first: it and
# torchmetrics.utilities import each other.
SHORTCUTS: Mapping[str, Mapping[str, str]] = {
    "torchmetrics": {
        "__version__": "torchmetrics.__about__",
        "Metric": "torchmetrics.utilities.checks",
        "MetricCollection": "torchmetrics.collections",
    },
    "nltk": {"redos": "nltk.redos"},
    "nltk.tokenize": {"NLTKWordTokenizer": "nltk.tokenize.destructive"},
}


class LazyPackage(ModuleType):
    """A package that runs its ``__init__`` when a name is needed that is not listed.

    Args:
        spec: of the package, as `importlib.util.find_spec` returns it.
        shortcuts: the module of each name that is available without ``__init__``.
    """

    def __init__(self, spec: ModuleSpec, shortcuts: Mapping[str, str]) -> None:
        super().__init__(spec.name)
        self.__spec__ = spec
        self.__loader__ = spec.loader
        self.__file__ = spec.origin
        self.__package__ = spec.name
        self.__path__ = list(spec.submodule_search_locations or ())
        # Modules of torchmetrics take their logger from the package.
        self._logger = logging.getLogger(spec.name)
        self._shortcuts: Mapping[str, str] | None = shortcuts

    def __getattr__(self, name: str) -> Any:
        shortcuts, loader = self._shortcuts, self.__loader__
        if shortcuts is None or loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name in shortcuts:
            module = importlib.import_module(shortcuts[name])
            value = module if module.__name__ == f"{self.__name__}.{name}" else vars(module)[name]
            setattr(self, name, value)
            return value
        self._shortcuts = None  # before __init__ runs, as it asks for names of this module, too
        loader.exec_module(self)
        return getattr(self, name)


def put_off(shortcuts: Mapping[str, Mapping[str, str]]) -> None:
    """Import what is listed of each package and put the rest off.

    A package that is imported already stays as it is. One whose version cannot be imported in this
    way is left to be imported as always.

    Args:
        shortcuts: by package, as in ``SHORTCUTS``; a package stands before its subpackages.
    """
    for name in [name for name in shortcuts if name not in sys.modules]:
        try:
            _import_listed(name, shortcuts[name])
        except (ImportError, AttributeError, KeyError):
            top = name.partition(".")[0]
            for module in [m for m in sys.modules if m == top or m.startswith(f"{top}.")]:
                del sys.modules[module]


def _import_listed(name: str, shortcuts: Mapping[str, str]) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    sys.modules[name] = package = LazyPackage(spec, shortcuts)
    for shortcut in shortcuts:
        getattr(package, shortcut)


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Modules are imported sooner within this context."""
    collects = gc.isenabled()
    gc.disable()
    try:
        put_off(SHORTCUTS)
        yield
    finally:
        if collects:
            gc.enable()
