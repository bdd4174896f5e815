"""Planted faults with known truth, and a measure of how well a policy finds these faults."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from operator import ne
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from captioning.data.roster import CurationView, PlantedWord, Roster
from captioning.metrics.detection import area_under_roc, detect_kinds, precision_at_noise_rate
from captioning.text.sentence_spans import sentence_spans
from captioning.text.word_rows import WORD, same_thing
from captioning.types import Sample
from curation.amend.replace_word import ORIGIN
from curation.amend.sentences import ORIGIN as SENTENCE_ORIGIN
from curation.base import Context, as_numpy
from curation.loop.policy import Decision

Mend = Literal["", "right", "wrong", "needless"]
"""Effect of replacing a word: the fault is mended, the fault remains, or the caption had no planted
fault. Empty: no word was replaced."""
MENDS = get_args(Mend)[1:]


def load_truth(source: Mapping[str, str] | str | Path | None) -> dict[str, str]:
    """Load the kind of planted fault by ``sample_id``.

    Args:
        source: a mapping, the path of a JSON file that holds one, or None for unknown.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a JSON object of strings.
    """
    if source is None:
        return {}
    where, truth = "truth", source
    if isinstance(source, str | Path):
        where = str(source)
        if not Path(source).is_file():
            raise FileNotFoundError(
                f"{where} does not exist; truth must name a JSON file of planted faults"
            )
        try:
            truth = json.loads(Path(source).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where} is not JSON ({error})") from error
    if not isinstance(truth, Mapping) or not all(
        isinstance(key, str) and isinstance(kind, str) for key, kind in truth.items()
    ):
        raise ValueError(f"{where} must map each sample_id to the kind of fault, both strings")
    return dict(truth)


def check_truth(truth: Mapping[str, str], roster: Roster) -> None:
    """Raise ValueError if the truth names samples that the roster lacks.

    Raises:
        ValueError: the roster lacks an id.
    """
    unknown = sorted(truth.keys() - roster.by_id.keys())
    if unknown:
        raise ValueError(
            f"truth names {len(unknown)} samples that {roster.name!r} lacks, such as "
            f"{unknown[0]!r}: it belongs to other annotations"
        )


def faulty_kinds(view: CurationView, truth: Mapping[str, str]) -> dict[int, str]:
    """Kind of fault by row, for live samples that are faulty in their current state.

    A sample whose bad caption was replaced is sound, unless the caption it now holds is itself
    faulty; one whose photo is wrong stays faulty until the photo is replaced or it is removed.
    Kinds that begin with ``image`` are faults of the photo, all others of the caption. A caption
    with a wrong word stays faulty through any edit until it has the right word in that place.
    """
    kinds = {
        sample.row: fault_of(
            sample, held_id=view.held_id(sample.sample_id), roster=view.roster, truth=truth
        )
        for sample in view.samples()
    }
    return {row: kind for row, kind in kinds.items() if kind}


def fault_of(sample: Sample, *, held_id: str, roster: Roster, truth: Mapping[str, str]) -> str:
    """Kind of a sample's planted fault in its current state, or an empty text without fault.

    Args:
        sample: the sample with its present caption and photo.
        held_id: id of the roster's sample whose caption it holds: its own id, or a sibling's.
        roster: captions and photos before curation.
        truth: kind of fault by ``sample_id``.
    """
    planted = truth.get(sample.sample_id, "")
    if _is_image_fault(planted) and sample.image_path == roster.by_id[sample.sample_id].image_path:
        return planted
    kind = truth.get(held_id, "")
    if not kind or _is_image_fault(kind):
        return ""
    faulty, word = roster.by_id[held_id].caption, roster.planted_words.get(held_id)
    if sample.caption == faulty:
        return kind
    if word is not None and (sentence := _wrong_sentence(faulty, word)):
        if sentence in sample.caption:
            return kind
        if not word.right:  # the whole sentence was wrong
            return ""
    return kind if word is not None and _stays_wrong(sample.caption, faulty, word) else ""


def _wrong_sentence(faulty: str, word: PlantedWord) -> str:
    """Sentence with the fault in a caption of several sentences; empty for a single sentence."""
    spans = sentence_spans(faulty)
    inside = (faulty[start:stop] for start, stop in spans if start <= word.start < stop)
    return next(inside, "") if len(spans) > 1 else ""


def wrong_sentences(view: CurationView) -> dict[int, int]:
    """Start of the planted wrong sentence in each live long caption, by row.

    Captions without the wrong sentence, and captions of a single sentence, have no entry.
    """
    roster, starts = view.roster, {}
    for sample in view.samples():
        held_id = view.held_id(sample.sample_id)
        word = roster.planted_words.get(held_id)
        if word is None:
            continue
        sentence = _wrong_sentence(roster.by_id[held_id].caption, word)
        for start, stop in sentence_spans(sample.caption):
            if sentence and sample.caption[start:stop] == sentence:
                starts[sample.row] = start
    return starts


def _stays_wrong(caption: str, faulty: str, word: PlantedWord) -> bool:
    """Return whether a changed caption still has the fault: the right word was not restored.

    It is another caption if it has more words or fewer, or if most of its words are others.
    """
    matches = list(WORD.finditer(faulty))
    old = [_plain(match[0]) for match in matches]
    new = [_plain(text) for text in WORD.findall(caption)]
    if len(old) != len(new) or 2 * sum(map(ne, old, new)) > len(new):
        return False
    place = next((n for n, match in enumerate(matches) if match.start() == word.start), None)
    right = word.right.lower()
    return place is not None and new[place] not in same_thing().get(right, {right})


def _plain(word: str) -> str:
    """Lower-case words of a text; all articles become one word."""
    return "a" if word.lower() == "an" else word.lower()


def mend_of(
    before: Sample, after: Sample, *, held_id: str, roster: Roster, truth: Mapping[str, str]
) -> Mend:
    """Effect of a word replacement or a sentence removal on a sample.

    Empty where there was neither.

    Args:
        before, after: the sample.
        held_id, roster, truth: see `fault_of`.
    """
    if not after.origin.startswith((ORIGIN, SENTENCE_ORIGIN)) or after.caption == before.caption:
        return ""
    if not fault_of(before, held_id=held_id, roster=roster, truth=truth):
        return "needless"
    return "wrong" if fault_of(after, held_id=held_id, roster=roster, truth=truth) else "right"


def count_mends(
    before: CurationView, after: CurationView, truth: Mapping[str, str]
) -> dict[str, int]:
    """Count how the edits between two views changed captions, by effect."""
    old = {sample.sample_id: sample for sample in before.samples()}
    counts = Counter(
        mend_of(
            old[sample.sample_id],
            sample,
            held_id=before.held_id(sample.sample_id),
            roster=before.roster,
            truth=truth,
        )
        for sample in after.samples()
    )
    return {f"num_mended_{mend}": counts[mend] for mend in MENDS}


def _is_image_fault(kind: str) -> bool:
    return kind.startswith("image")


def detect(
    *, context: Context, decision: Decision, scores: Tensor, kinds: Mapping[int, str]
) -> dict[str, Any]:
    """Detection scores of ranking by loss, of the selector's ranking, and of the selection.

    Args:
        context: the decision's context.
        decision: the decision with the selected samples.
        scores: ``(N,)`` the selector's suspicion.
        kinds: kind of fault by row before the decision, see `faulty_kinds`.

    Returns:
        Plain values. ``auc`` and ``precision_at_noise_rate`` rank the live samples by loss,
        ``selector_...`` by the selector's suspicion; ``precision`` and ``recall`` describe the
        selected samples; ``by_kind`` ranks the faults of each kind by loss, see
        `captioning.metrics.detection.KindDetection`; None where undefined.
    """
    faulty = np.zeros(len(context.losses), dtype=bool)
    faulty[list(kinds)] = True
    rows = np.array([candidate.sample.row for candidate in decision.selected], dtype=np.int64)
    num_faulty, num_hits = int(faulty.sum()), int(faulty[rows].sum())
    return {
        "num_faulty": num_faulty,
        "noise_rate": num_faulty / len(context.live),
        **_ranking("", context, context.losses, faulty),
        **_ranking("selector_", context, scores, faulty),
        "num_hits": num_hits,
        "precision": num_hits / len(rows) if len(rows) else None,
        "recall": num_hits / num_faulty if num_faulty else None,
        "by_kind": _by_kind(context, kinds),
    }


def count_kinds(truth: Mapping[str, str], sample_ids: list[str]) -> dict[str, int]:
    """Count the samples of each kind of fault in ``sample_ids``."""
    return dict(
        Counter(truth[sample_id] for sample_id in sample_ids if sample_id in truth).most_common()
    )


def _ranking(
    prefix: str, context: Context, scores: Tensor, faulty: np.ndarray
) -> dict[str, float | None]:
    values = as_numpy(scores)
    known = context.live_rows[~np.isnan(values[context.live_rows])]
    if not len(known):  # for example a signal that is no longer measured
        return {f"{prefix}auc": None, f"{prefix}precision_at_noise_rate": None}
    auc = area_under_roc(values[known], faulty[known])
    precision = precision_at_noise_rate(values[known], faulty[known])
    return {
        f"{prefix}auc": None if np.isnan(auc) else auc,
        f"{prefix}precision_at_noise_rate": None if np.isnan(precision) else precision,
    }


def _by_kind(context: Context, kinds: Mapping[int, str]) -> dict[str, dict[str, float | None]]:
    """Measure how well the loss finds each kind of fault among the live samples."""
    losses = np.full(len(context.losses), np.nan)
    losses[context.live_rows] = as_numpy(context.losses)[context.live_rows]
    if np.isnan(losses).all():  # before training
        return {}
    return detect_kinds(losses, kinds).to_dict()["by_kind"]
