"""How large the house is, measured, and the ceilings that docs/concepts/architecture.md gives it.

    .venv/bin/python -m tests.ceilings

prints what is measured beside the ceilings. A ceiling moves only in a commit that says why.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests.rules import PACKAGES, Sources, imports, nodes

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "concepts" / "architecture.md"
TITLE = "## How large it may be"
UNTYPED = ("DictConfig", "Any")
# Each module has its own, as Python or a layout asks for it.
EXPECTED_TWICE = {"__init__", "__main__", "base", "method"}


def sources() -> dict[str, str]:
    """Texts of the product's modules by dotted name."""
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts): file.read_text(encoding="utf-8")
        for file in sorted(files)
    }


def importers(modules: Sources) -> dict[str, set[str]]:
    """Modules of the product that import each module."""
    known = {name.removesuffix(".__init__"): name for name in modules}
    found: dict[str, set[str]] = defaultdict(set)
    for module, text in modules.items():
        for name, _ in imports(text):
            for target in (name, name.rpartition(".")[0]):
                if target in known and known[target] != module:
                    found[known[target]].add(module)
                    break
    return found


def untyped(modules: Sources) -> list[str]:
    """Functions with an argument ``config`` whose type says nothing of its keys."""
    return [
        f"{module}:{node.lineno}"
        for module, text in modules.items()
        for node in nodes(text)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if argument.arg == "config"
        and ast.unparse(argument.annotation or ast.Constant("")) in UNTYPED
    ]


def measured() -> dict[str, int]:
    """Each measure of the table by its name."""
    modules = sources()
    plain = [name for name in modules if not name.endswith("__init__")]
    found = importers(modules)
    shared = Counter(name.rpartition(".")[2] for name in plain)
    return {
        "files": len(modules),
        "lines": sum(text.count("\n") for text in modules.values()),
        "files that one other file imports": sum(len(found[name]) == 1 for name in plain),
        "loose modules in `captioning/`": len([*(ROOT / "captioning").glob("*.py")]),
        "functions with an untyped `config`": len(untyped(modules)),
        "names that modules share": sum(
            count > 1 and name not in EXPECTED_TWICE for name, count in shared.items()
        ),
        "words of README.md": words(ROOT / "README.md"),
        "words of CHANGELOG.md": words(ROOT / "CHANGELOG.md"),
    }


def words(path: Path) -> int:
    """Words of a page."""
    return len(path.read_text(encoding="utf-8").split())


def ceilings() -> Mapping[str, int]:
    """The table's ceilings by measure.

    Raises:
        ValueError: the page has no such table.
    """
    text = PAGE.read_text(encoding="utf-8").partition(TITLE)[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| ([\d,]+) \|", text, re.MULTILINE)
    if not rows:
        raise ValueError(f"{PAGE}: no table below {TITLE!r}")
    return {name: int(number.replace(",", "")) for name, number in rows}


if __name__ == "__main__":
    limits = ceilings()
    for measure, number in measured().items():
        print(f"{measure}: {number:,} (ceiling {limits.get(measure, 0):,})")
