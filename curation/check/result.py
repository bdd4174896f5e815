"""Results of a check: a table of captions, a summary, a page, and a cleaned dataset."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioning.data.readers.split_words import Split
from captioning.data.roster import Roster
from captioning.runtime.extras import import_extra
from captioning.runtime.files import write_atomically, write_text
from captioning.types import Edit
from curation.base import SentenceDoubt
from curation.check.check_page import less_sure, write_page
from curation.check.checks import ALL_CHECKS, TELLING, Check
from curation.check.evidence import Scores
from curation.check.generator_folder import Note
from curation.check.mend import Replacement, Shortening, replacement
from curation.check.sentence_checks import NAME as SENTENCES
from curation.check.word_checks import NAME as WORDS

CSV_NAME, PARQUET_NAME, PAGE_NAME = "issues.csv", "issues.parquet", "report.html"
LEFT_OUT = "left_out"
HEAD = ("file", "name", "sample_id", "caption", "flag", "suspicion", "issues", "reason")
WORD_COLUMNS = ("word", "word_start", "replacement")
SENTENCE_COLUMNS = ("sentence", "sentence_start")
JUDGE_COLUMNS = ("judge", "judge_said")
FITS = 0.5  # score of a judge from which on a caption fits
POLICY = "check"
# Arrow's types of columns, also where all values are empty; checks have floats.
_KINDS: dict[str, str] = dict.fromkeys((*HEAD, "word", "replacement", "sentence"), "string")
_KINDS |= {"judge_said": "string"}
_KINDS |= {"flag": "bool", "suspicion": "float64", "word_start": "int64", "sentence_start": "int64"}


class IssueTable:
    """Table with one row for each caption in the annotations' order, then unreadable items.

    Args:
        columns: names.
        rows: values by column; None where something was not measured.
    """

    def __init__(self, *, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        self.columns, self.rows = tuple(columns), list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, place: int) -> Mapping[str, Any]:
        return self.rows[place]

    def flagged(self) -> list[Mapping[str, Any]]:
        """Flagged rows: first whole captions, then single words, each the most suspect first."""
        flagged = [row for row in self if row["flag"]]
        return sorted(
            flagged, key=lambda row: looked_at(row["issues"].split(";"), row["suspicion"])
        )

    def to_pandas(self) -> Any:
        """Return the table as a pandas data frame.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        pandas = import_extra("pandas", extra="loops", purpose="data frames")
        return pandas.DataFrame(self.rows, columns=list(self.columns))

    def to_csv(self, path: str | Path) -> None:
        """Write the table as UTF-8 CSV with a header; the file is written atomically."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in row.items()} for row in self)
        write_text(path, text.getvalue())

    def to_parquet(self, path: str | Path) -> None:
        """Write the table of captions as a Parquet file.

        Raises:
            ModuleNotFoundError: pyarrow is not installed.
        """
        arrow = import_extra("pyarrow", extra="arrow", purpose="Parquet files")
        parquet = import_extra("pyarrow.parquet", extra="arrow", purpose="Parquet files")
        kinds = [(name, arrow.type_for_alias(_KINDS.get(name, "float64"))) for name in self.columns]
        content = arrow.table(
            {name: [row[name] for row in self] for name in self.columns}, schema=arrow.schema(kinds)
        )
        write_atomically(Path(path), lambda part: parquet.write_table(content, part))


def looked_at(issues: Sequence[str], suspicion: float | None) -> tuple[bool, float]:
    """Sort key for readers: captions whose only fault is a wrong word come last.

    Which word fits better is often a matter of taste; that a caption is of another photo is none.
    """
    return of_word_alone(issues), -(suspicion or 0)


def of_word_alone(issues: Sequence[str]) -> bool:
    """Return whether only a wrong word removes a caption; report-only checks do not count."""
    return [issue for issue in issues if issue not in TELLING] == [WORDS]


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Verdict of a judge on a flagged caption.

    Attributes:
        score: score in [0, 1], higher is a better fit; None: not judged.
        problem: why it was not judged.
    """

    score: float | None = None
    problem: str = ""

    @property
    def said(self) -> str:
        """The verdict as readable text."""
        if self.score is None:
            return f"not judged: {self.problem}"
        return "fits" if self.score >= FITS else "does not fit"


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Findings of all checks of one folder or roster.

    Attributes:
        roster: the captions that were checked.
        scores: scores by check, in the order of `curation.check.checks.ALL_CHECKS`.
        thresholds: thresholds by check.
        source: the folder.
        seconds: duration of the check.
        splits: splits of photos by path, if the folder names them.
        remove: names of report-only checks, see `Check.removes`, that shall remove captions
            nevertheless.
        is_whole: whether a folder was read, with all its splits, and not a roster.
        questions: whose answers the captions are, by sample id, where the folder asks them.
        notes: notes on the folder as a whole.
        judge: name of the judge of flagged captions; empty without a judge.
        judgements: verdicts by row on all flagged captions, if there is a judge.

    Examples:
        >>> from captioning import check
        >>> result = check("my_photos", space="none", quiet=True)
        >>> result.issues.flagged()
        []
        >>> result.report("report.html")
    """

    roster: Roster
    scores: Mapping[str, Scores]
    thresholds: Mapping[str, float]
    source: str = ""
    seconds: float = 0.0
    splits: Mapping[Path, Split] = field(default_factory=dict)
    questions: Mapping[str, str] = field(default_factory=dict)
    remove: Collection[str] = ()
    is_whole: bool = False
    notes: Sequence[Note] = ()
    judge: str = ""
    judgements: Mapping[int, Judgement] = field(default_factory=dict)

    @property
    def checks(self) -> list[Check]:
        """Checks that were made on the captions."""
        return [check for check in ALL_CHECKS if check.name in self.scores]

    @property
    def removing(self) -> list[str]:
        """Names of the checks whose flagged captions are removed; other checks only report."""
        return [check.name for check in self.checks if check.removes or check.name in self.remove]

    @property
    def flags(self) -> dict[str, NDArray[np.bool_]]:
        """Flagged captions of each check, ``(N,)``."""
        return self._flags

    @cached_property
    def _flags(self) -> dict[str, NDArray[np.bool_]]:
        return {
            check.name: check.flags(self.scores[check.name].values, self.thresholds[check.name])
            for check in self.checks
        }

    @cached_property
    def flagged(self) -> NDArray[np.bool_]:
        """Captions, ``(N,)``, that at least one removing check flags."""
        flags = [self.flags[name] for name in self.removing]
        return np.any([*flags, np.zeros(len(self.roster), bool)], axis=0)

    @cached_property
    def suspicion(self) -> NDArray[np.float64]:
        """Largest fault probability, ``(N,)`` in [0, 1]; 1 if a check without probability flags."""
        total, removing = np.zeros(len(self.roster)), set(self.removing)
        for check in (check for check in self.checks if check.name in removing):
            values = self.scores[check.name].values
            known = np.nan_to_num(values) if check.is_chance else self.flags[check.name]
            total = np.maximum(total, known)
        return total

    def expected_precision(self, name: str = "fit") -> float | None:
        """Mean probability that a flag of a check is correct; None if unknown."""
        check = next((c for c in self.checks if c.name == name and c.is_chance), None)
        if check is None or not self.flags[name].any():
            return None
        return float(self.scores[name].values[self.flags[name]].mean())

    @cached_property
    def issues(self) -> IssueTable:
        """All captions with their scores, flags and reasons."""
        names = [check.name for check in self.checks]
        rows: list[dict[str, Any]] = []
        for sample in self.roster.samples:
            issues = [name for name in names if self.flags[name][sample.row]]
            rows.append(
                {
                    "file": str(sample.image_path),
                    "name": sample.file_name or sample.image_id,
                    "sample_id": sample.sample_id,
                    "caption": sample.caption,
                    "flag": bool(self.flagged[sample.row]),
                    "suspicion": float(self.suspicion[sample.row]),
                    "issues": ";".join(issues),
                    "reason": "; ".join(self.reason(name, sample.row) for name in issues),
                    **{name: _number(self.scores[name].values[sample.row]) for name in names},
                    **self._word(sample.row),
                    **self._sentence(sample.row),
                    **self._judged(sample.row),
                }
            )
        columns = (*HEAD, *names, *self._word(0), *self._sentence(0), *self._judged(0))
        nothing = dict.fromkeys(columns)
        for item in self.roster.dropped:
            head = (item.item, item.item, "", "", True, 1.0, LEFT_OUT, item.rule)
            rows.append({**nothing, **dict(zip(HEAD, head, strict=True))})
        return IssueTable(columns=columns, rows=rows)

    def _word(self, row: int) -> dict[str, Any]:
        """Most doubtful word of a caption, for the table; empty if words were not checked."""
        if WORDS not in self.scores:
            return {}
        doubts = self.scores[WORDS].words.get(row)
        if not doubts:
            return dict.fromkeys(WORD_COLUMNS)
        surest = doubts[0]
        values = (surest.word, surest.start, surest.alternative)
        return dict(zip(WORD_COLUMNS, values, strict=True))

    def worst_sentence(self, row: int) -> SentenceDoubt | None:
        """Sentence of a long caption that fits its photo least; None if no sentence was judged."""
        doubts = self.scores[SENTENCES].sentences.get(row) if SENTENCES in self.scores else None
        return doubts[0] if doubts else None

    def _sentence(self, row: int) -> dict[str, Any]:
        """Text of `worst_sentence` for the table; empty if no caption has several sentences."""
        if SENTENCES not in self.scores or not self.scores[SENTENCES].sentences:
            return {}
        worst = self.worst_sentence(row)
        values = (None, None) if worst is None else (worst.sentence, worst.start)
        return dict(zip(SENTENCE_COLUMNS, values, strict=True))

    def _judged(self, row: int) -> dict[str, Any]:
        """The judge's verdict on a caption, for the table; empty without a judge."""
        if not self.judge:
            return {}
        one = self.judgements.get(row)
        values = (None, None) if one is None else (one.score, one.said)
        return dict(zip(JUDGE_COLUMNS, values, strict=True))

    def second_look(self, row: int) -> str:
        """The judge's verdict on a caption, as readable text; empty if it was not judged."""
        one = self.judgements.get(row)
        if one is None:
            return ""
        number = "" if one.score is None else f" ({one.score:.2f})"
        return f"{self.judge}: {one.said}{number}"

    def replacement(self, row: int) -> Replacement | None:
        """Caption with its most doubtful word replaced; None if no word was judged."""
        doubts = self.scores[WORDS].words.get(row) if WORDS in self.scores else None
        return replacement(self.roster.samples[row].caption, doubts[0]) if doubts else None

    def reason(self, name: str, row: int) -> str:
        """Readable reason why a check flags a caption."""
        return self.scores[name].reasons.get(row, name.replace("_", " "))

    def summary(self) -> str:
        """Text of a few lines: counts by check, and the expected number of true faults."""
        samples = self.roster.samples
        head = (
            f"{len(samples):,} captions of {len(self.roster.rows_by_image):,} photos checked in "
            f"{self.seconds:.0f} s: {int(self.flagged.sum()):,} flagged"
        )
        lines = [head, *map(self._line, self.checks)]
        told = [c.name for c in self.checks if self.flags[c.name].any()]
        if told := [name for name in told if name not in self.removing]:
            lines.append(f"  * told, not flagged: the cleaned set keeps them (--remove {told[0]})")
        lines += filter(None, map(self._less_sure, self.checks))
        if self.roster.dropped:
            lines.append(f"  {len(self.roster.dropped):7,}  {LEFT_OUT:16} Left out: see the table")
        return "\n".join([*lines, *self.told()])

    def told(self) -> list[str]:
        """Notes on the whole dataset, one for each line."""
        lines = [f"{name}: {scores.note}" for name, scores in self.scores.items() if scores.note]
        lines += [f"{note.name}: {note.said}" for note in self.notes]
        if not self.judge:
            return lines
        counts = Counter(one.said.partition(":")[0] for one in self.judgements.values())
        told = f"{counts['does not fit']:,} do not fit, {counts['fits']:,} fit"
        without = f", {counts['not judged']:,} not judged" if counts["not judged"] else ""
        return [*lines, f"{self.judge}: of {len(self.judgements):,} suspects {told}{without}"]

    def _line(self, check: Check) -> str:
        """Line of the summary about one check."""
        count = int(self.flags[check.name].sum())
        precision = self.expected_precision(check.name)
        hint = f" (about {precision:.0%} of them expected to be wrong)" if precision else ""
        mark = " *" if count and check.name not in self.removing else ""
        return f"  {count:7,}  {check.name:16} {check.title}{hint}{mark}"

    def _less_sure(self, check: Check) -> str:
        """Text of the summary on how many captions are just below the threshold."""
        rows = less_sure(self, check)
        if not rows:
            return ""
        values = self.scores[check.name].values[rows]
        return (
            f"  {len(rows):7,}  less sure of {check.name}: just below the threshold, probability "
            f"{values.min():.2f} to {values.max():.2f}; on the page, not flagged"
        )

    def report(self, path: str | Path | None = None, *, num_shown: int = 24) -> None:
        """Print the summary, and write the page if a path is given.

        Args:
            path: path of the HTML page.
            num_shown: captions shown of each kind of issue.
        """
        print(self.summary())
        if path is not None:
            write_page(self, path, num_shown=num_shown)

    def edits(
        self, mended: Mapping[int, Replacement | Shortening], left: Mapping[int, str]
    ) -> list[Edit]:
        """Return a removal with reasons for each flagged caption, or the edit that mends it.

        Args:
            mended: captions by row that stay, with a word replaced or without a sentence, see
                `curation.check.mend.mendable` and `shortenings`.
            left: reasons by row why other captions are not mended.
        """
        return [
            mended[sample.row].edit(sample.sample_id, policy=POLICY)
            if sample.row in mended
            else Edit(
                sample_id=sample.sample_id,
                action="remove",
                reason=self.issues[sample.row]["reason"] + _not_mended(left.get(sample.row)),
                policy=POLICY,
                epoch=-1,
            )
            for sample in self.roster.samples
            if self.flagged[sample.row] or sample.row in mended
        ]


def _not_mended(why: str | None) -> str:
    return "" if why is None else f"; not mended: {why}"


def _number(value: np.floating) -> float | None:
    return None if np.isnan(value) else float(value)
