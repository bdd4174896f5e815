"""The notebook runs from front to end, and says what its text promises."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest


def code_cells(repository: Path) -> list[str]:
    notebook = json.loads((repository / "examples" / "first_steps.ipynb").read_text("utf-8"))
    assert notebook["nbformat"] == 4
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []  # results are those of the reader
            assert cell["execution_count"] is None
    return ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as notebooks do; the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return last and eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.long
def test_the_notebook_runs(
    repository: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAPTIONING_CACHE", str(cache))
    names: dict[str, Any] = {"__name__": "__main__"}
    values = [run_cell(source, names) for source in code_cells(repository)]
    assert 0 < values[0]["BLEU-1"] < 1
    right = sum(bool(change.fault) for change in names["edits"])
    assert right / len(names["edits"]) > 0.4  # twice what chance would have
    assert f"captions removed; {right} had been swapped" in capsys.readouterr().out
    assert "<html" in (tmp_path / "first_steps/curation/report.html").read_text("utf-8")[:200]
    (caption,) = values[-1]
    assert caption.split()
