"""The sentence of a long caption that tells of another photo is found, marked and proposed away."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from captioning.data.roster import build_roster
from captioning.types import Sample
from curation.amend.sentences import removed_spans
from curation.check.check_files import export_cleaned
from curation.check.check_page import _marked
from curation.check.evidence import Evidence, PhotoFacts, Scores
from curation.check.result import CSV_NAME, CheckResult
from curation.check.sentence_checks import NAME, wrong_sentences
from curation.review.suspects.suspects import _mended

NUM_PHOTOS = SIZE = 60
DIRECTIONS = np.eye(SIZE, dtype=np.float32)


class Things:
    """Texts lie where the things lie that they name."""

    identity, dim = "things", SIZE

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        vectors = []
        for text in texts:
            noise = np.random.default_rng(sum(map(ord, text))).normal(size=SIZE)
            named = [DIRECTIONS[int(number)] for number in re.findall(r"thing(\d+)", text)]
            vectors.append(np.mean(named, 0) + 0.05 * noise)
        return torch.nn.functional.normalize(torch.tensor(np.stack(vectors)).float(), dim=1)


def evidence(wrong: Sequence[int]) -> Evidence:
    """A caption of four sentences a photo; of some photos the third names another thing."""
    samples, vectors, photos = [], [], {}
    for number in range(NUM_PHOTOS):
        other = (number + 5) % NUM_PHOTOS if number in wrong else number
        own = f"thing{number}"
        caption = f"A {own} is {number}. It is a {own}. See thing{other}. {own}!"
        path = Path(f"{number}.jpg")
        samples.append(
            Sample(
                row=number,
                sample_id=f"{number}",
                image_id=f"{number}",
                image_path=path,
                caption=caption,
            )
        )
        photos[path] = PhotoFacts(size=(64, 64), contrast=50, hash=number, key=f"{number:03}")
        vectors.append(DIRECTIONS[number])
    return Evidence(
        roster=build_roster("things", samples),
        photos=photos,
        photo_vectors=np.stack(vectors),
        encoder=Things(),
        space="toy",
    )


def test_the_sentence_of_another_photo_is_found(tmp_path: Path) -> None:
    wrong = [3, 20, 41]
    seen = evidence(wrong)
    scores = wrong_sentences(seen)
    assert np.flatnonzero(scores.values >= 0.5).tolist() == wrong
    for row in wrong:
        worst = scores.sentences[row][0]
        assert worst.sentence.startswith("See thing")
        worst.check(seen.roster.samples[row])
        assert worst.row == row
        assert repr(worst.sentence) in scores.reasons[row]
    result = CheckResult(roster=seen.roster, scores={NAME: scores}, thresholds={NAME: 0.5})
    told = [row for row in result.issues if NAME in row["issues"]]
    assert [row["sentence"] for row in told] == [scores.sentences[row][0].sentence for row in wrong]
    assert not any(row["flag"] for row in told)  # the cleaned set keeps them unless told otherwise

    result = replace(result, remove=(NAME,))
    result.issues.to_csv(tmp_path / CSV_NAME)
    with (tmp_path / CSV_NAME).open(encoding="utf-8", newline="") as file:
        flagged = [row for row in csv.DictReader(file) if row["flag"] == "True"]
    assert _mended(tmp_path, flagged[0]) == "A thing3 is 3. It is a thing3. thing3!"
    marked = _marked(flagged[0]["caption"], result.worst_sentence(3))
    assert marked == ["A thing3 is 3. It is a thing3. ", "See thing8.", " thing3!"]


def folder_of(seen: Evidence, folder: Path) -> Evidence:
    """The same with photos on disk."""
    samples = []
    for sample in seen.roster.samples:
        path = folder / sample.image_path
        Image.new("RGB", (8, 8), (sample.row, 9, 9)).save(path)
        samples.append(replace(sample, image_path=path))
    photos = {folder / path: facts for path, facts in seen.photos.items()}
    return replace(seen, roster=build_roster("things", samples), photos=photos)


@pytest.mark.parametrize("remove", [(), (NAME,)])
def test_the_cleaned_set_loses_wrong_sentences_and_the_journal_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], remove: tuple[str, ...]
) -> None:
    (tmp_path / "photos").mkdir()
    seen = folder_of(evidence([3, 20, 41]), tmp_path / "photos")
    scores = wrong_sentences(seen)
    # of one caption all sentences are in doubt, and another is of another photo as a whole
    doubts = {**scores.sentences}
    doubts[20] = tuple(replace(doubt, suspicion=0.9) for doubt in doubts[20])
    size = np.full(NUM_PHOTOS, np.nan)
    size[41] = 1
    result = CheckResult(
        roster=seen.roster,
        scores={NAME: replace(scores, sentences=doubts), "fit": Scores(values=size)},
        thresholds={NAME: 0.5, "fit": 0.5},
        remove=remove,
    )
    clean = tmp_path / "clean"
    number = export_cleaned(result, clean, format="coco", mend="sentences", held_out=0)
    assert number == NUM_PHOTOS - 1 - len(remove)
    lines = (clean / "curation.jsonl").read_text().splitlines()
    edits = {edit["sample_id"]: edit for edit in map(json.loads, lines[1:])}
    assert edits["3"]["value"] == "A thing3 is 3. It is a thing3. thing3!"
    (span,) = removed_spans(edits["3"]["origin"])
    assert seen.roster.samples[3].caption[span.start : span.stop] == "See thing8."
    assert re.search(
        r"not to belong to the photo, .*: 'See thing8\.' \([01]\.\d\d\)", edits["3"]["reason"]
    )
    assert edits["41"]["action"] == "remove"
    assert ("20" in edits) == bool(remove)
    told = capsys.readouterr().out
    fate = "are left out" if remove else "stay as they are"
    assert f"captions that lost sentences: 1; 1 flagged captions were not mended and {fate}" in told
    assert "(no sentence would be left" in told
    for other in (replace(result, scores={}), replace(result, scores={NAME: Scores(values=size)})):
        with pytest.raises(ValueError, match=r"cannot mend wrong sentences: (that|no) c"):
            export_cleaned(other, tmp_path / "no", format="coco", mend="sentences")


def test_captions_of_one_sentence_and_sets_without_a_space_are_not_judged() -> None:
    seen = evidence([])
    single = [replace(sample, caption=f"thing{sample.row}") for sample in seen.roster.samples]
    short = replace(seen, roster=build_roster("short", single))
    assert np.isnan(wrong_sentences(short).values).all()
    assert wrong_sentences(short).note == ""
    blind = wrong_sentences(replace(seen, encoder=None))
    assert np.isnan(blind.values).all()
    assert "no space embeds them" in blind.note


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_files_does_not_count(order: int) -> None:
    seen = evidence([3, 20])
    samples = seen.roster.samples[::order]
    turned = replace(
        seen,
        roster=build_roster("things", samples),
        photos={sample.image_path: seen.photos[sample.image_path] for sample in samples},
        photo_vectors=None if seen.photo_vectors is None else seen.photo_vectors[::order],
    )
    np.testing.assert_array_equal(
        wrong_sentences(turned).values[::order], wrong_sentences(seen).values
    )
