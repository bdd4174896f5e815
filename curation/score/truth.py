"""Score samples by the planted faults: an oracle that gives policies an upper bound."""

from __future__ import annotations

import torch
from torch import Tensor

from captioning.data.roster import Roster
from captioning.text.sentence_spans import sentence_spans
from curation.base import (
    AbstractSentenceScore,
    AbstractWordScore,
    Context,
    SentenceDoubt,
    WordDoubt,
)
from curation.loop.planted_faults import faulty_kinds, wrong_sentences

_SURE = 100.0  # log-odds of a word that is known to be wrong


class Truth(AbstractWordScore):
    """1 for a sample that has a planted fault now, 0 for all other live samples.

    For upper bounds only. Real data has no such column: there it is an error to ask.
    """

    name = "truth of the planted faults"

    def scores(self, context: Context) -> Tensor:
        """Scores in {0, 1}; NaN for removed samples.

        Raises:
            ValueError: the dataset has no planted faults.
        """
        roster = _planted(context)
        scores = torch.full((len(roster),), torch.nan)
        scores[torch.from_numpy(context.live_rows)] = 0.0
        scores[list(faulty_kinds(context.view, roster.planted))] = 1.0
        return scores

    def doubts(self, context: Context) -> list[WordDoubt]:
        """Planted wrong words that are still in their captions, with the right words.

        Phrases that were appended have no word that would be right, and are left out.

        Raises:
            ValueError: the dataset has no planted faults.
        """
        roster = _planted(context)
        faulty = faulty_kinds(context.view, roster.planted)
        doubts = []
        for sample_id, word in roster.planted_words.items():
            row = roster.by_id[sample_id].row
            # not of a sample that got a sibling's faulty caption: the place is in another caption
            remains = row in faulty and context.live[row].caption == roster.samples[row].caption
            if remains and word.right:
                doubts.append(
                    WordDoubt(
                        row=row,
                        start=word.start,
                        word=word.wrong,
                        alternative=word.right,
                        log_odds=_SURE,
                        probability=1.0,
                    )
                )
        return sorted(doubts, key=lambda doubt: (doubt.row, doubt.start))


class TruthOfSentences(AbstractSentenceScore):
    """1 for the planted wrong sentence of a long caption, 0 for all other sentences.

    For upper bounds only, as `Truth`.
    """

    name = "truth of the planted sentences"

    def doubts(self, context: Context) -> list[SentenceDoubt]:
        """Records of all sentences of the live captions.

        Raises:
            ValueError: the dataset has no planted faults.
        """
        _planted(context)
        wrong = wrong_sentences(context.view)
        return [
            SentenceDoubt(
                row=row,
                start=start,
                sentence=sample.caption[start:stop],
                suspicion=float(wrong.get(row) == start),
            )
            for row, sample in context.live.items()
            for start, stop in sentence_spans(sample.caption)
        ]


def _planted(context: Context) -> Roster:
    roster = context.view.roster
    if not roster.planted:
        raise ValueError(
            f"score truth needs planted faults, but {roster.name!r} has none: set "
            "steps=[plant_swap20] (or another plant_NAME), or use another score"
        )
    return roster
