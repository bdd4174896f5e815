"""Load a captioner from a run folder, an export or a transformers model."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from captioning.config.build import build_part
from captioning.config.plugins import import_plugins
from captioning.data.batches.base import AbstractBatchReader, Epoch, Read, Tensors
from captioning.inference.building import (
    CaptionerSettings,
    Model,
    Pictures,
    build_model,
    further_readers,
)
from captioning.inference.bundle import (
    FEATURES_PREFIX,
    FILES,
    LISTS,
    ROOT,
    TRANSFORMERS,
    WEIGHTS,
    Bundle,
    check_shapes,
    is_bundle,
    read_bundle,
    restore,
)
from captioning.interfaces import AbstractTokenizer
from captioning.models.base import AbstractCaptioner
from captioning.runtime.devices import (
    DTYPES,
    Precision,
    chosen_device,
    chosen_dtype,
    full_precision,
)
from captioning.runtime.extras import check_shipped
from captioning.text.tokenizers.restore import restored
from captioning.types import Sample
from captioning.vision.backbones import Backbone, grid_features
from captioning.vision.photos import load_rgb

SHIPPED = Path(__file__).parent / "weights" / "captioner"


def shipped_captioner(*, instead: str) -> Path:
    """Return the folder of the captioner shipped with the package, after a checksum test.

    Args:
        instead: remedy for the message if this version ships no captioner.

    Raises:
        FileNotFoundError: this version ships no captioner.
        ValueError: a file differs from its checksum.
    """
    if not is_bundle(SHIPPED):
        raise FileNotFoundError(f"this version ships no captioner: {instead}")
    check_shipped(SHIPPED.with_suffix(".sha256"))
    return SHIPPED


class LiveFeatures(AbstractBatchReader):
    """Batch reader that runs the backbone on the photos of each batch, without a cache.

    Args:
        backbone: the backbone of the run's features.
        kind: ``"grid"``, or ``"regions"``: the photo, then the samples' boxes.
        max_boxes: maximum number of boxes per photo; further boxes are ignored.
        precision: precision of the features, as in the cache (`ensure_features`), or of `DTYPES`.
        device: the backbone's device.
    """

    def __init__(
        self,
        *,
        backbone: Backbone,
        kind: str,
        max_boxes: int = 36,
        precision: str = "float32",
        device: torch.device,
    ) -> None:
        self._backbone = backbone.for_inference(device)
        self._kind, self._max_boxes, self._device = kind, max_boxes, device
        self._precision = precision
        # cuDNN benchmarks its convolutions in each thread: on a GPU use a single thread.
        self._thread = ThreadPoolExecutor(1) if device.type == "cuda" else None

    @property
    def pictures(self) -> str:
        """``"grid"`` or ``"regions"``."""
        return self._kind

    def open(self, epoch: Epoch) -> Read | None:
        """Return a reader that computes the features of each photo again."""
        return self._read

    def _read(
        self, captions: Sequence[Sample], photos: Sequence[Sample], batch: Tensors
    ) -> Tensors:
        pixels, boxes = [], []
        for photo in photos:
            image = load_rgb(photo.image_path)
            if self._kind == "regions":
                boxes.append(self._boxes(photo, image.width, image.height))
            fitted = np.array(self._backbone.fitted(image), dtype=np.uint8)
            pixels.append(torch.from_numpy(fitted).permute(2, 0, 1))
        stacked = torch.stack(pixels)
        if self._thread is None:
            return self._features(stacked, boxes)
        return self._thread.submit(self._features, stacked, boxes).result()

    def _boxes(self, photo: Sample, width: int, height: int) -> Tensor:
        from captioning.vision.region_features import scale_boxes

        chosen = [region.box for region in photo.regions[: self._max_boxes]]
        return scale_boxes(chosen, width, height, str(photo.image_path))

    @torch.inference_mode()
    def _features(self, pixels: Tensor, boxes: Sequence[Tensor]) -> Tensors:
        with full_precision():  # as the cache was computed; TF32 differs
            grid = grid_features(self._backbone, pixels.to(self._device), self._precision)
        if self._kind == "grid":
            return {"regions": grid.half().cpu(), "region_mask": None}
        from captioning.vision.region_features import pool_regions

        return _padded(pool_regions(grid, self._backbone.grid_size, boxes))


def _padded(regions: list[Tensor]) -> Tensors:
    """Pad the regions of several photos with zeros; return them with their mask."""
    counts = torch.tensor([len(features) for features in regions])
    padded = torch.nn.utils.rnn.pad_sequence([r.half().cpu() for r in regions], batch_first=True)
    mask = torch.arange(padded.shape[1]) < counts[:, None]
    return {"regions": padded, "region_mask": None if mask.all() else mask}


NO_HUB = "a run folder, an export, or a folder with a transformers model"
NAME_ONE = "name it with --model (a run folder, an export, or a transformers model such as BLIP)"
# Default prompt of models with a chat template.
REQUEST = "Describe the image in one sentence."
# Their captions may be longer than the captions that a run was trained on.
MAX_TOKENS = 40
_BACKBONES = "captioning.vision.backbones.build_backbone"
_OWN_LIST = re.compile(rf"{LISTS}/[0-9a-f]{{12}}\.(txt|json)")


@dataclass(frozen=True, kw_only=True)
class LoadedCaptioner:
    """A trained model with the readers and the backbone that turn photos into its input.

    Attributes:
        model: the model, in evaluation mode.
        config: config of the model's run.
        readers: readers of photos, by name.
        device: the model's device.
        backbone: backbone of the features that the run had cached; None if the model reads
            pixels.
        dtype: precision in which single-precision weights compute, if the precision is exact
            enough.
    """

    model: AbstractCaptioner[Any]
    config: DictConfig
    readers: Mapping[str, AbstractBatchReader]
    device: torch.device
    backbone: nn.Module | None = None
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """Readers of single photos, the picture input, and the backbone of cached features."""

    pictures: Pictures
    readers: Mapping[str, AbstractBatchReader]
    cached: nn.Module | None


def load_captioner(
    place: str | Path | None,
    *,
    device: str | torch.device = "auto",
    plugins: Sequence[str] = (),
    prompt: str | None = None,
    template: Mapping[str, Any] | None = None,
    precision: Precision | None = None,
) -> LoadedCaptioner:
    """Load the parts of a captioner; see `captioning.inference.captioner.Captioner.load`."""
    import_plugins(plugins)
    chosen = chosen_device(device)
    folder = shipped_captioner(instead=NAME_ONE) if place is None else _folder(place)
    if is_bundle(folder):
        build = _of_bundle
    elif (folder / "config.yaml").is_file():
        build = _of_run
    elif (folder / "config.json").is_file():
        weights = chosen_dtype(precision or "auto", chosen)
        return _of_transformers(folder, chosen, prompt, dict(template or {}), weights)
    else:
        raise ValueError(
            f"{folder} holds no captioner: it has neither config.yaml of a run or export, nor "
            "config.json of a transformers model; choose another folder"
        )
    if template:
        raise ValueError(
            f"template={dict(template)} applies to transformers models only; {folder} was trained "
            "with its own template: leave template out"
        )
    if prompt is not None:
        raise ValueError(
            f"prompt={prompt!r} applies to transformers models only; {folder} was trained with "
            "its own prompt: leave prompt out"
        )
    wanted = None if precision is None else chosen_dtype(precision, chosen)
    loaded = build(folder, chosen, wanted)
    return replace(loaded, dtype=brought_to(wanted, loaded.model, Model.of(loaded.config.model)))


def _folder(place: str | Path) -> Path:
    """Return a captioner's folder; download it first if it is a hub name with a commit."""
    folder = Path(place)
    if folder.is_dir():
        return folder
    if folder.exists() or "@" not in str(place):
        raise FileNotFoundError(
            f"{place}: no such folder; give a run folder, an export, the folder of a model of "
            "transformers, or OWNER/NAME@COMMIT of the hub"
        )
    from captioning.runtime.model_folder import model_folder

    return model_folder(str(place), instead=NO_HUB, files=FILES)


def _of_transformers(
    folder: Path,
    device: torch.device,
    prompt: str | None,
    template: dict[str, Any],
    weights: torch.dtype,
) -> LoadedCaptioner:
    """Load an image-to-text transformers model with the settings of model=vlm."""
    from captioning.config.compose import compose_config
    from captioning.runtime.processors import image_text_folder, load_processor
    from captioning.text.prompts import chat_template
    from captioning.text.tokenizers.image_text import ImageTextTokenizer

    processor = load_processor(image_text_folder(str(folder), weights=True))
    if prompt is None:
        prompt = REQUEST if chat_template(processor) else ""
    config = compose_config("train", ["model=vlm", "features=vlm", "tokenizer=vlm", "search=beam"])
    config.model.pretrained, config.model.prompt = str(folder), prompt
    config.model.template = template
    config.model.weights = str(weights).removeprefix("torch.")
    config.search.update({"beam_size": 3, "length_penalty": 1.0, "max_length": MAX_TOKENS})
    tokenizer = ImageTextTokenizer.of_model(name=str(folder), prompt=prompt, template=template)
    settings = CaptionerSettings.of(config)
    inputs = _inputs(settings, device)
    model = build_model(settings, tokenizer, inputs.pictures)
    return LoadedCaptioner(config=config, **_ready(model, inputs, device))


def _of_run(folder: Path, device: torch.device, wanted: torch.dtype | None) -> LoadedCaptioner:
    from captioning.results.checkpoints import load_checkpoint
    from captioning.results.run_folder import RunFolder

    run = RunFolder(folder)
    config = run.config()
    _choose_precision(config.features, wanted)
    checkpoint = load_checkpoint(run.tested_checkpoint(config.monitor))
    settings = CaptionerSettings.of(config)
    inputs = _inputs(settings, device)
    model = build_model(settings, restored(checkpoint["captioner"]["tokenizer"]), inputs.pictures)
    model.on_load_checkpoint(checkpoint)
    try:
        model.load_state_dict(checkpoint["state_dict"])
    except RuntimeError as error:
        reason = "; ".join(str(error).split("\n\t")[:2])  # of many weights the first
        raise ValueError(f"{folder}: weights do not match config.yaml: {reason}") from error
    return LoadedCaptioner(config=config, **_ready(model, inputs, device))


def _of_bundle(folder: Path, device: torch.device, wanted: torch.dtype | None) -> LoadedCaptioner:
    bundle = read_bundle(folder)
    config = DictConfig(_placed(OmegaConf.to_container(bundle.config), folder))
    _choose_precision(config.features, wanted)
    try:
        tokenizer = restored(bundle.captioner["tokenizer"])
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"{folder}: the tokenizer is damaged ({error})") from error
    of_features, of_model = _divided(bundle)
    settings = CaptionerSettings.of(config)
    inputs = _inputs(settings, device, weights=of_features, where=folder / WEIGHTS)
    if of_model is not None:
        _check_sizes(settings, tokenizer, inputs, of_model, folder)
    model = build_model(settings, tokenizer, inputs.pictures)
    model.on_load_checkpoint({"captioner": dict(bundle.captioner)})
    if of_model is not None:
        restore(model, of_model, where=folder / WEIGHTS)
    return LoadedCaptioner(config=config, **_ready(model, inputs, device))


def _choose_precision(features: MutableMapping[str, Any], wanted: torch.dtype | None) -> None:
    """Set the backbone's precision, if a precision is given and the features have that key."""
    if wanted is not None and features.get("precision"):
        features["precision"] = str(wanted).removeprefix("torch.")


def _ready(model: AbstractCaptioner[Any], inputs: _Inputs, device: torch.device) -> dict[str, Any]:
    """Return the fields of a `LoadedCaptioner`, except the config."""
    model = model.to(device).eval().requires_grad_(False)
    parts = {"readers": inputs.readers, "backbone": inputs.cached}
    return {"model": model, "device": device, **parts}


def has_own_type(chosen: Model) -> bool:
    """Whether the settings name the data type of the model's weights."""
    return chosen.module.get("weights") in DTYPES


def brought_to(
    wanted: torch.dtype | None, model: AbstractCaptioner[Any], chosen: Model
) -> torch.dtype:
    """Return the data type a captioner computes in for a wanted precision; None: unchanged.

    Weights of another type are converted, because autocast would mix types.
    """
    if wanted is None or not has_own_type(chosen):
        return wanted or torch.float32
    model.to(wanted)
    return torch.float32


def _placed(value: Any, folder: Path, key: str = "") -> Any:
    """Replace references to the export's own weights and lists by paths in its folder."""
    if isinstance(value, dict):
        return {name: _placed(content, folder, str(name)) for name, content in value.items()}
    own = key == "pretrained" and value in (ROOT, TRANSFORMERS)
    own = own or (isinstance(value, str) and _OWN_LIST.fullmatch(value) is not None)
    return str(folder.resolve() / value) if own else value


def _divided(bundle: Bundle) -> tuple[dict[str, Tensor], dict[str, Tensor] | None]:
    """Split weights into the backbone's weights and the model's weights."""
    weights = bundle.weights
    if weights is None:
        return {}, None
    of_features = {
        name.removeprefix(FEATURES_PREFIX): tensor
        for name, tensor in weights.items()
        if name.startswith(FEATURES_PREFIX)
    }
    rest = {n: tensor for n, tensor in weights.items() if not n.startswith(FEATURES_PREFIX)}
    return of_features, rest


class _WithoutFirstValues(TorchFunctionMode):
    """Skip the initialisation of parameters: on the meta device torch would use its compiler.

    Importing the compiler takes two seconds.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Call the function; for functions that fill a tensor, return the tensor unchanged."""
        if func in _FILLS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


_FILLS = (
    *(nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, nn.init.kaiming_normal_),
    *(nn.init.xavier_uniform_, nn.init.xavier_normal_, nn.init.trunc_normal_),
    *(Tensor.normal_, Tensor.uniform_),
)


def _check_sizes(
    settings: CaptionerSettings,
    tokenizer: AbstractTokenizer,
    inputs: _Inputs,
    weights: Mapping[str, Tensor],
    folder: Path,
) -> None:
    """Raise an error if settings and weights differ in size, before memory is allocated."""
    try:
        with torch.device("meta"), _WithoutFirstValues():
            empty = build_model(settings, tokenizer, inputs.pictures)
    except (NotImplementedError, RuntimeError):
        return  # some models compute while they are built: sizes are checked afterwards
    if empty.backbone is None:
        check_shapes(empty.state_dict(), weights, where=folder / WEIGHTS)


def _backbone(chosen: DictConfig, is_replaced: bool) -> Any:
    """Build a frozen backbone; its weights may come from the captioner's own file."""
    own = chosen._target_ == _BACKBONES and (is_replaced or chosen.get("weights") != "random")
    return build_part(chosen, inference=True) if own else build_part(chosen)


def _inputs(
    settings: CaptionerSettings,
    device: torch.device,
    *,
    weights: Mapping[str, Tensor] | None = None,
    where: Path = Path(),
) -> _Inputs:
    """Build the readers of single photos and the backbone of cached features."""
    chosen = settings.features
    if chosen.imported:
        raise ValueError(
            "this run uses imported features, so it cannot read photos: caption a dataset with "
            "`captioning evaluate`, or train with features= that has a backbone"
        )
    backbone = _backbone(chosen.backbone, bool(weights)) if chosen.backbone else None
    if weights and backbone is not None:
        restore(backbone, weights, where=where)
    size = 0 if backbone is None else backbone.dim
    if chosen.reader:
        built = {} if backbone is None else {"backbone": backbone}
        reader = build_part(chosen.reader, **built)
        pictures = Pictures(reader=reader, feature_size=size, backbone=backbone)
    elif backbone is None or chosen.kind is None:
        raise ValueError(f"features={chosen.name} needs a backbone or a reader")
    else:
        further = chosen.further
        options = {key: further[key] for key in ("max_boxes", "precision") if further.get(key)}
        live = LiveFeatures(backbone=backbone, kind=chosen.kind, device=device, **options)
        pictures = Pictures(reader=live, feature_size=size)
    return _Inputs(
        pictures=pictures,
        readers={"pictures": pictures.reader, **further_readers(settings)},
        cached=None if chosen.reader else backbone,
    )
