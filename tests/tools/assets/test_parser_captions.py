"""Captions drawn for the parser's teacher, and what the teacher's script does around its model."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import spacy
from omegaconf import OmegaConf

from captioning.data.roster import Roster, build_roster
from captioning.types import Sample
from tools.assets import annotate_spacy2
from tools.assets.annotate_spacy2 import annotate, as_printed, lemma
from tools.assets.parser_captions import draw_captions, gather


def roster(name: str, captions: list[str]) -> Roster:
    """One image a caption; the target of the configs below."""
    return build_roster(
        name,
        [
            Sample(row=i, sample_id=f"{i}#0", image_id=str(i), image_path=Path("x"), caption=text)
            for i, text in enumerate(captions)
        ],
    )


def test_captions_are_drawn_once_each() -> None:
    texts = ["a dog", "a  dog", "a cat", "two cows"]
    records = list(
        draw_captions(roster("r", texts), number=9, split="s", rng=np.random.default_rng(0))
    )
    assert {record["caption"] for record in records} == {"a dog", "a cat", "two cows"}
    assert {record["id"] for record in records} == {"r/0#0", "r/2#0", "r/3#0"}
    drawn = draw_captions(roster("r", texts), number=2, split="s", rng=np.random.default_rng(0))
    assert list(drawn) == records[:2]


def test_held_out_captions_are_not_trained_on() -> None:
    def source(split: str, captions: list[str]) -> dict:
        reader = {"_target_": f"{__name__}.roster", "name": split, "captions": captions}
        return {"split": split, "number": 10, "reader": reader}

    sources = OmegaConf.create(
        {"a": source("train", ["A dog"]), "b": source("held_out", ["a dog", "a cow"])}
    )
    records = gather(sources, seed=0)
    assert [(r["split"], r["caption"]) for r in records] == [
        ("train", "A dog"),
        ("held_out", "a cow"),
    ]


@pytest.mark.parametrize(
    ("caption", "printed"),
    [
        ("a man rides", "A man rides ."),
        ("A man rides.", "A man rides."),
        ("A MAN RIDES A HORSE", "A man rides a horse ."),
        ("Bob sees Rome", "Bob sees Rome ."),
        ("who  is it ?", "Who is it ?"),
        ("", ""),
    ],
)
def test_the_teacher_is_shown_captions_as_printed(caption: str, printed: str) -> None:
    assert as_printed(caption) == printed


@dataclass
class Word:
    """As much of a spaCy 2 token as the script looks at."""

    lower_: str
    lemma_: str
    i: int = 0
    tag_: str = "NN"
    dep_: str = "dep"
    head: Word = field(default=None)  # type: ignore[assignment]


class Teacher:
    """Words of spaCy's tokenizer, each hanging on the first."""

    def __init__(self) -> None:
        self.make_doc = spacy.blank("en").make_doc

    def pipe(self, texts, batch_size: int):
        for text in texts:
            doc = [Word(t.lower_, t.text, i) for i, t in enumerate(self.make_doc(text))]
            for word in doc:
                word.head = doc[0]
            yield doc


def test_parses_are_of_the_caption_as_it_stands() -> None:
    records = [{"caption": "a  dog runs"}, {"caption": "DOGS RUN FAST ."}, {"caption": " "}]
    first, second = annotate(Teacher(), records)
    assert first["words"] == ["a", "dog", "runs"]
    assert first["lemmas"] == ["a", "dog", "runs"]
    assert first["heads"] == [0, 0, 0]
    assert first["spaces"] == [True, True, False]
    assert second["words"] == ["DOGS", "RUN", "FAST", "."]


def test_a_caption_that_prints_as_other_words_is_left_out() -> None:
    class Joining(Teacher):
        def pipe(self, texts, batch_size: int):
            for doc in super().pipe(texts, batch_size):
                doc[0].lower_ = "something else"
                yield doc

    assert list(annotate(Joining(), [{"caption": "a dog"}])) == []


def test_pronouns_have_their_own_lemma() -> None:
    assert lemma(Word("them", "-PRON-")) == "them"
    assert lemma(Word("dogs", "Dog")) == "dog"


def test_a_file_is_parsed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotate_spacy2, "load_teacher", Teacher)
    lines = [json.dumps({"id": str(i), "split": "s", "caption": f"dog {i}"}) for i in range(3)]
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    annotate_spacy2.main(str(tmp_path / "captions.jsonl"), str(tmp_path / "parses.jsonl"))
    parsed = [json.loads(line) for line in (tmp_path / "parses.jsonl").read_text().splitlines()]
    assert [record["words"] for record in parsed] == [["dog", str(i)] for i in range(3)]
    assert {path.name for path in tmp_path.iterdir()} == {"captions.jsonl", "parses.jsonl"}
