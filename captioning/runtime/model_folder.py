"""Find a saved model or a dataset, in a folder or on the Hugging Face hub by name and commit."""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from captioning.config.folders import own_folder
from captioning.runtime.sample_dropout import replayed

# No pickles: weights as safetensors alone.
HUB_FILES = ("*.json", "*.txt", "*.model", "model*.safetensors")
OLDER_FILE = "pytorch_model.bin"
# What a model's outputs depend on.
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LAYERS = re.compile(r"(.*layers?|(.*_)?depths?)")
MOST_LAYERS = 1000
_POINTER = b"version https://git-lfs"
IDENTIFYING = (".json", ".txt", ".model", ".jinja", ".safetensors")
log = logging.getLogger(__name__)


def model_folder(
    name: str,
    *,
    instead: str,
    further_files: Sequence[str] = (),
    marker: str = "config.json",
    files: Sequence[str] = HUB_FILES,
) -> Path:
    """Find a model's folder; download the model from the hub if ``name`` is not a folder.

    Args:
        name: folder with a file ``marker``, or a name on the hub with its commit,
            ``OWNER/NAME@COMMIT``. The commit may be left out if the user keeps the model in
            ``models/OWNER/NAME`` (`own_folder`).
        instead: alternative that needs no hub, for the message.
        further_files: patterns of files to download in addition to ``files``.
        marker: the file that makes a folder a model.
        files: patterns of files to download.

    Raises:
        FileNotFoundError: the folder does not exist or holds no model.
        ValueError: ``name`` is a file or lacks its commit, or files differ from the commit's.
        ConnectionError: the hub cannot be reached.
    """
    folder = Path(name)
    if (folder / marker).is_file():
        return folder
    if folder.is_file():
        raise ValueError(
            f"{name} is a file; give the folder of a saved model. `captioning convert` makes that "
            "folder of an authors' checkpoint, such as BLIP's (docs/guides/share.md)"
        )
    if folder.is_dir() or name.startswith((".", "/")):
        raise FileNotFoundError(
            f"{name}: no such folder, or no {marker} in it; give a folder of a saved model"
        )
    repository, _, commit = name.partition("@")
    kept = own_folder("models") / repository
    if not commit and (kept / marker).is_file():
        log.info(f"{name} is read from {kept}")
        return kept
    if not _COMMIT.fullmatch(commit):
        hub = importlib.import_module("huggingface_hub")  # slow, and needed here only
        raise ValueError(
            f"{name!r} is no folder, is not in {kept}, and as a name on the model hub it lacks its "
            f"commit, without which its files could change: {_pinned(hub, repository)}, or use "
            f"{instead}"
        )
    return _fetched(
        repository,
        commit,
        place="the model hub",
        remedy=f", or use {instead} (to fetch it: hf download {repository} --revision {commit}",
        allow_patterns=[*files, *further_files],
    )


def local_folder(name: str) -> Path | None:
    """Folder that a model's name stands for on this machine; None if the name is on the hub.

    Args:
        name: see `model_folder`.
    """
    kept = own_folder("models") / name
    folders = (Path(name), *([kept] if "@" not in name else []))
    return next((folder for folder in folders if folder.is_dir()), None)


def data_folder(name: str | Path) -> Path:
    """Find a dataset's folder; download the dataset from the hub for ``OWNER/NAME@COMMIT``.

    Args:
        name: folder, or ``OWNER/NAME@COMMIT``.

    Raises:
        ValueError: the commit lacks its 40 digits, or files differ from the commit's.
        ConnectionError: the hub cannot be reached.
    """
    repository, mark, commit = str(name).partition("@")
    if not mark or Path(name).exists() or repository.count("/") != 1:
        return Path(name)
    if not _COMMIT.fullmatch(commit):
        raise ValueError(
            f"{str(name)!r} is not a folder, and as a dataset on the hub it lacks its commit: "
            f"write {repository}@COMMIT with the 40 digits that its page on the hub shows"
        )
    return _fetched(
        repository,
        commit,
        place="the hub",
        remedy=f" (hf download {repository} --revision {commit} --repo-type dataset",
        repo_type="dataset",
    )


def _fetched(repository: str, commit: str, *, place: str, remedy: str, **options: Any) -> Path:
    """Download a commit from the hub, check its files' digests, and return its folder.

    Args:
        repository, commit: ``OWNER/NAME``, and the 40 digits of the commit.
        place, remedy: parts of the error message if the download fails.
        **options: options of huggingface_hub's ``snapshot_download``.
    """
    hub = importlib.import_module("huggingface_hub")  # slow, and needed here only
    errors = request_errors(hub)
    # it would log a line a file
    logging.getLogger(errors[0].__module__.partition(".")[0]).setLevel(logging.WARNING)
    try:
        folder = Path(hub.snapshot_download(repository, revision=commit, **options))
    except (OSError, ValueError, *errors) as error:
        reason = str(error).partition("\n")[0]  # the hub tells it in several lines
        raise ConnectionError(
            f"'{repository}@{commit}' is no folder, and could not be had from {place} ({reason}); "
            f"fetch it on a machine with network and give its folder{remedy} --local-dir FOLDER)"
        ) from error
    _check_fetched(folder)
    return folder


def request_errors(hub: Any) -> tuple[type[Exception], ...]:
    """Types of errors that huggingface_hub's requests raise, besides OSError and ValueError."""
    # its library of requests changed between versions, and with it the type of their errors
    library = importlib.import_module(type(hub.utils.get_session()).__module__.partition(".")[0])
    return (library.HTTPError,)


def _pinned(hub: Any, repository: str) -> str:
    """Suggest how to write a hub name that lacks its commit."""
    unreachable = (OSError, ValueError, *request_errors(hub))
    lookups = (  # what an earlier download brought, else what the hub has today
        lambda: Path(hub.snapshot_download(repository, local_files_only=True)).name,
        lambda: hub.HfApi().model_info(repository, timeout=10).sha,
    )
    for look_up in lookups:
        with suppress(*unreachable):
            return f"write {repository}@{look_up()} if you want the files of this commit"
    return f"write {repository}@COMMIT with the 40 digits that its page on the hub shows"


def _check_fetched(folder: Path) -> None:
    """Compare downloaded files with the digests that their commit names.

    The hub's cache is a folder of links to files that are named by their digests: SHA-256 of large
    ones, git's SHA-1 of others.

    Raises:
        ValueError: a file differs from its digest.
    """
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        blob = path.resolve()
        with blob.open("rb") as file:
            if len(blob.name) == 64:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            else:
                header = f"blob {blob.stat().st_size}\0".encode()
                digest = hashlib.sha1(header + file.read()).hexdigest()
        if digest != blob.name:
            raise ValueError(
                f"{path}: not the file of this commit (digest {digest}, expected {blob.name}); "
                f"delete {blob} and repeat the command"
            )


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Hide transformers' progress bar for loading weights, which takes seconds."""
    library: Any = importlib.import_module("transformers.utils.logging")
    was_enabled = library.is_progress_bar_enabled()
    library.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            library.enable_progress_bar()


@contextmanager
def damage_named(name: str, folder: Path | None = None) -> Iterator[None]:
    """Turn libraries' errors about a model's files into one line that names model or damaged file.

    Args:
        name: the model's name.
        folder: folder of its files; None: the folder ``name``, if it exists.

    Raises:
        ValueError: a file of the model is damaged, or does not fit the others.
    """
    try:
        yield
    except (FileNotFoundError, ConnectionError, ImportError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # tokenizers raises that class itself, and each library its own
        refuse_damaged(Path(name) if folder is None else folder, error)
        reason = re.sub(r"\s+", " ", str(error)).strip()[:200]
        raise ValueError(
            f"{name}: a file of the model is damaged or does not fit the other files ({reason}); "
            "fetch or save the model again"
        ) from error


def refuse_damaged(folder: Path, error: Exception) -> None:
    """Raise an error that names the unreadable file of a model, if there is such a file.

    Raises:
        ValueError: a file of the model cannot be read.
    """
    if problem := _damaged_file(folder):
        raise ValueError(f"{problem}; fetch or save the model again") from error


def _damaged_file(folder: Path) -> str:
    """Say which file of a model's folder cannot be read and why; empty if all can be read."""
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.safetensors")]):
        with path.open("rb") as file:
            is_pointer = file.read(len(_POINTER)) == _POINTER
        if is_pointer:
            return f"{path} is a pointer of Git LFS, not the file itself (run: git lfs pull)"
        try:
            if path.suffix == ".json":
                json.loads(path.read_bytes())
            else:
                with safe_open(path, framework="pt"):
                    pass
        except (ValueError, SafetensorError) as error:
            reason = str(error).removeprefix("Error while deserializing header: ")
            kind = "no JSON" if path.suffix == ".json" else "damaged or cut off"
            return f"{path} is {kind} ({reason})"
    return ""


def weights_identity(folder: Path, *, without: str = "") -> str:
    """Hash a model's weights and settings without loading them (SHA-256, first 32 hex digits).

    Args:
        folder: the model's folder.
        without: name of files that change no output, such as a card with its date.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in IDENTIFYING and path.name != without and path.is_file():
            digest.update(path.relative_to(folder).as_posix().encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:32]


def load_network(
    network: Any,
    folder: Path,
    *,
    name: str,
    kind: str,
    hint: str = "",
    dtype: torch.dtype = torch.float32,
    older_files: bool = False,
    **options: Any,
) -> Any:
    """Load a network of transformers, all of its weights from safetensors files.

    Args:
        network: class of the network.
        folder: see `model_folder`.
        name: name of the model as the config has it, for messages.
        kind: kind of model, for messages, such as ``"a BLIP captioner"``.
        hint: end of the message about missing weights.
        dtype: dtype of the weights.
        older_files: whether ``pytorch_model.bin`` may stand in for safetensors; only tensors are
            read from it.
        **options: options of ``from_pretrained``.

    Raises:
        FileNotFoundError: the folder holds no safetensors file.
        ValueError: weights are missing, or a file is damaged.
    """
    has_safe = bool(list(folder.glob("*.safetensors")))
    is_older = older_files and not has_safe and (folder / OLDER_FILE).is_file()
    if not has_safe and not is_older:
        raise FileNotFoundError(
            f"{name}: no safetensors in it; other weight files may contain code, so save the model "
            "with safetensors"
        )
    load = _load_older if is_older else _load_safe
    if is_older:
        options["state_dict"] = load_plain(folder / OLDER_FILE)
    with damage_named(name, folder), quiet_loading():
        _check_layers(folder / "config.json")
        model, report = load(network, folder, dtype=dtype, **options)
    missing = sorted(report["missing_keys"])
    if missing:
        raise ValueError(
            f"{name}: the weights lack {len(missing)} tensors of {kind}, such as {missing[0]}{hint}"
        )
    return model


def _check_layers(path: Path) -> None:
    """Raise an error for too many layers, which transformers would build without end."""
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for key, number in _numbers_of_layers(settings):
        if number > MOST_LAYERS:
            raise ValueError(f"{path.name}: {key} is {number}, at most {MOST_LAYERS}")


def _numbers_of_layers(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, content in value.items():
            yield from _numbers_of_layers(content, str(name))
    elif isinstance(value, list):
        for content in value:
            yield from _numbers_of_layers(content, key)
    elif isinstance(value, int | float) and _LAYERS.fullmatch(key):
        yield key, value


def _load_safe(network: Any, folder: Path, **options: Any) -> tuple[Any, dict[str, Any]]:
    safe = {"local_files_only": True, "use_safetensors": True, "output_loading_info": True}
    return network.from_pretrained(folder, **safe, **options)


def _load_older(network: Any, folder: Path, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Build the network from the tensors of a file of `torch.save`."""
    config = importlib.import_module("transformers").AutoConfig.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    if hasattr(network, "_model_mapping"):  # an auto class, which needs a folder or a name
        network = network._model_mapping[type(config)]
    options |= {"config": config, "output_loading_info": True}
    return network.from_pretrained(None, **options)


def load_plain(path: Path) -> Any:
    """Load a file of `torch.save` on the CPU, tensors and plain values only.

    Raises:
        ValueError: the file is damaged, or holds objects, which could run code.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the reader raises a dozen types, pickle's among them
        problem = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{path}: not plain tensors ({problem}). Python objects are not loaded, as they could "
            "run code. If you trust the file, save its state_dict alone with torch.save"
        ) from error


@functools.cache
def memory_key() -> str:
    """Name under which a transformers network takes and returns its cache of keys and values.

    Version 5.24 renamed ``past_key_values`` to ``cache``.
    """
    outputs: Any = importlib.import_module("transformers.modeling_outputs")
    fields = outputs.BaseModelOutputWithPast.__dataclass_fields__
    return "cache" if "cache" in fields else "past_key_values"


def checkpoint_layers(network: Any) -> None:
    """Turn on gradient checkpointing: recompute layers instead of keeping their outputs."""
    enable = getattr(network, "activation_checkpointing_enable", None)
    if enable is None:  # as transformers called it before its version 5
        enable = network.gradient_checkpointing_enable
    enable({"use_reentrant": False, "context_fn": replayed})
    # Transformers then asks for gradients of embeddings, frozen ones too, as re-entrant checkpoints
    # would need; GIT adds to them in place, which torch refuses.
    if getattr(network, "_require_grads_hooks", None):
        network.disable_input_require_grads()
