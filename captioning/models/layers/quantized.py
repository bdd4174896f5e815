"""Linear layers whose frozen weights are stored in 4 or 8 bits.

transformers quantizes them while it loads a model: all linear layers of the language model and
the image encoder, except the head. Norms, embeddings and convolutions are unchanged. Weights are
dequantized for each product, so a caption's loss does not depend on its batch. (LLM.int8
of bitsandbytes selects outliers over the batch, so int8 uses torchao.)

- ``nf4``: four-bit normal floats in blocks of 64, with quantized scales (QLoRA; Dettmers et al.,
  2023), by bitsandbytes.
- ``int8``: integers with one scale per row, by torchao.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Container
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from captioning.config.setting_error import SettingError
from captioning.runtime.extras import import_extra
from captioning.runtime.files import read_json

log = logging.getLogger(__name__)

Kind = Literal["nf4", "int8"]
# Device types that support each kind.
DEVICES = {"nf4": ("cpu", "cuda", "xpu"), "int8": ("cpu", "cuda")}


def reading_options(kind: Kind, dtype: torch.dtype) -> dict[str, Any]:
    """Return options of transformers' ``from_pretrained`` that quantize a model on the CPU.

    On the CPU, equal files give equal bits whatever the training device.

    Args:
        kind: kind of quantization.
        dtype: data type of the products.

    Raises:
        ModuleNotFoundError: a package of the extra ``quantize`` is not installed.
    """
    transformers: Any = importlib.import_module("transformers")
    packages = {"nf4": ("accelerate", "bitsandbytes"), "int8": ("torchao.quantization",)}[kind]
    purpose = f"model.quantize={kind}"
    *_, library = (import_extra(name, extra="quantize", purpose=purpose) for name in packages)
    if kind == "nf4":
        config = transformers.BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=dtype,
            bnb_4bit_use_double_quant=True,
        )
    else:
        config = transformers.TorchAoConfig(library.Int8WeightOnlyConfig())
    return {"quantization_config": config, "device_map": {"": "cpu"}}


def check_quantizable(folder: Path, kind: Kind, name: str) -> None:
    """Raise an error if a model is quantized already.

    Raises:
        SettingError: the model is quantized.
    """
    if "quantization_config" in read_json(folder / "config.json"):
        raise SettingError(
            "model.quantize",
            f"is {kind}, but the weights of {name} are quantized already",
            "set model.quantize=null, or give the unquantized model",
        )


def quantized_layers(network: nn.Module) -> dict[str, Any]:
    """Return linear layers with quantized weights, by name."""
    return {n: layer for n, layer in network.named_modules() if is_quantized(layer)}


def is_quantized(layer: nn.Module) -> bool:
    """Whether a layer is linear and has quantized weights."""
    if not isinstance(layer, nn.Linear):
        return False
    of_torchao = type(layer.weight).__module__.startswith("torchao.")
    return of_torchao or getattr(layer, "quant_state", None) is not None


def check_training(kind: Kind, trainer: Any) -> None:
    """Raise an error if device or strategy do not support quantized weights.

    Args:
        kind: kind of quantization.
        trainer: Lightning's trainer.

    Raises:
        SettingError: the trainer is not supported.
    """
    device, strategy = trainer.strategy.root_device.type, type(trainer.strategy).__name__
    refused = {
        f"needs a device of {', '.join(DEVICES[kind])}, but this run uses {device}": (
            device not in DEVICES[kind],
            "set trainer.accelerator=cpu",
        ),
        "weights cannot be sharded over processes": (
            strategy == "ModelParallelStrategy",
            "choose another trainer than fsdp",
        ),
        f"weights cannot be converted to trainer.precision={trainer.precision}": (
            str(trainer.precision).endswith("-true") and trainer.precision != "32-true",
            "set model.weights=bfloat16 and trainer.precision=32-true",
        ),
        "weights cannot be averaged": (
            any(hasattr(callback, "_average_model") for callback in trainer.callbacks),
            "set ema_decay=null",
        ),
    }
    for problem, (is_so, remedy) in refused.items():
        if is_so:
            remedy = f"{remedy}, or model.quantize=null"
            raise SettingError("model.quantize", f"{kind} {problem}", remedy)


def prepare(network: Any, kind: Kind, name: str) -> None:
    """Check layers that transformers quantized; make training and search compute equally.

    Raises:
        SettingError: no layer is quantized.
    """
    layers = quantized_layers(network)
    if not layers:
        raise SettingError(
            "model.quantize",
            f"is {kind}, but transformers quantizes no layer of {type(network).__name__} ({name})",
            "set model.quantize=null, or use another model",
        )
    stored = sum(value.nbytes for layer in layers.values() for value in stored_tensors(layer))
    size = sum(layer.in_features * layer.out_features for layer in layers.values())
    log.info(
        f"model.quantize={kind}: the weights of {len(layers)} linear layers take "
        f"{stored / 2**20:,.1f} MiB ({8 * stored / size:.1f} bits each); head, embeddings and "
        "norms are not quantized"
    )
    for layer in layers.values():
        # On some CPUs bitsandbytes would use other kernels in search, which round to bfloat16.
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False


def dense_weight(layer: Any) -> Tensor:
    """Return a layer's dense weights ``(out, in)``, dequantized if needed."""
    weight = layer.weight
    if (state := getattr(layer, "quant_state", None)) is not None:
        functional: Any = importlib.import_module("bitsandbytes.functional")
        return functional.dequantize_4bit(weight.data, state)
    return weight.dequantize() if is_quantized(layer) else weight


def weight_type(layer: Any) -> torch.dtype:
    """Return the data type of a layer's dense weights."""
    state = getattr(layer, "quant_state", None)
    return layer.weight.dtype if state is None else state.dtype


def stored_tensors(layer: Any) -> list[Tensor]:
    """Return the tensors that store a quantized layer's weights."""
    weight = layer.weight
    if (state := getattr(layer, "quant_state", None)) is not None:
        inner = getattr(state, "state2", None)
        kept = [weight.data, state.absmax, state.offset, getattr(inner, "absmax", None)]
        return [value.reshape(-1) for value in kept if isinstance(value, Tensor)]
    return [getattr(weight, name) for name in weight.__tensor_flatten__()[0]]


def make_dense(network: Any) -> None:
    """Replace a network's quantized weights by dense weights, in place.

    Args:
        network: network of transformers, or a part of a network.
    """
    for name, layer in quantized_layers(network).items():
        weight = dense_weight(layer).detach().clone()
        plain = nn.Linear(
            layer.in_features, layer.out_features, bias=False, device="meta", dtype=weight.dtype
        )
        plain.weight = nn.Parameter(weight, requires_grad=False)
        plain.bias = layer.bias
        parent, _, last = name.rpartition(".")
        setattr(network.get_submodule(parent), last, plain.train(layer.training))
    for part in network.modules():  # or transformers would write it as a quantized model
        for key in ("hf_quantizer", "quantization_method", "is_loaded_in_4bit"):
            vars(part).pop(key, None)
        config: Any = getattr(part, "config", None)
        if hasattr(config, "quantization_config"):
            del config.quantization_config


def is_of_quantized(name: str, layers: Container[str]) -> bool:
    """Whether a tensor of a ``state_dict`` stores a quantized layer's weights.

    Args:
        name: name of the tensor, such as ``"q_proj.weight.absmax"``.
        layers: names of the quantized layers.
    """
    return f"{name}.".partition(".weight.")[0] in layers
