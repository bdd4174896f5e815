"""Captioners and curated sets on a stand-in hub: sent, read again by name and commit, refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from captioning.commands.main import main
from captioning.data.readers.own.own import read_own
from captioning.data.roster import CurationView, build_roster
from captioning.types import Edit, Sample
from curation.export.export import export
from curation.record import RunRecord
from tests.hub_server import SENDS_FILES_AS_DATA, Hub, running_hub

REPO = "owner/small"
pytestmark = pytest.mark.filterwarnings(SENDS_FILES_AS_DATA)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running_hub(monkeypatch, tmp_path / "hub") as hub:
        yield hub


@pytest.fixture
def curated(tmp_path: Path) -> Path:
    """An exported set of four photos, of which one caption was removed."""
    samples = []
    for row in range(4):
        path = tmp_path / "photos" / f"{row}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8), (row * 40, 0, 0)).save(path)
        names = {"sample_id": f"{row}#0", "image_id": str(row), "image_path": path}
        samples.append(Sample(row=row, caption=f"A dog of number {row}.", **names))
    view = CurationView(roster=build_roster("dogs", samples))
    record = RunRecord(
        policy="p", seed=0, view=view.apply([Edit(sample_id="2#0", action="remove")])
    )
    export(record, None, tmp_path / "curated", format="imagefolder", photos="copy")
    return tmp_path / "curated"


def test_a_set_is_pushed_and_read_by_name_and_commit(hub, curated, capsys) -> None:
    assert main(["push", str(curated), "--repo", REPO, "--public"]) == 0
    name = capsys.readouterr().out.splitlines()[0].partition(":")[0]
    assert not hub.repositories[f"dataset {REPO}"].private
    roster = read_own(name="dogs", folder=name)
    assert [sample.caption[-2] for sample in roster.samples] == ["0", "1", "3"]
    with pytest.raises(ValueError, match="lacks its commit: write owner/small@COMMIT"):
        read_own(name="dogs", folder=f"{REPO}@main")


def test_a_changed_photo_is_refused(hub, curated, capsys) -> None:
    main(["push", str(curated), "--repo", REPO])
    name = capsys.readouterr().out.splitlines()[0].partition(":")[0]
    hub.flip = "1.jpg"
    with pytest.raises(ValueError, match=r"1\.jpg: not the file of this commit"):
        read_own(name="dogs", folder=name)


def test_a_dry_run_sends_nothing(hub, curated, capsys) -> None:
    assert main(["push", str(curated), "--repo", REPO, "--dry-run"]) == 0
    assert hub.requests == []
    shown = capsys.readouterr().out
    assert f"dataset {REPO}: 6 files" in shown
    assert "metadata.jsonl" in shown


def test_other_files_stay_unless_they_are_replaced(hub, curated, capsys) -> None:
    main(["push", str(curated), "--repo", REPO])
    (curated / "3.jpg").rename(curated / "4.jpg")
    assert main(["push", str(curated), "--repo", REPO]) == 1
    assert "has other files, such as 3.jpg" in capsys.readouterr().err
    assert main(["push", str(curated), "--repo", REPO, "--replace"]) == 0
    first, last = hub.repositories[f"dataset {REPO}"].commits.values()
    assert {*first} - {*last} == {"3.jpg"}
    assert {*last} - {*first} == {"4.jpg"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["photos", "--repo", REPO], "photos: neither a run, nor what captioning export"),
        (["curated", "--repo", "small"], "--repo small: write OWNER/NAME"),
    ],
)
def test_what_cannot_be_pushed_is_refused(hub, curated, arguments, message, capsys) -> None:
    assert main(["push", str(curated.parent / arguments[0]), *arguments[1:]]) == 1
    assert message in capsys.readouterr().err
    assert hub.requests == []


def test_who_is_not_logged_in_is_told_how(hub, curated, capsys, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert main(["push", str(curated), "--repo", REPO]) == 1
    assert "hf auth login" in capsys.readouterr().err


def test_a_refused_token_is_not_shown(hub, curated, capfd, monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_" + "wrong" * 6)
    assert main(["push", str(curated), "--repo", REPO]) == 1
    shown = "".join(capfd.readouterr())
    assert "the hub refused the upload" in shown
    assert "401" in shown
    assert "wrongwrong" not in shown
