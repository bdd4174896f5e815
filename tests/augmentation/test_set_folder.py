"""A folder belongs to one set, of one data set with its boxes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from augmentation.captions.new_captions import (
    AbstractCaptionMethod,
    AbstractCorpusMethod,
    NewCaption,
    PhotoCaptions,
)
from augmentation.run import _augment_captions, _augment_texts, _Making, augment
from augmentation.set_folder import claim_folder, data_identity, file_identity
from captioning.config.tasks import plain
from captioning.data.roster import Roster, build_roster
from captioning.training.settings import Corpus
from captioning.types import Phrase, Region, Sample
from tests.augmentation.regions.scenes import photo
from tests.augmentation.test_main import config_of
from tests.task_calls import call

BOX = Region(box=(10.0, 10.0, 30.0, 30.0), label="cat")
PHRASE = Phrase(start=0, text="A cat", chain_id="1", kinds=("animals",), regions=(0,))


def one_photo(*regions: Region, phrase: Phrase = PHRASE, path: Path = Path("1.jpg")) -> Roster:
    sample = Sample(
        row=0,
        sample_id="1#0",
        image_id="1",
        image_path=path,
        caption="A cat sits .",
        regions=regions,
        phrases=(phrase,),
    )
    return build_roster("one", [sample])


@pytest.mark.parametrize(
    "other",
    [
        one_photo(),
        one_photo(BOX, BOX),
        one_photo(replace(BOX, label="dog")),
        one_photo(replace(BOX, score=0.5)),
        one_photo(replace(BOX, box=(10.0, 10.0, 30.0, 30.5))),
        one_photo(BOX, phrase=replace(PHRASE, regions=())),
        one_photo(BOX, phrase=replace(PHRASE, kinds=("people",))),
    ],
)
def test_other_boxes_and_phrases_are_other_data(other: Roster) -> None:
    roster = one_photo(BOX)
    assert other.fingerprint == roster.fingerprint
    assert data_identity(other) != data_identity(roster)
    assert data_identity(one_photo(replace(BOX))) == data_identity(roster)


def test_what_differs_is_named(tmp_path: Path) -> None:
    claim_folder(tmp_path, {"seed": 0, "data": 1, "split": "train"})
    with pytest.raises(ValueError, match=r"differs in data, seed\): choose another out="):
        claim_folder(tmp_path, {"seed": 1, "data": 2, "split": "train"})
    (tmp_path / "settings.json").write_text("[]")
    with pytest.raises(ValueError, match="differs in all"):
        claim_folder(tmp_path, {"seed": 1})


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"photo")
    with pytest.raises(ValueError, match="is not empty and holds no dataset: choose another out="):
        claim_folder(tmp_path, {"seed": 0})
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]


def test_files_that_settings_name_are_known_by_their_contents(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("dog")
    (tmp_path / "list.txt").write_text("cat")
    words = str(tmp_path / "words.txt")
    other_settings = {
        "folder": str(tmp_path),
        "name": "words.txt",
        "text": "x" * 9999,
        "k": 3,
        "no": None,
    }
    settings = {
        "words": words,
        "deep": {"parts": [1, str(tmp_path / "list.txt")]},
        **other_settings,
    }
    before = file_identity(settings)
    assert before.keys() == {"words", "deep.parts.1"}
    assert len(set(before.values())) == 2
    assert file_identity(settings) == before
    (tmp_path / "words.txt").write_text("dog ")
    after = file_identity(settings)
    assert {key for key in before if before[key] != after[key]} == {"words"}


class Echo(AbstractCaptionMethod):
    """Makes one caption a photo."""

    description = "captions of a test"

    def captions(self, roster: Roster, *, skip: int = 0) -> Iterator[PhotoCaptions]:
        for sample in roster.samples[skip:]:
            caption = NewCaption(sample=sample, text="A cat .", phrases=(PHRASE,))
            yield PhotoCaptions(captions=[caption])


class NoTexts(AbstractCorpusMethod):
    """Makes nothing."""

    name, description, size_setting = "nothing", "captions of a test", "pace.num_captions"

    def worker(self, captions: Sequence[str]) -> Callable[[Sequence[Any]], list[Any]]:
        return list

    def synthesise(self, corpus: Roster, folder: Path, **settings: Any) -> dict[str, int]:
        return {"captions": 0}

    def report(self) -> dict[str, Any]:
        return {}


PHOTO_KEYS = ("seed", "first_images", "method", "split", "steps")
TEXT_KEYS = ("seed", "first_images", "method", "max_pairs")


def made(config: DictConfig, keys: Sequence[str] = PHOTO_KEYS) -> _Making:
    return _Making(folder=Path(config.out), recorded=plain({key: config[key] for key in keys}))


def test_captions_of_other_boxes_are_refused_the_folder(tmp_path: Path) -> None:
    config = config_of(tmp_path, "method=ssa")
    path = photo(tmp_path / "1.png", [])
    roster, moved = one_photo(BOX, path=path), one_photo(replace(BOX, label="dog"), path=path)
    _augment_captions(Echo(), roster, made(config))
    _augment_captions(Echo(), roster, made(config))
    with pytest.raises(ValueError, match="other settings or data"):
        _augment_captions(Echo(), moved, made(config))


def test_captions_of_changed_files_are_refused_the_folder(tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("cat 1.0")
    options = ("word_vectors@method.vectors=glove", f"method.vectors.path={vectors}")
    config = config_of(tmp_path, "method=ssa", *options)
    roster = one_photo(BOX, path=photo(tmp_path / "1.png", []))
    card = _augment_captions(Echo(), roster, made(config))
    assert card["files"].keys() == {"vectors.path"}
    assert _augment_captions(Echo(), roster, made(config))["files"] == card["files"]
    vectors.write_text("cat 2.0")
    with pytest.raises(ValueError, match=r"settings.json differs in files\)"):
        _augment_captions(Echo(), roster, made(config))


def test_captions_of_no_files_are_gone_on_with_as_before(tmp_path: Path) -> None:
    config = config_of(tmp_path, "method=paraphrase")
    roster = one_photo(BOX, path=photo(tmp_path / "1.png", []))
    _augment_captions(Echo(), roster, made(config))
    settings = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert settings.keys() == {*PHOTO_KEYS, "data"}


def test_texts_of_changed_files_are_refused_the_folder(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("A cat sits .\n")
    (tmp_path / "model.gguf").write_text("weights")
    options = ("corpus=lines", f"corpus.train.path={tmp_path / 'corpus.txt'}")
    options = (
        *options,
        "writer@method.writer=llama_cpp",
        f"method.writer.path={tmp_path}/model.gguf",
    )
    config = config_of(tmp_path, "method=toca", *options)
    corpora = {"corpus": Corpus.of(config.corpus)}
    card = _augment_texts(NoTexts(), corpora, made(config, TEXT_KEYS))
    assert card["files"].keys() == {"writer.path"}
    assert _augment_texts(NoTexts(), corpora, made(config, TEXT_KEYS))["files"] == card["files"]
    (tmp_path / "model.gguf").write_text("others")
    with pytest.raises(ValueError, match=r"settings.json differs in files\)"):
        _augment_texts(NoTexts(), corpora, made(config, TEXT_KEYS))


class Reversed(AbstractCorpusMethod):
    """The corpus with its words in reverse: a method that no module of the project knows."""

    name, description = "reversed", "captions in reverse"

    def worker(self, captions: Sequence[str]) -> Callable[[Sequence[Any]], list[Any]]:
        return list

    def synthesise(self, corpus: Roster, folder: Path, **settings: Any) -> dict[str, int]:
        lines = [" ".join(sample.caption.split()[::-1]) for sample in corpus.samples]
        (folder / "captions.txt").write_text("".join(line + "\n" for line in lines))
        return {"captions": len(lines)}

    def report(self) -> dict[str, Any]:
        return {"reversed": True}


def test_any_method_of_a_corpus_is_given_the_corpus(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("a cat sits\nthe dog runs\n")
    options = ("corpus=lines", f"corpus.train.path={tmp_path / 'corpus.txt'}")
    config = config_of(tmp_path, "method=toca", *options)
    config.method = {"_target_": f"{__name__}.Reversed"}
    card = call(augment, config)
    assert card["what"] == "captions in reverse"
    assert (card["counts"], card["method"]) == ({"captions": 2}, {"reversed": True})
    assert (tmp_path / "out" / "captions.txt").read_text() == "sits cat a\nruns dog the\n"
    config.split = "val"
    with pytest.raises(ValueError, match="method=reversed reads only the captions of corpus="):
        call(augment, config)
