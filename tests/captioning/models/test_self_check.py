"""What the check before training passes, what it refuses, and when a run makes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from PIL import Image
from torch import Tensor

from captioning.config.compose import compose_config
from captioning.decoding.beam import BeamSearch
from captioning.models import vlm
from captioning.models.layers.image_text_parts import ImageTextParts
from captioning.models.layers.speaker import Speaker
from captioning.models.vlm import CHECK_FILE, SelfCheck, Vlm, self_check
from captioning.text.tokenizers.image_text import ImageTextTokenizer
from captioning.training import callbacks
from captioning.types import Sample
from captioning.vision import prompt_tensors
from captioning.vision.prompt_tensors import PREFIX, PromptedProcessor
from tests.families.registry import PROMPTS, family_folder
from tests.run_calls import train

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
PROMPT = "Describe it."
CAPTIONS = ("a dog runs on the grass", "two dogs")
SIZES = ((60, 40), (200, 120))


@pytest.fixture
def samples(tmp_path: Path) -> list[Sample]:
    """Captions of two photos of noise, of two sizes."""
    rng = np.random.default_rng(0)
    found = []
    for row, ((width, height), caption) in enumerate(zip(SIZES, CAPTIONS, strict=True)):
        path = tmp_path / f"{row}.png"
        Image.fromarray(rng.integers(0, 255, (height, width, 3), dtype=np.uint8)).save(path)
        name = str(row)
        found.append(
            Sample(row=row, sample_id=name, image_id=name, image_path=path, caption=caption)
        )
    return found


def captioner(family: str) -> Vlm:
    """With weights that tell photos and words apart."""
    folder = str(family_folder(family))
    prompt = PROMPTS.get(family, PROMPT)
    model = Vlm(
        pretrained=folder,
        tokenizer=ImageTextTokenizer.of_model(name=folder, prompt=prompt),
        search=BeamSearch.with_settings(beam_size=2, max_length=6),
    )
    if family in ("git", "molmo2"):  # whose photos hardly matter otherwise
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0, 0.3, generator=generator)
    return model.eval()


def processor_of(family: str) -> PromptedProcessor:
    prompt = PROMPTS.get(family, PROMPT)
    return PromptedProcessor(pretrained=str(family_folder(family)), prompt=prompt)


def checked(
    family: str,
    samples: list[Sample],
    *,
    processor: PromptedProcessor | None = None,
    **options: Any,
) -> SelfCheck:
    processor = processor_of(family) if processor is None else processor
    model = captioner(family)
    return self_check(model, model.parts, processor, samples, **options)


def refusal(family: str, samples: list[Sample], **options: Any) -> str:
    with pytest.raises(ValueError, match=r"model\.check=false") as refused:
        checked(family, samples, **options)
    message = str(refused.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("family", ["git", "gemma3", "molmo2", "qwen3_5", "florence2"])
def test_families_pass(family: str, samples: list[Sample]) -> None:
    result = checked(family, samples)
    assert result.family == family
    assert max(result.alone, result.padded, result.greedy) < 1e-4
    assert result.shared is not None
    assert result.shared < 1e-4
    assert result.photo > 1e-6
    assert not result.shared_differs


def test_a_check_of_batches_of_one_pads_nothing(samples: list[Sample], monkeypatch) -> None:
    sizes = []
    losses = Vlm.losses

    def noted(self, batch):
        sizes.append(len(batch.image_ids))
        assert bool(batch.token_mask.all())
        return losses(self, batch)

    monkeypatch.setattr(Vlm, "losses", noted)
    result = checked("gemma3", samples, one_by_one=True)
    assert {*sizes} == {1}
    assert max(result.alone, result.padded, result.shared or 0) < 1e-4
    assert not result.shared_differs


def test_wrong_token_types_of_captions_are_refused(samples: list[Sample], monkeypatch) -> None:
    monkeypatch.setitem(prompt_tensors.OF_ANSWERS, "gemma3", {"token_type_ids": 1})
    message = refusal("gemma3", samples)
    assert message.startswith("model.pretrained: gemma3: the loss of a caption differs by ")
    amount = float(message.partition("differs by ")[2].partition(" nats")[0])
    assert amount > 1e-3
    assert "(limit 0.0002)" in message


def test_indices_that_are_not_moved_are_refused(samples: list[Sample], monkeypatch) -> None:
    monkeypatch.setattr(prompt_tensors, "INDICES", {})
    # The processor's own call for two photos tells it before.
    with pytest.raises(ValueError, match="'image_token_pooling' of two photos is not the"):
        processor_of("molmo2")
    monkeypatch.setattr(PromptedProcessor, "_unlike", lambda *_: set())
    message = refusal("molmo2", samples)
    assert "molmo2: the loss of a caption in a batch with another differs by " in message
    assert "set loader.batch_size=1 and loader.eval_batch_size=1" in message
    result = checked("molmo2", samples, one_by_one=True)
    assert max(result.alone, result.padded, result.shared or 0) < 1e-4
    assert not result.shared_differs


@pytest.mark.long
@pytest.mark.parametrize("family", ["gemma3", "git"])
def test_a_photo_that_is_not_read_is_refused(family, samples: list[Sample], monkeypatch) -> None:
    processor = processor_of(family)
    read = processor.read_photo

    def blank(photo, text=None) -> dict[str, Tensor]:
        tensors = read(photo, text)
        name = f"{PREFIX}pixel_values"
        return {**tensors, name: torch.zeros_like(tensors[name])}

    monkeypatch.setattr(processor, "read_photo", blank)
    message = refusal(family, samples, processor=processor)
    assert message.startswith(f"model.pretrained: {family}: the loss of a caption stays the same")


def test_photos_that_change_each_others_captions_are_refused(samples, monkeypatch) -> None:
    prompts = ImageTextParts.prompts

    def mixed(self, tensors, images=None):
        name = f"{PREFIX}pixel_values"
        mean = tensors[name].mean(0, keepdim=True)  # one photo by itself stays as it is
        return prompts(self, {**tensors, name: mean.expand_as(tensors[name])}, images)

    monkeypatch.setattr(ImageTextParts, "prompts", mixed)
    message = refusal("gemma3", samples)
    assert "gemma3: the loss of a caption in a batch with another differs by " in message


def test_another_generate_is_refused(samples: list[Sample], monkeypatch) -> None:
    step = Speaker.next_logits

    def turned(self, tokens, state):
        logits, after = step(self, tokens, state)
        return (-logits if state.cache is not None else logits), after

    monkeypatch.setattr(Speaker, "next_logits", turned)
    message = refusal("gemma3", samples)
    assert "gemma3: the likeliest token of its own generate differs by " in message


def noisy_captions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captions that share a prompt get other logits."""
    read = Speaker.read_captions

    def noisy(self, *arguments):
        logits = read(self, *arguments)
        return logits + torch.linspace(0, 1, logits.shape[-1]) * logits.detach().std()

    monkeypatch.setattr(Speaker, "read_captions", noisy)


def test_shared_prompts_that_differ_are_given_up(samples: list[Sample], monkeypatch) -> None:
    noisy_captions(monkeypatch)
    result = checked("gemma3", samples)
    assert result.shared_differs
    assert result.shared is not None
    assert result.shared > 1e-3
    assert result.alone < 1e-4


def test_a_model_that_shares_no_prompts_is_not_compared_there(samples, monkeypatch) -> None:
    noisy_captions(monkeypatch)
    result = checked("gemma3", samples, shares_prompts=False)
    assert result.shared is None
    assert not result.shared_differs


@pytest.fixture
def config(cache: Path, tmp_path: Path) -> Callable[..., DictConfig]:
    """A resolved config of a small run of Gemma 3."""

    def build(*overrides: str) -> DictConfig:
        chosen = [
            "experiment=vlm/fine_tuning",
            f"model.pretrained={family_folder('gemma3')}",
            "data=miniworld_tiny",
            "tokenizer.max_tokens=128",  # small vocabularies cut words into many tokens
            "first_images=8",
            "num_epochs=2",
            "tokenizer.max_tokens=200",
            "loader.batch_size=8",
            "search.beam_size=1",
            "search.max_length=3",
            "optimizer.lr=1e-3",
            "metrics.test=[BLEU]",
            "metrics.tokenizer=python",
            "logger=none",
            "monitor=last",
            "trainer.accelerator=cpu",
            "trainer.precision=32-true",
            f"paths.cache={cache}",
            f"run_dir={tmp_path / 'run'}",
        ]
        config = compose_config("train", [*chosen, *overrides])
        OmegaConf.resolve(config)
        return config

    return build


@pytest.fixture
def counted(monkeypatch) -> list[Vlm]:
    """The models that were checked, in order."""
    models: list[Vlm] = []

    def noted(model: Vlm, *arguments: Any, **options: Any) -> SelfCheck:
        models.append(model)
        assert not model.training
        return self_check(model, *arguments, **options)

    monkeypatch.setattr(vlm, "self_check", noted)
    return models


@pytest.fixture
def resumed(config, monkeypatch) -> Callable[[], Vlm]:
    """Interrupts a run in its second epoch and resumes it; gives the resumed model."""

    def build() -> Vlm:
        original, models = callbacks.Speed.on_train_batch_end, []

        def interrupt(self, trainer, module, *args) -> None:
            assert module.training  # the check put it into the mode of evaluation
            if trainer.current_epoch == 1:
                raise KeyboardInterrupt
            original(self, trainer, module, *args)

        def noted(self, trainer, module, *args) -> None:
            models.append(module)
            original(self, trainer, module, *args)

        with monkeypatch.context() as patch:
            patch.setattr(callbacks.Speed, "on_train_batch_end", interrupt)
            with pytest.raises(KeyboardInterrupt, match="resume=auto"):
                train(config())
        monkeypatch.setattr(callbacks.Speed, "on_train_batch_end", noted)
        train(config())
        return models[-1]

    return build


def written(tmp_path: Path) -> dict[str, Any]:
    return json.loads((tmp_path / "run" / CHECK_FILE).read_text())


@pytest.mark.long
def test_a_run_checks_once_and_writes_the_figures(resumed, counted, tmp_path: Path) -> None:
    model = resumed()
    assert len(counted) == 1
    assert model is not counted[0]
    figures = written(tmp_path)
    assert figures["family"] == "gemma3"
    assert figures["shared_differs"] is False
    assert max(figures[name] for name in ("alone", "padded", "shared", "greedy")) < 1e-4
    assert model.shares_prompts


@pytest.mark.long
def test_a_run_without_the_check_writes_nothing(config, counted, tmp_path: Path) -> None:
    train(config("model.check=false", "num_epochs=1"))
    assert not counted
    assert (tmp_path / "run" / "checkpoints").is_dir()
    assert not (tmp_path / "run" / CHECK_FILE).exists()


@pytest.mark.long
def test_a_run_that_shares_no_prompts_resumes_so(
    resumed, counted, tmp_path: Path, monkeypatch, caplog
) -> None:
    noisy_captions(monkeypatch)
    model = resumed()
    assert len(counted) == 1
    assert written(tmp_path)["shared_differs"] is True
    assert not counted[0].shares_prompts
    assert model is not counted[0]
    assert not model.shares_prompts
    warned = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
    assert [
        text
        for text in warned
        if "photo and prompt are computed for each caption separately" in text
    ]


@pytest.mark.long
def test_a_refused_run_trains_nothing(config, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(prompt_tensors.OF_ANSWERS, "gemma3", {"token_type_ids": 1})
    with pytest.raises(ValueError, match=r"model\.pretrained: gemma3: the loss of a caption"):
        train(config("num_epochs=1"))
    assert not (tmp_path / "run" / CHECK_FILE).exists()
    assert not [*(tmp_path / "run").rglob("*.ckpt")]
