"""Export a finished run as a folder for others: ``captioning export``.

The model card describes the captioner, its training data and its scores.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import secrets
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from torch import Tensor, nn

from captioning.config.build import build_part
from captioning.config.ranges import Name
from captioning.config.tasks import plain
from captioning.decoding.beam import BeamSearch
from captioning.decoding.generate import GenerateSearch
from captioning.decoding.greedy import GreedySearch
from captioning.decoding.search import AbstractSearch
from captioning.decoding.token_rules import Rules
from captioning.decoding.words_to_tokens import request_of
from captioning.export.energy import CardFacts, energy
from captioning.inference.building import Model
from captioning.inference.bundle import (
    FEATURES_PREFIX,
    LISTS,
    ROOT,
    Bundle,
    transformers_folder,
    write_bundle,
)
from captioning.inference.captioner import Captioner
from captioning.models.adapt import kind_options, low_rank_tensors
from captioning.models.base import AbstractCaptioner
from captioning.results.run_folder import RunFolder
from captioning.results.versions import versions
from captioning.runtime.extras import import_extra
from captioning.runtime.files import is_taken, read_json, write_json, write_text, written_lines
from captioning.runtime.tensor_files import write_tensors
from captioning.training.settings import Data, TrainSettings

USE = """```python
from captioning import Captioner

captioner = Captioner.load("{folder}")  # from the hub: load("OWNER/NAME@COMMIT")
captioner.caption(["photo.jpg"], beam_size=5)[0].caption
```"""
LICENCE = (
    "This card grants no licence. The weights were learnt from the captions and photos named above"
    "{pretrained}: their terms hold for what is done with them. Ask their owners, and write the "
    "licence here before you pass the weights on."
)

# Names that the hub takes for a model.
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_CACHED = re.compile(r"models--([\w.-]+?)--([\w.-]+)/snapshots/([0-9a-f]{40})/?$", re.ASCII)
_FOLDERS = re.compile(r"""(?<![\w./])~?/(?!/)[^\s,\[\]{}()'"]*""")


def generate_arguments(model: AbstractCaptioner[Any]) -> dict[str, Any] | None:
    """Arguments with which transformers' ``generate`` searches as the captioner does.

    Without them ``generate`` uses the defaults of transformers, and may produce tokens that the
    captioner never does, such as the unknown word. In a beam of ``generate``, captions cut off at
    ``max_new_tokens`` compete with finished captions; in this project they do not.

    Returns:
        The arguments; None if transformers has no such search.
    """
    search = model.search.counting_captions(1 + len(model.prompt_ids))
    settings = search.settings
    if not _has_counterpart(search):
        return None
    rules = Rules.build(settings, request_of(model, model.tokenizer, ["photo"]))
    arguments: dict[str, Any] = {
        "max_new_tokens": settings.max_length,
        "num_beams": settings.beam_size,
        "do_sample": False,
    }
    if settings.min_length > 1:  # theirs is the length before the end token, ours counts it
        arguments["min_new_tokens"] = settings.min_length - 1
    if settings.beam_size > 1:
        arguments["length_penalty"] = settings.length_penalty
        arguments["early_stopping"] = "never" if settings.exact else False
    if settings.end_ids:
        arguments["eos_token_id"] = rules.ends.tolist()
    if banned := sorted(rules.banned.tolist()):
        arguments["suppress_tokens"] = banned
    return arguments


def _has_counterpart(search: AbstractSearch) -> bool:
    """Whether ``generate`` of transformers can find the same captions."""
    settings = search.settings
    if isinstance(search, GenerateSearch) and search.sample:
        return False
    if not isinstance(search, GreedySearch | BeamSearch | GenerateSearch):
        return False
    is_plain = settings.repetition_penalty == 1 and not settings.no_repeat_ngram_size
    same_scores = settings.normalisation == "power" or not settings.length_penalty
    if isinstance(search, BeamSearch) and settings.beam_size == 1 and settings.length_penalty:
        return False  # longer captions may still win, which greedy search does not wait for
    return (
        is_plain
        and same_scores
        and not settings.must_end
        and not settings.special_tokens
        and settings.per_node_beam is None
        and settings.num_captions == 1
    )


# Keys of a run that building and using its model needs; all others may name its owner's folders.
KEPT = ("model", "features", "control", "search", "optimizer", "schedule", "seed", "run_name")
# Files of a model of transformers, of which one is its processor's.
PROCESSORS = ("processor_config.json", "preprocessor_config.json")
# Keys of a model that may name a file of words.
WORD_FILES = ("objects", "names_path", "photo_names")
BACKBONE = "captioning.vision.backbones.build_backbone"
ADAPTER = "adapter"


def export(run: Name, to: Name, *, onnx: bool = False, card: CardFacts | None = None) -> Path:
    """Export a finished run's captioner into a folder for others; all or nothing.

    Args:
        run: folder of the run.
        to: a new folder.
        onnx: also write networks for ONNX, see `captioning.export.onnx`.
        card: facts for the card that the run does not record.

    Raises:
        FileExistsError: ``to`` exists already.
        FileNotFoundError: the run folder or its checkpoint does not exist.
        ValueError: the run cannot be loaded, or its model cannot be exported to ONNX.
    """
    target = Path(to)
    if is_taken(target):
        raise FileExistsError(f"to={target} is there already; give a new folder")
    captioner = Captioner.load(run, device="cpu")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{secrets.token_hex(6)}.export")
    try:
        part.mkdir()
        extra = _write(captioner, part, onnx=onnx)
        text = write_card(
            target,
            run=Path(run),
            settings=TrainSettings.of(RunFolder(Path(run)).config()),
            num_weights=sum(parameter.numel() for parameter in captioner.model.parameters()),
            of_transformers=transformers_folder(part) is not None,
            extra=extra,
            facts=card or CardFacts(),
        )
        write_text(part / "README.md", text)
        if target.is_dir():
            target.rmdir()
        part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return target


def _write(captioner: Captioner, folder: Path, *, onnx: bool) -> list[str]:
    """Write all files but the model card; return the card's lines on formats."""
    model = captioner.model
    values = _with_lists(_portable(plain(captioner.config)), folder)
    weights: dict[str, Tensor] | None = dict(model.state_dict())
    note = _write_transformers(model, folder)
    if note is None:
        weights = None
        values = _of_transformers(values)
    else:
        values, of_features = _with_features(values, captioner)
        weights = {**(weights or {}), **of_features}
    checkpoint: dict[str, Any] = {}
    model.on_save_checkpoint(checkpoint)
    if note is None:
        checkpoint["captioner"].pop("quantize", None)  # as in the settings
    parts = {"config": OmegaConf.create(values), "captioner": checkpoint["captioner"]}
    bundle = Bundle(folder=folder, weights=weights, **parts)
    write_bundle(bundle, {key: value for key, value in versions().items() if key != "command"})
    extra = ["## Other formats", "", *_formats(note, captioner, folder), ""]
    if note is None and captioner.config.model.get("lora"):
        extra += _write_adapter(captioner, folder / ADAPTER)
    if onnx:
        from captioning.export.onnx import write_onnx  # slow, and needed here only

        extra += write_onnx(captioner, folder / "onnx")
    return extra


def _formats(note: str | None, captioner: Captioner, folder: Path) -> Sequence[str]:
    if note is not None:
        return [f"Not available in transformers: {note}."]
    lines = [
        "The folder is a model of transformers. Load it with "
        "`AutoModelForImageTextToText.from_pretrained(FOLDER)` or "
        '`pipeline("image-text-to-text", model=FOLDER)`.',
        _how_to_search(captioner),
    ]
    if not any((folder / name).is_file() for name in PROCESSORS):
        lines.append(
            "The folder has no processor, as transformers does not know its word tokenizer."
        )
    if options := OmegaConf.select(captioner.config, "features.reader.options"):
        shown = ", ".join(f"{key}={value}" for key, value in options.items())
        lines.append(f"Photos were prepared by the processor with these options: {shown}.")
    return lines


def _how_to_search(captioner: Captioner) -> str:
    arguments = generate_arguments(captioner.model)
    if arguments is None:
        return "transformers cannot run this captioner's search, and searches in another way."
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    most = arguments["max_new_tokens"]
    end = f", as long as they end within {most} tokens" if arguments["num_beams"] > 1 else ""
    return f"This captioner's captions are those of `generate(**inputs, {shown})`{end}."


def _write_adapter(captioner: Captioner, folder: Path) -> list[str]:
    """Write LoRA weights for peft beside the model, if it has any; return lines for the card.

    LoRA weights belong to the pretrained model, so a run started from another run has none.
    """
    config, model = captioner.config, captioner.model
    pretrained = base_model(Model.of(config.model))
    if config.get("start_from") or pretrained is None:
        return [
            "## Adapter", "", "None: the run began with the weights of another run, to which its "
            "low-rank additions belong. The model's own files have them merged.", "",
        ]  # fmt: skip
    parts: Any = model
    tensors, layers = low_rank_tensors(parts.transformers_parts())
    peft: Any = import_extra("peft", extra="vlm", purpose="an adapter")
    settings = config.model.lora
    lora = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        **kind_options(settings.get("kind")),
        target_modules=layers,
        base_model_name_or_path=pretrained.name,
        revision=pretrained.commit,
        inference_mode=True,
    )
    lora.save_pretrained(folder)
    written = read_json(folder / "adapter_config.json")  # its set of layers has no order
    write_json(folder / "adapter_config.json", {**written, "target_modules": layers})
    tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    write_tensors(folder / "adapter_model.safetensors", tensors, {"format": "pt"})
    kind = config.model.get("quantize")
    base = f", quantized as by `model.quantize={kind}`: on dense weights it differs" if kind else ""
    return [
        "## Adapter",
        "",
        f"`{ADAPTER}/` has the low-rank additions alone, for `{pretrained.name}`{base}: "
        f'`PeftModel.from_pretrained(BASE, "{ADAPTER}")` of peft. The model\'s own files have them '
        "merged.",
        "",
    ]


def _portable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Portable settings of a run as plain values, without folders of this machine."""
    kept: dict[str, Any] = {key: values[key] for key in KEPT if values.get(key) is not None}
    for key in ("folder", "num_workers"):
        kept["features"].pop(key, None)
    model = kept["model"]
    model.pop("word_vectors", None)  # the weights hold them
    for part in (model, model["module"]):
        if Path(str(part.get("weights"))).is_file():  # which these take the place of
            part["weights"] = None
    kept["data"] = {"name": values["data"]["name"]}
    return kept


def _with_lists(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Settings that refer to copies in ``lists/`` of the word files that the model reads."""

    def copied(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: copied(content, str(name)) for name, content in value.items()}
        if key not in WORD_FILES or not isinstance(value, str) or not Path(value).is_file():
            return value
        content = Path(value).read_bytes()
        suffix = ".json" if Path(value).suffix == ".json" else ".txt"  # which decides the format
        name = f"{LISTS}/{hashlib.sha256(content).hexdigest()[:12]}{suffix}"
        (folder / LISTS).mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
        return name

    return {**values, "model": copied(values["model"])}


def _write_transformers(model: AbstractCaptioner[Any], folder: Path) -> str | None:
    """Write a model that transformers knows, or return why there is no such form."""
    save: Any = getattr(model, "save_pretrained", None)
    if save is None:
        return f"it has no {type(model).__name__}"
    part = folder / ".transformers"
    try:
        save(part)
    except ValueError as error:
        shutil.rmtree(part, ignore_errors=True)
        return str(error)
    for path in part.iterdir():
        path.rename(folder / path.name)
    part.rmdir()
    return None


def _of_transformers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that read all weights, with LoRA merged, from the folder itself."""
    changed = copy.deepcopy(dict(values))
    model, features = changed["model"], changed["features"]
    model["module"]["pretrained"] = ROOT
    model.pop("pretrained", None)
    model.pop("lora", None)
    for part in (model, model["module"]):
        part.pop("quantize", None)  # the files hold dense weights
    backbone, reader = features.get("backbone"), features.get("reader")
    if reader and reader.get("pretrained"):
        reader["pretrained"] = ROOT
    if backbone is not None:
        kept = {key: backbone[key] for key in ("_target_", "image_size") if key in backbone}
        features["backbone"] = {**kept, "pretrained": ROOT}
    return changed


def _with_features(
    values: dict[str, Any], captioner: Captioner
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Settings whose backbone is built without its weights, and these weights, if possible."""
    backbone: nn.Module | None = captioner.backbone or captioner.model.backbone
    chosen = values["features"].get("backbone")
    if backbone is None or chosen is None or chosen.get("_target_") != BACKBONE:
        return values, {}
    chosen = {**chosen, "weights": "random", "image_size": backbone.image_size}
    changed = {**values, "features": {**values["features"], "backbone": chosen}}
    again = build_part(OmegaConf.create(chosen))
    if again.state_dict().keys() != backbone.state_dict().keys():
        return values, {}  # a package brings these weights
    if captioner.backbone is None:
        return changed, {}  # they are among the model's
    weights = {f"{FEATURES_PREFIX}{n}": tensor for n, tensor in backbone.state_dict().items()}
    return changed, weights


@dataclass(frozen=True, kw_only=True)
class BaseModel:
    """Pretrained model that a run started from.

    Attributes:
        name: name on the hub, or last part of its folder.
        commit: commit on the hub; None if unknown.
    """

    name: str
    commit: str | None = None


def base_model(model: Model) -> BaseModel | None:
    """Pretrained model of a run's captioner; None if its weights started at random."""
    place = model.further.get("pretrained") or model.module.get("pretrained")
    if not place:
        return None
    place = str(place)
    if cached := _CACHED.search(place):
        return BaseModel(name=f"{cached[1]}/{cached[2]}", commit=cached[3])
    name, _, commit = place.partition("@")
    if commit and _HUB_NAME.fullmatch(name):
        return BaseModel(name=name, commit=commit)
    is_hub_name = place.count("/") == 1 and _HUB_NAME.fullmatch(place) and not Path(place).exists()
    return BaseModel(name=place if is_hub_name else Path(place).resolve().name)


def write_card(
    folder: Path,
    *,
    run: Path,
    settings: TrainSettings,
    num_weights: int,
    of_transformers: bool,
    extra: Sequence[str],
    facts: CardFacts,
) -> str:
    """Write the model card, ``README.md``.

    Args:
        folder: the export's folder.
        run: the folder of the run.
        settings: the run's settings.
        num_weights: number of parameters of the model.
        of_transformers: whether transformers can load the export.
        extra: further sections, as lines.
        facts: see `CardFacts`.
    """
    name = f"{settings.model.name} on {settings.data.name}"
    lines = ["---", *_front(settings, of_transformers=of_transformers), "---"]
    lines += [f"# {name}", "", "A captioner: a photo in, a sentence out.", ""]
    lines += [USE.format(folder=folder.name), ""]
    lines += ["## Training", "", *_facts(run, settings, num_weights), ""]
    lines += ["## Curation", "", *_curation(run), ""]
    lines += ["## Scores", "", *_scores(run), ""]
    lines += ["## Energy", "", energy(run, settings.trainer, facts), ""]
    lines += [*extra, "## Versions", "", *_versions(run), ""]
    terms = f"The data: {' '.join(facts.terms.split())}. " if facts.terms else ""
    lines += ["## Licence", "", terms + LICENCE.format(pretrained=_pretrained(settings.model))]
    return "\n".join(lines) + "\n"


def _front(settings: TrainSettings, *, of_transformers: bool) -> list[str]:
    """Front matter by which the hub recognises model and task."""
    task = "image-text-to-text" if of_transformers else "image-to-text"
    library = "transformers" if of_transformers else "caption-curation"
    front: dict[str, Any] = {"library_name": library, "pipeline_tag": task}
    base = base_model(settings.model)
    if base is not None and _HUB_NAME.fullmatch(base.name):
        front |= {"base_model": base.name, "base_model_relation": "finetune"}
    data = str(settings.data.root or "").partition("@")
    if data[1] and _HUB_NAME.fullmatch(data[0]):
        front["datasets"] = [data[0]]
    front["tags"] = ["image-captioning"]
    return [f"{key}: {json.dumps(value)}" for key, value in front.items()]


def _facts(run: Path, settings: TrainSettings, num_weights: int) -> list[str]:
    objective = (settings.objective or {}).get("_target_", "likelihood")
    facts = {
        "data": _data(run, settings.data),
        "corpus": settings.corpus.name,
        "steps on the data": ", ".join(settings.steps) or "none",
        "left out": _dropped(run),
        "features": settings.features.name,
        "weights": f"{num_weights:,} numbers",
        "objective": str(objective).rpartition(".")[2],
        "begun with": _begun_with(settings),
        "fine-tuned": _tuned(settings),
        "prompt": _prompt(settings.model),
        "epochs, seed": f"{settings.num_epochs}, {settings.seed}",
    }
    return [f"- {name}: {value}" for name, value in facts.items()]


def _data(run: Path, data: Data) -> str:
    """Name and size of the dataset; the user's folder if the dataset's name is generic."""
    root, name = str(data.root or ""), data.name
    hub = root.partition("@")[0] if _HUB_NAME.fullmatch(root.partition("@")[0]) else ""
    shown = hub if "@" in root and hub else Path(root).name
    name = f"{name} ({shown})" if shown and shown != name else name
    path = run / "data.json"
    splits: Mapping[str, Any] = read_json(path).get("splits", {}) if path.is_file() else {}
    sizes = [f"{s['captions']:,} captions of {s['photos']:,} photos for {n}"
             for n, s in splits.items() if {"captions", "photos"} <= s.keys()]  # fmt: skip
    return "; ".join([name, *sizes])


def _begun_with(settings: TrainSettings) -> str:
    start, base = settings.start_from, base_model(settings.model)
    if start:
        of = "" if base is None else f", of the pretrained model {_named(base)}"
        return f"{Path(start).name}{of}"
    return "new weights" if base is None else f"the pretrained model {_named(base)}"


def _named(base: BaseModel) -> str:
    return base.name if base.commit is None else f"{base.name} (commit {base.commit})"


def _tuned(settings: TrainSettings) -> str:
    """Which weights were trained, for a model with pretrained weights."""
    if not (settings.start_from or base_model(settings.model)):
        return "no: trained from new weights"
    if lora := settings.model.lora:
        return f"yes, by low-rank additions of rank {lora.rank}, which are merged"
    frozen = settings.model.frozen
    return f"yes, without {', '.join(frozen)}" if frozen else "yes"


def _prompt(model: Model) -> str:
    prompt = model.further.get("prompt") or model.module.get("prompt")
    return f"`{' '.join(str(prompt).split())}`" if prompt else "none"


def _dropped(run: Path) -> str:
    path = run / "dropped.json"
    rosters = read_json(path) if path.is_file() else {}
    return ", ".join(f"{len(items)} of {name}" for name, items in rosters.items()) or "nothing"


def _curation(run: Path) -> list[str]:
    path = run / "curation.jsonl"
    if not path.is_file():
        return ["None: the captions are those of the data set."]
    _, *edits = map(json.loads, written_lines(path))
    if not edits:
        return ["Losses were recorded, but no caption was changed."]
    counts = Counter((edit.get("policy", ""), edit["action"]) for edit in edits)
    rows = [f"| {policy} | {action} | {count} |" for (policy, action), count in counts.items()]
    return ["| policy | action | edits |", "|---|---|---|", *rows]


def _scores(run: Path) -> list[str]:
    path = run / "metrics.json"
    test: Mapping[str, Any] = read_json(path).get("test", {}) if path.is_file() else {}
    if not test:
        return ["The run was not tested."]
    settings = test.get("settings", {})
    tokenizer = settings.get("tokenizer", "unknown")
    rows = [f"| {name} | {value:.4f} |" for name, value in test["corpus"].items()]
    return [
        f"On {len(test.get('per_image', {}))} test photos; tokenizer of the scores: {tokenizer}.",
        "",
        "| metric | score |",
        "|---|---|",
        *rows,
    ]


def _versions(run: Path) -> list[str]:
    path = run / "versions.json"
    versions: Mapping[str, Any] = read_json(path) if path.is_file() else {}
    kept = {
        name: value
        for name, value in versions.items()
        if name not in ("command", "resumed", "machine", "threads", "plugins") and value is not None
    }
    command = without_folders(str(versions.get("command", "")))
    return [f"- {name}: {value}" for name, value in kept.items()] + ["", "```", command, "```"]


def without_folders(command: str) -> str:
    """Command with paths of this machine cut to their last parts."""
    return _FOLDERS.sub(lambda match: Path(match[0]).name or "/", command)


def _pretrained(model: Model) -> str:
    base = base_model(model)
    return "" if base is None else f", and from the pretrained model {base.name}"
