"""Export a captioner to ONNX, for serving on CPUs without torch."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from captioning.decoding.beam import BeamSearch
from captioning.decoding.greedy import GreedySearch
from captioning.decoding.settings import SearchSettings
from captioning.export import onnx_caption
from captioning.export.onnx_caption import OnnxCaptioner
from captioning.inference.captioner import Captioner
from captioning.interfaces import AbstractTokenizer
from captioning.models.base import AbstractCaptioner
from captioning.models.layers.onnx_form import OnnxForm
from captioning.runtime.extras import import_extra
from captioning.runtime.files import write_json

OPSET = 18
TOLERANCE = 1e-3  # nats between torch and onnxruntime
CHECKED_STEPS = 5
USE = """`onnx/` needs no torch: numpy, pillow and onnxruntime.

```
python onnx/caption.py PHOTO.jpg
```

It searches with the beam of the captioner ({beam}); `--beam 1` is greedy and faster.
"""


@dataclass(frozen=True, kw_only=True)
class Networks:
    """Two halves of a captioner: the image network and the decoder.

    Attributes:
        image: pixels ``(N, 3, H, W) uint8`` to the decoder's input for each photo.
        form: the decoder.
    """

    image: nn.Module
    form: OnnxForm


class ImageNetwork(nn.Module):
    """Network that turns pixels into features, rounded as in a cache, and the decoder's input.

    Args:
        backbone: `captioning.vision.backbones.Backbone` or a compatible one.
        memory: network that turns features ``(N, R, D)`` into the decoder's input.
        rounded: whether the features were cached in half precision.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Any, memory: nn.Module, *, rounded: bool) -> None:
        super().__init__()
        self.backbone, self.memory, self.rounded = backbone, memory, rounded
        for name in ("mean", "std"):
            values = torch.tensor(getattr(backbone, name)).view(3, 1, 1)
            self.register_buffer(name, 255 * values, persistent=False)

    def forward(self, pixels: Tensor) -> Any:
        """See `Networks.image`."""
        features = self.backbone.grid((pixels.float() - self.mean) / self.std)
        return self.memory(features.half().float() if self.rounded else features)


def write_onnx(captioner: Captioner, folder: Path) -> list[str]:
    """Write and verify ``image.onnx``, ``step.onnx``, ``settings.json`` and ``caption.py``.

    Args:
        captioner: captioner on the CPU.
        folder: a new folder.

    Returns:
        Lines for the model card.

    Raises:
        ValueError: the captioner or its search cannot be exported, or ONNX results differ.
        ModuleNotFoundError: onnx or onnxruntime is not installed.
    """
    for package in ("onnx", "onnxruntime"):
        import_extra(package, extra="onnx", purpose="onnx=true")
    if captioner.config.features.get("kind") == "regions":
        raise ValueError("onnx=true needs features of complete photos, this run has regions")
    search = _served_search(captioner.model)
    networks = networks_of(captioner.model, captioner.backbone)
    folder.mkdir(parents=True)
    photos = _photos(captioner)
    _write_networks(networks, _pixels(photos, networks), folder)
    beam = 1 if isinstance(captioner.model.search, GreedySearch) else search.beam_size
    settings = _settings(captioner.model.tokenizer, networks, search) | {"beam_size": beam}
    write_json(folder / "settings.json", settings)
    shutil.copyfile(str(onnx_caption.__file__), folder / "caption.py")
    difference = largest_difference(networks, OnnxCaptioner(folder), photos)
    if not difference <= TOLERANCE:
        raise ValueError(
            f"onnx=true: onnxruntime differs from torch by {difference:.3g} nats, but at most "
            f"{TOLERANCE} is allowed; set onnx=false, and report this"
        )
    own = type(captioner.model.search)
    plain = search.per_node_beam is None and issubclass(own, BeamSearch | GreedySearch)
    other = "" if plain else f" It uses plain beam search, the run itself {own.__name__}."
    note = {"token": "", "prefix": " Each step reads all words again, so long captions are slow."}
    checked = f"Checked against torch: log-probabilities differ by at most {difference:.1e} nats."
    return ["## ONNX", "", USE.format(beam=beam), checked + note[networks.form.reads] + other, ""]


def networks_of(model: AbstractCaptioner[Any], features: Any) -> Networks:
    """Build the networks of a captioner for ONNX.

    Args:
        model: model in evaluation mode.
        features: the backbone of cached features; None if the model has its own.

    Raises:
        ValueError: the model cannot be exported, or reads regions or features without a backbone.
    """
    backbone: Any = features if features is not None else model.backbone
    if backbone is None or not all(hasattr(backbone, name) for name in ("grid", "mean", "std")):
        raise ValueError("onnx=true needs a backbone that reads pixels: this run has none")
    form = model.onnx_form()
    if form is None:
        raise ValueError(
            f"onnx=true: {type(model).__name__} cannot be exported to ONNX; UpDown and Blip can: "
            "leave it out, the other files are complete without it"
        )
    image = ImageNetwork(backbone, form.memory, rounded=features is not None)
    return Networks(image=image, form=form)


def _photos(captioner: Captioner) -> list[Image.Image]:
    """Photos for the check: a gradient and noise, in two shapes."""
    rng = np.random.default_rng(0)
    gradient = np.linspace(0, 255, 320 * 240 * 3).reshape(240, 320, 3).astype(np.uint8)
    noise = rng.integers(0, 256, (200, 150, 3), dtype=np.uint8)
    return [Image.fromarray(gradient), Image.fromarray(noise)]


def _pixels(photos: Sequence[Image.Image], networks: Networks) -> Tensor:
    side: Any = networks.image.backbone
    size = (side.image_size, side.image_size)
    arrays = [np.asarray(photo.resize(size, 3), np.uint8).transpose(2, 0, 1) for photo in photos]
    return torch.from_numpy(np.stack(arrays))


def _write_networks(networks: Networks, pixels: Tensor, folder: Path) -> None:
    with torch.inference_mode():
        memory = _as_tuple(networks.image(pixels))
    rows, names = {0: "rows"}, networks.form.names
    dynamic = {"pixels": rows, **dict.fromkeys(names, rows)}
    _export(networks.image, (pixels,), folder / "image.onnx", (["pixels"], list(names)), dynamic)
    states = tuple(torch.zeros(len(pixels), size) for size in networks.form.state_sizes)
    before = [f"state_{n}" for n in range(len(states))]
    after = [f"next_{n}" for n in range(len(states))]
    tokens, axes = torch.full((len(pixels), 3), networks.form.prefix[0]), {0: "rows", 1: "length"}
    if networks.form.reads == "token":
        tokens, axes = tokens[:, 0], rows
    dynamic = dict.fromkeys((*names, *before, *after, "log_probs"), rows) | {"tokens": axes}
    inputs, outputs = ["tokens", *names, *before], ["log_probs", *after]
    arguments = (tokens, *memory, *states)
    _export(networks.form.step, arguments, folder / "step.onnx", (inputs, outputs), dynamic)


def _export(
    network: nn.Module,
    arguments: tuple[Tensor, ...],
    path: Path,
    names: tuple[list[str], list[str]],
    dynamic: dict[str, dict[int, str]],
) -> None:
    """Export a network by tracing, as the newer exporter needs a further package."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # what the trace takes as constant is so
        torch.onnx.export(
            network.eval(),
            tuple(argument.clone() for argument in arguments),
            str(path),
            input_names=names[0],
            output_names=names[1],
            dynamic_axes=dynamic,
            opset_version=OPSET,
            dynamo=False,
        )


def _as_tuple(value: Any) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def _served_search(model: AbstractCaptioner[Any]) -> SearchSettings:
    """Settings of a captioner's search, with lengths that exclude begin token and prompt.

    Raises:
        ValueError: ``caption.py`` does not support a setting.
    """
    settings = model.search.counting_captions(1 + len(model.prompt_ids)).settings
    has_form = {
        "end_words": not settings.end_ids,
        "repetition_penalty": settings.repetition_penalty == 1,
        "no_repeat_ngram_size": settings.no_repeat_ngram_size == 0,
        # without a length penalty all of them compare the sums
        "normalisation": settings.normalisation != "gnmt" or settings.length_penalty == 0,
    }
    if lacking := [f"search.{name}" for name, known in has_form.items() if not known]:
        raise ValueError(
            f"onnx=true: {', '.join(lacking)} of this run's search cannot be exported to ONNX: "
            f"leave it "
            "out, the other files are complete without it"
        )
    return settings


def _settings(
    tokenizer: AbstractTokenizer, networks: Networks, search: SearchSettings
) -> dict[str, Any]:
    """Settings that `OnnxCaptioner` needs beside the networks.

    Args:
        tokenizer: the model's tokenizer.
        networks: the model's networks.
        search: result of `_served_search`.
    """
    marks = {tokenizer.bos_id, tokenizer.pad_id} - {tokenizer.eos_id}
    unsaid = set() if search.special_tokens else marks | {tokenizer.unk_id} - {tokenizer.eos_id}
    return {
        "image_size": int(getattr(networks.image.backbone, "image_size")),  # noqa: B009
        "reads": networks.form.reads,
        "prefix": list(networks.form.prefix),
        "state_sizes": list(networks.form.state_sizes),
        "eos": tokenizer.eos_id,
        "forbidden": sorted(unsaid | {*search.forbidden_ids}),
        "silent": sorted(marks),
        "min_length": search.min_length,
        "max_length": search.max_length,
        "length_penalty": search.length_penalty,
        "vocabulary": _vocabulary(tokenizer),
    }


def _vocabulary(tokenizer: AbstractTokenizer) -> list[str]:
    """Text of each token; a part of a word begins with ``##``."""
    if tokenizer.words is not None:
        return list(tokenizer.words)
    continuing = tokenizer.continuing()
    texts = [tokenizer.decode([number]) for number in range(len(tokenizer))]
    return [
        f"##{text.removeprefix('##')}" if number in continuing else text
        for number, text in enumerate(texts)
    ]


@torch.inference_mode()
def largest_difference(
    networks: Networks, served: OnnxCaptioner, photos: Sequence[Image.Image]
) -> float:
    """Largest difference of log-probabilities in nats, along greedy captions of test photos."""
    largest = 0.0
    for photo in photos:
        memory = served.start(photo)
        own = _as_tuple(networks.image(torch.from_numpy(served.pixels(photo).copy())))
        tokens = np.array([networks.form.prefix], dtype=np.int64)
        state = [np.zeros((1, size), np.float32) for size in networks.form.state_sizes]
        own_state = [torch.from_numpy(part) for part in state]
        for _ in range(CHECKED_STEPS):
            log_probs, state = served.step(tokens, memory, state)
            read = torch.from_numpy(tokens if networks.form.reads == "prefix" else tokens[:, -1])
            expected, *own_state = _as_tuple(networks.form.step(read, *own, *own_state))
            likely = expected.numpy() > -20  # words that no search would reach are left out
            largest = max(largest, float(np.abs(log_probs - expected.numpy())[likely].max()))
            tokens = np.append(tokens, [[int(log_probs.argmax())]], axis=1)
    return largest
