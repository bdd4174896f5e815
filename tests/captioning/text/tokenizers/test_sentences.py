"""Sentences of a causal language model there and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from captioning.decoding.greedy import GreedySearch
from captioning.decoding.words_to_tokens import bind_search
from captioning.text.tokenizers.restore import restored
from captioning.text.tokenizers.sentences import SentenceTokenizer
from tests.causal_folder import save_causal


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> SentenceTokenizer:
    folder: Path = save_causal(tmp_path_factory.mktemp("gpt2"))
    return SentenceTokenizer.of_causal(name=str(folder))


def test_a_caption_is_a_sentence(tokenizer: SentenceTokenizer) -> None:
    ids = tokenizer.encode("a dog runs on the grass")
    assert (ids[0], ids[-1]) == (tokenizer.bos_id, tokenizer.eos_id)
    assert tokenizer.decode(ids) == "A dog runs on the grass."
    assert tokenizer.encode("A dog runs on the grass .") == ids
    assert tokenizer.decode(ids[:-1]) == "A dog runs on the grass"


def test_decoding_ends_on_the_first_full_stop(tokenizer: SentenceTokenizer) -> None:
    ids = tokenizer.encode("a dog. a cat")
    assert ids.count(tokenizer.eos_id) == 2
    assert tokenizer.decode(ids) == "A dog."


def test_a_quotation_mark_does_not_swallow_the_full_stop(tokenizer: SentenceTokenizer) -> None:
    assert tokenizer.encode('a sign says "stop".')[-1] == tokenizer.eos_id


def test_long_captions_are_cut_before_their_full_stop(tokenizer: SentenceTokenizer) -> None:
    state = tokenizer.state() | {"max_tokens": 6}
    ids = SentenceTokenizer(**state).encode("a red bird sits on a branch")
    assert len(ids) == 6
    assert ids[-1] == tokenizer.eos_id
    assert tokenizer.encode("a red bird sits on a branch")[:5] == ids[:5]


def test_it_is_restored_from_a_checkpoint(tokenizer: SentenceTokenizer) -> None:
    again = restored(json.loads(json.dumps(tokenizer.state())))
    assert isinstance(again, SentenceTokenizer)
    assert again.state() == tokenizer.state()
    assert again.encode("zwölf dogs") == tokenizer.encode("zwölf dogs")


def test_words_are_spelled_behind_a_blank_and_as_a_beginning(tokenizer: SentenceTokenizer) -> None:
    inside, first = tokenizer.spellings("dog")
    ids = tokenizer.encode("a dog")
    assert ids[-1 - len(inside) : -1] == inside
    assert tokenizer.encode("dog runs")[1 : 1 + len(first)] == first
    assert first[0] in tokenizer.continuing()
    assert inside[0] not in tokenizer.continuing()
    assert tokenizer.spellings(" ") == []


def test_the_token_between_texts_is_never_said(tokenizer: SentenceTokenizer) -> None:
    search = bind_search(GreedySearch.with_settings(), tokenizer)
    assert tokenizer.bos_id in search.settings.forbidden_ids
    assert tokenizer.eos_id not in search.settings.forbidden_ids


def test_tokenizers_that_cannot_end_captions_are_refused() -> None:
    words = Tokenizer(WordLevel({"[UNK]": 0, "a": 1, "dog": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = WhitespaceSplit()
    with pytest.raises(ValueError, match="no separate token for the full stop"):
        SentenceTokenizer(definition=words.to_str(), size=3, start_id=0)
    with pytest.raises(ValueError, match="use the tokenizer that belongs to the model"):
        SentenceTokenizer(definition=words.to_str(), size=2, start_id=0)
