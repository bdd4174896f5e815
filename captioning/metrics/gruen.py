"""GRUEN by its authors' recipe (Zhu and Bhat, 2020): linguistic quality of captions in [0, 1].

CIC-BART-SSA reports it as G and keeps generated captions above .7. As the published code has it,
with models of the user's own (BERT, and a BERT that was fine-tuned on CoLA):

- *grammar* = (exp(−PPL / 2) + a) / 8 + .5, not below 0, with PPL the mean over sentences of BERT's
  exp(cross-entropy) of each sentence with nothing hidden, begin and end tokens counted, and a the
  mean of the classifier's logit for "acceptable";
- *redundancy*: −.1 for each of four signs that two sentences are alike, over all pairs;
- no *focus*: its deduction of .1 needs spaCy's vectors and their word mover's distance, and only
  captions of several sentences could have it;
- sentences of one word count for nothing, and a caption without sentences has .625, as theirs.

Sentences end at ``.``, ``!`` and ``?`` before a blank; the authors ask NLTK.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import chain, combinations
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from captioning.config.ranges import Device, PositiveInt
from captioning.metrics.well_formedness import DEDUCTION, AbstractWellFormedness, WellFormed
from captioning.runtime.devices import chosen_device
from captioning.runtime.extras import import_extra
from captioning.runtime.model_folder import damage_named, load_network, model_folder
from captioning.text.lengths import ReadingLimit

ALL_SIGNS = 4  # of redundancy: what two sentences have of which one holds the other
MAX_TOKENS = {"language_model": 512, "acceptability": 128}
_NO_SIGNS = str.maketrans("", "", string.punctuation)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


class Gruen(AbstractWellFormedness):
    """Scores captions one by one.

    Args:
        language_model: hub name or folder of a cased BERT that predicts hidden words.
        acceptability: hub name or folder of a cased BERT that classifies sentences of CoLA; its
            class 1 is "acceptable". GRUEN's authors publish theirs.
        batch_size: sentences at once.
        device: ``"auto"`` takes a GPU if there is one.

    Raises:
        FileNotFoundError, ConnectionError: no model, or no weights in its folder.
        ValueError: weights of another kind, a classifier of other than two classes, or no such
            device.
    """

    def __init__(
        self,
        *,
        language_model: str = "bert-base-cased",
        acceptability: str,
        batch_size: PositiveInt = 32,
        device: Device = "auto",
    ) -> None:
        place = chosen_device(device)
        self._names = {"language_model": language_model, "acceptability": acceptability}
        self._masked = _Bert(
            language_model,
            network="BertForMaskedLM",
            max_tokens=MAX_TOKENS["language_model"],
            device=place,
        )
        self._classifier = _Bert(
            acceptability,
            network="BertForSequenceClassification",
            max_tokens=MAX_TOKENS["acceptability"],
            device=place,
        )
        if (classes := self._classifier.network.config.num_labels) != 2:
            raise ValueError(
                f"{acceptability}: a classifier of {classes} classes; GRUEN needs one of CoLA, "
                "whose class 1 is acceptable"
            )
        self._batch_size = batch_size

    def settings(self) -> dict[str, Any]:
        """Settings to store with scores."""
        return {**self._names, "focus": None}

    def score(self, captions: Sequence[str]) -> list[WellFormed]:
        """Scores of captions, in order; letter case and signs count as they are written."""
        split = [sentences_of(caption) for caption in captions]
        distinct = list(dict.fromkeys(chain.from_iterable(split)))
        perplexity: dict[str, float] = {}
        acceptable: dict[str, float] = {}
        for start in range(0, len(distinct), self._batch_size):
            batch = distinct[start : start + self._batch_size]
            perplexity |= zip(batch, self._perplexities(batch), strict=True)
            acceptable |= zip(batch, self._acceptabilities(batch), strict=True)
        return [_score(sentences, perplexity, acceptable) for sentences in split]

    def _perplexities(self, sentences: Sequence[str]) -> list[float]:
        inputs, logits = self._masked(sentences)
        chosen = logits.gather(2, inputs["input_ids"].unsqueeze(2)).squeeze(2)
        losses = logits.logsumexp(2) - chosen
        mask = inputs["attention_mask"]
        return ((losses * mask).sum(1) / mask.sum(1)).exp().tolist()

    def _acceptabilities(self, sentences: Sequence[str]) -> list[float]:
        return self._classifier(sentences)[1][:, 1].tolist()


class _Bert:
    """A BERT of transformers with its tokenizer.

    Args:
        name: hub name or folder.
        network: class of transformers.
        max_tokens: longer sentences are cut, which is logged once.
        device: where it runs.
    """

    def __init__(self, name: str, *, network: str, max_tokens: int, device: torch.device) -> None:
        library = import_extra("transformers", extra="language-model", purpose="GRUEN")
        folder = model_folder(name, instead="the project's own well_formedness=smollm2")
        with damage_named(name):
            self._tokenizer = library.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, do_lower_case=False
            )
        model: Any = load_network(
            getattr(library, network), folder, name=name, kind=network, older_files=True
        )
        self.network: Any = model.to(device).eval().requires_grad_(False)
        self._max_tokens = min(max_tokens, model.config.max_position_embeddings)
        instead = "GRUEN cuts captions at . ! and ? alone, as its authors do"
        self._limit = ReadingLimit(f"GRUEN ({name})", self._max_tokens, instead)

    @torch.inference_mode()
    def __call__(self, sentences: Sequence[str]) -> tuple[dict[str, Tensor], Tensor]:
        """Inputs and logits of sentences."""
        inputs = self._tokenizer(
            list(sentences),
            padding=True,
            truncation=True,
            max_length=self._max_tokens,
            return_tensors="pt",
        ).to(self.network.device)
        self._limit.look((inputs["attention_mask"].sum(1) >= self._max_tokens).tolist())
        kept = {key: inputs[key] for key in ("input_ids", "attention_mask")}
        return kept, self.network(**kept).logits.float()


def sentences_of(caption: str) -> list[str]:
    """Sentences of more than one word, as they are written."""
    text = re.sub(r"\d+\.\s?\d+", "UNK", " ".join(caption.split()))
    return [
        part for part in _SENTENCE_END.split(text) if len(part.translate(_NO_SIGNS).split()) > 1
    ]


def count_signs(first: str, second: str) -> int:
    """How many of four signs there are that two sentences say the same; 4 if one holds the other.

    Both are of one text; only pairs with five words or more on a side are examined further: a
    common stretch of more than .8 of the shorter one's letters, of more than .8 of its words, an
    edit distance below .6 of the longer one, and more than .8 of the shorter one's words in common.
    """
    if first in second or second in first:
        return ALL_SIGNS
    words, other_words = first.split(), second.split()
    if max(len(words), len(other_words)) < 5:
        return 0
    fewest = min(len(words), len(other_words))
    common = SequenceMatcher(None, first, second).find_longest_match()
    stretch = first[common.a : common.a + common.size]
    return sum((
        common.size > 0.8 * min(len(first), len(second)),
        len(stretch.split()) > 0.8 * fewest,
        edit_distance(first, second) < 0.6 * max(len(first), len(second)),
        sum(word in other_words for word in words) > 0.8 * fewest,
    ))  # fmt: skip


def edit_distance(first: str, second: str) -> int:
    """Letters to put in, leave out or change (Levenshtein)."""
    costs = list(range(len(second) + 1))
    for row, letter in enumerate(first, start=1):
        diagonal, costs[0] = costs[0], row
        for column, other in enumerate(second, start=1):
            change = diagonal + (letter != other)
            diagonal = costs[column]
            costs[column] = min(change, diagonal + 1, costs[column - 1] + 1)
    return costs[-1]


def _score(
    sentences: Sequence[str], perplexity: dict[str, float], acceptable: dict[str, float]
) -> WellFormed:
    strangeness = fmean(perplexity[s] for s in sentences) if sentences else 0.0
    approval = fmean(acceptable[s] for s in sentences) if sentences else 0.0
    grammar = max(0.0, (math.exp(-0.5 * strangeness) + approval) / 8 + 0.5)
    signs = sum(count_signs(first, second) for first, second in combinations(sentences, 2))
    total = min(1.0, max(0.0, grammar - DEDUCTION * signs))
    return WellFormed(grammar=grammar, redundancy=DEDUCTION * signs, focus=0.0, total=total)
