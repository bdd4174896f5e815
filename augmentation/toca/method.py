"""ToCa (Zhou et al., 2024, text-only synthesis): synthesise new captions from a corpus.

A line of ``batches.part.jsonl`` is a complete batch. All draws of a batch come from the seed and
its number, so batches can be answered in any order and anywhere, and an interrupted one is simply
made again. Whether an answer is a new caption depends on those before it: `Synthesis` judges them
in order, in one process. The last batch's captions beyond the number wanted are put aside among the
refused answers, and come back when more are wanted: a smaller set is the beginning of a larger one.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Annotated, Any, TextIO

import numpy as np
from rich.progress import Progress, track

from augmentation.captions.line_log import as_line, cut_to_complete_lines, read_lines
from augmentation.captions.new_captions import AbstractCorpusMethod, Elsewhere
from augmentation.toca.corpus_statistics import (
    CorpusStatistics,
    count_corpus,
    load_statistics,
    merge_statistics,
    save_statistics,
)
from augmentation.toca.joined_words import join_word_parts
from augmentation.toca.prompt_writer import PromptWriter
from augmentation.toca.template_sampling import SentenceTemplate, TemplateSampler
from augmentation.toca.templates import deconstruct
from augmentation.writing.acceptance import COPY, DUPLICATE, Judge
from augmentation.writing.writers import FAILURES, AbstractWriter, Answer
from captioning.config.ranges import ArgumentsOf, PositiveInt, Seed, Share
from captioning.data.roster import Roster
from captioning.runtime.files import write_atomically
from captioning.spread.base import Job
from captioning.text.tagger import CaptionTagger

NUM_EXAMPLE_CAPTIONS = 500  # captions that examples are drawn from
FORMAT = 3  # increased when the same corpus gives other statistics
log = logging.getLogger(__name__)

AnswerRecord = dict[str, Any]
PARTIAL_FILE, RECORDS_FILE, CAPTIONS_FILE = "batches.part.jsonl", "provenance.jsonl", "captions.txt"
MAX_ANSWER_CHARACTERS = 300  # characters of a refused answer
UNLIKELY = "less likely than others of its batch"
SURPLUS = "beyond the number of captions wanted"
# The synthesis ends after so many batches in a row without any answer, or so many refused answers
# in a row. If one in a hundred is good, so many are not refused by chance.
MAX_FAILED_BATCHES, MAX_REFUSED = 3, 1000
BATCHES_AT_ONCE = 8  # between two files

Numbered = tuple[int, Sequence[SentenceTemplate]]
"""Number of a batch, and its sentence templates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Number of captions to make, and batch sizes.

    Attributes:
        num_captions: accepted captions, after which the synthesis ends; a finished set with more
            of them keeps all.
        num_templates: sentence templates at most; None: as many as needed.
        batch_size: templates of a batch, whose prompts have the same examples.
        num_answers: number of answers to each template; the first accepted one is taken.
        keep: share of a batch's accepted answers to keep, the most likely; answers of a model
            without likelihoods are all kept.

    Raises:
        ValueError: a number is below 1, or ``keep`` is outside (0, 1].
    """

    num_captions: PositiveInt
    num_templates: PositiveInt | None = None
    batch_size: PositiveInt = 32
    num_answers: PositiveInt = 1
    keep: Share = 1.0

    def __post_init__(self) -> None:
        for name in ("num_captions", "num_templates", "batch_size", "num_answers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1: got {value}")
        if not 0 < self.keep <= 1:
            raise ValueError(f"keep must lie in (0, 1]: got {self.keep}")


class ToCa(AbstractCorpusMethod):
    """Splits a corpus, draws sentence templates, and lets a language model complete them.

    Args:
        writer: the language model.
        tagger: parts of speech.
        prompts: the style of the language model's prompts.
        cache_folder: caches statistics of corpora.
        tau, use_structures, use_relations, complete_first, max_given_words: see `TemplateSampler`.
        max_words, whole_words: see `Judge`.
        pace: arguments of `Pace`.
        seed: seed of all draws.
    """

    name = "toca"
    description = "captions synthesised by a language model, no photo belongs to them"
    size_setting = "pace.num_captions"

    def __init__(
        self,
        *,
        writer: AbstractWriter,
        tagger: CaptionTagger,
        prompts: PromptWriter,
        cache_folder: str | Path,
        tau: float | None = None,
        use_structures: bool = True,
        use_relations: bool = True,
        complete_first: bool = True,
        max_given_words: PositiveInt | None = None,
        max_words: PositiveInt = 30,
        whole_words: bool = True,
        pace: Annotated[Mapping[str, Any], ArgumentsOf(Pace)],
        seed: Seed = 0,
    ) -> None:
        self._writer, self._tagger, self._prompts = writer, tagger, prompts
        self.uses_gpu = writer.uses_gpu
        self._cache_folder = Path(cache_folder)
        self._max_words, self._whole_words = max_words, whole_words
        self._sampling = {
            "tau": tau,
            "use_structures": use_structures,
            "use_relations": use_relations,
            "complete_first": complete_first,
            "max_given_words": max_given_words,
        }
        self.pace, self._seed = Pace(**pace), seed
        self._report: dict[str, Any] = {}

    def synthesise(
        self,
        corpus: Roster,
        folder: Path,
        *,
        prior: Roster | None = None,
        max_captions: int | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> dict[str, Any]:
        """Write ``captions.txt`` and ``provenance.jsonl``, or resume an interrupted synthesis.

        Args:
            corpus: S, source of structures, words and examples.
            folder: folder of the new corpus.
            prior: X, whose words and lexical pairs are used, too.
            max_captions: an upper limit of `Pace.num_captions`.
            elsewhere: see `AbstractCorpusMethod`.

        Returns:
            Counts, see `Synthesis.run`.

        Raises:
            ValueError: the corpus has no structures, or no answer was accepted.
            OSError: a file cannot be written, or the language model is unreachable.
        """
        statistics = corpus_statistics(corpus, self._tagger, self._cache_folder)
        self._report = {"corpus": statistics.summary(), "left out": statistics.left_out}
        if prior is not None:
            statistics = merge_statistics(
                statistics, corpus_statistics(prior, self._tagger, self._cache_folder)
            )
            self._report["with prior"] = statistics.summary()
        num_captions = min(self.pace.num_captions, max_captions or self.pace.num_captions)
        captions = [sample.caption for sample in corpus.samples]
        sampler = TemplateSampler(statistics, **self._sampling)
        synthesis = Synthesis(
            prompts=self._prompts,
            writer=self._writer,
            judge=Judge(
                known_captions=captions,
                max_words=self._max_words,
                whole_words=self._whole_words,
            ),
            pace=replace(self.pace, num_captions=num_captions),
            seed=self._seed,
            elsewhere=elsewhere and SpreadAnswers(elsewhere=elsewhere),
        )
        if elsewhere is None:
            self.learn(captions)
        return synthesis.run(sampler.templates(np.random.default_rng(self._seed)), folder)

    def worker(self, captions: Sequence[str]) -> Answering:
        """Build the part that queries the language model, for a separate process."""
        self.learn(captions)
        return Answering(
            prompts=self._prompts,
            writer=self._writer,
            num_answers=self.pace.num_answers,
            seed=self._seed,
        )

    def learn(self, captions: Sequence[str]) -> None:
        """Let prompts and language model learn from the corpus."""
        self._learn_examples(captions)
        self._writer.learn(captions)

    def _learn_examples(self, captions: Sequence[str]) -> None:
        number = min(NUM_EXAMPLE_CAPTIONS, len(captions))
        rows = np.random.default_rng(self._seed).choice(len(captions), number, replace=False)
        examples: list[str] = [captions[int(row)] for row in sorted(rows)]
        tags = self._tagger.tag(examples)
        self._prompts.learn(examples, [*map(join_word_parts, examples, tags)])

    def report(self) -> dict[str, Any]:
        """Sizes of the statistics, and counts of skipped captions by reason."""
        return self._report


def corpus_statistics(
    corpus: Roster, tagger: CaptionTagger, cache_folder: Path
) -> CorpusStatistics:
    """Statistics of a corpus, counted once for each corpus and tagger.

    Raises:
        ValueError: no caption has a structure, or the cached file is damaged.
        OSError: the statistics cannot be stored.
    """
    path = cache_folder / f"{corpus.fingerprint}-{tagger.fingerprint[:16]}-{FORMAT}.npz"
    if path.is_file():
        return load_statistics(path)
    captions = [sample.caption for sample in corpus.samples]
    tagged = track(
        tagger.tag(captions),
        total=len(corpus),
        description=f"reading {corpus.name}",
        transient=True,
    )
    statistics = count_corpus(map(deconstruct, map(join_word_parts, captions, tagged)))
    save_statistics(statistics, path)
    return statistics


@dataclass(frozen=True, kw_only=True)
class Synthesis:
    """The parts that turn templates into captions.

    Attributes:
        prompts: prompts with examples from the corpus.
        writer: the language model.
        judge: judge of answers, with the corpus' captions.
        pace: numbers of captions.
        seed: seed of all draws.
        elsewhere: answers by other processes; None: by this one.
    """

    prompts: PromptWriter
    writer: AbstractWriter
    judge: Judge
    pace: Pace
    seed: int = 0
    elsewhere: SpreadAnswers | None = None

    def run(self, templates: Iterator[SentenceTemplate], folder: Path) -> dict[str, Any]:
        """Write the corpus, resume an unfinished corpus, or extend a finished corpus.

        Args:
            templates: the same in every run of the same settings.
            folder: gets ``captions.txt``, one caption a line, and ``provenance.jsonl``.

        Returns:
            Counts: ``captions``, ``templates``, ``answers``, and ``refused`` by reason.

        Raises:
            ValueError: no caption was accepted, or `MOST_REFUSED` answers in a row were refused.
            OSError: something cannot be written, or the language model cannot be reached, or has
                failed for `MOST_FAILED` whole batches in a row. In both cases
                ``batches.part.jsonl`` keeps the finished batches, and the same command resumes from
                them.
        """
        records_file, partial_file = folder / RECORDS_FILE, folder / PARTIAL_FILE
        if (
            records_file.is_file()
            and _counts(read_lines(records_file))["captions"] < self.pace.num_captions
        ):
            self._reopen(records_file, partial_file)
        if not records_file.is_file():
            self._write(templates, partial_file)
            counts = _counts(_records(partial_file))
            if not counts["captions"]:
                raise ValueError(f"no caption was accepted; reasons: {counts['refused'] or 'none'}")
            records = _without_surplus(_records(partial_file), self.pace.num_captions)
            _write_stream(records_file, map(as_line, records))
            partial_file.unlink()
        captions = (record["caption"] for record in read_lines(records_file) if "caption" in record)
        _write_stream(folder / CAPTIONS_FILE, captions)
        return _counts(read_lines(records_file))

    def _reopen(self, records_file: Path, partial_file: Path) -> None:
        """Convert a finished dataset back to batches, so that new batches can be appended."""
        size, answers = self.pace.batch_size, map(_with_surplus, read_lines(records_file))
        # answers to one template stand together
        template_records = (list(records) for _, records in groupby(answers, _template_of))
        if self.pace.num_answers == 1:  # so equal templates of a set without numbers stay two
            template_records = ([record] for record in answers)
        batches = iter(lambda: [*chain.from_iterable(islice(template_records, size))], [])
        _write_stream(partial_file, map(as_line, batches))
        records_file.unlink()

    def _write(self, templates: Iterator[SentenceTemplate], partial_file: Path) -> None:
        """Append batches until there are enough captions."""
        num_batches, num_captions = cut_to_complete_lines(partial_file), self.pace.num_captions
        accepted, refused = self._read_back(partial_file)
        batches = enumerate(_batches(templates, self.pace.batch_size, self.pace.num_templates))
        failed: list[
            list[AnswerRecord]
        ] = []  # kept once an answer comes; else they are asked again
        with (
            partial_file.open("a", encoding="utf-8", newline="\n") as file,
            Progress(transient=True) as bar,
        ):
            task = bar.add_task("writing captions", total=num_captions, completed=accepted)
            answered = self._answered(batches, num_batches, lambda: num_captions - accepted)
            while accepted < num_captions and not _is_exhausted(refused, accepted):
                batch, answers = next(answered, (None, []))
                if batch is None:
                    break
                records = self._batch(batch, answers, first=num_batches * self.pace.batch_size)
                num_batches += 1
                if all(record.get("refused") in FAILURES for record in records):
                    failed = _add_failed(failed, records)
                    continue
                _append(file, [*failed, records])
                failed = []
                num_new = sum("caption" in record for record in records)
                refused = Counter() if num_new else refused + _reasons(records)
                accepted += num_new
                bar.update(task, completed=accepted)
            _append(file, failed)

    def _read_back(self, partial_file: Path) -> tuple[int, Counter[str]]:
        """Read earlier captions for the judge, and the answers rejected since the last caption."""
        accepted, refused = 0, Counter[str]()
        for records in read_lines(partial_file):
            captions = [record["caption"] for record in records if "caption" in record]
            accepted += len(captions)
            refused = Counter() if captions else refused + _reasons(records)
            for record in records:
                if "caption" in record or record["refused"] == UNLIKELY:  # both were accepted
                    self.judge.remember(record.get("caption") or record["answer"])
        return accepted, refused

    def _answered(
        self, batches: Iterator[Numbered], begun: int, missing: Callable[[], int]
    ) -> Iterator[tuple[Sequence[SentenceTemplate], list[Answer]]]:
        """Yield batches from number ``begun`` on with their answers, as they are needed."""
        if self.elsewhere is None:
            here = self.answering()
            for number, batch in islice(batches, begun, None):
                yield batch, here.answers(number, batch)
            return
        per_batch = max(1.0, self.pace.batch_size * self.pace.keep)
        numbered = self.elsewhere(batches, begun, lambda: math.ceil(missing() / per_batch))
        yield from ((batch, answers) for (_, batch), answers in numbered)

    def answering(self) -> Answering:
        """Build the part that queries the language model."""
        return Answering(
            prompts=self.prompts,
            writer=self.writer,
            num_answers=self.pace.num_answers,
            seed=self.seed,
        )

    def _batch(
        self, batch: Sequence[SentenceTemplate], answers: Sequence[Answer], *, first: int
    ) -> list[AnswerRecord]:
        """Yield a record for each answer, up to the first accepted answer for each template.

        Args:
            batch: templates.
            answers: answers of the language model to them.
            first: number of the first template among all.
        """
        records, likelihoods = [], []
        for record, likelihood in self._judged(batch, answers, first):
            if "caption" in record and likelihood is not None:
                likelihoods.append((likelihood, len(records)))
            records.append(record)
        likelihoods.sort(reverse=True)
        for _, position in likelihoods[math.ceil(self.pace.keep * len(likelihoods)) :]:
            records[position] |= {"refused": UNLIKELY, "answer": records[position].pop("caption")}
        return records

    def _judged(
        self, batch: Sequence[SentenceTemplate], answers: Sequence[Answer], first: int
    ) -> Iterator[tuple[AnswerRecord, float | None]]:
        """Add likelihoods to the answers before they are judged."""
        num_answers = self.pace.num_answers
        for place, template in enumerate(batch):
            record: AnswerRecord = {
                "number": first + place,
                "structure": template.structure,
                "words": list(template.words),
                "template": template.text,
            }
            for answer in answers[place * num_answers : (place + 1) * num_answers]:
                verdict = self.judge.judge(answer, template.words)
                if not verdict.problem:
                    yield record | {"caption": verdict.caption}, answer.likelihood
                    break
                yield (
                    record
                    | {"refused": verdict.problem, "answer": answer.text[:MAX_ANSWER_CHARACTERS]},
                    None,
                )


def _without_surplus(records: Iterable[AnswerRecord], limit: int) -> Iterator[AnswerRecord]:
    """Mark captions after the first ``limit`` in the records as surplus."""
    number = 0
    for record in records:
        number += "caption" in record
        if number > limit and "caption" in record:
            rest = {key: value for key, value in record.items() if key != "caption"}
            record = rest | {"refused": SURPLUS, "answer": record["caption"]}
        yield record


def _with_surplus(record: AnswerRecord) -> AnswerRecord:
    """Restore a record that `_without_surplus` marked as surplus."""
    if record.get("refused") != SURPLUS:
        return record
    rest = {key: value for key, value in record.items() if key not in ("refused", "answer")}
    return rest | {"caption": record["answer"]}


def _template_of(record: AnswerRecord) -> int | str:
    """Identifier of a record's template: its number, or its text in older datasets.

    Templates of which some words are taken may have the same text.
    """
    return record.get("number", record["template"])


def _reasons(records: Iterable[AnswerRecord]) -> Counter[str]:
    """Count rejected answers by reason; a failed model counts as no answer."""
    reasons = (record.get("refused") for record in records)
    return Counter(reason for reason in reasons if reason and reason not in FAILURES)


def _add_failed(
    failed: list[list[AnswerRecord]], records: list[AnswerRecord]
) -> list[list[AnswerRecord]]:
    """Count one more consecutive batch without an answer.

    Raises:
        ConnectionError: these are too many.
    """
    failed = [*failed, records]
    if len(failed) >= MAX_FAILED_BATCHES:
        reasons = dict(Counter(record["refused"] for record in records))
        raise ConnectionError(
            f"the language model has failed for {len(failed)} batches in a row ({reasons}); check "
            "its server, and run the command again to resume"
        )
    return failed


def _is_exhausted(refused: Counter[str], accepted: int) -> bool:
    """Return whether the corpus allows no further new captions.

    Args:
        refused: answers since the last caption was accepted, by reason.
        accepted: captions so far.

    Raises:
        ValueError: all answers were refused for reasons other than repetition.
    """
    if refused.total() < MAX_REFUSED:
        return False
    if accepted and 2 * (refused[COPY] + refused[DUPLICATE]) > refused.total():
        log.warning(
            f"{refused.total()} answers gave no new caption: ending with {accepted} captions"
        )
        return True
    raise ValueError(
        f"the last {refused.total()} answers were all refused ({dict(refused)}); {accepted} "
        f"earlier captions are kept in {PARTIAL_FILE}; try another language model "
        "(method.writer), another method.prompts.style or a lower method.writer.temperature"
    )


def _append(file: TextIO, batches: Iterable[list[AnswerRecord]]) -> None:
    file.writelines(as_line(records) + "\n" for records in batches)
    file.flush()


def _batches(
    templates: Iterator[SentenceTemplate], size: int, max_templates: int | None
) -> Iterator[list[SentenceTemplate]]:
    limited = templates if max_templates is None else islice(templates, max_templates)
    while batch := list(islice(limited, size)):
        yield batch


def _records(part: Path) -> Iterator[AnswerRecord]:
    """Yield the records of all batches that were written."""
    return chain.from_iterable(read_lines(part))


def _write_stream(path: Path, lines: Iterable[str]) -> None:
    """Write lines of text to a file atomically, without keeping all lines in memory."""

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)

    write_atomically(path, write)


def _counts(records: Iterable[AnswerRecord]) -> dict[str, Any]:
    counts: Counter[str] = Counter(captions=0, templates=0, answers=0)
    refused: Counter[str] = Counter()
    last = None
    for record in records:
        # answers to one template stand together
        template = _template_of(record)
        counts.update(captions="caption" in record, templates=template != last, answers=True)
        last = template
        if "refused" in record:
            refused[record["refused"]] += 1
    return dict(counts) | {"refused": dict(sorted(refused.items()))}


@dataclass(frozen=True, kw_only=True)
class Answering:
    """Gets answers to prompts; as a worker, it returns plain answers for each batch.

    Attributes:
        prompts: prompts with examples from the corpus.
        writer: the language model.
        num_answers: number of answers to each template.
        seed: seed of all draws.
    """

    prompts: PromptWriter
    writer: AbstractWriter
    num_answers: int
    seed: int
    identity: None = None

    def answers(self, number: int, batch: Sequence[SentenceTemplate]) -> list[Answer]:
        """Get ``num_answers`` answers to each template of a batch, in order."""
        draws = np.random.default_rng((self.seed, number))
        prompts = self.prompts.prompts(batch, draws)
        repeated = [prompt for prompt in prompts for _ in range(self.num_answers)]
        return self.writer.answers(repeated, seed=int(draws.integers(2**31)))

    def __call__(self, items: Sequence[Numbered]) -> list[list[Any]]:
        """Return text, problem and likelihood of each answer."""
        return [
            [[answer.text, answer.problem, answer.likelihood] for answer in self.answers(*batch)]
            for batch in items
        ]


@dataclass(frozen=True, kw_only=True)
class SpreadAnswers:
    """Answers from other processes, each with its own `Answering`."""

    elsewhere: Elsewhere

    def __call__(
        self, batches: Iterator[Numbered], begun: int, wanted: Callable[[], int]
    ) -> Iterator[tuple[Numbered, list[Answer]]]:
        """Yield batches from number ``begun`` on with their answers, in order.

        Args:
            batches: all of them from 0.
            begun: those before it are not needed.
            wanted: how many more are likely to be needed; so many are worked on together, and
                those that are not needed after all are lost.
        """
        there = self.elsewhere
        size = there.spread.shard_size(unit=1, save_every=BATCHES_AT_ONCE)
        rest = islice(batches, begun // size * size, None)  # shards begin as in the first run
        while wave := list(islice(rest, -(-max(1, wanted()) // size) * size)):
            job = Job(
                name="answers",
                build=there.build,
                items=wave,
                unit=1,
                save_every=size,
                settings=there.settings,
                folder=there.folder,
                plugins=there.plugins,
                uses_gpu=there.uses_gpu,
            )
            records = chain.from_iterable(there.spread.results(job))
            for batch, record in zip(wave, records, strict=True):
                if batch[0] >= begun:
                    yield batch, [Answer(text=t, problem=p, likelihood=v) for t, p, v in record]
