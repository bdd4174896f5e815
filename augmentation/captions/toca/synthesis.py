"""From sentence templates to a corpus of new captions, in batches that a killed run goes on behind.

A line of ``batches.part.jsonl`` is a whole batch. All draws of a batch come from the seed and its
number, so one that was interrupted is simply made again.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from rich.progress import Progress

from augmentation.captions.line_log import as_line, cut_to_whole_lines, read_lines
from augmentation.captions.toca.prompts import PromptWriter
from augmentation.captions.toca.sampling import SentenceTemplate
from augmentation.captions.writing.acceptance import COPY, DUPLICATE, Judge
from augmentation.captions.writing.writers import FAILURES, AbstractWriter
from captioning.files import write_atomically

log = logging.getLogger(__name__)

Record = dict[str, Any]
PART, DONE, CAPTIONS = "batches.part.jsonl", "provenance.jsonl", "captions.txt"
MOST_KEPT = 300  # characters of a refused answer
UNLIKELY = "less likely than others of its batch"
# In a row, after which a language model is given up: batches without any answer, and answers none
# of which was accepted. Where a hundredth of them is good, so many are never refused by chance.
MOST_FAILED, MOST_REFUSED = 3, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much is asked for at once and in all.

    Attributes:
        num_captions: accepted captions that are wanted.
        num_templates: sentence templates that are tried at most; None: as many as it takes.
        batch_size: templates of a batch, whose prompts have the same examples.
        num_answers: to each template; the first good one is taken.
        keep: share of a batch's good answers that is kept, the likeliest; answers of a model that
            does not tell how likely they are are all kept.

    Raises:
        ValueError: a number below 1, or a share out of its range.
    """

    num_captions: int
    num_templates: int | None = None
    batch_size: int = 32
    num_answers: int = 1
    keep: float = 1.0

    def __post_init__(self) -> None:
        for name in ("num_captions", "num_templates", "batch_size", "num_answers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1: got {value}")
        if not 0 < self.keep <= 1:
            raise ValueError(f"keep must lie in (0, 1]: got {self.keep}")


@dataclass(frozen=True, kw_only=True)
class Synthesis:
    """Everything that makes captions of templates.

    Attributes:
        prompts: has learned its examples.
        writer: the language model.
        judge: knows the corpus.
        pace: how much.
        seed: of all draws.
    """

    prompts: PromptWriter
    writer: AbstractWriter
    judge: Judge
    pace: Pace
    seed: int = 0

    def run(self, templates: Iterator[SentenceTemplate], folder: Path) -> dict[str, Any]:
        """Write the corpus, or go on with one that was begun, or that more is wanted of now.

        Args:
            templates: the same in every run of the same settings.
            folder: gets ``captions.txt``, one caption a line, and ``provenance.jsonl``.

        Returns:
            Counts: ``captions``, ``templates``, ``answers``, and ``refused`` by reason.

        Raises:
            ValueError: no caption was accepted, or none of `MOST_REFUSED` answers in a row.
            OSError: something cannot be written, or the language model cannot be reached, or has
                failed for `MOST_FAILED` whole batches in a row. In both cases what was made is kept
                in ``batches.part.jsonl``, and the same command goes on with it.
        """
        done, part = folder / DONE, folder / PART
        if done.is_file() and _counts(read_lines(done))["captions"] < self.pace.num_captions:
            self._reopen(done, part)
        if not done.is_file():
            self._write(templates, part)
            counts = _counts(_records(part))
            if not counts["captions"]:
                raise ValueError(f"no caption was accepted; refused: {counts['refused'] or 'none'}")
            _write_stream(done, map(as_line, _records(part)))
            part.unlink()
        captions = (record["caption"] for record in read_lines(done) if "caption" in record)
        _write_stream(folder / CAPTIONS, captions)
        return _counts(read_lines(done))

    def _reopen(self, done: Path, part: Path) -> None:
        """Make batches of a finished set again, as if it had been killed behind the last one."""
        size = self.pace.batch_size
        # answers to one template stand together
        of_templates = (list(records) for _, records in groupby(read_lines(done), _template_of))
        batches = iter(lambda: [*chain.from_iterable(islice(of_templates, size))], [])
        _write_stream(part, map(as_line, batches))
        done.unlink()

    def _write(self, templates: Iterator[SentenceTemplate], part: Path) -> None:
        """Append batches until there are captions enough."""
        begun, most = cut_to_whole_lines(part), self.pace.num_captions
        accepted, refused = self._read_back(part)
        batches = enumerate(_batches(templates, self.pace.batch_size, self.pace.num_templates))
        failed: list[list[Record]] = []  # kept once an answer comes; else they are asked again
        with (
            part.open("a", encoding="utf-8", newline="\n") as file,
            Progress(transient=True) as bar,
        ):
            task = bar.add_task("writing captions", total=most, completed=accepted)
            for number, batch in islice(batches, begun, None):
                if accepted >= most or _exhausted(refused, accepted):
                    break
                records = self._batch(number, batch)
                if all(record.get("refused") in FAILURES for record in records):
                    failed = _with_failed(failed, records)
                    continue
                _append(file, [*failed, records])
                failed = []
                new = sum("caption" in record for record in records)
                refused = Counter() if new else refused + _reasons(records)
                accepted += new
                bar.update(task, completed=accepted)
            _append(file, failed)

    def _read_back(self, part: Path) -> tuple[int, Counter[str]]:
        """Captions so far, which the judge then knows, and answers refused since the last one."""
        accepted, refused = 0, Counter[str]()
        for records in read_lines(part):
            captions = [record["caption"] for record in records if "caption" in record]
            accepted += len(captions)
            refused = Counter() if captions else refused + _reasons(records)
            for record in records:
                if "caption" in record or record["refused"] == UNLIKELY:  # both were said before
                    self.judge.remember(record.get("caption") or record["answer"])
        return accepted, refused

    def _batch(self, number: int, batch: Sequence[SentenceTemplate]) -> list[Record]:
        """A record an answer, up to the first good one to each template."""
        records, likely = [], []
        for record, likelihood in self._answered(number, batch):
            if "caption" in record and likelihood is not None:
                likely.append((likelihood, len(records)))
            records.append(record)
        likely.sort(reverse=True)
        for _, place in likely[math.ceil(self.pace.keep * len(likely)) :]:
            records[place] |= {"refused": UNLIKELY, "answer": records[place].pop("caption")}
        return records

    def _answered(
        self, number: int, batch: Sequence[SentenceTemplate]
    ) -> Iterator[tuple[Record, float | None]]:
        """The same with their likelihoods, before those are looked at."""
        draws = np.random.default_rng((self.seed, number))
        prompts = self.prompts.prompts(batch, draws)
        times = self.pace.num_answers
        repeated = [prompt for prompt in prompts for _ in range(times)]
        answers = self.writer.answers(repeated, seed=int(draws.integers(2**31)))
        for place, template in enumerate(batch):
            record: Record = {
                "structure": template.structure,
                "words": list(template.words),
                "template": template.text,
            }
            for answer in answers[place * times : (place + 1) * times]:
                verdict = self.judge.judge(answer, template.words)
                if not verdict.problem:
                    yield record | {"caption": verdict.caption}, answer.likelihood
                    break
                yield record | {"refused": verdict.problem, "answer": answer.text[:MOST_KEPT]}, None


def _template_of(record: Record) -> str:
    return record["template"]


def _reasons(records: Iterable[Record]) -> Counter[str]:
    return Counter(record["refused"] for record in records)


def _with_failed(failed: list[list[Record]], records: list[Record]) -> list[list[Record]]:
    """Batches without an answer, one more of them.

    Raises:
        ConnectionError: these are too many.
    """
    failed = [*failed, records]
    if len(failed) >= MOST_FAILED:
        reasons = dict(Counter(record["refused"] for record in records))
        raise ConnectionError(
            f"the language model has failed for {len(failed)} batches in a row ({reasons}); look "
            "at its server, and give the same command again: it goes on where it stopped"
        )
    return failed


def _exhausted(refused: Counter[str], accepted: int) -> bool:
    """Whether the corpus has nothing new left.

    Args:
        refused: answers since the last caption was accepted, by reason.
        accepted: captions so far.

    Raises:
        ValueError: nothing is accepted for other reasons than that it is known.
    """
    if refused.total() < MOST_REFUSED:
        return False
    if accepted and 2 * (refused[COPY] + refused[DUPLICATE]) > refused.total():
        log.warning(f"nothing new in {refused.total()} answers: this ends with {accepted} captions")
        return True
    raise ValueError(
        f"no caption was accepted of {refused.total()} answers in a row; refused: {dict(refused)}; "
        f"{accepted} captions before them are kept in {PART}; try another language model "
        "(method.writer), another method.prompts.style or a lower method.writer.temperature"
    )


def _append(file: TextIO, batches: Iterable[list[Record]]) -> None:
    file.writelines(as_line(records) + "\n" for records in batches)
    file.flush()


def _batches(
    templates: Iterator[SentenceTemplate], size: int, most: int | None
) -> Iterator[list[SentenceTemplate]]:
    limited = templates if most is None else islice(templates, most)
    while batch := list(islice(limited, size)):
        yield batch


def _records(part: Path) -> Iterator[Record]:
    """The records of all batches that were written."""
    return chain.from_iterable(read_lines(part))


def _write_stream(path: Path, lines: Iterable[str]) -> None:
    """Write text lines whole or not at all, without holding all of them."""

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)

    write_atomically(path, write)


def _counts(records: Iterable[Record]) -> dict[str, Any]:
    counts: Counter[str] = Counter(captions=0, templates=0, answers=0)
    refused: Counter[str] = Counter()
    last = None
    for record in records:
        # answers to one template stand together, and no template is asked twice
        counts.update(
            captions="caption" in record, templates=record["template"] != last, answers=True
        )
        last = record["template"]
        if "refused" in record:
            refused[record["refused"]] += 1
    return dict(counts) | {"refused": dict(sorted(refused.items()))}
