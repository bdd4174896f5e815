"""Explain why scores differ between tools: tables of ``docs/results/metric_differences.md``.

    python tools/studies/metric_differences.py

Each image's first caption is scored against its other captions. Everybody has these candidates, as
pycocoevalcap contains COCO's captions of 2014. The script takes minutes, and needs Java for the
published tokenizer and METEOR.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from nltk.tokenize import TreebankWordTokenizer
from nltk.translate.bleu_score import corpus_bleu
from nltk.translate.meteor_score import meteor_score
from pycocoevalcap.bleu.bleu_scorer import BleuScorer

from captioning.data.readers.coco import read_coco
from captioning.metrics.bleu import prepare_bleu, score_bleu
from captioning.metrics.bootstrap import Bootstrap, intervals, pooled_mean, resampled
from captioning.metrics.cider import CiderReferences, CiderStatistics
from captioning.metrics.meteor import score_meteor
from captioning.metrics.rouge import prepare_rouge, score_rouge
from captioning.metrics.tokenizer import tokenize_ptb, tokenize_python
from captioning.results.table_formats import put_between_marks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "metric_differences.md"
NUM_IMAGES = 1000
NUM_REFERENCES = 4
RESAMPLES = 200  # of document frequencies counted anew: the slow way

Groups = list[list[str]]
Tokenize = Callable[[Sequence[str]], list[str]]
Row = tuple[str, ...]


def captions_of(number: int | None = None) -> Groups:
    """Five captions of each of the first images of COCO val2014, in file order."""
    roster = read_coco(
        name="val2014", annotations="pycocoevalcap:captions_val2014", image_folder=None
    )
    groups = [texts[: NUM_REFERENCES + 1] for texts in roster.references().values()]
    return groups[:number]


def tokenized(groups: Groups, tokenize: Tokenize) -> Groups:
    """Tokenize the captions in a single call."""
    rest = iter(tokenize([text for group in groups for text in group]))
    return [[next(rest) for _ in group] for group in groups]


def first_and_others(groups: Groups) -> tuple[list[str], Groups]:
    """First caption of each image as candidate, and the others as references."""
    return [group[0] for group in groups], [group[1:] for group in groups]


def scores_of(groups: Groups, statistics: CiderStatistics | None = None) -> dict[str, float]:
    """BLEU-4, ROUGE-L, CIDEr-D and CIDEr of tokenized captions."""
    candidates, references = first_and_others(groups)
    cider = CiderReferences.prepare(references, statistics)
    return {
        "BLEU-4": score_bleu(candidates, prepare_bleu(references))[0][3],
        "ROUGE-L": score_rouge(candidates, prepare_rouge(references))[0],
        "CIDEr-D": float(cider.score(candidates).mean()),
        "CIDEr": float(cider.score(candidates, variant="CIDEr").mean()),
    }


def table(head: Row, rows: Sequence[Row]) -> str:
    """Format texts as a Markdown table."""
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def score_rows(named: Mapping[str, Mapping[str, float]], names: Sequence[str]) -> str:
    """Rows by way of scoring, with a column per score."""
    rows = [(way, *(f"{scores[name]:.4f}" for name in names)) for way, scores in named.items()]
    return table(("", *names), rows)


def _treebank(texts: Sequence[str]) -> list[str]:
    tokenizer = TreebankWordTokenizer()
    return [" ".join(tokenizer.tokenize(text.lower())) for text in texts]


def tokenizers(raw: Groups, published: Groups) -> str:
    """Scores of the same captions under several tokenizers."""
    ways: dict[str, Groups] = {
        "PTB (Java), lower case, punctuation dropped: published": published,
        "`tokenizer: python` of this project": tokenized(raw, tokenize_python),
        "nltk's Treebank tokenizer, lower case, punctuation kept": tokenized(raw, _treebank),
        "lower case, split at spaces": [[text.lower() for text in texts] for texts in raw],
        "split at spaces, as typed": raw,
    }
    named = {way: scores_of(groups) for way, groups in ways.items()}
    return score_rows(named, ("BLEU-4", "ROUGE-L", "CIDEr-D"))


def bleu(groups: Groups) -> str:
    """BLEU-4 of the same tokens in several variants."""
    candidates, references = first_and_others(groups)
    rows = []
    for option in ("closest", "shortest", "average"):
        scorer = BleuScorer(n=4)
        for candidate, texts in zip(candidates, references, strict=True):
            scorer += (candidate, texts)
        rows.append((f"corpus, {option} reference length", scorer.compute_score(option)[0][3]))
    of_each = score_bleu(candidates, prepare_bleu(references))[1][3]
    rows.append(("mean of single captions' BLEU-4 (never printed as BLEU)", fmean(of_each)))
    split = [[text.split() for text in texts] for texts in references]
    nltk_score: Any = corpus_bleu(split, [text.split() for text in candidates])
    rows.append(("nltk's `corpus_bleu`, same tokens", nltk_score))
    return table(("", "BLEU-4"), [(way, f"{value:.4f}") for way, value in rows])


class _NoSynonyms:
    """Stand-in for WordNet, which nltk downloads; it has no synonyms."""

    def synsets(self, word: str) -> list[str]:
        return []


def meteor(groups: Groups) -> str:
    """METEOR of the same tokens by two programs."""
    candidates, references = first_and_others(groups)
    corpus, each = score_meteor(candidates, references)
    nltk_scores = [
        meteor_score([r.split() for r in refs], text.split(), wordnet=_NoSynonyms())  # type: ignore[arg-type]
        for text, refs in zip(candidates, references, strict=True)
    ]
    rows = [
        ("METEOR 1.5 (Java): published", corpus),
        ("METEOR 1.5, mean of single captions", fmean(each)),
        ("nltk's `meteor_score`, mean, without WordNet", fmean(nltk_scores)),
    ]
    return table(("", "METEOR"), [(way, f"{value:.4f}") for way, value in rows])


def cider(groups: Groups, everything: Groups) -> str:
    """CIDEr-D and CIDEr of the same captions with different document frequencies."""
    named = {f"frequencies of these {len(groups):,} images' references": scores_of(groups)}
    sizes = (5 * len(groups), len(everything))
    for size in sizes:
        references = [texts[1:] for texts in everything[:size]]
        statistics = CiderStatistics.count(references, source="")
        named[f"of {size:,} images' references"] = scores_of(groups, statistics)
    return score_rows(named, ("CIDEr-D", "CIDEr"))


def cider_intervals(groups: Groups) -> str:
    """Confidence intervals with fixed document frequencies and with those of each resample."""
    candidates, references = first_and_others(groups)
    each = CiderReferences.prepare(references).score(candidates)
    bootstrap = Bootstrap(resamples=RESAMPLES)
    kept = intervals([pooled_mean("CIDEr-D", each.tolist())], bootstrap)["CIDEr-D"]
    draws = resampled(len(groups), RESAMPLES, np.random.default_rng(bootstrap.seed))
    means = [
        CiderReferences.prepare([references[i] for i in row])
        .score([candidates[i] for i in row])
        .mean()
        for block in draws
        for row in block
    ]
    anew = np.quantile(means, [0.025, 0.975])
    rows = [("kept: here", *kept), ("counted anew in each resample", *anew)]
    return table(
        ("document frequencies", "CIDEr-D from", "to"),
        [(way, f"{low:.4f}", f"{high:.4f}") for way, low, high in rows],
    )


def reference_counts(groups: Groups) -> str:
    """Scores of the same captions against fewer references."""
    named = {f"{n}": scores_of([texts[: n + 1] for texts in groups]) for n in (1, 2, 3, 4)}
    return score_rows(named, ("BLEU-4", "ROUGE-L", "CIDEr-D"))


def mistakes(groups: Groups) -> str:
    """Scores under frequent mistakes in files of captions."""
    shifted = [[groups[i - 1][0], *texts[1:]] for i, texts in enumerate(groups)]
    tenth = [texts if i % 10 else ["", *texts[1:]] for i, texts in enumerate(groups)]
    left_out = [texts for i, texts in enumerate(groups) if i % 10]
    named = {
        "as they are": scores_of(groups),
        "every caption beside the next image's references": scores_of(shifted),
        "a tenth missing, scored as empty": scores_of(tenth),
        "a tenth missing, those images left out": scores_of(left_out),
    }
    return score_rows(named, ("BLEU-4", "ROUGE-L", "CIDEr-D"))


def main(page: Path) -> None:
    """Compute all tables and write them to the page."""
    everything = captions_of()
    raw = everything[:NUM_IMAGES]
    published = tokenized(raw, tokenize_ptb)
    put = partial(put_between_marks, page)
    put(tokenizers(raw, published), "tokenizers")
    put(bleu(published), "bleu")
    put(meteor(published), "meteor")
    put(reference_counts(published), "references")
    put(mistakes(published), "mistakes")
    put(cider_intervals(published), "intervals")
    # of all images by the port: Java's tokens are equal for nearly all captions
    put(cider(tokenized(raw, tokenize_python), tokenized(everything, tokenize_python)), "cider")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=PAGE, help="with the tables' marks")
    main(parser.parse_args().page)
