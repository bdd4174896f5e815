"""Nearest contexts: against brute force, kept by content, and none that curation has touched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.batches.nearest_contexts import NOTHING, ContextIndex, find_nearest
from captioning.data.batches.pictures import FeatureReader
from captioning.data.batches.settings import Splits
from captioning.data.features.importing import import_features
from captioning.data.features.store import FeatureStore
from captioning.data.roster import Roster, build_roster
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Region, Sample
from tests.captioning.data.features.layouts import Photo, write_vl_bart

CAPTIONS = {
    "a": ["a dog runs on the grass", "a brown dog runs", "nothing to be seen"],
    "b": ["a cat runs on the grass", "two cats run", "a cat sleeps on a red couch"],
    "c": ["two men eat hot dogs", "the man eats a hot dog", "a man runs on the grass"],
    "d": ["two women run", "a woman sleeps on a red bed"],
}


def roster() -> Roster:
    samples = [
        Sample(row=0, sample_id=f"{i}#{k}", image_id=i, image_path=Path(f"{i}.jpg"), caption=text)
        for i, texts in CAPTIONS.items()
        for k, text in enumerate(texts)
    ]
    return build_roster("small", samples)


class Encoder:
    """Vectors of words counted, and how often it was asked."""

    identity = "counts"

    def __init__(self) -> None:
        self.calls = 0

    def embed_texts(self, texts: list[str]) -> torch.Tensor:
        self.calls += 1
        words = sorted({word for texts in CAPTIONS.values() for t in texts for word in t.split()})
        words += ["something", "things"]
        counts = [[text.split().count(word) for word in words] for text in texts]
        return torch.nn.functional.normalize(torch.tensor(counts).float(), dim=1)


def tokenizer() -> WordTokenizer:
    return WordTokenizer.build((t for texts in CAPTIONS.values() for t in texts), min_count=1)


def index(**settings) -> ContextIndex:
    return ContextIndex(encoder=Encoder(), **settings)


def brute_force(contexts, images, vectors, number: int) -> list[list[str]]:
    neighbours = []
    for own_context, image in zip(contexts, images, strict=True):
        candidates = {
            text: place
            for place, (text, other) in reversed(
                list(enumerate(zip(contexts, images, strict=True)))
            )
            if text is not None and text != own_context and other != image
        }
        if own_context is None:
            neighbours.append([])
            continue
        ranked = sorted(
            candidates, key=lambda text: -round(vectors[own_context] @ vectors[text], 6)
        )
        neighbours.append(ranked[:number])
    return neighbours


def test_neighbours_are_those_of_brute_force() -> None:
    rng = np.random.default_rng(0)
    texts = [f"t{number}" for number in range(40)]
    vectors = rng.normal(size=(40, 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    contexts = [None if rng.random() < 0.1 else texts[rng.integers(40)] for _ in range(150)]
    images = [f"i{rng.integers(30)}" for _ in contexts]
    known = dict(zip(texts, vectors.astype(float), strict=True))

    def embed(sentences: list[str]) -> torch.Tensor:
        return torch.from_numpy(vectors[[texts.index(text) for text in sentences]])

    neighbours = find_nearest(contexts, images, embed, 4)
    for row, expected in enumerate(brute_force(contexts, images, known, 4)):
        rows = [other for other in neighbours[row].tolist() if other != NOTHING]
        assert [contexts[other] for other in rows] == expected
        assert all(images[other] != images[row] for other in rows)


def test_a_caption_without_objects_lends_and_gets_none() -> None:
    small = roster()
    rows = index(num_nearest=2).neighbours(small)
    captions = [sample.caption for sample in small.samples]
    assert rows[captions.index("nothing to be seen")].tolist() == [NOTHING, NOTHING]
    assert captions.index("nothing to be seen") not in rows.flatten().tolist()


def test_neighbours_are_kept_by_content(tmp_path: Path) -> None:
    first = index(cache_folder=tmp_path)
    neighbours = first.neighbours(roster())
    again = index(cache_folder=tmp_path)
    assert torch.equal(again.neighbours(roster()), neighbours)
    assert (first._encoder.calls, again._encoder.calls) == (1, 0)
    samples = [replace(s, caption=s.caption.replace("red", "blue")) for s in roster().samples]
    again.neighbours(build_roster("small", samples))
    assert again._encoder.calls == 1
    for path in tmp_path.rglob("*.safetensors"):
        path.write_bytes(b"damaged")
    with pytest.raises(ValueError, match="damaged.*delete it"):
        index(cache_folder=tmp_path).neighbours(roster())


def test_tensors_of_a_batch() -> None:
    small, words = roster(), tokenizer()
    extras = index(num_nearest=2).of_epoch(small, small.samples, words)(small.samples)
    tokens, lengths = extras["context_tokens"], extras["context_lengths"]
    assert tokens.shape[:2] == lengths.shape == (11, 2)
    assert lengths[2].tolist() == [0, 0]
    placeholders = {len(words): "[one]", len(words) + 1: "[many]"}
    texts = [
        " ".join(placeholders.get(i) or words.decode([i]) for i in tokens[0, k].tolist()[1 : n - 1])
        for k, n in enumerate(lengths[0].tolist())
    ]
    assert len(set(texts)) == 2
    assert all("[one]" in text or "[many]" in text for text in texts)
    of_c = extras["object_words"][6].tolist()
    # "hot dog" is a pair: no single word to fill a slot with.
    assert [words.decode([i]) for i in of_c[0] if i != NOTHING] == ["man"]
    assert [words.decode([i]) for i in of_c[1] if i != NOTHING] == ["men"]


def test_a_pair_is_one_slot() -> None:
    small, words = roster(), tokenizer()
    extras = index(num_nearest=9).of_epoch(small, small.samples, words)(small.samples[:1])
    texts = [
        extras["context_tokens"][0, k].tolist()[1 : n - 1]
        for k, n in enumerate(extras["context_lengths"][0].tolist())
    ]
    singular, plural = len(words), len(words) + 1
    eats = words.encode("eats")[1]
    assert [words.encode("the")[1], singular, eats, words.encode("a")[1], singular] in texts
    assert [words.encode("two")[1], plural, words.encode("eat")[1], plural] in texts


def test_what_curation_has_touched_lends_no_context() -> None:
    small, words = roster(), tokenizer()
    index_ = index(num_nearest=9)
    changed = [
        replace(s, caption="a new caption") if s.sample_id == "b#2" else s
        for s in small.samples
        if s.image_id != "d"
    ]
    tensors = index_.of_epoch(small, changed, words)(changed)
    lengths = dict(zip((s.sample_id for s in changed), tensors["context_lengths"], strict=True))
    assert not lengths["b#2"].any()
    all_lengths = index_.of_epoch(small, small.samples, words)(changed)["context_lengths"]
    assert [(lengths["a#0"] > 0).sum(), (all_lengths[0] > 0).sum()] == [3, 4]


def test_captions_that_are_not_trained_on_may_lend_contexts(tmp_path: Path) -> None:
    full, words = roster(), tokenizer()
    few = build_roster("few", [s for s in full.samples if s.image_id in "ab"])
    sources = tuple(s for s in full.samples if s.image_id not in "ab")
    reader = index(num_nearest=3, cache_folder=tmp_path)
    rows = reader.neighbours(few, sources)
    # a and b come first in the whole, so rows are the same
    assert torch.equal(rows, index(num_nearest=3).neighbours(full)[: len(few)])
    assert rows.max() >= len(few) > reader.neighbours(few).max()
    assert torch.equal(index(num_nearest=3, cache_folder=tmp_path).neighbours(few, sources), rows)
    lent = reader.of_epoch(few, few.samples, words, sources)(few.samples)
    of_full = index(num_nearest=3).of_epoch(full, full.samples, words)(few.samples)
    assert torch.equal(lent["context_tokens"], of_full["context_tokens"])
    assert torch.equal(lent["object_words"], of_full["object_words"])


def test_a_tokenizer_of_parts_of_words_is_refused() -> None:
    class Letters(WordTokenizer):
        def encode(self, caption: str) -> list[int]:
            return [1, *(4 for letter in caption if letter != " "), 2]

    small, letters = roster(), Letters(words=["x"])
    tensors = index().of_epoch(small, small.samples, letters)
    with pytest.raises(ValueError, match="one token per word"):
        tensors(small.samples)


@pytest.mark.parametrize("settings", [{"num_nearest": 0}, {"num_words": 0}])
def test_none_at_all_is_refused(settings: dict) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        index(**settings)


def pasted_onto_a(folder: Path) -> Roster:
    """The small roster and two pictures that were pasted onto its photo a."""
    samples = [
        replace(
            roster().samples[0],
            sample_id=f"{name}#0",
            image_id=name,
            image_path=folder / "images" / f"{name}.png",
            caption=caption,
            origin=f"added:{folder.name}",
        )
        for name, caption in (("x", "a cat leaps on the grass"), ("y", "a cow jumps on the grass"))
    ]
    return build_roster("both", [*roster().samples, *samples])


def test_a_pasted_picture_and_its_photo_lend_each_other_no_contexts(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    both, size = pasted_onto_a(folder), len(roster())
    of_a, added = [0, 1], [size, size + 1]  # rows; a's third caption has no object
    apart = index(num_nearest=9, cache_folder=tmp_path / "cache").neighbours(both)
    assert set(apart[added[0]].tolist()) >= {0, added[1]}  # of which photo it is is not known
    records = [{"name": name, "target": {"image_id": "a"}} for name in ("x", "y")]
    records.append({"name": "z", "refused": "photo missing"})
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "provenance.jsonl").write_text(lines)
    rows = index(num_nearest=9, cache_folder=tmp_path / "cache").neighbours(both)
    for row in of_a + added:
        assert not {*of_a, *added} & set(rows[row].tolist())
        assert (rows[row] != NOTHING).any()
    others = range(3, size)
    assert torch.equal(rows[list(others)], apart[list(others)])
    assert any({*added} & set(rows[row].tolist()) for row in others)


def test_added_pairs_lend_no_contexts_where_that_is_not_asked(tmp_path: Path) -> None:
    """A pasted picture's caption is like the caption that it was made of, more than any other."""
    small = roster()
    first = small.samples[0]
    pasted = replace(
        first, sample_id="x#0", image_id="x", caption="a cat leaps on the grass", origin="added:x"
    )
    both = build_roster("both", [*small.samples, pasted])
    added = len(small)
    alone = index(num_nearest=2).neighbours(small)
    kept = index(num_nearest=2, added_lend=False, cache_folder=tmp_path).neighbours(both)
    assert torch.equal(kept[:added], alone)
    assert (kept[added] != NOTHING).all()  # it gets contexts itself
    lent = index(num_nearest=2, cache_folder=tmp_path).neighbours(both)
    assert added in lent[0].tolist()


BOXES = {"dog": (10, 10, 50, 50), "cat": (60, 10, 90, 40), "grass": (0, 60, 30, 90)}


def imported(folder: Path, *, boxes: bool = True) -> FeatureStore:
    """Two regions a photo: a's cat, nearly, before its dog, and b's grass and a box of nothing."""
    rows = {
        "a": [(61, 11, 90, 40), BOXES["dog"]],
        "b": [BOXES["grass"], (70, 70, 99, 99), BOXES["cat"]],
    }
    if not boxes:
        np.savez(folder / "a.npz", x=np.ones((2, 3), np.float32))
        np.savez(folder / "b.npz", x=np.ones((3, 3), np.float32))
        return import_features([folder / "a.npz", folder / "b.npz"], folder=folder / "store")
    photos = {
        name: Photo(
            features=np.ones((len(of_photo), 3), np.float32),
            boxes=np.array(of_photo, np.float32),
            width=100,
            height=100,
        )
        for name, of_photo in rows.items()
    }
    return import_features([write_vl_bart(folder / "f.h5", photos)], folder=folder / "store")


def with_regions(labels: tuple[str, ...]) -> Roster:
    regions = tuple(Region(box=BOXES[label], label=label) for label in labels)
    samples = [s for s in roster().samples if s.image_id in "ab"]
    return build_roster("two", [replace(s, regions=regions, size=(100, 100)) for s in samples])


def batch_of_slots(store: FeatureStore, data: Roster):
    reader = index(num_nearest=2, slots="regions")
    readers = {"pictures": FeatureReader(store=store), "contexts": reader}
    module = CaptionDataModule(
        splits=Splits(train=data, val=data), tokenizer=tokenizer(), readers=readers
    )
    return module.dataset(data.samples, "train")[[0, 3]]


def test_slots_take_the_labels_of_imported_regions(tmp_path: Path) -> None:
    batch = batch_of_slots(imported(tmp_path), with_regions(("dog", "cat", "grass")))
    token = {word: tokenizer().encode(word)[1] for word in ("dog", "dogs", "cat", "cats", "grass")}
    words = batch.extras["region_words"]
    assert words.shape == (2, 2, 3)
    assert words[:, 0].tolist() == [
        [token["cat"], token["dog"], NOTHING],
        [token["grass"], NOTHING, token["cat"]],
    ]
    assert words[:, 1].tolist() == [
        [token["cats"], token["dogs"], NOTHING],
        [NOTHING, NOTHING, token["cats"]],
    ]


def test_imported_regions_without_labels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"of 5 imported regions .* 1 have .*take_detections"):
        batch_of_slots(imported(tmp_path), with_regions(("grass",)))


def test_imported_regions_without_boxes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"slots=regions: the imported features have no boxes"):
        batch_of_slots(imported(tmp_path, boxes=False), with_regions(("dog", "cat")))
