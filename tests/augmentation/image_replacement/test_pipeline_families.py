"""Stable Diffusion XL and Flux: seeds by sample, forms of weights, prompts, wrong settings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("diffusers", reason="needs diffusers")
from tiny_families import write_flux, write_xl
from tiny_pipeline import MAX_TOKENS, write_pipeline

from augmentation.image_replacement.cache import PictureCache
from augmentation.image_replacement.generator import Job, Producer
from augmentation.image_replacement.stable_diffusion import StableDiffusion

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
JOBS = [Job(prompt=f"a dog {'runs ' * number}", seed=number + 2**62) for number in range(3)]
SETTINGS = {
    "xl": {"guidance_scale": 5.0},
    "flux": {"guidance_scale": 3.5, "width": 16, "height": 24, "max_sequence_length": 64},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    path = tmp_path_factory.mktemp("pipelines")
    return {"xl": write_xl(path / "xl"), "flux": write_flux(path / "flux")}


def model(folder: Path, **options) -> StableDiffusion:
    options = {"num_steps": 2, "batch_size": 2, "device": "cpu"} | options
    return StableDiffusion(model=str(folder), **options)


@pytest.mark.long
@pytest.mark.parametrize("family", SETTINGS)
def test_a_picture_depends_on_its_prompt_and_seed_alone(folders, family, tmp_path):
    generator = model(folders[family], **SETTINGS[family])
    generator.start()
    together = Producer(generator=generator, cache=PictureCache(folder=tmp_path / "a"))
    apart = Producer(generator=generator, cache=PictureCache(folder=tmp_path / "b"))
    assert together.produce(JOBS) == {}
    for job in reversed(JOBS):
        assert apart.produce([job]) == {}
        assert together.find(job).read_bytes() == apart.find(job).read_bytes()
    assert len({together.find(job).read_bytes() for job in JOBS}) == len(JOBS)


@pytest.mark.long
@pytest.mark.parametrize("family", SETTINGS)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_batch_changes_no_picture(folders, family, batch_size):
    first = model(folders[family], **SETTINGS[family]).generate(JOBS[:2])
    other = model(folders[family], batch_size=batch_size, **SETTINGS[family]).generate(JOBS)
    for a, b in zip(first, other, strict=False):
        assert np.abs(a - b).max() < 1 / 255


def test_sizes_and_tokens_are_the_pipelines(folders):
    xl, flux = model(folders["xl"]), model(folders["flux"], width=16, height=24)
    assert (xl.size(), xl.max_tokens) == ((32, 32), MAX_TOKENS)
    assert xl.count_tokens("a dog") == len("adog") + 2
    assert (flux.size(), flux.max_tokens) == ((16, 24), 512)
    assert flux.count_tokens("a dog") == 3  # words, as its long encoder reads them
    assert model(folders["flux"], width=8, height=8, max_sequence_length=64).max_tokens == 64
    assert flux.generate(JOBS[:1])[0].shape == (24, 16, 3)
    with pytest.raises(ValueError, match="does not state the image size: set width and height"):
        model(folders["flux"]).start()


def test_half_precision_weights_are_read_where_they_are(folders, tmp_path):
    half = write_xl(tmp_path / "half", variant="fp16")
    assert not list(half.glob("*/model.safetensors"))
    made = model(half, variant="fp16").generate(JOBS[:1])[0]
    np.testing.assert_array_equal(made, model(folders["xl"]).generate(JOBS[:1])[0])
    np.testing.assert_array_equal(model(folders["xl"], variant="fp16").generate(JOBS[:1])[0], made)
    with pytest.raises(OSError, match="no file named"):
        model(half).load()


def test_guidance_and_length_are_part_of_the_recipe(folders):
    plain = model(folders["flux"], **SETTINGS["flux"])
    recipes = [plain.recipe()]
    for options in ({"guidance_scale": 0.0}, {"max_sequence_length": 32}, {"num_steps": 1}):
        recipes.append(model(folders["flux"], **SETTINGS["flux"] | options).recipe())
    assert len({json.dumps(recipe) for recipe in recipes}) == 4
    assert "max_sequence_length" not in model(folders["xl"]).recipe()


def test_what_a_pipeline_cannot_do_is_refused_at_the_start(folders, tmp_path):
    with pytest.raises(
        ValueError, match="StableDiffusionXLPipeline does not accept max_sequence_length"
    ):
        model(folders["xl"], max_sequence_length=64).start()
    with pytest.raises(ValueError, match="offload=model moves parts .* device is cpu"):
        model(folders["xl"], offload="model").start()
    with pytest.raises(ValueError, match="has no safety checker"):
        model(folders["flux"], safety_checker=True).start()
    copy = shutil.copytree(folders["xl"], tmp_path / "other")
    for name, message in {
        "StableDiffusionImg2ImgPipeline": "cannot generate images from text alone",
        "NoSuchPipeline": "needs pipeline NoSuchPipeline",
    }.items():
        index = json.loads((copy / "model_index.json").read_text())
        (copy / "model_index.json").write_text(json.dumps(index | {"_class_name": name}))
        with pytest.raises(ValueError, match=message):
            model(copy).start()
    (copy / "model_index.json").write_text("[]")
    with pytest.raises(ValueError, match="names no diffusers pipeline"):
        model(copy).start()


def test_a_hub_name_without_network_says_what_to_fetch(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    generator = StableDiffusion(model=f"nobody/no-such-model@{'0' * 40}", variant="fp16")
    with pytest.raises(ConnectionError, match=r"give its folder.*files to fetch: .*fp16\.safe"):
        generator.start()


def test_older_pictures_stay_valid(tmp_path):
    folder = write_pipeline(tmp_path / "plain")
    assert set(model(folder).recipe()) == {
        "model",
        "weights",
        "scheduler",
        "num_steps",
        "guidance_scale",
        "negative_prompt",
        "size",
        "precision",
        "safety_checker",
        "watermark",
    }
