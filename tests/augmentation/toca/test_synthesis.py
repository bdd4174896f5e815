"""Batches, counts, and going on after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from augmentation.captions.line_log import read_lines
from augmentation.toca.corpus_statistics import count_corpus
from augmentation.toca.method import SURPLUS, UNLIKELY, Pace, Synthesis
from augmentation.toca.prompt_writer import PromptWriter
from augmentation.toca.template_sampling import SentenceTemplate, TemplateSampler
from augmentation.toca.templates import deconstruct, sentence_template
from augmentation.writing.acceptance import DUPLICATE, MISSING, Judge
from augmentation.writing.prompt import Prompt
from augmentation.writing.writers import FAILED, TIMED_OUT, Answer
from tests.augmentation.toca.conftest import Filler


def list_records(path: Path) -> list[dict]:
    return list(read_lines(path))


def template(tokens: str) -> SentenceTemplate:
    required_tokens = tuple(
        (token, "" if token in ("on", ".") else "N") for token in tokens.split()
    )
    return SentenceTemplate(
        structure="", words=(), text=sentence_template(tokens.split()), tokens=required_tokens
    )


def synthesise(
    gold, folder: Path, writer: Filler, judge: Judge | None = None, **pace: float
) -> dict:
    statistics = count_corpus(deconstruct(tags) for _, tags in gold)
    prompts = PromptWriter(num_examples=2)
    prompts.learn([caption for caption, _ in gold], [tags for _, tags in gold])
    synthesis = Synthesis(
        prompts=prompts,
        writer=writer,
        judge=judge or Judge(known_captions=[caption for caption, _ in gold]),
        pace=Pace(**{"num_captions": 40, "batch_size": 6} | pace),
        seed=3,
    )
    templates = TemplateSampler(statistics, complete_first=False).templates(
        np.random.default_rng(3)
    )
    return synthesis.run(templates, folder)


def test_a_corpus_with_its_provenance(gold, tmp_path: Path) -> None:
    counts = synthesise(gold, tmp_path, Filler())
    captions = (tmp_path / "captions.txt").read_text().splitlines()
    records = list_records(tmp_path / "provenance.jsonl")
    assert len(captions) == counts["captions"] == 40
    assert len(set(captions)) == len(captions)
    assert counts["answers"] == len(records) == counts["captions"] + sum(counts["refused"].values())
    assert counts["refused"][MISSING] >= counts["answers"] // 4
    assert [r["caption"] for r in records if "caption" in r] == captions
    for record in records:
        if "caption" in record:
            assert set(record["words"]) <= set(record["caption"].lower().rstrip(".").split())
    assert not list(tmp_path.glob("*.part*"))


def test_a_killed_synthesis_goes_on_to_the_same_bytes(gold, tmp_path: Path) -> None:
    synthesise(gold, tmp_path / "whole", Filler())
    with pytest.raises(ConnectionError, match="gone"):
        synthesise(gold, tmp_path / "killed", Filler(dies_at=4))
    part = tmp_path / "killed" / "batches.part.jsonl"
    lines = part.read_bytes().splitlines(keepends=True)
    assert len(lines) == 4
    part.write_bytes(b"".join(lines)[:-9])  # killed in the midst of a line
    again = Filler()
    synthesise(gold, tmp_path / "killed", again)
    for name in ("captions.txt", "provenance.jsonl"):
        first, second = tmp_path / "whole" / name, tmp_path / "killed" / name
        assert first.read_bytes() == second.read_bytes()
    before = again.calls
    assert synthesise(gold, tmp_path / "killed", again)["captions"] == 40
    assert again.calls == before


def test_a_set_ends_with_the_captions_that_are_wanted(gold, tmp_path: Path) -> None:
    # a batch of six gives four captions
    whole = synthesise(gold, tmp_path / "whole", Filler(), num_captions=12)
    assert SURPLUS not in whole["refused"]
    part = synthesise(gold, tmp_path / "part", Filler(), num_captions=9)
    assert part == whole | {"captions": 9, "refused": whole["refused"] | {SURPLUS: 3}}
    texts, records = {}, {}
    for name in ("whole", "part"):
        texts[name] = (tmp_path / name / "captions.txt").read_text().splitlines()
        records[name] = list_records(tmp_path / name / "provenance.jsonl")
    assert texts["part"] == texts["whole"][:9]
    put_aside = [r["answer"] for r in records["part"] if r.get("refused") == SURPLUS]
    assert put_aside == texts["whole"][9:]
    # two more are in the last batch already
    grown = synthesise(gold, tmp_path / "part", Filler(dies_at=0), num_captions=11)
    assert (grown["captions"], grown["refused"][SURPLUS]) == (11, 1)
    assert (tmp_path / "part" / "captions.txt").read_text().splitlines() == texts["whole"][:11]
    synthesise(gold, tmp_path / "part", Filler(dies_at=0), num_captions=12)
    assert list_records(tmp_path / "part" / "provenance.jsonl") == records["whole"]


@pytest.mark.parametrize("answers", [1, 3])
def test_a_finished_synthesis_may_be_asked_for_more(gold, tmp_path: Path, answers: int) -> None:
    full_counts = synthesise(gold, tmp_path / "whole", Filler(), num_answers=answers)
    first, later = Filler(), Filler()
    few = synthesise(gold, tmp_path / "grown", first, num_captions=10, num_answers=answers)
    assert (few["captions"], full_counts["captions"]) == (10, 40)
    assert few["refused"][SURPLUS] > 0
    grown = synthesise(gold, tmp_path / "grown", later, num_answers=answers)
    assert grown == full_counts
    assert later.calls == full_counts["templates"] / 6 - first.calls
    for name in ("captions.txt", "provenance.jsonl"):
        paths = tmp_path / "whole" / name, tmp_path / "grown" / name
        assert paths[0].read_bytes() == paths[1].read_bytes()
    assert not (tmp_path / "grown" / "batches.part.jsonl").exists()
    # fewer are all there
    assert (
        synthesise(gold, tmp_path / "grown", Filler(dies_at=0), num_answers=answers, num_captions=5)
        == full_counts
    )


def one_template(generator: object) -> Iterator[SentenceTemplate]:
    """Neighbours of the same text, as templates of some words have it."""
    del generator
    for number in range(60):
        yield template(("dog on mat .", "man on horse .")[number // 5 % 2])


@pytest.mark.parametrize("numbered", [True, False])
def test_templates_of_one_text_stay_several(
    gold, tmp_path: Path, monkeypatch, numbered: bool
) -> None:
    monkeypatch.setattr(TemplateSampler, "templates", lambda _, rng: one_template(rng))
    whole, part = tmp_path / "whole", tmp_path / "part"
    expected = synthesise(gold, whole, Wordy(), num_captions=30)
    assert expected["templates"] == expected["answers"]
    synthesise(gold, part, Wordy(), num_captions=9)
    if not numbered:  # as sets of before have it
        records = [
            {k: v for k, v in r.items() if k != "number"}
            for r in list_records(part / "provenance.jsonl")
        ]
        text = "".join(json.dumps(record) + "\n" for record in records)
        (part / "provenance.jsonl").write_text(text)
    grown = synthesise(gold, part, Wordy(), num_captions=30)
    assert grown["captions"] == expected["captions"]
    texts = [(folder / "captions.txt").read_text() for folder in (whole, part)]
    assert texts[0] == texts[1]
    numbers = [record["number"] for record in list_records(whole / "provenance.jsonl")]
    assert numbers == list(range(len(numbers)))


class Wordy(Filler):
    """Says the words of the template and one that no other answer has."""

    def answers(self, prompts: Sequence[Prompt], *, seed: int) -> list[Answer]:
        answers = super().answers(prompts, seed=seed)
        letters = str.maketrans("0123456789", "abcdefghij")
        return [
            Answer(text=f"{answer.text[:-1]} {str(seed + n).translate(letters)}.")
            for n, answer in enumerate(answers)
        ]


def test_several_answers_to_a_template(gold, tmp_path: Path) -> None:
    single = synthesise(gold, tmp_path / "a", Filler())
    triple = synthesise(gold, tmp_path / "b", Filler(), num_answers=3)
    accepted, templates = triple["captions"], triple["templates"]
    assert accepted / templates > single["captions"] / single["templates"]
    records = list_records(tmp_path / "b" / "provenance.jsonl")
    assert len({r["template"] for r in records if "caption" in r}) == accepted


def test_the_likeliest_of_a_batch_are_kept(gold, tmp_path: Path) -> None:
    class Telling(Filler):
        def answers(self, prompts, *, seed):
            answers = super().answers(prompts, seed=seed)
            return [replace(a, likelihood=-float(n)) for n, a in enumerate(answers)]

    counts = synthesise(gold, tmp_path, Telling(), num_templates=12, keep=0.5)
    records = list_records(tmp_path / "provenance.jsonl")
    is_caption = ["caption" in record for record in records]
    # the third and the sixth lack a word; of the other four the first two are likelier
    assert is_caption == [True, True, False, False, False, False] * 2
    assert [r["refused"] for r in records[2:6]] == [MISSING, UNLIKELY, UNLIKELY, MISSING]
    assert counts["captions"] == 4
    silent = synthesise(gold, tmp_path / "silent", Filler(), num_templates=12, keep=0.5)
    assert silent["captions"] == 8
    with pytest.raises(ValueError, match="keep must lie in"):
        Pace(num_captions=1, keep=0)


def test_what_was_not_likely_enough_is_still_known_after_a_kill(gold, tmp_path: Path) -> None:
    class Telling(Filler):
        """Tells likelihoods that fall."""

        def answers(self, prompts, *, seed):
            answers = super().answers(prompts, seed=1)
            return [replace(a, likelihood=-float(n)) for n, a in enumerate(answers)]

    class Lenient(Judge):
        """Reads one of five sentences in any answer, so that they recur."""

        def judge(self, answer, words):
            letters = len(answer.text) % 5
            return super().judge(replace(answer, text=f"a dog runs {'y' * (letters + 1)}."), ())

    def run(folder: Path, writer: Filler) -> dict:
        statistics = count_corpus(deconstruct(tags) for _, tags in gold)
        synthesis = Synthesis(
            prompts=PromptWriter(num_examples=0),
            writer=writer,
            judge=Lenient(),
            pace=Pace(num_captions=40, num_templates=18, batch_size=6, keep=0.5),
        )
        return synthesis.run(
            TemplateSampler(statistics).templates(np.random.default_rng(3)), folder
        )

    run(tmp_path / "whole", Telling())
    with pytest.raises(ConnectionError, match="gone"):
        run(tmp_path / "killed", Telling(dies_at=1))
    run(tmp_path / "killed", Telling())
    first, second = (tmp_path / name / "provenance.jsonl" for name in ("whole", "killed"))
    assert first.read_bytes() == second.read_bytes()
    assert UNLIKELY in first.read_text()


def test_as_many_templates_as_are_allowed(gold, tmp_path: Path) -> None:
    counts = synthesise(gold, tmp_path, Filler(), num_templates=13)
    assert counts["templates"] == 13


def test_nothing_accepted_is_an_error_that_counts(gold, tmp_path: Path) -> None:
    class Silent(Filler):
        def answers(self, prompts, *, seed):
            return [type(a)(text="") for a in super().answers(prompts, seed=seed)]

    with pytest.raises(ValueError, match="no caption was accepted; reasons: {'no answer': 12}"):
        synthesise(gold, tmp_path, Silent(), num_templates=12)


class Failing(Filler):
    """Fails for some whole batches."""

    def __init__(self, failing: range) -> None:
        super().__init__()
        self.failing = failing

    def answers(self, prompts, *, seed):
        answers = super().answers(prompts, seed=seed)
        if self.calls - 1 not in self.failing:
            return answers
        return [Answer(problem=FAILED if n else TIMED_OUT) for n in range(len(answers))]


def test_a_model_that_only_fails_is_given_up(gold, tmp_path: Path) -> None:
    writer = Failing(range(2, 99))
    with pytest.raises(OSError, match="failed for 3 batches in a row .*run the command again"):
        synthesise(gold, tmp_path / "a", writer)
    assert writer.calls == 5
    assert (
        len(list_records(tmp_path / "a" / "batches.part.jsonl")) == 2
    )  # the others are asked anew
    synthesise(gold, tmp_path / "a", Filler())
    synthesise(gold, tmp_path / "whole", Filler())
    first, second = (tmp_path / name / "provenance.jsonl" for name in ("a", "whole"))
    assert first.read_bytes() == second.read_bytes()


def test_a_model_that_fails_for_a_while_is_not(gold, tmp_path: Path) -> None:
    counts = synthesise(gold, tmp_path / "a", Failing(range(2, 4)))
    assert (counts["refused"][FAILED], counts["refused"][TIMED_OUT]) == (10, 2)
    counts = synthesise(gold, tmp_path / "b", Failing(range(1, 9)), num_templates=18)
    assert counts["templates"] == 18  # too few to give it up


def test_failures_are_no_refused_answers_after_a_kill(gold, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("augmentation.toca.method.MAX_REFUSED", 10)
    partial = tmp_path / "batches.part.jsonl"
    record = {"structure": "", "words": [], "template": "", "refused": FAILED, "answer": ""}
    partial.write_text(json.dumps([record] * 6) + "\n" + json.dumps([record] * 6) + "\n")
    counts = synthesise(gold, tmp_path, Filler(), num_captions=5)
    assert (counts["captions"], counts["refused"][FAILED]) == (5, 12)


def test_a_model_that_is_always_refused_is_given_up(gold, tmp_path: Path, monkeypatch) -> None:
    class Declining(Filler):
        def answers(self, prompts, *, seed):
            answers = super().answers(prompts, seed=seed)
            declined = [Answer(text="I cannot do that.")] * len(prompts)
            return declined if self.calls > 2 else answers

    monkeypatch.setattr("augmentation.toca.method.MAX_REFUSED", 24)
    writer, part = Declining(), tmp_path / "batches.part.jsonl"
    with pytest.raises(
        ValueError, match="the last 24 answers were all refused.*declined.*8 earlier captions"
    ):
        synthesise(gold, tmp_path, writer)
    assert writer.calls == 6
    assert sum("caption" in record for batch in list_records(part) for record in batch) == 8


def test_a_corpus_without_anything_new_left_ends(gold, tmp_path: Path, monkeypatch, caplog) -> None:
    class Same(Filler):
        def answers(self, prompts, *, seed):
            super().answers(prompts, seed=seed)  # which may die
            return [Answer(text=f"a dog runs {'y' * (n + 1)}.") for n in range(len(prompts))]

    class Wordless(Judge):
        """Asks for no words."""

        def judge(self, answer, words):
            return super().judge(answer, ())

    monkeypatch.setattr("augmentation.toca.method.MAX_REFUSED", 24)
    counts = synthesise(gold, tmp_path, Same(), Wordless())
    assert counts["captions"] == 6
    assert counts["refused"] == {DUPLICATE: 24}
    assert "ending with 6 captions" in caplog.text
    assert synthesise(gold, tmp_path, Same(dies_at=0), Wordless()) == counts


def test_examples_are_the_corpus_own(gold, tmp_path: Path) -> None:
    prompts = PromptWriter(num_examples=3)
    prompts.learn([caption for caption, _ in gold], [tags for _, tags in gold])
    example_prompts = prompts.prompts(
        [template("dog ."), template("cat .")], np.random.default_rng(0)
    )
    assert example_prompts[0].opening() == example_prompts[1].opening()
    assert example_prompts[1].ending() == " [ ] cat [ ] .\nSentence:"
    captions = {caption.rstrip(".") for caption, _ in gold}
    assert {answer.rstrip(".") for _, answer in example_prompts[0].examples} <= captions
    assert [turn["role"] for turn in example_prompts[0].messages()][-2:] == ["assistant", "user"]
    words = PromptWriter(style="words", num_examples=0)
    (prompt,) = words.prompts([template("dog on mat .")], np.random.default_rng(0))
    assert prompt.question == "dog, on, mat"
    assert prompt.required_tokens == (("dog", "N"), ("on", ""), ("mat", "N"), (".", ""))
    with pytest.raises(ValueError, match="style must be one of"):
        PromptWriter(style="poem")


def test_records_are_plain(gold, tmp_path: Path) -> None:
    synthesise(gold, tmp_path, Filler(), num_captions=3)
    first = json.loads((tmp_path / "provenance.jsonl").read_text().splitlines()[0])
    assert set(first) >= {"structure", "words", "template"}
