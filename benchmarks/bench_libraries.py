"""Compare packages with our own code for the same tasks: python benchmarks/bench_libraries.py

Wants smatch, penman, lemminflect and inflect, which are no dependencies: install them in a folder
of their own and set PYTHONPATH. Times are processor seconds of this process.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from pycocoevalcap.spice import spice as spice_package

from augmentation.ssa.merging import smatch
from augmentation.ssa.penman import read_penman, write_penman
from captioning.metrics.fid import FeatureStatistics, frechet_distance
from captioning.text.inflection import indefinite_article, ing, participle, pluralise, third_person
from captioning.text.object_words import COCO_OBJECTS
from captioning.text.parser import build_caption_parser

GRAPHS = Path("tests/augmentation/ssa/checked_graphs.txt")
BROKEN = ("(a / b :ARG0)", "(a / b :ARG0 (c))", "(a / b", "(a b)")


def timed(function: Callable[..., Any], items: Iterable[tuple[Any, ...]]) -> tuple[list[Any], str]:
    """Results and milliseconds for each call."""
    items, start = list(items), time.process_time()
    results = [function(*item) for item in items]
    return results, f"{1000 * (time.process_time() - start) / len(items):.3f} ms"


def imported(name: str) -> Any:
    start = time.process_time()
    module = import_module(name)
    print(f"import {name}: {time.process_time() - start:.2f} s")
    return module


def compare_graphs() -> None:
    """Compare smatch on all pairs of 40 graphs, and reading and writing of 100 graphs."""
    library, penman = imported("smatch"), imported("penman")
    texts = [part for part in GRAPHS.read_text().split("\n\n") if "::snt" in part]
    graphs, ours = timed(read_penman, zip(texts, strict=True))
    decoded, theirs = timed(penman.decode, zip(texts, strict=True))
    print(f"read a graph: ours {ours}, penman {theirs}")
    written, ours = timed(write_penman, zip(graphs, strict=True))
    again, theirs = timed(lambda g: penman.encode(g, indent=None), zip(decoded, strict=True))
    same = sum(read_penman(text) == graph for text, graph in zip(again, graphs, strict=True))
    print(f"write a graph: ours {ours}, penman {theirs}; {same} of {len(again)} are the same")
    accepted = partial(accepts, errors=(ValueError, penman.DecodeError))
    for text in BROKEN:
        answers = [accepted(read, text) for read in (read_penman, penman.decode)]
        print(f"  {text!r} is taken: ours {answers[0]}, penman {answers[1]}")

    def by_library(first: str, second: str) -> tuple[int, int, int]:
        library.match_triple_dict.clear()
        return library.get_amr_match(first, second)

    own, ours = timed(smatch, itertools.combinations(graphs[:40], 2))
    other, theirs = timed(by_library, itertools.combinations(written[:40], 2))
    differences = Counter(b[0] - a.common for a, b in zip(own, other, strict=True))
    print(f"smatch of a pair: ours {ours}, smatch {theirs}; theirs finds more by {differences}")


def accepts(read: Callable[[str], Any], text: str, *, errors: tuple[type[Exception], ...]) -> bool:
    try:
        read(text)
    except errors:
        return False
    return True


def compare_words() -> None:
    """Compare word forms; where two libraries differ, count which form val2014 captions use."""
    lemminflect, engine = imported("lemminflect"), imported("inflect").engine()
    with ZipFile(Path(spice_package.__file__).parent / "spice-1.0.jar") as archive:
        entries = json.loads(archive.read("coco/annotations/captions_val2014.json"))["annotations"]
    texts = [entry["caption"].lower() for entry in entries]
    counts = Counter(word for text in texts for word in re.findall(r"[a-z'-]+", text))

    def form(tag: str) -> Callable[[str], str]:
        return lambda word: (lemminflect.getInflection(word, tag=tag) or (word,))[0]

    nouns = [name for line in COCO_OBJECTS for name in line.split(",")]
    print("nouns of COCO, ours, lemminflect, inflect:")
    for noun in nouns:
        forms = (pluralise(noun), form("NNS")(noun), engine.plural_noun(noun))
        if len(set(forms)) > 1:
            print(" ", noun, *forms)
    words = [w for w, _ in counts.most_common(12000) if w.isalpha() and len(w) > 2]
    parses = build_caption_parser(num_processes=1).parse(texts[:4000])
    tagged = {token.text for parse in parses for token in parse if token.tag == "NN"}
    plurals = [word for word in words if word in tagged]
    verbs = [w for w in words if counts[form("VBG")(w)] >= 3]
    report("plural, inflect", pluralise, lambda w: engine.plural_noun(w) or w, plurals, counts)
    report("plural, lemminflect", pluralise, form("NNS"), plurals, counts)
    report("-ing, lemminflect", ing, form("VBG"), verbs, counts)
    report("participle, lemminflect", participle, form("VBN"), verbs, counts)
    report("-s, lemminflect", third_person, form("VBZ"), verbs, counts)
    matches = [match for text in texts for match in re.findall(r"\b(an? [a-z'-]+)", text)]
    articles = Counter(matches)
    behind = [w for w, n in Counter(pair.split()[1] for pair in matches).items() if n >= 3]
    report(
        "article, inflect",
        lambda w: f"{indefinite_article(w)} {w}",
        lambda w: f"{engine.a(w).split()[0]} {w}",
        behind,
        articles,
    )


def report(
    task: str,
    ours: Callable[[str], str],
    theirs: Callable[[str], str],
    words: list[str],
    counts: Counter[str],
) -> None:
    own, mine = timed(ours, zip(words, strict=True))
    other, thine = timed(theirs, zip(words, strict=True))
    unlike = [(a, b) for a, b in zip(own, other, strict=True) if counts[a] != counts[b]]
    better = [f"{a} not {b}" for a, b in unlike if counts[a] > counts[b]]
    worse = [f"{b} not {a}" for a, b in unlike if counts[a] < counts[b]]
    print(f"{task}: {len(words)} words; ours {mine}, theirs {thine} a word")
    print(f"  ours as in captions {len(better)}: {', '.join(better[:20])}")
    print(f"  theirs as in captions {len(worse)}: {', '.join(worse[:20])}")


def compare_distances() -> None:
    """Compare Fréchet distances of random features; a set has distance 0 to itself."""
    theirs = import_module("torchmetrics.image.fid")._compute_fid
    for num, size in ((5000, 512), (300, 512), (300, 1280)):
        generator = torch.Generator().manual_seed(0)
        sets = [torch.randn(num, size, generator=generator).double().relu() for _ in range(2)]
        first, second = map(statistics, sets)
        for name, other in (("another", second), ("itself", first)):
            [own_distance], own_seconds = timed(frechet_distance, [(first, other)])
            moments = (first.mean, first.covariance(), other.mean, other.covariance())
            [distance], library_seconds = timed(theirs, [moments])
            print(
                f"{num} features of {size} from {name}: ours {own_distance:.3e} in {own_seconds}, "
                f"torchmetrics {float(distance):.3e} in {library_seconds}"
            )


def statistics(features: torch.Tensor) -> FeatureStatistics:
    mean = features.mean(0)
    gaps = features - mean
    return FeatureStatistics(
        network="random", num_images=len(features), mean=mean, scatter=gaps.T @ gaps
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    compare_graphs()
    compare_words()
    compare_distances()
