"""Networks with quantized weights: losses, low-rank additions to them, and what is refused."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText

from captioning.decoding.beam import BeamSearch
from captioning.models import vlm
from captioning.models.adapt import add_low_rank, merged_low_rank
from captioning.models.layers import quantized
from captioning.models.layers.image_text_parts import ImageTextParts
from captioning.models.vlm import Vlm, self_check
from captioning.text.tokenizers.image_text import ImageTextTokenizer
from captioning.vision.prompt_tensors import PromptedProcessor
from tests.captioning.models.test_self_check import samples  # noqa: F401
from tests.families.registry import PROMPTS, family_folder
from tests.tiny_vlm import PROMPT, batch_of, model_folder

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
PACKAGES = {"int8": "torchao", "nf4": "bitsandbytes"}
KINDS = [
    pytest.param(
        kind,
        marks=pytest.mark.skipif(find_spec(package) is None, reason=f"needs {package}"),
    )
    for kind, package in PACKAGES.items()
]
every_kind = pytest.mark.parametrize("kind", KINDS)
FAMILIES = ("llava", "qwen2_vl", "gemma3", "kosmos_2", "blip2_opt", "florence2")


def captioner(folder: Path, kind: str | None, *, prompt: str = PROMPT, **settings: Any) -> Vlm:
    chosen: Any = {"quantize": kind, **settings}
    return Vlm(
        pretrained=str(folder),
        tokenizer=ImageTextTokenizer.of_model(name=str(folder), prompt=prompt),
        search=BeamSearch.with_settings(beam_size=2, max_length=6),
        **chosen,
    ).eval()


def with_additions(model: Vlm, kind: Any = None) -> Vlm:
    add_low_rank(model, rank=2, alpha=4, dropout=0.0, kind=kind)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.3, generator=generator)
    return model


@every_kind
@pytest.mark.parametrize("family", FAMILIES)
def test_families_are_trained_and_searched_as_their_own_quantized_network(
    family: str,
    kind: str,
    samples: list,  # noqa: F811
) -> None:
    prompt = PROMPTS.get(family, PROMPT)
    model = with_additions(captioner(family_folder(family), kind, prompt=prompt))
    processor = PromptedProcessor(pretrained=str(family_folder(family)), prompt=prompt)
    result = self_check(model, model.parts, processor, samples)
    assert max(result.alone, result.padded, result.greedy) < 1e-4
    layers = quantized.quantized_layers(model.network)
    head = model.network.get_output_embeddings()
    assert layers
    assert all(layer is not head for layer in layers.values())


@every_kind
@pytest.mark.parametrize("addition", ["lora", "rslora", "dora"])
def test_dense_weights_compute_the_same_losses_and_gradients(kind: str, addition: str) -> None:
    folder = model_folder("llava")
    model = with_additions(captioner(folder, kind), addition)
    batch = batch_of(folder, model.tokenizer)
    found = []
    for is_dense in (False, True):
        if is_dense:
            quantized.make_dense(model.network)
        model.zero_grad()
        losses = model.train().losses(batch)
        losses.total.backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        found.append([losses.per_sample, *gradients])
    assert len(found[0]) > 10
    torch.testing.assert_close(*found)


@every_kind
@pytest.mark.parametrize("addition", ["lora", "rslora", "dora"])
def test_a_merged_network_is_dense_and_has_the_runs_losses(
    kind: str, addition: str, tmp_path: Path
) -> None:
    folder = model_folder("llava")
    model = with_additions(captioner(folder, kind), addition)
    batch = batch_of(folder, model.tokenizer)
    expected = model.losses(batch).per_sample
    plain = captioner(folder, None)
    assert (plain.losses(batch).per_sample - expected).abs().max() > 1e-3
    model.save_pretrained(tmp_path / "saved")
    assert "quantization_config" not in json.loads((tmp_path / "saved/config.json").read_text())
    plain.network = AutoModelForImageTextToText.from_pretrained(tmp_path / "saved").eval()
    plain.parts = ImageTextParts(plain.network)
    torch.testing.assert_close(plain.losses(batch).per_sample, expected, atol=2e-6, rtol=2e-6)
    assert quantized.quantized_layers(model.network)  # of the run's own, as before
    assert not quantized.quantized_layers(merged_low_rank(model.network))


@every_kind
def test_checkpoints_hold_additions_alone_and_load_into_equal_bases(
    kind: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(model_folder("llava"), tmp_path / "model")
    model = with_additions(captioner(folder, kind))
    checkpoint: dict[str, Any] = {"state_dict": model.state_dict()}
    model.on_save_checkpoint(checkpoint)
    assert checkpoint["state_dict"]
    assert all("lora_" in name for name in checkpoint["state_dict"])
    again = captioner(folder, kind)
    add_low_rank(again, rank=2, alpha=4, dropout=0.0)
    again.on_load_checkpoint(checkpoint)
    again.load_state_dict(checkpoint["state_dict"])
    batch = batch_of(folder, model.tokenizer)
    assert torch.equal(again.losses(batch).per_sample, model.losses(batch).per_sample)
    with pytest.raises(RuntimeError, match="do not fit"):
        again.load_state_dict({"network.new": torch.zeros(1)})
    network = AutoModelForImageTextToText.from_pretrained(folder)
    next(n for n in network.modules() if isinstance(n, torch.nn.Linear)).weight.data.neg_()
    network.save_pretrained(folder)
    other = captioner(folder, kind)
    add_low_rank(other, rank=2, alpha=4, dropout=0.0)
    with pytest.raises(ValueError, match="other weights than model.pretrained"):
        other.on_load_checkpoint(checkpoint)


@every_kind
def test_additions_to_a_base_of_other_bits_are_refused(kind: str) -> None:
    folder = model_folder("llava")
    models = {chosen: with_additions(captioner(folder, chosen)) for chosen in (kind, None)}
    for saved, other in ((kind, None), (None, kind)):
        checkpoint: dict[str, Any] = {"state_dict": models[saved].state_dict()}
        models[saved].on_save_checkpoint(checkpoint)
        models[saved].on_load_checkpoint(checkpoint)
        was, here = saved or "null", other or "null"
        message = f"model.quantize: is {here}, .* trained with model.quantize={was}; set .*{was}"
        with pytest.raises(ValueError, match=message):
            models[other].on_load_checkpoint(checkpoint)


@every_kind
def test_whole_weights_of_quantized_layers_are_refused(kind: str) -> None:
    folder = model_folder("llava")
    weights = captioner(folder, None).state_dict()
    with pytest.raises(
        ValueError, match=f"model.quantize={kind}: the weights to load hold"
    ) as error:
        captioner(folder, kind).load_state_dict(weights)
    assert "model.pretrained" in str(error.value)


@every_kind
def test_models_that_are_quantized_already_are_refused(kind: str, tmp_path: Path) -> None:
    folder = shutil.copytree(model_folder("llava"), tmp_path / "model")
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": {}}))
    with pytest.raises(ValueError, match=r"model.quantize: is .* quantized already; set"):
        captioner(folder, kind)


@pytest.mark.parametrize("kind", PACKAGES)
def test_a_missing_package_is_named(kind: str, monkeypatch) -> None:
    module = {"int8": "torchao.quantization", "nf4": "bitsandbytes"}[kind]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=f"model.quantize={kind}.*extra 'quantize'"):
        captioner(model_folder("llava"), kind)


@pytest.mark.skipif(find_spec("torchao") is None, reason="needs torchao")
def test_a_family_that_transformers_does_not_quantize_is_refused() -> None:
    with pytest.raises(ValueError, match="model.quantize=int8: .*weights lack 6 .*nf4 or null"):
        captioner(family_folder("molmo2"), "int8")


@every_kind
def test_a_network_without_linear_layers_is_refused(kind: str, monkeypatch) -> None:
    monkeypatch.setattr(vlm, "load_image_text", lambda *_, **__: torch.nn.Conv2d(1, 1, 1))
    with pytest.raises(ValueError, match="quantizes no layer of Conv2d"):
        captioner(model_folder("llava"), kind)


class Trainer:
    """Settings of a run that a quantized model may refuse."""

    def __init__(self, device: str, precision: str, callbacks: list, strategy: str) -> None:
        self.strategy = type(strategy, (), {"root_device": torch.device(device)})()
        self.precision, self.callbacks = precision, callbacks


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"device": "mps"}, "int8 needs a device of cpu, cuda, but this run uses mps"),
        ({"precision": "bf16-true"}, "converted to trainer.precision=bf16-true; set model.weights"),
        (
            {"callbacks": [type("A", (), {"_average_model": None})()]},
            "cannot be averaged; set ema_decay",
        ),
        ({"strategy": "ModelParallelStrategy"}, "sharded over processes"),
    ],
)
def test_trainers_that_cannot_are_refused(changed: dict[str, Any], message: str) -> None:
    usual = {"device": "cpu", "precision": "32-true", "callbacks": [], "strategy": "Single"}
    quantized.check_training("int8", Trainer(**usual))
    with pytest.raises(ValueError, match=f"model.quantize: .*{message}"):
        quantized.check_training("int8", Trainer(**{**usual, **changed}))
