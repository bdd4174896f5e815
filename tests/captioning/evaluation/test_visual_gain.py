"""How much a photo helps a captioner, against its log-probabilities token by token."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.config.build import build_part
from captioning.config.compose import compose_config
from captioning.evaluation import visual_gain
from captioning.evaluation.visual_gain import (
    BLIND,
    VisualGainScorer,
    _identity,
    build_visual_gain,
)
from captioning.inference.captioner import Captioner
from captioning.inference.photo_batches import photo_samples
from tests.matching_folders import save_blip_captioner

CAPTIONS = ["A dog runs on the grass .", "Two men ride bicycles .", "A red ball ."]


@pytest.fixture(scope="module")
def captioner() -> Captioner:
    return Captioner.load(device="cpu")


@pytest.fixture(scope="module")
def scorer(captioner) -> VisualGainScorer:
    return VisualGainScorer(captioner=captioner, identity="shipped", batch_size=3)


def photos() -> list[Image.Image]:
    drawn = np.random.default_rng(0).integers(0, 256, (2, 12, 12, 3), dtype=np.uint8)
    return [Image.fromarray(pixels).resize((96, 80)) for pixels in drawn]


@torch.inference_mode()
def log_probability(captioner: Captioner, photo: Image.Image, caption: str, folder: Path) -> float:
    """Of a caption with its end, one token after the other as a search would."""
    model = captioner.model
    samples, _ = photo_samples([photo], None, folder)
    (part,) = captioner._read(samples, 1, skips=False)
    state = model.start(part.batch)
    tokens = model.tokenizer.encode(caption)
    total, before = 0.0, tokens[0]
    for token in tokens[1:]:
        log_probs, state = model.step(torch.tensor([before]), state)
        total += float(log_probs[0, token])
        before = token
    return total


@pytest.mark.long
def test_it_is_the_difference_of_two_log_probabilities(captioner, scorer, tmp_path):
    one, two = photos()
    found = scorer.score_pairs([one, two], CAPTIONS, [0, 1, 1])
    for place, (photo, caption) in enumerate(zip([one, two, two], CAPTIONS, strict=True)):
        folders = [tmp_path / f"{place}{name}" for name in ("seen", "blind")]
        for folder in folders:
            folder.mkdir()
        seen = log_probability(captioner, photo, caption, folders[0])
        blind = log_probability(captioner, BLIND, caption, folders[1])
        assert float(found[place]) == pytest.approx(seen - blind, abs=2e-3)
    assert len({round(value, 3) for value in found.tolist()}) == 3


def test_neither_order_nor_company_matters(scorer):
    one, two = photos()
    together = scorer.score_pairs([one, two], CAPTIONS, [0, 1, 1])
    alone = torch.cat(
        [scorer.score_pairs([two], [CAPTIONS[n]], [0]) for n in (1, 2)]
        + [scorer.score_pairs([one], [CAPTIONS[0]], [0])]
    )
    torch.testing.assert_close(alone, together[[1, 2, 0]], atol=1e-3, rtol=0)
    assert float(scorer.score_pairs([BLIND], [CAPTIONS[0]], [0])) == pytest.approx(0, abs=1e-4)


@pytest.mark.long
def test_configs_build_it_from_a_folder_and_tell_weights_apart(tmp_path):
    folder = save_blip_captioner(tmp_path / "blip")
    own = ["curation=remove", "curation/score=siglip", "matching@curation.score.pairs=captioner"]
    own += [f"paths.cache={tmp_path}", f"curation.score.pairs.scorer.model={folder}"]
    pairs = build_part(compose_config("train", own).curation.score.pairs)
    one, two = photos()
    paths = [tmp_path / "0.png", tmp_path / "1.png"]
    for path, photo in zip(paths, (one, two), strict=True):
        photo.save(path)
    scores = pairs.scores([(paths[0], "a dog"), (paths[1], "a dog")])
    assert scores.isfinite().all()
    assert pairs.name == "visual gain (Vlm)"
    build_visual_gain.cache_clear()
    same = build_visual_gain(model=str(folder))
    assert same.identity == pairs.scorer.identity != build_visual_gain().identity
    same.release()


def test_other_weights_have_another_identity(captioner):
    before = _identity(captioner)
    weights = next(captioner.model.parameters())
    kept = weights.detach().clone()
    weights[0] += 1
    changed = _identity(captioner)
    weights.copy_(kept)
    assert changed != before == _identity(captioner)


def test_the_network_that_reads_photos_leaves_the_device_too(captioner, monkeypatch):
    left: list[torch.nn.Module] = []
    monkeypatch.setattr(visual_gain, "leave", lambda network, _: left.append(network))
    VisualGainScorer(captioner=captioner, identity="x", batch_size=2).release()
    assert left == [captioner.model, captioner.backbone]
    assert captioner.backbone is not None


def test_captioners_of_boxes_are_refused(captioner, monkeypatch):
    monkeypatch.setattr(captioner, "takes_boxes", True)
    with pytest.raises(ValueError, match="reads boxes"):
        VisualGainScorer(captioner=captioner, identity="")


def test_captioners_without_log_probabilities_are_refused(captioner, scorer, monkeypatch):
    losses = captioner.model.losses

    def without(batch):
        result = losses(batch)
        return type(result)(total=result.total, per_sample=result.per_sample)

    monkeypatch.setattr(captioner.model, "losses", without)
    with pytest.raises(
        ValueError, match=r"UpDown does not compute log-probabilities.*scorer\.model"
    ):
        scorer.score_pairs(photos(), ["a dog"], [0])
