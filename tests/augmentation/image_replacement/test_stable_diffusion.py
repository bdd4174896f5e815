"""Pipelines of diffusers, with a tiny one of random weights."""

from __future__ import annotations

import json
import logging
import pickle
import shutil
import sys
import weakref
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

pytest.importorskip("diffusers", reason="needs diffusers")
from squares import request
from tiny_pipeline import MAX_TOKENS, write_pipeline

from augmentation.image_replacement import stable_diffusion
from augmentation.image_replacement.cache import PictureCache
from augmentation.image_replacement.generated import Concatenation, GeneratedImages, Prompter
from augmentation.image_replacement.generator import Job, Producer
from augmentation.image_replacement.stable_diffusion import StableDiffusion

JOBS = [Job(prompt=f"dog {number}", seed=number + 2**62) for number in range(5)]


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    return write_pipeline(tmp_path_factory.mktemp("tiny") / "pipeline")


def model(folder: Path, **options) -> StableDiffusion:
    options = {"num_steps": 2, "batch_size": 2, "device": "cpu"} | options
    return StableDiffusion(model=str(folder), **options)


def made(folder: Path, jobs=JOBS[:1], **options) -> list[np.ndarray]:
    return model(folder, **options).generate(jobs)


def test_a_picture_depends_on_its_prompt_and_seed_alone(folder, tmp_path):
    together = Producer(generator=model(folder), cache=PictureCache(folder=tmp_path / "a"))
    apart = Producer(generator=model(folder), cache=PictureCache(folder=tmp_path / "b"))
    assert together.produce(JOBS) == {}
    for job in reversed(JOBS):
        apart.produce([job])
    for job in JOBS:
        assert together.find(job).read_bytes() == apart.find(job).read_bytes()
    assert len({together.find(job).read_bytes() for job in JOBS}) == len(JOBS)


def test_a_prompt_is_cut_at_its_end_without_a_word(folder, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("diffusers"), "propagate", True)
    long = " ".join(["dog"] * MAX_TOKENS)
    cut, longer = made(folder, [Job(prompt=text, seed=1) for text in (long, f"{long} cat")])
    assert np.array_equal(cut, longer)
    assert "truncated" not in caplog.text


def test_the_packaged_pipeline_is_loaded_without_a_word(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("diffusers"), "propagate", True)
    packaged = Path(stable_diffusion.__file__).with_name("weights") / "miniworld"
    model(packaged).load()
    assert not caplog.messages


@pytest.mark.long
def test_settings_change_the_picture_and_its_recipe(folder):
    plain, recipe = made(folder)[0], model(folder).recipe()
    for options in (
        {"num_steps": 3},
        {"guidance_scale": 1.0},
        {"negative_prompt": "cat"},
        {"scheduler": "DDPMScheduler"},
        {"precision": "bfloat16"},
        {"width": 48},
    ):
        other = made(folder, **options)[0]
        assert other.shape != plain.shape or not np.array_equal(other, plain), options
        assert model(folder, **options).recipe() != recipe, options
    assert model(folder, batch_size=7, device="cuda:5").recipe() == recipe


def test_other_weights_are_another_model(folder, tmp_path):
    other = write_pipeline(tmp_path / "pipeline", seed=1)
    assert model(folder).identity != model(other).identity
    assert model(folder).identity == model(shutil.copytree(folder, tmp_path / "copy")).identity
    assert model(folder).name.startswith("pipeline@")


def test_cards_and_other_files_beside_a_model_leave_its_pictures_valid(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    for place in (copy / "card.json", copy / "paper.json", copy / "vae" / "card.json"):
        place.write_text('{"date": "today"}', encoding="utf-8")
    (copy / "sheets").mkdir()
    (copy / "sheets" / "note.txt").write_text("seen")
    assert model(folder).recipe() | {"model": "copy"} == model(copy).recipe()
    (copy / "scheduler" / "scheduler_config.json").write_text("{}", encoding="utf-8")
    assert model(folder).identity != model(copy).identity


def test_low_rank_weights_are_part_of_the_model_and_their_card_is_not(folder, tmp_path):
    weights = tmp_path / "lora" / "pytorch_lora_weights.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"1")
    before = model(folder, lora=str(weights.parent)).identity
    assert before != model(folder).identity
    (weights.parent / "card.json").write_text("{}", encoding="utf-8")
    assert model(folder, lora=str(weights.parent)).identity == before
    weights.write_bytes(b"2")
    assert model(folder, lora=str(weights.parent)).identity != before


def test_a_folder_without_low_rank_weights_is_refused_at_the_start(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "empty"):
        generator = model(folder, lora=str(tmp_path / name))
        with pytest.raises(
            FileNotFoundError, match=rf"{name} does not exist or holds no \.safetens"
        ):
            generator.start()
        with pytest.raises(FileNotFoundError, match="or set lora=null"):
            _ = generator.identity


def test_a_size_of_half_a_latent_is_refused_at_the_start(folder):
    with pytest.raises(ValueError, match="must be multiples of 2: got 33 and 32"):
        model(folder, width=33).start()
    with pytest.raises(ValueError, match="must be multiples of 2: got 32 and 47"):
        model(folder, height=47).start()
    model(folder, width=34).start()


def test_sizes_and_tokens_are_the_pipelines(folder):
    generator = model(folder)
    assert (generator.size(), generator.max_tokens) == ((32, 32), MAX_TOKENS)
    assert generator.count_tokens("A dog.") == len("Adog.") + 2
    assert model(folder, width=48).size() == (48, 32)
    assert made(folder, width=48)[0].shape == (32, 48, 3)


def test_prompts_fit_the_pipelines_tokens_and_weights_are_not_loaded_for_that(folder, tmp_path):
    generator = model(folder)
    source = GeneratedImages(
        generator=generator,
        prompts=Prompter(form=Concatenation(), styler="Flickr"),
        cache=PictureCache(folder=tmp_path),
    )
    orders = source._orders([request("a dog", "two men", "five big cats")], 0)
    assert orders[0].prompt.text == "a dog. two men, Flickr"
    assert orders[0].prompt.notes == ("caption left out of the prompt",)
    assert generator._pipeline is None
    picture = source.images([request("a dog", "two men", "five big cats")], seed=0)[0]
    assert picture.path.is_file()


def test_it_travels_to_other_processes_without_its_weights(folder):
    generator = model(folder)
    first = generator.generate(JOBS[:2])
    sent = pickle.dumps(generator)
    assert len(sent) < 100_000
    again = pickle.loads(sent)  # noqa: S301 - what this test itself has written
    assert all(np.array_equal(a, b) for a, b in zip(first, again.generate(JOBS[:2]), strict=True))
    generator.release()
    assert generator._pipeline is None


def test_a_pipeline_whose_parts_refer_to_each_other_is_freed(folder):
    class Part:
        hook: object = None

    generator, part = model(folder), Part()
    part.hook = part
    generator._pipeline, freed = part, weakref.ref(part)
    del part
    generator.release()
    assert freed() is None


def test_weights_as_pickles_are_refused(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "pickled")
    weights = copy / "unet" / "diffusion_pytorch_model.safetensors"
    torch.save({}, weights.with_suffix(".bin"))
    weights.unlink()
    with pytest.raises(OSError, match=r"no file named diffusion_pytorch_model\.safetensors"):
        model(copy).load()


def test_wrong_settings_are_refused_at_the_start(folder, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="scheduler=Nonsense does not exist in diffusers"):
        model(folder, scheduler="Nonsense").start()
    with pytest.raises(ValueError, match="has no safety checker: set safety_checker=false"):
        model(folder, safety_checker=True).start()
    with pytest.raises(FileNotFoundError, match=r"no model_index\.json in it"):
        model(tmp_path).start()
    with pytest.raises(ValueError, match="precision must be one of"):
        model(folder, precision="half")
    with pytest.raises(ValueError, match="num_steps and batch_size must be at least 1"):
        model(folder, num_steps=0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="device=cuda: torch sees none of this kind"):
        model(folder, device="cuda").start()


def test_a_watermark_is_put_in_by_the_package_for_it(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "imwatermark", None)
        with pytest.raises(
            ModuleNotFoundError, match=r"invisible-watermark, or set watermark=false"
        ):
            model(folder, watermark=True).start()

    class WatermarkEncoder:
        def set_watermark(self, kind, mark):
            assert (kind, mark) == ("bytes", b"GeneratedImage")

        def encode(self, picture, method):
            assert (picture.dtype, method) == (np.uint8, "dwtDct")
            return picture // 2

    package = ModuleType("imwatermark")
    package.WatermarkEncoder = WatermarkEncoder
    monkeypatch.setitem(sys.modules, "imwatermark", package)
    marked, plain = made(folder, watermark=True)[0], made(folder)[0]
    expected = (plain * 255).round().astype(np.uint8) // 2
    np.testing.assert_array_equal((marked * 255).round(), expected)


def test_pictures_that_the_safety_checker_flags_are_withheld(folder):
    generator = model(folder)
    generator.load()

    class Flags:
        images = np.zeros((2, 32, 32, 3))
        nsfw_content_detected = (True, False)

    generator._pipeline = lambda **options: Flags
    first, second = generator.generate(JOBS[:2])
    assert first is None
    assert second.shape == (32, 32, 3)


def test_a_pipeline_with_a_safety_checker_is_read_without_it(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "checked")
    index = json.loads((copy / "model_index.json").read_text())
    index["safety_checker"] = ["stable_diffusion", "StableDiffusionSafetyChecker"]
    index["requires_safety_checker"] = True
    (copy / "model_index.json").write_text(json.dumps(index))
    assert made(copy)[0].shape == (32, 32, 3)


def test_a_pipeline_that_does_not_tell_its_size_needs_one(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "other")
    (copy / "unet" / "config.json").unlink()
    with pytest.raises(ValueError, match="does not state the image size: set width and height"):
        model(copy).start()
    assert model(copy, width=32, height=48).size() == (32, 48)
