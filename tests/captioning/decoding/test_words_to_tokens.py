"""Words in a search's settings, and captions of all that it finds."""

from __future__ import annotations

import pytest
import torch

from captioning.decoding.beam import BeamSearch
from captioning.decoding.constrained import ConstrainedBeamSearch
from captioning.decoding.generate import GenerateSearch
from captioning.decoding.machine import build_machine
from captioning.decoding.sampling import Sampling
from captioning.decoding.words_to_tokens import beginning_tokens, bind_search, find_captions
from captioning.text.tokenizers.words import WordTokenizer
from tests.captioning.decoding.toy import TableStepper, random_table
from tests.tiny import MODELS, build, make_batch

TOKENIZER = WordTokenizer(words=["a", "dog", "cat", "stop"])
DOG, CAT, STOP = (TOKENIZER.words.index(word) for word in ("dog", "cat", "stop"))


class Pieces(WordTokenizer):
    """Writes each word as its letters, and ``a`` in two ways."""

    def spellings(self, text: str) -> list[list[int]]:
        return {"a": [[4], [9]], "dog": [[5, 6, 7]]}.get(text, [])


def test_words_become_ids_beside_those_given_as_ids():
    search = BeamSearch.with_settings(
        beam_size=2,
        forbidden_words=["dog", "zebra"],
        forbidden_ids=(CAT,),
        end_words=["stop"],
    )
    bound = bind_search(search, TOKENIZER).settings
    assert bound.forbidden_ids == (CAT, DOG, TOKENIZER.unk_id)
    assert bound.end_ids == (STOP,)
    assert bound.beam_size == 2
    assert bound.forbidden_words == bound.end_words == ()


def test_all_spellings_of_a_word_are_forbidden():
    search = BeamSearch.with_settings(forbidden_words=["a"])
    bound = bind_search(search, Pieces(words=[*"abcdef"]))
    assert bound.settings.forbidden_ids[:2] == (4, 9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"forbidden_words": "dog"}, r"forbidden_words must be a list of words: got 'dog'"),
        ({"forbidden_words": [3]}, r"forbidden_words must be a list of words: got \[3\]"),
        ({"forbidden_ids": 3}, r"forbidden_ids must be a list of token ids: got 3"),
        ({"end_ids": ["."]}, r"end_ids must be a list of token ids: got \['\.'\]"),
        ({"end_words": ["."]}, r"end_words must be in the vocabulary: got '.'"),
        ({"forbidden_words": ["a dog"]}, r"one token each: got 'a dog', which has the tokens \[4,"),
    ],
)
def test_words_that_no_setting_can_hold_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        bind_search(BeamSearch.with_settings(**settings), TOKENIZER)


def test_a_token_that_both_ends_and_is_unknown_may_end_captions():
    class Boundary(WordTokenizer):
        bos_id = eos_id = unk_id = 1

    bound = bind_search(BeamSearch.with_settings(), Boundary(words=["dog"]))
    assert bound.settings.forbidden_ids == ()


def with_search(kind, **settings):
    model = build("updown")
    model.search = bind_search(kind.with_settings(**settings), model.tokenizer)
    return model


def test_forbidden_words_are_never_said():
    free = build("updown")
    words_used = {word for p in free.generate(make_batch()) for word in p.caption.split()}
    word = max(words_used)
    settings = {"beam_size": 3, "max_length": 8}
    model = with_search(BeamSearch, forbidden_words=[word], **settings)
    captions = [p.caption.split() for p in model.generate(make_batch())]
    assert all(word not in caption for caption in captions)
    also = with_search(BeamSearch, **settings, forbidden_ids=model.tokenizer.encode(word)[1:2])
    assert [p.caption.split() for p in also.generate(make_batch())] == captions


def test_another_search_of_the_call_is_bound_as_the_models_own():
    model = build("updown")
    words = sorted({w for p in model.generate(make_batch()) for w in p.caption.split()})
    other = BeamSearch.with_settings(forbidden_words=words, beam_size=3, max_length=8)
    predictions = model.generate(make_batch(), search=other)
    words_used = {word for p in predictions for word in p.caption.split()}
    assert not words_used & set(words)
    assert "<unk>" not in words_used


def test_an_end_word_ends_captions_and_stays():
    free = build("updown").generate(make_batch())
    word = next(p.caption.split()[1] for p in free if len(p.caption.split()) > 2)
    model = with_search(BeamSearch, beam_size=3, max_length=8, end_words=[word])
    captions = [p.caption.split() for p in model.generate(make_batch())]
    assert all(word not in caption[:-1] for caption in captions)
    assert any(caption[-1] == word for caption in captions)


@pytest.mark.parametrize("name", MODELS)
def test_candidates_are_the_searchs_captions_best_first(name):
    model, batch = build(name), make_batch()
    model.search = model.search.changed(num_captions=3)
    candidates = model.candidates(batch)
    assert [group[0] for group in candidates] == model.generate(batch)
    assert [group[0].image_id for group in candidates] == list(batch.image_ids)
    for group in candidates:
        assert len(group) == len({p.caption for p in group}) == 3
        assert {p.image_id for p in group} == {group[0].image_id}
        assert {p.satisfied for p in group} == {None}
    assert any(group[0].score > group[1].score > group[2].score for group in candidates)


def test_an_image_about_which_nothing_can_be_said_has_an_empty_caption():
    model, batch = build("updown"), make_batch()
    everything = [i for i in range(len(model.tokenizer)) if i != model.tokenizer.eos_id]
    search = model.search.changed(forbidden_ids=everything, min_length=3)
    candidates = model.candidates(batch, search=search)
    assert [[(p.caption, p.score) for p in group] for group in candidates] == [
        [("", -torch.inf)]
    ] * 4


def test_samples_of_an_image_do_not_depend_on_its_batch():
    settings = {"num_captions": 4, "max_length": 8, "seed": 3}
    model, batch = with_search(Sampling, **settings), make_batch()
    together = model.candidates(batch)
    alone = type(batch)(
        rows=batch.rows[:1],
        sample_ids=("x",),
        image_ids=batch.image_ids[2:3],
        image_index=torch.zeros(1, dtype=torch.long),
        regions=batch.regions[2:3],
        region_mask=batch.region_mask[2:3],
    )
    (again,) = model.candidates(alone)
    assert [p.caption for p in again] == [p.caption for p in together[2]]
    assert len({p.caption for p in again}) > 1


def test_captions_say_whether_they_meet_their_constraints():
    model = with_search(ConstrainedBeamSearch, beam_size=3, max_length=8)
    with torch.no_grad():
        model.output.bias[model.tokenizer.eos_id] += 6  # captions of this model seldom end
    batch, token = make_batch(), model.tokenizer.encode("dog")[1]
    never = model.tokenizer.unk_id
    machines = [build_machine([[(token,)]], required=1)] * 3
    machines.append(build_machine([[(token,)], [(never,)]], required=2))
    predictions = model.generate(batch, machines=machines)
    assert [p.satisfied for p in predictions] == [True, True, True, False]
    assert all("dog" in p.caption.split() for p in predictions)


def test_constrained_search_without_constraints_says_what_is_missing():
    model = with_search(ConstrainedBeamSearch, beam_size=3, max_length=8)
    with pytest.raises(ValueError, match="needs one machine per image; captioning evaluate builds"):
        model.generate(make_batch())


def test_constraints_are_refused_by_a_search_that_takes_none():
    model = with_search(BeamSearch, beam_size=3, max_length=8)
    with pytest.raises(ValueError, match="constraints need search=constrained: got BeamSearch"):
        model.generate(make_batch(), machines=[build_machine([])] * 4)


@pytest.mark.parametrize(
    ("kind", "settings"), [(BeamSearch, {"beam_size": 1}), (Sampling, {"temperature": 0.01})]
)
def test_a_caption_that_continues_its_own_beginning_ends_alike(kind, settings):
    class Ids(WordTokenizer):
        def decode(self, ids):
            return " ".join(map(str, ids))

    tokenizer = Ids(words=["a", "b", "c"])
    stepper = TableStepper(random_table(4, codes=101))
    search = kind.with_settings(**settings, max_length=8, min_length=8, special_tokens=True)

    def found(beginning, image):
        state = stepper.start().select(torch.tensor([image]))
        length = {"max_length": 8 - len(beginning), "min_length": 8 - len(beginning)}
        captions = find_captions(
            search.changed(**length),
            state,
            stepper=stepper,
            tokenizer=tokenizer,
            image_ids=["a"],
            beginning=beginning,
        )
        return [int(token) for token in captions[0][0].caption.split()]

    for image in range(3):
        whole = found((), image)
        for cut in (1, 4, 6):
            assert found(whole[:cut], image) == whole[cut:]


def test_beginnings_that_cannot_be_continued_are_refused():
    stepper, tokenizer = TableStepper(random_table(0)), WordTokenizer(words=["a"], max_words=3)
    with pytest.raises(ValueError, match=r"GenerateSearch cannot continue .* search, such as beam"):
        find_captions(
            GenerateSearch.with_settings(),
            stepper.start(),
            stepper=stepper,
            tokenizer=tokenizer,
            image_ids=["a", "b", "c"],
            beginning=[3],
        )
    with pytest.raises(ValueError, match=r"drops the end of 'a a.', .* one-sentence captions"):
        beginning_tokens("a a.", tokenizer)
    with pytest.raises(ValueError, match=r"drops 1 tokens or words of the 4 words"):
        beginning_tokens("a a a a", tokenizer)
