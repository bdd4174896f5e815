"""Whole runs with captions and scores by models: CapFilt, and REPLACECAP by a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioning.runtime.files import read_json
from tests.matching_folders import save_blip_matching
from tests.run_calls import train
from tests.served_model import chat, photo_of, served


@pytest.fixture
def first(trained_once) -> Path:
    return trained_once("num_epochs=1", "curation=none", "optimizer.lr=0.01")


def journal(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "curation.jsonl").read_text().splitlines()[1:]]


@pytest.mark.long
def test_capfilt_before_training(small, first, tmp_path):
    matching = save_blip_matching(tmp_path / "itm")
    settings = (
        "num_epochs=1",
        "curation=capfilt",
        "caption_source@curation.captioner=run",
        "search@curation.captioner.captioner.search=sampling",
        "steps=[caption_slots]",
        "curation.threshold=0.5",
        f"curation.captioner.captioner.run={first}",
        "curation.captioner.captioner.search.max_length=8",
        f"curation.filter.scorer.name={matching}",
    )
    train(small(*settings, folder="second"))
    edits = journal(tmp_path / "second")
    record = read_json(tmp_path / "second" / "curation" / "epochs.json")[0]
    slots = {e["sample_id"] for e in edits if "#made" in e["sample_id"]}
    filled = [e for e in edits if e["action"] == "replace_caption"]
    assert len(slots) == 20
    assert record["notes"].get("made caption accepted", 0) == len(filled)
    assert sum(record["notes"].values()) == 20
    assert all(e["epoch"] == -1 and e["policy"].startswith("capfilt") for e in edits)
    assert all(e["origin"].startswith("model:updown_tiny@") for e in filled)
    removed = [e for e in edits if e["action"] == "remove"]
    assert record["num_removed"] == len(removed) == len(edits) - 2 * len(filled)
    assert (tmp_path / "second" / "curation" / "report.html").is_file()
    # all is in the cache: the same again needs neither captioner nor head
    again = small(*settings, "seed=1", "curation.captioner.captioner.search.seed=0", folder="third")
    train(again)
    assert journal(tmp_path / "third") == edits


def test_replaced_by_a_models_captions(small, first, tmp_path):
    settings = (
        "num_epochs=2",
        "curation=replace_caption_model",
        "caption_source@curation.amend.source=run",
        "curation.select.ratio=0.2",
        f"curation.amend.source.captioner.run={first}",
        "curation.amend.source.captioner.search.max_length=8",
    )
    train(small(*settings, folder="second"))
    edits = journal(tmp_path / "second")
    assert edits
    assert all(e["action"] == "replace_caption" for e in edits)
    assert all(e["origin"].startswith("model:updown_tiny@") for e in edits)


def test_replaced_by_a_served_models_captions(small, tmp_path):
    urls = []

    def answer(body):
        url = photo_of(body)
        urls.append(url)
        if len(urls) > 3 and url == urls[3]:  # after those of the check
            return 400, {}, {"error": {"message": "too odd"}}
        return chat(f"Photo {len(url) % 97} as it is.", tokens=50 if url else 5)

    with served(answer) as server:
        settings = (
            "num_epochs=2",
            "curation=replace_caption_model",
            "caption_source@curation.amend.source=server",
            "curation.select.ratio=0.2",
            f'curation.amend.source.captioner.name="{server.address}#m"',
        )
        train(small(*settings, folder="second"))
    edits = journal(tmp_path / "second")
    assert edits
    assert all(e["value"].endswith("as it is.") for e in edits)
    assert all(e["origin"] == "model:m" for e in edits)
    records = read_json(tmp_path / "second" / "curation" / "epochs.json")
    without = [record["served"]["m"]["without"] for record in records if "served" in record]
    assert without[0] == {"the request failed": 1}
    assert records[0]["notes"]["left alone: m wrote nothing"] >= 1
    assert "share without" in (tmp_path / "second" / "curation" / "report.html").read_text()
