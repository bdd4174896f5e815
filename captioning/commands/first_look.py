"""Check the files and folders that a command names, before slow imports.

Each check raises the same error that the task itself would raise seconds later, as tests verify.
Checks that need a library, such as on a file's content, are left to the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from captioning.config.setting_error import AbstractSettingError, Setting, SettingNotFoundError
from captioning.results.run_folder import RunFolder, check_places

SHIPPED = "shipped"  # the captioner in the package
CHECKED = "issues.csv"  # of a folder that a check has written
MANIFEST = Path("curation") / "manifest.json"  # of a loop of somebody's own
_OWN, _ARROW = (
    "captioning.data.readers.own.own.read_own",
    "captioning.data.readers.arrow.read_arrow",
)
# The file that a reader opens first, by its argument.
_FILES = {
    "captioning.data.readers.coco.read_coco": "annotations",
    "captioning.data.readers.karpathy.read_karpathy": "annotations",
    "captioning.data.readers.flickr8k.read_flickr8k": "token_file",
    "captioning.data.readers.jsonl.read_jsonl": "annotations",
}


def look_first(name: str, config: DictConfig) -> None:
    """Raise an error for a config that names missing files or folders.

    Args:
        name: the command's name.
        config: the command's composed config.

    Raises:
        ValueError: a required key has no value.
        FileNotFoundError: a folder or file does not exist.
    """
    missing = [key for key in map(str, config) if OmegaConf.is_missing(config, key)]
    if missing:
        raise ValueError(
            "\n".join(f"{key}: must be given (text that is not empty)" for key in missing)
        )
    with suppress(OmegaConfBaseException):  # of references: the check of values names the key
        if name in ("train", "find-lr"):
            _look_for_start(config.start_from, OmegaConf.select(config, "curation.keep"))
            is_text = OmegaConf.select(config, "corpus.train") is not None
            _look_for_data(config.data, ("val", "test") if is_text else ("train", "val", "test"))
            check_places(resume=str(config.resume), branch_from=config.branch_from)
        elif name in ("evaluate", "controllability", "diverse-captions"):
            if config.run is not None:
                RunFolder(Path(config.run)).check_there()
            if name == "evaluate":
                if (file := config.predictions) is not None and not Path(file).is_file():
                    raise FileNotFoundError(f"{file}: no such file; give a COCO results file")
                _look_for_data(config.get("data"), [config.split])
        elif name == "curate detect":
            look_for_run(config.run)
        elif name == "curate score":
            _look_for_data(config.data, [config.split])
        elif name == "export":
            look_for_captioner(config.run)
        # Of other data the command lists the files that are not there.
        elif name == "prepare" and OmegaConf.select(config, "data.train._target_") == _OWN:
            _look_for_data(config.data, ("train",))


def look_for_run(folder: str | Path) -> None:
    """Raise an error for a folder that is not a run folder, of a training or of a user's own loop.

    Raises:
        FileNotFoundError: the folder is not a run folder.
    """
    if not (Path(folder) / MANIFEST).is_file():
        RunFolder(Path(folder)).check_there()


def look_for_suspects(source: str | Path) -> None:
    """Raise an error for a folder that neither ``captioning check`` nor a run has written.

    Raises:
        FileNotFoundError: neither has written the folder.
    """
    if not (Path(source) / CHECKED).is_file():
        look_for_run(source)


def look_for_pushed(source: str | Path) -> None:
    """Raise an error if the folder to publish does not exist.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    if not Path(source).is_dir():
        raise FileNotFoundError(
            f"{source}: neither a run, nor what captioning export, captioning curate export or "
            "captioning check --export wrote"
        )


def look_for_journal(path: str | Path) -> None:
    """Raise an error if a journal, or a run folder's journal, does not exist.

    Raises:
        FileNotFoundError: the journal does not exist.
    """
    journal = Path(path) / "curation.jsonl" if Path(path).is_dir() else Path(path)
    if not journal.is_file():
        raise FileNotFoundError(
            f"{journal} does not exist; was the run trained with a curation policy?"
        )


def look_for_photos(places: Sequence[str | Path]) -> None:
    """Raise an error if all photos are missing; single missing photos are named later.

    Raises:
        FileNotFoundError: all photos are missing; the message has a line for each.
    """
    if not any(Path(place).exists() for place in places):
        raise FileNotFoundError("\n".join(f"{Path(place)}: no such photo" for place in places))


def look_for_captioner(place: str | None) -> None:
    """Raise an error if a captioner's folder does not exist.

    Args:
        place: folder, or a name on the hub with its commit; None: the shipped captioner.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    if (
        place is not None
        and not Path(place).is_dir()
        and (Path(place).exists() or "@" not in place)
    ):
        raise FileNotFoundError(
            f"{place}: no such folder; give a run folder, an export, the folder of a model of "
            "transformers, or OWNER/NAME@COMMIT of the hub"
        )


def look_for_runs(sources: Iterable[Path]) -> None:
    """Raise an error if folders for a report do not exist.

    Raises:
        FileNotFoundError: a folder does not exist, or holds no run in it or below.
    """
    for source in sources:
        has_run = (source / MANIFEST).is_file() or any(source.rglob("config.yaml"))
        if not has_run:
            reason = "no config.yaml in it or below" if source.is_dir() else "no such folder"
            raise FileNotFoundError(f"{source} is not a run folder: {reason}")


def _look_for_data(data: Mapping[str, Any] | None, splits: Sequence[str]) -> None:
    for split in splits:
        part = None if data is None else data.get(split)
        if isinstance(part, Mapping):
            _part(part)


def _part(part: Any) -> None:
    """Raise an error if a dataset's reader would not find its first file."""
    from captioning.config.build import typed  # with Hydra, which plain commands do without

    target = str(part.get("_target_"))
    try:
        if target == _OWN and _is_local(part.folder):
            from captioning.data.readers.own.root import check_root

            check_root(Path(part.folder), part.get("annotations"))
        if target == _ARROW and _is_local(part.folder) and not Path(part.folder).is_dir():
            raise SettingNotFoundError(part.folder, "no such folder", "correct ", Setting("folder"))
    except AbstractSettingError as error:
        raise error.worded(partial(typed, part)) from error
    file = part.get(_FILES.get(target, ""))
    if file and not any(parent.is_file() for parent in Path(file).parents):  # in a package
        from captioning.data.line_files import check_file

        check_file(file)


def _is_local(folder: str) -> bool:
    """Whether a dataset is a folder, not a name on the hub."""
    return "@" not in folder or Path(folder).exists()


def _look_for_start(start: str | None, keep: str | None) -> None:
    """Raise an error if a training's start or keep-list does not exist."""
    if start is not None and start != SHIPPED and not Path(start).is_dir():
        raise FileNotFoundError(
            f"start_from={start}: no such folder; give a run, an export, or {SHIPPED}, the "
            "captioner in the package"
        )
    if keep is not None and not Path(str(keep)).is_file():
        raise FileNotFoundError(
            f"curation.keep={keep}: no such keep-list; save one from the page of captioning "
            "report, or set curation.keep=null"
        )
