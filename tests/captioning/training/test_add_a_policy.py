"""docs/extend/add_a_policy.md, followed to the letter: its files train a curated captioner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioning.config.plugins import import_plugins
from curation.journal.journal import read_journal
from tests.pages import write_files
from tests.run_calls import train


@pytest.fixture
def user_folder(repository: Path, tmp_path: Path, monkeypatch) -> str:
    """The page's files in a folder of the user's own; the override that finds its configs."""
    files = write_files(repository / "docs" / "extend" / "add_a_policy.md", tmp_path / "user")
    assert len(files) == 6
    monkeypatch.syspath_prepend(tmp_path / "user")
    import_plugins(["my_curation"])
    return f"hydra.searchpath=[file://{tmp_path / 'user' / 'configs'}]"


@pytest.mark.long
@pytest.mark.parametrize(
    ("policy", "action", "reason"),
    [
        (("curation=remove", "curation/score=repetition"), "remove", "repeated words "),
        (("curation=remove", "curation/select=above_median"), "remove", "loss "),
        (("curation=truncate", "curation.amend.num_words=2"), "replace_caption", "words "),
    ],
)
def test_the_files_of_the_page_curate(small, user_folder, tmp_path, policy, action, reason):
    settings = ("curation.select.factor=1.05",) if "above_median" in policy[1] else ()
    train(small("num_epochs=1", *policy, *settings, user_folder))
    _, edits = read_journal(tmp_path / "run")
    assert edits
    assert {edit.action for edit in edits} == {action}
    assert all(edit.reason.startswith(reason) for edit in edits)
    record = json.loads((tmp_path / "run" / "curation" / "epochs.json").read_text())[0]
    assert record["num_selected"] == len(edits)
