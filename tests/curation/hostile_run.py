"""A finished run in which every text that reaches its page is hostile."""

from __future__ import annotations

from pathlib import Path

from hostile_texts import HOSTILE

from captioning.results.runs import Run
from curation.record import RunRecord
from curation.review.runs.reading import FinishedRun

TITLE = "".join(HOSTILE)


def hostile_run(record: RunRecord, name: str = TITLE) -> FinishedRun:
    """A run whose names, captions, settings, versions, scores and notes are all hostile."""
    texts = dict(zip(HOSTILE, HOSTILE, strict=True))
    test = record.view.roster
    images = {sample.image_id: {"CIDEr-D": 0.1 * sample.row} for sample in test.samples}
    scores = {"corpus": {"CIDEr-D": 0.5, **dict.fromkeys(HOSTILE, 0.1)}, "per_image": images}
    return FinishedRun(
        run=Run(
            folder=Path(name),
            config={"run_name": name, "seed": HOSTILE[3], "model": {"name": HOSTILE[0]}, **texts},
            versions=texts,
            metrics={"test": scores | {"settings": {"tokenizer": HOSTILE[1]}}},
            detection=(),
            timing=({"seconds": 1.0, "captions_per_second": 2.0, "updates": 3},),
            files={},
        ),
        history=[{"epoch": epoch, "CIDEr-D": 0.1 * epoch} for epoch in (0, 1)],
        start={"CIDEr-D": 0.1},
        losses=[(0.0, 2.0), (1.0, 1.0)],
        predictions={sample.image_id: sample.caption for sample in test.samples},
        dropped={text: [{"item": text, "rule": text}] for text in HOSTILE},
        record=record,
        unit="loss",
        train=test,
        test=test,
        notes=HOSTILE,
    )
