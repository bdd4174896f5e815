"""Values of captions without photos that are kept on disk between starts."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import time
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import Tensor

from captioning.data.batches import caption_texts
from captioning.data.batches.base import Epoch, Tensors
from captioning.data.batches.caption_texts import CaptionTexts
from captioning.data.roster import CurationView, Roster, build_roster
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Edit, Sample
from tests.captioning.data.batches.plain_parser import Plain

WORDS = ("dog", "cat", "boy", "bird", "runs")
CAPTIONS = tuple(f"a {a} and two {b}s" for a in WORDS for b in WORDS)


class Groups:
    """Embeds a text by its length and by the texts that it is embedded with; counts them."""

    identity, dim = "groups", 3

    def __init__(self, stop_at: int = 1_000_000) -> None:
        self.number, self.stop_at = 0, stop_at

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        self.number += len(texts)
        if self.number > self.stop_at:
            raise KeyboardInterrupt
        return torch.tensor([[len(text), sum(map(len, texts)), 1.0] for text in texts])


def roster(captions: Sequence[str] = (*CAPTIONS, *CAPTIONS[:3])) -> Roster:
    samples = [
        Sample(row=i, sample_id=f"{i}#0", image_id=str(i), image_path=Path("x"), caption=text)
        for i, text in enumerate(captions)
    ]
    return build_roster("texts", samples)


def start(
    folder: Path, encoder: Groups, *, edits: Sequence[Edit] = (), train: Roster | None = None
) -> tuple[Tensors, CaptionTexts]:
    """The tensors of all samples, as a start and a batch make them."""
    texts = CaptionTexts(
        encoder=encoder,
        parser=Plain(),
        names_path=folder.parent / "names.txt",
        cache_folder=folder,
    )
    train = train or roster()
    samples = CurationView(roster=train).apply(edits).samples() if edits else train.samples
    epoch = Epoch(
        stage="train",
        samples=samples,
        roster=train,
        tokenizer=WordTokenizer.build(CAPTIONS, min_count=1),
        has_photos=False,
    )
    read = texts.open(epoch)
    assert read is not None
    computed = encoder.number
    tensors = read(samples, samples[:1], {})
    assert encoder.number == computed, "a batch computes nothing"
    return tensors, texts


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(caption_texts, "MIN_CAPTIONS", 1)
    monkeypatch.setattr(caption_texts, "AT_ONCE", 3)
    monkeypatch.setattr(caption_texts, "BLOCK", 6)
    (tmp_path / "names.txt").write_text("dog\nperson\ncat\n")


def in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tensors:
    """The tensors that are made where nothing is kept."""
    with monkeypatch.context() as patch:
        patch.setattr(caption_texts, "MIN_CAPTIONS", 1000)
        return start(tmp_path / "unused", Groups())[0]


def equal(left: Tensors, right: Tensors) -> bool:
    same = (torch.equal(left[name], right[name]) for name in left)
    return left.keys() == right.keys() and all(same)


def test_a_second_start_computes_nothing(tmp_path, monkeypatch) -> None:
    first, second = Groups(), Groups()
    wanted = in_memory(tmp_path, monkeypatch)
    assert not (tmp_path / "unused").exists()
    assert wanted["text_entities"].shape == (len(roster()), 2)
    assert equal(start(tmp_path / "texts", first)[0], wanted)
    assert first.number == len(CAPTIONS), "each distinct caption once"
    tensors, texts = start(tmp_path / "texts", second)
    assert equal(tensors, wanted)
    assert second.number == 0
    # other processes map the files anew
    assert b"safetensors" in pickle.dumps(texts._table)
    assert torch.equal(deepcopy(texts._table).embeddings([7]), wanted["text_embeddings"][7:8])


def test_other_captions_names_or_encoders_have_files_of_their_own(tmp_path) -> None:
    start(tmp_path / "texts", Groups())
    other, changed = Groups(), Groups()
    other.identity = "another"
    start(tmp_path / "texts", other)
    start(tmp_path / "texts", changed, train=roster(CAPTIONS[::-1]))
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    renamed = Groups()
    start(tmp_path / "texts", renamed)
    assert [other.number, changed.number, renamed.number] == [len(CAPTIONS)] * 3


def test_a_killed_start_goes_on_with_the_missing_blocks(tmp_path, monkeypatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path / "texts", Groups(stop_at=15))
    assert len([*(tmp_path / "texts").glob("*/*.safetensors")]) == 2
    second = Groups()
    tensors, _ = start(tmp_path / "texts", second)
    assert second.number == len(CAPTIONS) - 12
    assert equal(tensors, in_memory(tmp_path, monkeypatch))


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_block_is_told_and_made_anew(tmp_path, monkeypatch, caplog, damage) -> None:
    start(tmp_path / "texts", Groups())
    path = sorted((tmp_path / "texts").glob("*/*.safetensors"))[1]
    content = path.read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    path.write_bytes({"flip": flipped, "cut": content[:-5], "empty": b""}[damage])
    second = Groups()
    with caplog.at_level(logging.WARNING):
        tensors, _ = start(tmp_path / "texts", second)
    assert second.number == 6
    assert f"{path} is damaged" in caplog.text
    assert equal(tensors, in_memory(tmp_path, monkeypatch))
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_written_costs_time_alone(tmp_path, monkeypatch, caplog) -> None:
    (tmp_path / "texts").write_text("a file")
    encoder = Groups()
    with caplog.at_level(logging.WARNING):
        tensors, _ = start(tmp_path / "texts", encoder)
    assert "cannot be cached for later runs" in caplog.text
    assert encoder.number == len(CAPTIONS)
    assert equal(tensors, in_memory(tmp_path, monkeypatch))


def test_a_full_disk_leaves_the_rest_in_memory(tmp_path, monkeypatch, caplog) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    encoder = Groups()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr("captioning.data.batches.caption_texts.write_atomically", fail)
        tensors, _ = start(tmp_path / "texts", encoder)
    assert caplog.text.count("No space left") == 1
    assert encoder.number == len(CAPTIONS)
    assert equal(tensors, in_memory(tmp_path, monkeypatch))


def test_captions_that_curation_replaced_are_computed_or_taken_from_others(tmp_path) -> None:
    def edit(number: int, caption: str) -> Edit:
        return Edit(action="replace_caption", sample_id=f"{number}#0", value=caption)

    start(tmp_path / "texts", Groups())
    encoder = Groups()
    edits = [edit(4, "a wholly new cat"), edit(9, CAPTIONS[2])]
    tensors, _ = start(tmp_path / "texts", encoder, edits=edits)
    assert encoder.number == 1
    lengths = tensors["text_embeddings"][:, 0].tolist()
    assert lengths[4] == len("a wholly new cat.")
    assert lengths[9] == lengths[2] == len(CAPTIONS[2]) + 1
    entities = tensors["text_entities"].tolist()
    assert [entities[4], entities[9]] == [[2, -1], entities[2]]


class Slow(Groups):
    """Takes so long that another process comes in the middle."""

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        time.sleep(0.1)
        return super().embed_texts(texts)


def count(folder: Path) -> int:
    """What another process computes."""
    encoder = Slow()
    start(folder, encoder)
    return encoder.number


def test_of_two_processes_one_computes(tmp_path) -> None:
    folders = [tmp_path / "texts"] * 2
    with multiprocessing.get_context("fork").Pool(2) as pool:
        numbers = pool.map(count, folders, chunksize=1)
    assert sorted(numbers) == [0, len(CAPTIONS)]
