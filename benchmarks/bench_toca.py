"""Benchmark ToCa: parsing a corpus, sampling sentence templates, and completing templates.

python benchmarks/bench_toca.py [--captions 616767] [--templates 20000] [--small 56]
    [--answers 0] [--style gaps] [--examples 5] [--temperature 0.3] [--small-words 2] [--seed 1000]
    [--statistics FILE.npz]

COCO's captions come from inside pycocoevalcap. ``--answers`` asks SmolLM2 for so many, in batches
of 32, and prints some that were accepted; prompts were chosen on templates of seed 7, so ``--seed``
is another by default. ``--small-words -1`` lets it write what it likes. ``--statistics`` keeps the
counts, or takes them where they are. Rates are of processor time, with the clock's beside them.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from augmentation.toca.corpus_statistics import (
    CorpusStatistics,
    count_corpus,
    load_statistics,
    save_statistics,
)
from augmentation.toca.joined_words import join_word_parts
from augmentation.toca.prompt_writer import PromptWriter
from augmentation.toca.template_sampling import SentenceTemplate, TemplateSampler
from augmentation.toca.templates import deconstruct
from augmentation.writing.acceptance import Judge
from augmentation.writing.causal_writer import CausalWriter
from captioning.data.readers.coco import read_coco
from captioning.results.versions import versions
from captioning.text.tagger import CaptionTagger, Tagged

BATCH, SHOWN = 32, 12


@contextmanager
def timed(task: str, number: int) -> Iterator[None]:
    """Context manager: print the rate of a block by CPU time and by wall time."""
    wall, cpu_time = time.perf_counter(), time.process_time()
    yield
    wall, cpu_time = time.perf_counter() - wall, time.process_time() - cpu_time
    print(
        f"{task}: {number} in {cpu_time:.1f} s of processor time, {number / cpu_time:.0f}/s",
        end="; ",
    )
    print(f"{number / wall:.0f}/s by the clock", flush=True)


def peak() -> float:
    """Peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def read_captions(number: int) -> list[str]:
    """Read COCO's captions, training captions first."""
    files = ["pycocoevalcap:captions_train2014", "pycocoevalcap:captions_val2014"]
    roster = read_coco(name="coco", annotations=files, image_folder=None)
    return [sample.caption for sample in roster.samples[:number]]


def tagged(captions: list[str]) -> Iterator[Tagged]:
    """Tag captions as the synthesis does."""
    return map(join_word_parts, captions, CaptionTagger().tag(captions))


def statistics_of(captions: list[str], path: Path | None) -> CorpusStatistics:
    """Count the statistics, or read them from a file."""
    if path is not None and path.is_file():
        return load_statistics(path)
    with timed("captions taken apart", len(captions)):
        statistics = count_corpus(map(deconstruct, tagged(captions)))
    if path is not None:
        save_statistics(statistics, path)
    return statistics


def draw(statistics: CorpusStatistics, number: int) -> None:
    """Rates of all draws, and of different templates with a word in every slot."""
    sampler, draws = TemplateSampler(statistics), np.random.default_rng(0)
    with timed("templates drawn", number):
        num_complete = sum(is_whole(sampler.draw(draws)) for _ in range(number))
    print(f"{num_complete} of them with a word in every slot")
    with timed("different whole templates", number):
        templates = list(islice(sampler.templates(np.random.default_rng(0)), number))
    print(f"{sum(map(is_whole, templates))} of {len(templates)} with a word in every slot")


def is_whole(template: SentenceTemplate) -> bool:
    """Return whether every slot has a word."""
    return len(template.words) == template.structure.count("[")


def draw_of_few(captions: list[str], number: int) -> None:
    """Number of different templates from few captions in 20,000 draws."""
    rows = np.random.default_rng(0).choice(len(captions), number, replace=False)
    chosen = [captions[row] for row in rows]
    sampler = TemplateSampler(count_corpus(map(deconstruct, tagged(chosen))))
    draws = np.random.default_rng(0)
    templates = {
        template.text: template for template in (sampler.draw(draws) for _ in range(20_000))
    }
    num_complete = sum(map(is_whole, templates.values()))
    print(
        f"{number} captions: {len(templates)} different templates in 20,000 draws, "
        f"{num_complete} whole"
    )


def ask(statistics: CorpusStatistics, captions: list[str], options: argparse.Namespace) -> None:
    """Rate and acceptance of SmolLM2."""
    rows = np.random.default_rng(0).choice(len(captions), 500, replace=False)
    chosen = [captions[row] for row in rows]
    prompts = PromptWriter(style=options.style, num_examples=options.examples)
    prompts.learn(chosen, list(tagged(chosen)))
    small = None if options.small_words < 0 else options.small_words
    writer = CausalWriter(temperature=options.temperature, max_new_tokens=48, max_small_words=small)
    judge = Judge(known_captions=captions)
    draws = np.random.default_rng(options.seed)
    templates = list(islice(TemplateSampler(statistics).templates(draws), options.answers))
    verdicts, likely = [], []
    wall, cpu_time = time.perf_counter(), time.process_time()
    for start in range(0, len(templates), BATCH):
        part = templates[start : start + BATCH]
        answers = writer.answers(prompts.prompts(part, draws), seed=start)
        verdicts += [judge.judge(a, t.words) for a, t in zip(answers, part, strict=True)]
        likely += [answer.likelihood for answer in answers]
    wall, cpu_time = time.perf_counter() - wall, time.process_time() - cpu_time
    accepted = [
        (likelihood, t.text, v.caption)
        for likelihood, t, v in zip(likely, templates, verdicts, strict=True)
        if v.caption
    ]
    reasons = Counter(verdict.problem for verdict in verdicts if verdict.problem)
    print(f"{len(accepted)} of {len(templates)} answers accepted; refused: {dict(reasons)}")
    print(
        f"{3600 * len(accepted) / cpu_time:.0f} accepted captions an hour of one processor thread"
    )
    print(
        f"{3600 * len(accepted) / wall:.0f} an hour by the clock, {torch.get_num_threads()} threads"
    )
    accepted.sort(reverse=True)
    for title, examples in (("likeliest", accepted[:SHOWN]), ("least likely", accepted[-SHOWN:])):
        print(f"{title}:")
        for likelihood, template, caption in examples:
            print(f"  {likelihood:.2f} {template} -> {caption}")


def main() -> None:
    """Run the measurements that the arguments request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--captions", type=int, default=700_000)
    parser.add_argument("--templates", type=int, default=20_000)
    parser.add_argument("--small", type=int, default=56)
    parser.add_argument("--answers", type=int, default=0)
    parser.add_argument("--style", default="gaps")
    parser.add_argument("--examples", type=int, default=5)
    parser.add_argument("--temperature", type=float, default=0.3)
    parser.add_argument("--small-words", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--statistics", type=Path)
    options = parser.parse_args()
    print(versions())
    captions = read_captions(options.captions)
    statistics = statistics_of(captions, options.statistics)
    print(statistics.summary(), f"left out: {statistics.left_out}", f"memory: {peak():.0f} MiB")
    draw(statistics, options.templates)
    draw_of_few(captions, options.small)
    if options.answers:
        ask(statistics, captions, options)
    print(f"memory: {peak():.0f} MiB at most")


if __name__ == "__main__":
    main()
