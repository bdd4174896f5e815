"""A paper in small, for tests of its file, its cells and its runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from captioning.papers.paper import Paper
from captioning.papers.paper_file import read_paper

CONTENT: dict[str, Any] = {
    "title": "A paper",
    "citation": "Somebody (2024)",
    "scales": {"full": "all of it", "flickr8k": "in small"},
    "runs": {
        "pairs": {
            "seeded": False,
            "flickr8k": {"steps": ["augment out={run}"], "differs": ["a small model", "few pairs"]},
        },
        "ours": {
            "full": "the data were never released",
            "flickr8k": {
                "steps": ["train added={run:pairs} name=s{seed}", "evaluate run={run}"],
                "hours": 2,
                "differs": ["a small model"],
            },
        },
    },
    "items": {
        "table1": {
            "page": 4,
            "title": "All methods",
            "columns": [{"name": "C", "metric": "CIDEr-D"}, {"name": "human", "metric": None}],
            "rows": [
                {"name": "Ours", "published": [101.5, 3], "run": "ours"},
                {"name": "Theirs", "published": [99, None], "quoted": "Others (2020)"},
            ],
        }
    },
}


@pytest.fixture
def content() -> dict[str, Any]:
    """Its file's content, to change."""
    return json.loads(json.dumps(CONTENT))


def paper_of(folder: Path, content: dict[str, Any]) -> Paper:
    """The paper, from a file in a folder."""
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return read_paper(path)
