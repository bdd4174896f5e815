"""Training on buckets of a score: captions of a finished run are those of the best bucket."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest

from captioning.evaluation.predict import load_run, predict_run
from tests.run_calls import train

BY_LENGTH = ("curation=condition", "curation/score=length", "curation.amend.num_buckets=2")
LEARNS = ("num_epochs=12", "optimizer.lr=0.03", "search.max_length=20", "model.module.dropout=0")


@pytest.mark.long
def test_captions_are_those_of_the_best_bucket(small, tmp_path: Path) -> None:
    train(small(*BY_LENGTH, *LEARNS))
    folder = tmp_path / "run"
    lines = [json.loads(line) for line in (folder / "curation.jsonl").read_text().splitlines()[1:]]
    assert {(line["action"], line["value"], line["epoch"]) for line in lines} == {
        ("set_bucket", "1", -1)
    }
    (record, *_) = json.loads((folder / "curation" / "epochs.json").read_text())
    assert record["num_put_into_bucket"] == len(lines) == record["notes"]["in bucket 1"]
    assert record["notes"]["in bucket 0"] + len(lines) == record["num_selected"] == 100

    stored = json.loads((folder / "predictions.json").read_text())
    again, *_ = predict_run(folder, split="test")
    assert {p.image_id: p.caption for [p] in again} == {e["image_id"]: e["caption"] for e in stored}

    run = load_run(folder)
    (batch, *_) = run.datamodule.eval_dataloader(run.roster)
    lengths = []
    for token in (run.model.tokenizer.bos_id, run.model.tokenizer.token_id("<bucket1>")):
        run.model.tokenizer.bos_id = token
        captions = [p.caption for [p] in run.model.candidates(batch)]
        lengths.append(fmean(len(caption.split()) for caption in captions))
    # the best bucket has the short captions here
    assert lengths[0] + 1 < lengths[1]


@pytest.mark.parametrize("tokenizer", ["words_control", "prompt_words"])
def test_vocabularies_without_tokens_for_buckets_are_refused(small, tokenizer: str) -> None:
    with pytest.raises(ValueError, match=r"has no begin token for bucket 1, as curation=cond"):
        train(small(*BY_LENGTH, f"tokenizer={tokenizer}", "num_epochs=1"))
