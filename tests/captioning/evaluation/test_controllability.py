"""Asking for the regions of another caption of the same photo."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from captioning.data.batches.controls import CaptionControls
from captioning.data.batches.settings import LoaderSettings
from captioning.data.steps.take_detections import detection_line
from captioning.evaluation.controllability import (
    caption,
    compare_swapped,
    control_targets,
    rounds,
    standard_scores,
    swapped,
)
from captioning.metrics.control import ControlledCaption, score_control
from captioning.text.parser import build_caption_parser
from captioning.text.word_tables import build_token_table
from captioning.training.settings import Metrics
from captioning.types import Control, Phrase, Prediction, Region, Sample


def sample(number: int, image: str, text: str = "a dog", *regions: int) -> Sample:
    phrases = (Phrase(start=0, text=text, chain_id=text, regions=regions),) if regions else ()
    return Sample(
        row=number,
        sample_id=f"s{number}",
        image_id=image,
        image_path=Path(f"{image}.jpg"),
        caption=text,
        regions=(Region(box=(0, 0, 1, 1), label="x"),) * 4,
        phrases=phrases,
    )


def test_no_batch_holds_two_captions_of_a_photo() -> None:
    samples = [sample(n, image) for n, image in enumerate("aababcab")]
    blocks = rounds(samples, 2)
    assert sorted(position for block in blocks for position in block) == list(range(8))
    for block in blocks:
        assert 1 <= len(block) <= 2
        assert len({samples[position].image_id for position in block}) == len(block)


def test_the_regions_least_in_common_are_swapped_in() -> None:
    samples = [sample(n, image) for n, image in enumerate("aaabb")]
    regions = [(0, 1), (1, 2), (3, 2), (0,), (0,)]
    controls = [Control(regions=positions, num_words=5 + n) for n, positions in enumerate(regions)]
    other_controls = swapped(samples, controls)
    assert [other and other.regions for other in other_controls] == [
        (3, 2),
        (0, 1),
        (0, 1),
        None,
        None,
    ]
    assert [other.num_words for other in other_controls[:3]] == [5, 6, 7]


def test_nouns_are_those_of_the_regions_asked_for() -> None:
    samples = (
        sample(0, "a", "two young men", 0, 1),
        sample(1, "a", "nothing grounded"),
        sample(2, "b", "a dog", 2),
    )
    roster = SimpleNamespace(samples=samples, rows_by_image={"a": (0, 1), "b": (2,)}, name="x")
    controls = CaptionControls(max_regions=2)
    run = SimpleNamespace(roster=roster, datamodule=SimpleNamespace(readers={"control": controls}))
    ((first, control, nouns),) = control_targets(run, build_caption_parser())
    assert (first.sample_id, control.regions, nouns) == ("s0", (0, 1), ("men",))
    ((_, _, labels),) = control_targets(run, build_caption_parser(), nouns="labels")
    assert labels == ("x",)
    run.datamodule.readers = {}
    assert len(control_targets(run, build_caption_parser())) == 2
    assert len(control_targets(run, build_caption_parser(), max_images=1)) == 1
    roster.samples = samples[1:2]
    with pytest.raises(ValueError, match="no caption has a phrase with a region and a noun"):
        control_targets(run, build_caption_parser())


def test_made_captions_are_asked_for_in_place_of_peoples(tmp_path: Path) -> None:
    samples = (sample(0, "a", "two young men", 0, 1), sample(1, "b", "a dog", 2))
    roster = SimpleNamespace(samples=samples, rows_by_image={"a": (0,), "b": (1,)}, name="x")
    run = SimpleNamespace(roster=roster, datamodule=SimpleNamespace(readers={}))
    phrase = {"start": 2, "text": "red cat", "chain_id": "1", "kinds": [], "regions": [3]}
    box = {"region": 3, "box": [0, 0, 1, 1]}
    lines = [
        {"image_id": image, "caption": "A red cat.", "phrases": [phrase], "boxes": [box]}
        for image in ("b", "elsewhere")
    ]
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    ((target, control, nouns),) = control_targets(run, build_caption_parser(), generated=tmp_path)
    assert (target.image_id, control.regions, nouns) == ("b", (3,), ("cat",))
    with pytest.raises(ValueError, match="no caption is of a photo of x; set split="):
        control_targets(run, build_caption_parser(), max_images=1, generated=tmp_path)


def test_a_captioner_that_obeys_agrees_less_with_swapped_controls() -> None:
    samples = [sample(n, image) for n, image in enumerate("aabb")]
    nouns = [("dog",), ("guitar",), ("boat",), ("bread",)]
    tools = {"parser": build_caption_parser(), "vectors": build_token_table()}

    def scores(captions: dict[str, str]):
        controlled = [
            ControlledCaption(
                sample_id=s.sample_id,
                image_id=s.image_id,
                caption=captions[s.sample_id],
                nouns=requested,
            )
            for s, requested in zip(samples, nouns, strict=True)
        ]
        return score_control(controlled, **tools)

    captions = {s.sample_id: f"a {noun}" for s, (noun,) in zip(samples, nouns, strict=True)}
    other_captions = {f"s{n}": captions[f"s{other}"] for n, other in enumerate((1, 0, 3, 2))}
    result = compare_swapped(
        samples, scores(captions), scores(other_captions), captions, other_captions
    )
    assert result["matched"]["IoU"] == pytest.approx(1)
    assert result["swapped"]["IoU"] < 0.6
    assert result["difference"]["high"] < 0
    assert result["changed"] == 1
    deaf = compare_swapped(samples, scores(captions), scores(captions), captions, captions)
    assert deaf["difference"]["mean"] == deaf["changed"] == 0
    json.dumps(result)


def test_captions_go_to_the_samples_that_asked() -> None:
    """The data set puts long captions first; answers must follow."""

    class Echo:
        def __init__(self, samples, stage, *, overrides) -> None:
            self.samples, self.controls = samples, overrides["control"].controls

        def __getitem__(self, block):
            order = sorted(block, reverse=True)
            batch = SimpleNamespace(
                sample_ids=[self.samples[n].sample_id for n in order],
                image_index=SimpleNamespace(tolist=lambda: list(range(len(order)))),
                controls=[self.controls[n] for n in order],
            )
            batch.to = lambda device: batch if device == "there" else None
            return batch

    def generate(batch):
        return [Prediction(image_id="x", caption=str(c.num_words)) for c in batch.controls]

    module = SimpleNamespace(dataset=Echo, readers={}, loader=LoaderSettings(eval_batch_size=2))
    model = SimpleNamespace(generate=generate, device="there")
    run = SimpleNamespace(datamodule=module, model=model, computing=nullcontext)
    samples = [sample(n, image) for n, image in enumerate("abac")]
    controls = [Control(num_words=n + 1) for n in range(4)]
    assert caption(run, samples, controls) == {"s0": "1", "s1": "2", "s2": "3", "s3": "4"}


def test_standard_scores_by_batches_are_means_of_each_batchs_own() -> None:
    texts = ["a dog runs", "a cat sits on a mat", "two men", "a red boat on a lake", "a dog"]
    samples = [sample(number, str(number), text) for number, text in enumerate(texts)]
    captions = {s.sample_id: s.caption if s.row % 2 else "a dog sits" for s in samples}
    metrics = Metrics(test=["BLEU", "CIDEr-D"], val=["CIDEr-D"], tokenizer="python")
    scores = standard_scores(samples, captions, metrics, by_batches=2)
    assert scores["corpus"] == standard_scores(samples, captions, metrics)["corpus"]
    # the order of torch's distributed sampler of seed 0, which the authors' code asks for batches
    parts = [[samples[n] for n in batch] for batch in ([4, 0], [1, 3], [2])]
    alone = [standard_scores(part, captions, metrics)["corpus"] for part in parts]
    for name, value in scores["by_batches"].items():
        assert value == pytest.approx(sum(part[name] for part in alone) / 3)
    assert scores["by_batches"]["CIDEr-D"] != scores["corpus"]["CIDEr-D"]
    assert "by_batches" not in standard_scores(samples, captions, metrics)


def test_batches_of_standard_scores_mix_photos() -> None:
    """In the order of the data a batch would have few photos, whose words weigh little in it."""
    words = ["dog", "cat", "boat", "man", "tree", "kite", "lamp", "book"]
    samples = [sample(5 * n + k, w, f"a red {w}") for n, w in enumerate(words) for k in range(5)]
    captions = {s.sample_id: s.caption for s in samples}
    metrics = Metrics(test=["CIDEr-D"], val=["CIDEr-D"], tokenizer="python")
    scores = standard_scores(samples, captions, metrics, by_batches=5)
    assert scores["by_batches"]["CIDEr-D"] > 0  # batches of one photo alone would have 0


def detected(folder: Path, *regions: tuple[str, tuple[int, int, int, int]]) -> Path:
    found = [Region(box=box, label=label, score=0.9) for label, box in regions]
    lines = [json.dumps({"detector": "frcnn"}), detection_line("a", "a.jpg", (100, 100), found)]
    path = folder / "boxes.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_labels_asked_for_may_be_those_of_a_detector(tmp_path: Path) -> None:
    """As CIC-BART-SSA's of Flickr30k Entities, whose annotations have no names of objects."""
    boxes = ((0, 0, 10, 10), (20, 20, 60, 60), (70, 70, 90, 90), (0, 50, 10, 60))
    regions = tuple(Region(box=box, label="people") for box in boxes)
    asked = replace(sample(0, "a", "two young men", 0, 1, 2), regions=regions)
    roster = SimpleNamespace(samples=(asked,), rows_by_image={"a": (0,)}, name="x")
    run = SimpleNamespace(roster=roster, datamodule=SimpleNamespace(readers={}))
    file = detected(
        tmp_path,
        ("dog", (1, 0, 10, 10)),
        ("cat", (0, 0, 4, 10)),
        ("man", (20, 22, 60, 60)),
        ("sky", (70, 70, 99, 99)),  # too large to be the third
    )
    options = {"nouns": "labels", "detections": [file]}
    ((_, _, labels),) = control_targets(run, build_caption_parser(), **options)
    assert labels == ("dog", "man")
    ((_, _, labels),) = control_targets(run, build_caption_parser(), nouns="labels")
    assert labels == ("people",)
    options["detections"] = [detected(tmp_path, ("dog", (80, 0, 99, 10)))]
    with pytest.raises(ValueError, match="no detected box overlaps a region"):
        control_targets(run, build_caption_parser(), **options)
    roster.samples, roster.rows_by_image = (replace(asked, image_id="b"),), {"b": (0,)}
    with pytest.raises(ValueError, match=r"the files of detections lack 1 photos, such as b"):
        control_targets(run, build_caption_parser(), **options)


def test_detections_are_for_nouns_by_labels_alone() -> None:
    run = SimpleNamespace()
    with pytest.raises(ValueError, match="detections: choose nouns=labels"):
        control_targets(run, build_caption_parser(), detections=["boxes.jsonl"])
