"""Further metrics as evaluate.py takes them: what each adds to the result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from PIL import Image

from captioning.data.roster import Roster, build_roster
from captioning.metrics.coco import MetricResult
from captioning.metrics.evaluation import AbstractMetric, CaptionedImages, Captions, evaluate_all
from captioning.metrics.extra import (
    Diversity,
    Nocaps,
    NovelObjects,
    Oracle,
    SentenceQuality,
    Similarity,
)
from captioning.metrics.well_formedness import GrammarCalibration, WellFormedness
from captioning.types import Region, Sample
from tests.photo_files import turned

REFERENCES = {"1": ["a red cat sleeps", "a cat"], "2": ["a blue dog runs", "the dog runs"]}
FAST = {"metrics": ["CIDEr-D"], "tokenizer": "python"}


def images(folder: Path = Path("photos")) -> Roster:
    colours = {"1": (255, 0, 0), "2": (0, 0, 255)}
    samples = []
    for image_id, texts in REFERENCES.items():
        path = folder / f"{image_id}.png"
        if folder.is_dir():
            Image.new("RGB", (4, 4), colours[image_id]).save(path)
        region = Region(box=(0, 0, 2, 2), label="cat" if image_id == "1" else "dog")
        for number, text in enumerate(texts):
            samples.append(
                Sample(
                    row=len(samples),
                    sample_id=f"{image_id}#{number}",
                    image_id=image_id,
                    image_path=path,
                    caption=text,
                    regions=(region,),
                )
            )
    return build_roster("extra", samples)


class Colours:
    """A space of colours: red and blue, as seen or as named."""

    space = "colours"

    def embed_photos(self, images: Sequence[Image.Image]) -> torch.Tensor:
        return torch.tensor([image.getpixel((0, 0)) for image in images]).float()[:, [0, 2]]

    def embed_texts(self, texts: Sequence[str]) -> torch.Tensor:
        return torch.tensor([[float("red" in t), "blue" in t] for t in texts]) + 0.001


class Constant(AbstractMetric):
    """One score of the given name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def score(self, captions: Captions, images: CaptionedImages) -> MetricResult:
        return MetricResult(
            corpus={self.name: float(len(images.samples))},
            per_image={next(iter(captions)): {self.name: 1.0}},
            settings={"missing": {"other": "no reason"}, "size": 3},
        )


def test_all_scores_are_in_one_result() -> None:
    captions = {"1": ["a red cat sleeps", "a dog"], "2": ["a blue dog"]}
    result = evaluate_all(
        captions, images(), extra={"mine": Constant("new")}, decoding={"beam": 3}, **FAST
    )
    assert result.corpus == {"CIDEr-D": pytest.approx(result.corpus["CIDEr-D"]), "new": 4}
    assert result.per_image["1"].keys() == {"CIDEr-D", "new"}
    assert result.per_image["2"].keys() == {"CIDEr-D"}
    assert result.settings["mine"] == {"size": 3}
    assert result.settings["decoding"] == {"beam": 3}
    assert result.missing == {"other": "no reason"}


def test_a_name_that_is_there_already_and_an_image_without_caption_are_refused() -> None:
    captions = {"1": ["a cat"], "2": ["a dog"]}
    with pytest.raises(ValueError, match=r"'mine' repeats the score names \['CIDEr-D"):
        evaluate_all(captions, images(), extra={"mine": Constant("CIDEr-D")}, **FAST)
    with pytest.raises(ValueError, match="1 images have no caption, such as '2'"):
        evaluate_all({"1": ["a cat"], "2": []}, images(), **FAST)


def test_likeness_to_the_photo_is_named_after_the_space(tmp_path: Path) -> None:
    metric = Similarity(encoder=Colours(), weight=1, prompt="", batch_size=1)
    right = metric.score({"2": ["a blue dog"], "1": ["a red cat"]}, images(tmp_path))
    wrong = metric.score({"2": ["a red dog"], "1": ["a blue cat"]}, images(tmp_path))
    (name, with_references) = right.corpus
    assert name == "CLIPScore(colours)"
    assert right.corpus[name] == pytest.approx(1, abs=0.01)
    assert wrong.corpus[name] == pytest.approx(0, abs=0.01)
    assert right.corpus[with_references] > wrong.corpus[with_references]
    (tmp_path / "1.png").write_bytes(b"no photo")
    with pytest.raises(ValueError, match=r"1\.png: photo is not an image"):
        metric.score({"1": ["a red cat"]}, images_without_writing(tmp_path))


def test_photos_are_seen_as_their_exif_turns_them(tmp_path: Path) -> None:
    seen = []

    class Sizes(Colours):
        def embed_photos(self, images: Sequence[Image.Image]) -> torch.Tensor:
            seen.extend(image.size for image in images)
            return super().embed_photos(images)

    turned(tmp_path / "1.png")
    metric = Similarity(encoder=Sizes(), prompt="")
    metric.score({"1": ["a red cat"]}, images_without_writing(tmp_path))
    assert seen == [(20, 30)]


def test_the_space_leaves_its_device_when_captions_are_scored(tmp_path: Path) -> None:
    events = []

    class Leaving(Colours):
        def embed_texts(self, texts: Sequence[str]) -> torch.Tensor:
            events.append("used")
            return super().embed_texts(texts)

        def release(self) -> None:
            events.append("left")

    metric = Similarity(encoder=Leaving(), prompt="")
    metric.score({"1": ["a red cat"]}, images(tmp_path))
    assert events[-1] == "left"
    assert events.count("left") == 1


def images_without_writing(folder: Path) -> Roster:
    sample = Sample(
        row=0, sample_id="1#0", image_id="1", image_path=folder / "1.png", caption="a cat"
    )
    return build_roster("extra", [sample])


def test_diversity_and_oracle_look_at_all_captions() -> None:
    captions = {"1": ["a dog", "a red cat sleeps"], "2": ["a blue dog runs", "a blue dog runs"]}
    diversity = Diversity().score(captions, images())
    assert diversity.per_image["1"]["uniqueness"] == 1
    assert diversity.per_image["2"]["uniqueness"] == 0.5
    oracle = Oracle(metrics=["ROUGE-L"], tokenizer="python").score(captions, images())
    assert oracle.corpus["oracle ROUGE-L"] == pytest.approx(1)
    assert oracle.settings["num_samples"] == 2


def test_novel_objects_by_references_or_by_labels() -> None:
    captions = {"1": ["a cat"], "2": ["a cat"]}
    options = {"classes": ["cat", "dog"], "metrics": ["CIDEr-D"], "tokenizer": "python"}
    result = NovelObjects(truth="labels", **options).score(captions, images())
    assert result.corpus["F1 cat"] == pytest.approx(2 / 3)
    assert result.corpus["F1 dog"] == 0
    assert result.settings["truth"] == "labels"
    assert NovelObjects(**options).score(captions, images()).settings["truth"] == "references"
    with pytest.raises(ValueError, match="truth must be 'references' or 'labels': got 'boxes'"):
        NovelObjects(truth="boxes")


def test_nocaps_by_frequencies_of_all_images_or_of_each_domain() -> None:
    captions = {"1": ["a red cat"], "2": ["a blue dog"]}
    domains = {"1": "in", "2": "out"}
    together = Nocaps(domains=domains, **FAST).score(captions, images())
    apart = Nocaps(domains=domains, frequencies="group", **FAST).score(captions, images())
    assert together.settings["cider_frequencies"] == "all"
    assert apart.settings["cider_frequencies"] == "group"
    assert together.corpus["CIDEr-D in"] > 0
    # of one image all words are in all documents, and weigh nothing
    assert (apart.corpus["CIDEr-D in"], apart.corpus["CIDEr-D out"]) == (0, 0)
    assert apart.corpus["CIDEr-D overall"] == together.corpus["CIDEr-D overall"]
    with pytest.raises(ValueError, match="frequencies must be 'all' or 'group': got 'domain'"):
        Nocaps(domains=domains, frequencies="domain")


class Surprised:
    """A language model that is surprised by cats."""

    name = "surprised"

    def log_probs(self, texts: Sequence[str]) -> list[torch.Tensor]:
        return [
            torch.tensor([-9.0 if "cat" in w.lower() else -0.1 for w in text.split()] + [-0.1])
            for text in texts
        ]


def test_well_formedness_of_the_first_captions() -> None:
    weights = {"intercept": 3.0, "mean": 1.0, "worst": 1.0, "end": 1.0}
    calibration = GrammarCalibration(language_model="surprised", **weights)
    metric = SentenceQuality(
        well_formedness=WellFormedness(language_model=Surprised(), calibration=calibration)
    )
    result = metric.score({"1": ["a dog runs", "cat cat"], "2": ["cat cat cat"]}, images())
    assert result.per_image["1"]["G"] > 0.9 > 0.1 > result.per_image["2"]["G"]
    assert result.corpus["G from 0.7"] == 0.5
    assert result.settings["calibration"]["language_model"] == "surprised"
