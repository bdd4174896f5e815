"""Beam search by the rules of transformers 4, against a plain search in lists."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.decoding.beam_transformers import TransformersBeamSearch
from captioning.decoding.settings import SearchRequest
from tests.captioning.decoding.plain_beams import transformers_search
from tests.captioning.decoding.toy import BOS, EOS, PAD, TableStepper, random_table

PROMPT = (4, 3)


class PromptedStepper(TableStepper):
    """Reads the prompt with the begin token, as captioners do."""

    prompt_ids = PROMPT

    def start(self):
        self.is_first = True
        return super().start()

    def step(self, tokens, state):
        if self.is_first:
            self.is_first = False
            for token in self.prompt_ids:
                _, state = super().step(tokens, state)
                tokens = torch.full_like(tokens, token)
        return super().step(tokens, state)


def search_of(options, num_captions=1):
    return TransformersBeamSearch.with_settings(
        max_length=options["max_length"],
        min_length=options["min_length"],
        beam_size=options["beams"],
        length_penalty=options["power"],
        early_stopping=options["early"],
        repetition_penalty=options["penalty"],
        no_repeat_ngram_size=options["ngram"],
        num_captions=num_captions,
        count_prompt=True,
        special_tokens=True,
    )


def results(stepper, search):
    search = search.counting_captions(1 + len(stepper.prompt_ids))
    ids = {"bos_id": BOS, "eos_id": EOS, "pad_id": PAD, "prompt_ids": stepper.prompt_ids}
    request = SearchRequest(num_images=len(stepper.table), **ids)
    result = search(stepper, stepper.start(), request)
    for scores, tokens, lengths in zip(result.scores, result.tokens, result.lengths, strict=True):
        rows = []
        for score, row, length in zip(scores, tokens, lengths, strict=True):
            caption = tuple(row[:length].tolist())
            rows.append((float(score), caption[:-1] if caption[-1] == EOS else caption))
        yield rows


@given(
    seed=st.integers(0, 10**6),
    prompted=st.booleans(),
    options=st.fixed_dictionaries(
        {
            "max_length": st.integers(4, 10),
            "min_length": st.integers(0, 6),
            "beams": st.integers(2, 4),
            "power": st.sampled_from([0.0, 1.0, 2.0]),
            "early": st.booleans(),
            "penalty": st.sampled_from([1.0, 1.3]),
            "ngram": st.sampled_from([0, 0, 2, 3]),
        }
    ),
)
@settings(max_examples=60)
def test_it_finds_what_a_plain_search_finds(seed, prompted, options):
    options["min_length"] = min(options["min_length"], options["max_length"] - 1)
    kind = PromptedStepper if prompted else TableStepper
    stepper = kind(random_table(seed, vocabulary=9))
    num_captions = min(2, options["beams"])
    for image, rows in enumerate(results(stepper, search_of(options, num_captions))):
        expected = transformers_search(
            lambda tokens, image=image: stepper.after(image, tokens),
            (BOS, *stepper.prompt_ids),
            end=EOS,
            **options,
        )
        assert [tokens for _, tokens in rows] == [t for _, t in expected[:num_captions]]
        scores = [score for score, _ in expected[:num_captions]]
        assert [score for score, _ in rows] == pytest.approx(scores, rel=1e-5)


DEFAULTS = {"max_length": 9, "min_length": 0, "beams": 3, "power": 1.0}
DEFAULTS |= {"early": False, "penalty": 1.0, "ngram": 0}


def captions(**options):
    stepper = PromptedStepper(random_table(3, images=60, vocabulary=9))
    return [rows[0][1] for rows in results(stepper, search_of(DEFAULTS | options))]


@pytest.mark.parametrize(
    "options", [{"early": True}, {"penalty": 1.5}, {"ngram": 2}, {"power": 0.0}, {"min_length": 6}]
)
def test_every_setting_changes_some_captions(options):
    assert captions() != captions(**options)


def test_special_tokens_are_produced_but_where_they_are_forbidden():
    produced = {token for caption in captions() for token in caption}
    assert {BOS, PAD} <= produced
    search = search_of(DEFAULTS)
    search = dataclasses.replace(
        search, settings=dataclasses.replace(search.settings, special_tokens=False)
    )
    stepper = PromptedStepper(random_table(3, images=60, vocabulary=9))
    assert not {BOS, PAD} & {t for rows in results(stepper, search) for t in rows[0][1]}


def test_an_image_does_not_depend_on_the_others():
    table = random_table(5, images=20, vocabulary=9)
    together = list(results(PromptedStepper(table), search_of(DEFAULTS, 3)))
    for image in range(20):
        alone = list(results(PromptedStepper(table[image : image + 1]), search_of(DEFAULTS, 3)))
        assert alone == [together[image]]


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ({"max_length": 3}, "max_length=3 includes the 3 tokens of begin and prompt"),
        ({"min_length": 9}, "min_length=9, search.max_length=9 .* leave no caption that can end"),
    ],
)
def test_lengths_without_room_for_a_caption_are_refused(lengths, message):
    stepper = PromptedStepper(random_table(0))
    with pytest.raises(ValueError, match=message):
        list(results(stepper, search_of(DEFAULTS | lengths)))
