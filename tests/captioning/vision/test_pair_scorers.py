"""SigLIP and BLIP's matching head from folders in the hub's layout, against transformers."""

from __future__ import annotations

import json
import shutil
import threading

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoProcessor, BlipForImageTextRetrieval, SiglipModel

from captioning.runtime.devices import Resident
from captioning.vision.blip_matching import build_blip_matching
from captioning.vision.dual_encoder import build_dual_encoder
from captioning.vision.pair_scorers import CosineScorer, SigmoidScorer
from captioning.vision.pair_scores import PairScores
from tests.matching_folders import save_blip_captioner, save_blip_matching, save_siglip

TEXTS = ["a dog runs on the grass", "a cat sleeps", "two dogs run", "a cat sleeps"]
PHOTO_OF = [0, 0, 1, 2]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    path = tmp_path_factory.mktemp("hub")
    save_blip_matching(path / "itm")
    save_blip_captioner(path / "captioner")
    save_siglip(path / "siglip")
    return path


@pytest.fixture(scope="module")
def photos():
    rng = np.random.default_rng(0)
    shapes = [(40, 50, 3), (33, 32, 3), (20, 60, 3)]
    return [Image.fromarray(rng.integers(0, 255, s, dtype=np.uint8)) for s in shapes]


def test_captions_of_which_networks_read_the_beginning_are_told(folders, photos, caplog):
    long = [TEXTS[0] + " and a dog" * 40, TEXTS[0]]
    encoder = build_dual_encoder(name=str(folders / "siglip"))
    for scorer in (build_blip_matching(name=str(folders / "itm")), CosineScorer(encoder=encoder)):
        for texts, number in ((TEXTS[:1], 0), (long, 1), (long, 1)):
            scorer.score_pairs(photos[:1], texts, [0] * len(texts))
            told = [
                record.message for record in caplog.records if "(logged once)" in record.message
            ]
            assert len(told) == number
        assert "tokens of a text: 1 of 2 reach this limit" in told[0]
        caplog.clear()


@pytest.mark.parametrize("head", ["itm", "itc"])
def test_blip_judges_as_in_transformers(folders, photos, head):
    scorer = build_blip_matching(name=str(folders / "itm"), head=head, batch_size=2)
    scores = scorer.score_pairs(photos, TEXTS, PHOTO_OF)
    network = BlipForImageTextRetrieval.from_pretrained(folders / "itm").eval()
    processor = AutoProcessor.from_pretrained(folders / "itm")
    for score, text, number in zip(scores.tolist(), TEXTS, PHOTO_OF, strict=True):
        inputs = processor(images=photos[number], text=text, return_tensors="pt")
        with torch.inference_mode():
            output = network(**inputs, use_itm_head=head == "itm").itm_score
        expected = output.softmax(-1)[0, 1] if head == "itm" else output[0, 0]
        assert score == pytest.approx(float(expected), abs=1e-5)
    assert scorer.is_probability == (head == "itm")
    assert len(set(scores.tolist())) == len(TEXTS)


def test_siglips_probability_is_that_of_transformers(folders, photos):
    encoder = build_dual_encoder(name=str(folders / "siglip"), batch_size=2)
    scores = SigmoidScorer(encoder=encoder).score_pairs(photos, TEXTS, PHOTO_OF)
    network = SiglipModel.from_pretrained(folders / "siglip").eval()
    processor = AutoProcessor.from_pretrained(folders / "siglip")
    inputs = processor(images=photos, text=TEXTS, padding="max_length", max_length=48)
    with torch.inference_mode():
        inputs = {name: torch.as_tensor(np.array(value)) for name, value in inputs.items()}
        logits = network(
            input_ids=inputs["input_ids"], pixel_values=inputs["pixel_values"]
        ).logits_per_image
    expected = torch.sigmoid(logits)[PHOTO_OF, range(len(TEXTS))]
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=0)
    cosine = CosineScorer(encoder=encoder).score_pairs(photos, TEXTS, PHOTO_OF)
    assert cosine.abs().max() <= 1
    assert cosine.argsort().tolist() == scores.argsort().tolist()
    assert encoder.dim == 16


@pytest.mark.parametrize("kind", ["itm", "siglip"])
def test_threads_prepare_photos_to_the_same_scores(folders, photos, tmp_path, kind):
    if kind == "itm":
        scorer = build_blip_matching(name=str(folders / "itm"), batch_size=4)
    else:
        scorer = SigmoidScorer(encoder=build_dual_encoder(name=str(folders / "siglip")))
    photos = [*photos, photos[0].rotate(180)]  # two of a size, which a processor takes together
    paths = [tmp_path / f"{number}.png" for number in range(len(photos))]
    for photo, path in zip(photos, paths, strict=True):
        photo.save(path)
    expected = scorer.score_pairs(photos, TEXTS, range(4))
    threads = []
    real = scorer.prepare

    def prepare(photo):
        threads.append(threading.current_thread())
        return real(photo)

    scorer.prepare = prepare
    pairs = PairScores(scorer=scorer, photos_at_once=4)
    assert torch.equal(pairs.scores(list(zip(paths, TEXTS, strict=True))), expected)
    assert len(threads) == 4
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("kind", ["blip", "siglip"])
def test_photos_prepared_one_by_one_are_those_of_a_batch(folders, photos, kind):
    photos = [*photos, photos[0].rotate(180)]
    if kind == "blip":
        scorer = build_blip_matching(name=str(folders / "itm"))
        batch = scorer._processor.image_processor(images=photos, return_tensors="pt")
        ours = torch.stack([scorer.prepare(photo) for photo in photos])
    else:
        scorer = build_dual_encoder(name=str(folders / "siglip"))
        batch = scorer._processor(images=photos, return_tensors="pt")
        ours = torch.cat([scorer.prepare(photo)["pixel_values"] for photo in photos])
    assert torch.equal(ours, batch["pixel_values"])


def test_a_prompt_goes_before_each_caption(folders, photos):
    encoder = build_dual_encoder(name=str(folders / "siglip"))
    prompted = CosineScorer(encoder=encoder, prompt="picture of ")
    texts = [f"picture of {text}" for text in TEXTS]
    plain = CosineScorer(encoder=encoder)
    assert torch.equal(
        prompted.score_pairs(photos, TEXTS, PHOTO_OF), plain.score_pairs(photos, texts, PHOTO_OF)
    )
    assert prompted.identity != plain.identity


def test_identities_tell_weights_and_precision(folders, tmp_path):
    first = build_blip_matching(name=str(folders / "itm"))
    other = save_blip_matching(tmp_path / "itm", seed=1)
    half = build_blip_matching(name=str(folders / "itm"), precision="bfloat16")
    again = build_blip_matching(name=str(folders / "itm"), batch_size=3)
    names = {first.identity, build_blip_matching(name=str(other)).identity, half.identity}
    assert len(names) == 3
    assert again.identity == first.identity


def test_other_weights_are_refused_by_name(folders, tmp_path):
    with pytest.raises(ValueError, match=r"weights lack .* matching head, .* another task\?"):
        build_blip_matching(name=str(folders / "captioner"))
    with pytest.raises(ValueError, match="is 'siglip', not BLIP"):
        build_blip_matching(name=str(folders / "siglip"))
    with pytest.raises(ValueError, match="'blip' model, not one of"):
        build_dual_encoder(name=str(folders / "itm"))
    with pytest.raises(FileNotFoundError, match=r"no config\.json in it"):
        build_dual_encoder(name=str(tmp_path))


def test_a_hub_name_without_network_says_what_to_do(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for build in (build_blip_matching, build_dual_encoder):
        with pytest.raises(ConnectionError, match="fetch it on a machine with network and give"):
            build(name=f"nobody/no-such-model@{'0' * 40}")
        with pytest.raises(ValueError, match="lacks its commit"):
            build(name="nobody/no-such-model")


def test_a_processor_that_is_missing_or_of_another_model_is_named(folders, tmp_path):
    copy = shutil.copytree(folders / "itm", tmp_path / "without")
    (copy / "processor_config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"without: no processor_config"):
        build_blip_matching(name=str(copy))
    copy = shutil.copytree(folders / "itm", tmp_path / "larger")
    settings = json.loads((copy / "processor_config.json").read_text())
    settings["image_processor"]["size"] = {"height": 64, "width": 64}
    (copy / "processor_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"larger: its processor \(BlipProcessor\) does not fit"):
        build_blip_matching(name=str(copy))


def test_only_siglip_gives_a_probability_of_a_single_pair(folders):
    encoder = build_dual_encoder(name=str(folders / "siglip"))
    encoder.sigmoid = None
    with pytest.raises(ValueError, match="not a SigLIP, so it has no probability"):
        SigmoidScorer(encoder=encoder)


@pytest.mark.parametrize(
    ("build", "folder"), [(build_blip_matching, "itm"), (build_dual_encoder, "siglip")]
)
def test_a_network_leaves_its_device_after_its_trial(build, folder, folders, monkeypatch):
    """Else it would keep memory until its first use, maybe epochs later."""
    calls: list[str] = []
    used = Resident.used
    monkeypatch.setattr(Resident, "used", lambda self: calls.append("used") or used(self))
    monkeypatch.setattr(Resident, "release", lambda self: calls.append("released"))
    build.cache_clear()
    build(name=str(folders / folder))
    assert "used" in calls
    assert calls[-1] == "released"
