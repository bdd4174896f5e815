"""GRUEN by its authors' recipe (Zhu and Bhat, 2020): linguistic quality of captions in [0, 1].

CIC-BART-SSA reports it as G and keeps generated captions above .7. As in the published code,
with models that the user provides (BERT, and a BERT fine-tuned on CoLA):

- *grammar* = (exp(−PPL / 2) + a) / 8 + .5, at least 0. PPL is the mean over sentences of BERT's
  exp(cross-entropy) without masking, including begin and end tokens; a is the mean logit of the
  classifier for "acceptable";
- *redundancy*: −.1 for each of four signs that two sentences are similar, over all pairs;
- no *focus*: its deduction of .1 needs spaCy's vectors and word mover's distance, and affects
  only captions of several sentences;
- one-word sentences are ignored, and a caption without sentences scores .625, as in that code.

Sentences end at ``.``, ``!`` and ``?`` before a blank; the authors use NLTK.
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
    """GRUEN scorer of captions.

    Args:
        language_model: hub name or folder of a cased BERT for masked language modelling.
        acceptability: hub name or folder of a cased BERT that classifies CoLA sentences; its
            class 1 must be "acceptable". GRUEN's authors publish one.
        batch_size: number of sentences per batch.
        device: ``"auto"`` takes a GPU if there is one.

    Raises:
        FileNotFoundError, ConnectionError: the model or its weights are missing.
        ValueError: the wrong kind of weights, a classifier without exactly two classes, or an
            invalid device.
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
                f"{acceptability} has {classes} classes; GRUEN needs a CoLA classifier of two, "
                "with class 1 for acceptable"
            )
        self._batch_size = batch_size

    def settings(self) -> dict[str, Any]:
        """Return settings to store with scores."""
        return {**self._names, "focus": None}

    def score(self, captions: Sequence[str]) -> list[WellFormed]:
        """Return scores of captions in order; letter case and punctuation matter."""
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
    """BERT model of transformers with its tokenizer.

    Args:
        name: hub name or folder of the model.
        network: transformers class of the model.
        max_tokens: maximum tokens; longer sentences are truncated, with one log message.
        device: device of the model.
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
        instead = "GRUEN splits captions only at . ! and ?, as its authors do"
        self._limit = ReadingLimit(f"GRUEN ({name})", self._max_tokens, instead)

    @torch.inference_mode()
    def __call__(self, sentences: Sequence[str]) -> tuple[dict[str, Tensor], Tensor]:
        """Return inputs and logits of sentences."""
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
    """Return the sentences of more than one word, as written."""
    text = re.sub(r"\d+\.\s?\d+", "UNK", " ".join(caption.split()))
    return [
        part for part in _SENTENCE_END.split(text) if len(part.translate(_NO_SIGNS).split()) > 1
    ]


def count_signs(first: str, second: str) -> int:
    """Count the signs (0 to 4) that two sentences repeat each other; 4 if one contains the other.

    Only pairs of one caption with at least five words in a sentence are examined. Signs are: a
    common substring of over .8 of the shorter sentence's letters, or of its words; an
    edit distance below .6 of the longer one; over .8 of the shorter one's words in common.
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
    """Return the Levenshtein distance: letters to insert, delete or replace."""
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
