"""A trained captioner in Python: photos in, captions out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.batches.settings import LoaderSettings, Splits
from captioning.data.roster import build_roster
from captioning.data.steps.base import StepContext
from captioning.decoding.settings import SearchSettings
from captioning.exports.bundle import (
    FEATURES_PREFIX,
    FILES,
    RECORD,
    TRANSFORMERS,
    WEIGHTS,
    Bundle,
    check_shapes,
    is_bundle,
    read_bundle,
    restore,
)
from captioning.exports.live_features import LiveFeatures
from captioning.interfaces import AbstractTokenizer
from captioning.model_folder import model_folder
from captioning.models.base import AbstractCaptioner
from captioning.plugins import import_plugins
from captioning.results.checkpoints import load_checkpoint
from captioning.results.run_folder import RunFolder
from captioning.text.tokenizers.subwords import restored
from captioning.training.inputs import Inputs, Pictures, further_readers
from captioning.training.parts import build_part
from captioning.training.run import build_model
from captioning.types import Prediction, Region, Sample
from captioning.vision.photo_places import photo_exists
from captioning.vision.placement import chosen_device

Box = tuple[float, float, float, float]


@dataclass(frozen=True, kw_only=True)
class Captioner:
    """A trained model with all that turns photos into its input.

    Attributes:
        model: in evaluation mode.
        config: of its run.
        inputs: readers of photos.
        device: where the model works.
        backbone: of the features that its run had cached; None where the model reads pixels.
    """

    model: AbstractCaptioner[Any]
    config: DictConfig
    inputs: Inputs
    device: torch.device
    backbone: nn.Module | None = None

    def caption(self, photos: Sequence[str | Path], **options: Any) -> list[str]:
        """The best caption of each photo, in order; for options see `candidates`."""
        return [group[0].caption for group in self.candidates(photos, **options)]

    def candidates(
        self,
        photos: Sequence[str | Path],
        *,
        batch_size: int = 16,
        boxes: Sequence[Sequence[Box]] | None = None,
        **search: Any,
    ) -> list[list[Prediction]]:
        """All captions that the search returns for each photo, best first.

        Args:
            photos: files; repeats are allowed.
            batch_size: photos at a time.
            boxes: of each photo, ``(x1, y1, x2, y2)`` in its pixels, for runs on regions.
            **search: settings of the run's search to change, such as ``beam_size=5``.

        Raises:
            FileNotFoundError: a photo does not exist.
            ValueError: a photo that cannot be read, or a setting out of its range.
            TypeError: no such setting.
        """
        if isinstance(photos, str | Path):
            raise TypeError(f"photos must be a list of files: got {photos!r}; write [{photos!r}]")
        known = [field.name for field in fields(SearchSettings)]
        if unknown := sorted(search.keys() - {*known}):
            raise TypeError(f"search has no setting {unknown[0]}; there are {', '.join(known)}")
        if not photos:
            return []
        samples = _samples(photos, boxes, needs_boxes=self.config.features.get("kind") == "regions")
        chosen = self.model.search.changed(**search)
        loader = self._datamodule(samples, batch_size)
        captions: dict[str, list[Prediction]] = {}
        for batch in loader.eval_dataloader(loader.val):
            groups = self.model.candidates(batch.to(self.device), search=chosen)
            captions |= {group[0].image_id: group for group in groups}
        return [captions[str(Path(photo))] for photo in photos]

    def _datamodule(self, samples: Sequence[Sample], batch_size: int) -> CaptionDataModule:
        roster = build_roster("photos", list(samples))
        return CaptionDataModule(
            splits=Splits(train=roster, val=roster),
            tokenizer=self.model.tokenizer,
            readers=self.inputs.readers,
            loader=LoaderSettings(eval_batch_size=batch_size),
        )


def _samples(
    photos: Sequence[str | Path], boxes: Sequence[Sequence[Box]] | None, *, needs_boxes: bool
) -> list[Sample]:
    """A sample of each different photo; its caption is not looked at."""
    if needs_boxes and (boxes is None or len(boxes) != len(photos)):
        got = "none" if boxes is None else str(len(boxes))
        raise ValueError(
            f"this captioner reads regions: boxes must be lists for each of {len(photos)} photos, "
            f"got {got}"
        )
    by_path: dict[Path, Sequence[Box]] = {}
    for number, photo in enumerate(photos):
        if not photo_exists(photo):
            raise FileNotFoundError(f"{photo}: no such photo")
        by_path.setdefault(Path(photo), boxes[number] if boxes else ())
    return [
        Sample(
            row=row,
            sample_id=str(path),
            image_id=str(path),
            image_path=path,
            caption="photo",
            regions=tuple(Region(box=box, label="") for box in photo_boxes),
        )
        for row, (path, photo_boxes) in enumerate(by_path.items())
    ]


def load(
    folder: str | Path, *, device: str | torch.device = "auto", plugins: Sequence[str] = ()
) -> Captioner:
    """A captioner from a run folder or an exported folder.

    Both may come from strangers: settings name no code but this project's and its libraries',
    weights are plain tensors, and their sizes are checked.

    Args:
        folder: of a run with a finished epoch, or written by ``captioning export``; or the name of
            such an export on the hub with its commit, ``OWNER/NAME@COMMIT``.
        device: ``"auto"`` takes a GPU if there is one.
        plugins: packages of your own that its settings name.

    Raises:
        FileNotFoundError: no such folder, or a file is missing.
        ValueError: damaged files, parts that settings may not name, or a run on imported features.
        ConnectionError: the hub cannot be reached.
    """
    import_plugins(plugins)
    folder = _fetched(folder)
    build = _of_bundle if is_bundle(folder) else _of_run
    return build(folder, chosen_device(device))


def _fetched(folder: str | Path) -> Path:
    if "@" not in str(folder) or Path(folder).exists():
        return Path(folder)
    instead = "a folder that captioning export wrote"
    return model_folder(str(folder), instead=instead, marker=RECORD, files=FILES)


def _of_run(folder: Path, device: torch.device) -> Captioner:
    run = RunFolder(folder)
    config = run.config()
    checkpoint = load_checkpoint(run.tested_checkpoint(config.monitor))
    inputs, backbone = _inputs(config, device)
    model = build_model(config, restored(checkpoint["captioner"]["tokenizer"]), inputs, horizon=1)
    model.on_load_checkpoint(checkpoint)
    try:
        model.load_state_dict(checkpoint["state_dict"])
    except RuntimeError as error:
        reason = "; ".join(str(error).split("\n\t")[:2])  # of many weights the first
        raise ValueError(f"{folder}: weights and config.yaml do not fit: {reason}") from error
    return _ready(model, config, inputs, device, backbone)


def _of_bundle(folder: Path, device: torch.device) -> Captioner:
    bundle = read_bundle(folder)
    config = _with_folder(bundle.config, folder)
    try:
        tokenizer = restored(bundle.captioner["tokenizer"])
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"{folder}: its tokenizer is damaged ({error})") from error
    of_features, of_model = _divided(bundle)
    inputs, backbone = _inputs(config, device, weights=of_features, where=folder / WEIGHTS)
    if of_model is not None:
        _check_sizes(config, tokenizer, inputs, of_model, folder)
    model = build_model(config, tokenizer, inputs, horizon=1)
    model.on_load_checkpoint({"captioner": dict(bundle.captioner)})
    if of_model is not None:
        restore(model, of_model, where=folder / WEIGHTS)
    return _ready(model, config, inputs, device, backbone)


def _ready(
    model: AbstractCaptioner[Any],
    config: DictConfig,
    inputs: Inputs,
    device: torch.device,
    backbone: nn.Module | None,
) -> Captioner:
    model = model.to(device).eval().requires_grad_(False)
    return Captioner(model=model, config=config, inputs=inputs, device=device, backbone=backbone)


def _with_folder(config: DictConfig, folder: Path) -> DictConfig:
    """The settings with the folder's own weights where they name ``transformers``."""
    values = OmegaConf.to_container(config, resolve=False)

    def placed(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: placed(content, str(name)) for name, content in value.items()}
        own = key == "pretrained" and value == TRANSFORMERS
        return str(folder.resolve() / TRANSFORMERS) if own else value

    return DictConfig(placed(values))


def _divided(bundle: Bundle) -> tuple[dict[str, Tensor], dict[str, Tensor] | None]:
    """Weights of the features' backbone, and those of the model."""
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


def _check_sizes(
    config: DictConfig,
    tokenizer: AbstractTokenizer,
    inputs: Inputs,
    weights: Mapping[str, Tensor],
    folder: Path,
) -> None:
    """Refuse settings of other sizes than the weights before memory is taken for them."""
    try:
        with torch.device("meta"):
            empty = build_model(config, tokenizer, inputs, horizon=1)
    except (NotImplementedError, RuntimeError):
        return  # some models compute while they are built: sizes are checked afterwards
    if empty.backbone is None:
        check_shapes(empty.state_dict(), weights, where=folder / WEIGHTS)


def _inputs(
    config: DictConfig,
    device: torch.device,
    *,
    weights: Mapping[str, Tensor] | None = None,
    where: Path = Path(),
) -> tuple[Inputs, nn.Module | None]:
    """Readers of single photos, and the backbone of cached features."""
    chosen = config.features
    if chosen.get("imported"):
        raise ValueError(
            "this run reads imported features, and has no backbone for photos: caption a data set "
            "with `captioning evaluate`, or train with features= of a backbone"
        )
    backbone = build_part(chosen.backbone) if chosen.get("backbone") else None
    if weights and backbone is not None:
        restore(backbone, weights, where=where)
    size = 0 if backbone is None else backbone.dim
    if chosen.get("reader"):
        built = {} if backbone is None else {"backbone": backbone}
        reader = build_part(chosen.reader, **built)
        pictures = Pictures(reader=reader, feature_size=size, backbone=backbone)
    elif backbone is None:
        raise ValueError(f"features={chosen.name} needs one of backbone and reader")
    else:
        options = {"max_boxes": chosen.max_boxes} if chosen.get("max_boxes") else {}
        live = LiveFeatures(backbone=backbone, kind=chosen.kind, device=device, **options)
        pictures = Pictures(reader=live, feature_size=size)
    # Nobody looks at them, but a run has samples.
    nothing = {"sample_id": "0", "image_id": "0", "image_path": Path(), "caption": "photo"}
    roster = build_roster("photos", [Sample(row=0, **nothing)])
    inputs = Inputs(
        splits=Splits(train=roster, val=roster),
        pictures=pictures,
        readers={"pictures": pictures.reader, **further_readers(config)},
        steps=StepContext(split="eval", seed=0, cache_folder=Path()),
    )
    return inputs, None if chosen.get("reader") else backbone
