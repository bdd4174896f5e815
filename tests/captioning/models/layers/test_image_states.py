"""States of photos are the same bits in any batch, and photos that are kept are read no more."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from captioning.config.compose import compose_config
from captioning.models.adapt import add_low_rank
from captioning.models.layers import image_states
from captioning.models.layers.image_states import ImageStates, unfit
from captioning.models.vlm import Vlm
from captioning.types import Batch
from captioning.vision.prompt_tensors import PHOTO_KEYS, PromptedProcessor
from tests.families.registry import family_folder
from tests.run_calls import train
from tests.tiny_vlm import PROMPT, batch_of, captioner, model_folder, photos

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
FAMILY = "qwen2_vl"
LORA = {"rank": 2, "alpha": 4, "dropout": 0.0, "modules": None, "within": None}


def low_rank(**settings: Any) -> tuple[Vlm, Batch]:
    """With additions that do something, and keys of its photos."""
    pytest.importorskip("peft", reason="needs peft")
    model = captioner(model_folder(FAMILY), **settings)
    add_low_rank(model, **LORA)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.fill_(0.1)
    batch = batch_of(model_folder(FAMILY), model.tokenizer)
    extras = {**batch.extras, PHOTO_KEYS: torch.tensor([7, 8, 9])}
    return model.train(), replace(batch, extras=extras)


def keep(model: Vlm, room: float = float("inf")) -> ImageStates:
    states = ImageStates(model.network, num_photos=3, room=room)
    model._states = states
    return states


def counted(model: Vlm, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of pixels of each call of the image encoder."""
    calls: list[int] = []
    visual = model.network.model.visual
    forward = visual.forward

    def noted(pixels: Any, *arguments: Any, **options: Any) -> Any:
        calls.append(len(pixels))
        return forward(pixels, *arguments, **options)

    monkeypatch.setattr(visual, "forward", noted)
    return calls


def test_a_photo_is_encoded_once_and_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = low_rank()
    expected = model.losses(batch).per_sample
    states = keep(model)
    calls = counted(model, monkeypatch)
    first = model.losses(batch).per_sample
    assert calls == batch.extras["prompt.pixel_values.counts"].tolist()
    torch.testing.assert_close(first, expected)
    processor = PromptedProcessor(pretrained=str(model_folder(FAMILY)), prompt=PROMPT)
    known = processor.joined([states.prompts[key] for key in (7, 8, 9)])
    assert not [name for name in known if "pixel" in name]
    without = replace(batch, extras={**known, PHOTO_KEYS: batch.extras[PHOTO_KEYS]})
    assert torch.equal(model.losses(without).per_sample, first)
    assert len(calls) == 3
    alone = batch_of(model_folder(FAMILY), model.tokenizer, photos()[1:2]).extras
    again = keep(model).read(alone, alone, [8])
    for one, other in zip(again[0]["pooler_output"], states._kept[8]["pooler_output"], strict=True):
        assert torch.equal(one, other)


def test_prompts_are_kept_without_the_padding_of_their_batch() -> None:
    model, batch = low_rank()
    states = keep(model)
    model.losses(batch)
    processor = PromptedProcessor(pretrained=str(model_folder(FAMILY)), prompt=PROMPT)
    for key, photo in zip((7, 8, 9), photos(), strict=True):
        read = {n: v for n, v in processor.read_photo(photo).items() if "pixel" not in n}
        assert states.prompts[key].keys() == read.keys()
        assert all(torch.equal(states.prompts[key][name], read[name]) for name in read)


def test_what_has_no_room_is_encoded_again(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    model, batch = low_rank()
    states = keep(model, room=1)
    calls = counted(model, monkeypatch)
    with caplog.at_level(logging.INFO):
        losses = [model.losses(batch).per_sample for _ in range(2)]
    assert torch.equal(*losses)
    assert len(calls) == 6
    assert not states.prompts
    assert "of which 0% fit" in caplog.text


def test_a_photo_that_is_not_kept_needs_its_pixels() -> None:
    model, batch = low_rank()
    keep(model)
    extras = {n: v for n, v in batch.extras.items() if "pixel" not in n}
    with pytest.raises(ValueError, match="lacks the pixels"):
        model.losses(replace(batch, extras=extras))


def test_what_trains_or_drops_is_not_kept() -> None:
    model, _ = low_rank()
    assert not unfit(model.parts)
    visual = model.network.model.visual
    visual.blocks[0].attn.p = 0.1
    assert "dropout" in unfit(model.parts)
    visual.blocks[0].attn.p = 0.0
    next(visual.parameters()).requires_grad_(True)
    assert "outside of the language model" in unfit(model.parts)
    next(visual.parameters()).requires_grad_(False)
    model.network.get_input_embeddings().requires_grad_(True)
    assert "word vectors" in unfit(model.parts)
    assert "accepts no outputs" in unfit(captioner(model_folder("git")).parts)


@pytest.fixture
def config(cache: Path, tmp_path: Path) -> Callable[..., DictConfig]:
    """A resolved config of a small run with low-rank additions."""
    pytest.importorskip("peft", reason="needs peft")

    def build(name: str, *overrides: str) -> DictConfig:
        chosen = [
            "experiment=vlm/low_rank",
            f"model.pretrained={family_folder('qwen3_vl')}",
            "data=miniworld_tiny",
            "first_images=8",
            "num_epochs=3",
            "tokenizer.max_tokens=200",
            "loader.batch_size=8",
            "search.beam_size=1",
            "search.max_length=3",
            "metrics.test=[BLEU]",
            "metrics.tokenizer=python",
            "logger=none",
            "monitor=last",
            "trainer.accelerator=cpu",
            "trainer.precision=32-true",
            f"paths.cache={cache}",
            f"run_dir={tmp_path / name}",
        ]
        config = compose_config("train", [*chosen, *overrides])
        OmegaConf.resolve(config)
        return config

    return build


def test_a_run_encodes_each_photo_in_its_first_epoch_alone(config, monkeypatch) -> None:
    kept, read = [], image_states.ImageStates._encoded

    def noted(self: ImageStates, photo: Any) -> Any:
        kept.append(len(self.prompts))
        return read(self, photo)

    monkeypatch.setattr(image_states.ImageStates, "_encoded", noted)
    train(config("run"))
    in_training = [number for number in kept if number]
    assert in_training == list(range(1, 8))  # before the first of eight none was kept


def test_a_run_of_what_cannot_be_kept_is_refused_where_it_is_demanded(config) -> None:
    wrong = ["model.keep_image_states=true", "model.check=false"]
    wrong += ["model.lora.modules=[qkv]", 'model.lora.within="*"']
    with pytest.raises(ValueError, match=r"keep_image_states=true: parts outside .* set it to"):
        train(config("refused", *wrong))
