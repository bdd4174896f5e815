"""Whole runs on captions alone: training never looks at a photo, testing does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from captioning.config.build import build_part
from captioning.config.compose import compose_config
from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.roster import Roster
from captioning.evaluation.predict import load_run, predict_run
from captioning.results.checkpoints import load_checkpoint
from captioning.text.tokenizers.restore import restored
from captioning.training import run as run_module
from captioning.training.rosters import read_corpus
from captioning.training.settings import Corpus
from tests.captioning.conftest import SMALL
from tests.run_calls import train

# A cell of the small backbone's grid has 96 values; their mean stands for a photo's embedding.
TEXTS = (
    "model=viecap_small",
    "model.module.hidden_size=32",
    "model.module.num_layers=1",
    "model.module.projector_layers=1",
    "tokenizer=prompt_words",
    "tokenizer.min_count=1",
    "+features.encoder={_target_: tests.text_space.TextSpace, size: 96}",
    "loader.captions_per_image=1",
    "num_epochs=2",
)
LINES = (
    "a red circle is above a blue square",
    "There is a green triangle.",
    "two dogs chase a ball on the grass",
    "A man holds an umbrella in the street.",
    "a cat sleeps on a bed",
) * 8


@pytest.fixture
def composed(repository: Path, cache: Path, tmp_path: Path) -> Callable[..., DictConfig]:
    """A resolved config of a small run on `LINES`, tested on generated scenes."""
    file = tmp_path / "captions.txt"
    file.write_text("\n".join(LINES))
    shared = [part for part in SMALL if not part.startswith(("model", "tokenizer"))]

    def build(*overrides: str, folder: str = "run") -> DictConfig:
        folders = (f"paths.cache={cache}", f"run_dir={tmp_path / folder}")
        config = compose_config("train", [*shared, *folders, *TEXTS, *overrides])
        if config.corpus.name == "lines":
            config.corpus.train.path = str(file)
        OmegaConf.resolve(config)
        return config

    return build


def test_a_run_on_captions_alone(composed, tmp_path: Path, monkeypatch) -> None:
    seen: list[CaptionDataModule] = []
    original = run_module.build_datamodule

    def watched(*args, **options) -> CaptionDataModule:
        seen.append(original(*args, **options))
        return seen[-1]

    monkeypatch.setattr(run_module, "build_datamodule", watched)
    scores = train(composed("corpus=lines"))
    assert scores["BLEU-1"] >= 0
    folder = tmp_path / "run"
    assert len(json.loads((folder / "predictions.json").read_text())) == 20
    batch = next(iter(seen[0].train_dataloader()))
    assert batch.regions is None
    assert set(batch.extras) == {"text_embeddings", "text_entities"}
    assert seen[0].train.name == "lines"
    assert "captions without photos" in seen[0].refuses_photos
    # its captions are found again from the folder, whose corpus is not read anew
    (tmp_path / "captions.txt").unlink()
    predictions, _, _ = predict_run(folder)
    rows = json.loads((folder / "predictions.json").read_text())
    saved = {row["image_id"]: row["caption"] for row in rows}
    assert {group[0].image_id: group[0].caption for group in predictions} == saved


@pytest.mark.long
def test_a_finished_run_finds_entities_as_chosen_or_as_its_data_says(
    composed, tmp_path: Path
) -> None:
    names = tmp_path / "names.txt"
    names.write_text("triangle\nsquare\n")
    run = tmp_path / "run"
    train(composed("corpus=lines", "num_epochs=1", "model.entities_of_data=true"))
    chosen = {"threshold": 0.1, "photo_names": str(names), "num_entities": None}
    _, _, decoding = predict_run(run, entities=chosen)
    assert decoding["entities"] == {"threshold": 0.1, "photo_names": str(names)}
    model = load_run(run, entities=chosen).model
    assert (model.names, model.threshold, model.num_entities) == (("triangle", "square"), 0.1, 3)
    published = {"threshold": 0.2, "photo_names": str(names)}
    data = OmegaConf.to_container(composed("corpus=lines").data)
    data = OmegaConf.create({**data, "entities": published})
    assert load_run(run, data, entities={"threshold": 0.1}).entities == published | {
        "threshold": 0.1
    }
    assert load_run(run, data).model.threshold == 0.2
    assert "entities" not in predict_run(run)[2]
    train(composed("corpus=lines", "num_epochs=1", "model.module.entities=null", folder="soft"))
    assert not load_run(tmp_path / "soft", data).entities
    with pytest.raises(ValueError, match="entities.threshold: the run's model"):
        load_run(tmp_path / "soft", data, entities=chosen)


@pytest.mark.long
def test_a_small_run_keeps_its_own_entities(composed, tmp_path: Path) -> None:
    train(composed("corpus=lines", "num_epochs=1"))
    data = OmegaConf.to_container(composed("corpus=lines").data)
    data = OmegaConf.create({**data, "entities": {"threshold": 0.2}})
    run = load_run(tmp_path / "run", data)
    assert (run.model.threshold, run.entities) == (0.4, {})


def test_training_on_pairs_is_a_setting(composed) -> None:
    scores = train(composed("corpus=none", "model.module.entities=null", "num_epochs=1"))
    assert scores["BLEU-1"] >= 0


def test_a_model_that_needs_photos_is_refused(composed) -> None:
    with pytest.raises(ValueError, match="from which model=viecap_small cannot learn"):
        train(composed("corpus=lines", "model.texts=null"))


def test_features_without_texts_are_refused(composed) -> None:
    with pytest.raises(ValueError, match="set features=joint_space or features=clip"):
        train(composed("corpus=lines", "features.encoder=null"))


@pytest.mark.long
def test_first_synthetic_captions_then_a_share_of_the_true_ones(composed, tmp_path: Path) -> None:
    train(composed("corpus=lines", "num_epochs=1", folder="d"))
    then = ("corpus=lines", "corpus.share=0.5", f"start_from={tmp_path / 'd'}", "num_epochs=1")
    assert train(composed(*then, folder="dt"))["BLEU-1"] >= 0


@pytest.mark.long
def test_a_vocabulary_knows_the_words_of_another_corpus_too(composed, tmp_path: Path) -> None:
    (tmp_path / "true.txt").write_text("a zebra sleeps\n" * 4 + "a zebra is seen by an okapi")
    further = ("corpus@vocabulary=lines", f"vocabulary.train.path={tmp_path / 'true.txt'}")
    # "sleeps" stands four times in each corpus, of the first of which 20 captions are read
    overrides = ("corpus=lines", "num_epochs=1", "tokenizer.min_count=5")
    train(composed(*overrides, *further, folder="d"))
    train(composed(*overrides, f"start_from={tmp_path / 'd'}", folder="dt"))
    for folder in ("d", "dt"):
        saved = load_checkpoint(tmp_path / folder / "checkpoints/last.ckpt")
        words = restored(saved["captioner"]["tokenizer"]).words
        assert {"zebra", "sleeps"} <= set(words)
        assert "okapi" not in words
    with pytest.raises(
        ValueError, match=r"vocabulary.share: must be a number above 0 and at most 1"
    ):
        train(composed(*overrides, *further, "vocabulary.share=5", folder="none"))


def corpus_of(config: DictConfig) -> Roster:
    """The corpus of a training, cut as it says."""
    return read_corpus(Corpus.of(config.corpus), number=config.first_images)


def test_a_share_of_a_corpus(composed) -> None:
    corpus = corpus_of(composed("corpus=lines"))
    half, few = (corpus_of(composed("corpus=lines", f"corpus.share={s}")) for s in (0.5, 0.01))
    assert (len(corpus), len(half), len(few)) == (20, 10, 1)  # the first 20 of 40
    ids = [[sample.image_id for sample in roster.samples] for roster in (corpus, half, few)]
    assert ids[1] == [sample_id for sample_id in ids[0] if sample_id in ids[1]]
    assert set(ids[2]) <= set(ids[1])
    other = corpus_of(composed("corpus=lines", "corpus.share=0.5", "corpus.share_seed=1"))
    assert {sample.image_id for sample in other.samples} != set(ids[1])
    with pytest.raises(ValueError, match=r"corpus\.share must be above 0 and at most 1: got 5"):
        corpus_of(composed("corpus=lines", "corpus.share=5"))


def test_a_corpus_without_captions_names_the_remedy() -> None:
    config = compose_config("compare_texts", ["corpus=none", "corpus@target=none"])
    with pytest.raises(
        ValueError, match=r"^corpus=none has no captions .*corpus\.train\.path=FILE"
    ):
        read_corpus(Corpus.of(config.corpus))
    with pytest.raises(ValueError, match=r"^corpus@target=none has no captions \(target\.train is"):
        read_corpus(Corpus.of(config.target), group="target")


@pytest.mark.long
@pytest.mark.parametrize(("corpus", "number"), [("flickr30k", 158_915), ("coco", 616_767)])
def test_the_large_corpora(
    corpus: str, number: int, shared_data: Path, repository: Path, monkeypatch
) -> None:
    monkeypatch.setenv("CAPTIONING_DATA", str(shared_data))
    roster = build_part(compose_config("train", [f"corpus={corpus}"]).corpus.train)
    assert len(roster) == number
