"""A captioner or a curated set on the hub: ``captioning push``.

huggingface_hub sends the files. It finds the user's token (``hf auth login`` or ``HF_TOKEN``) and
the hub's address (``HF_ENDPOINT``) itself, and neither is shown here.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from captioning.export.export import export
from captioning.inference.bundle import CONFIG, is_bundle
from captioning.runtime.model_folder import request_errors

CARD, JOURNAL = "README.md", "curation.jsonl"
KEPT_BY_HUB = ".gitattributes"  # which it writes itself


@dataclass(frozen=True, kw_only=True)
class Upload:
    """The files to upload.

    Attributes:
        folder: folder with all files.
        kind: the repository's kind.
        sizes: sizes in bytes, by file name.
    """

    folder: Path
    kind: Literal["model", "dataset"]
    sizes: Mapping[str, int]


@contextmanager
def prepared(source: str | Path, repository: str) -> Iterator[Upload]:
    """The files of a folder to upload; a run is exported into a temporary folder.

    Args:
        source: a run, an exported captioner, or an exported set.
        repository: ``OWNER/NAME``; its name is the exported run's.

    Raises:
        FileNotFoundError: no such folder, or no export.
        ValueError: a repository without owner, or a run that cannot be exported.
    """
    if repository.count("/") != 1 or "@" in repository:
        raise ValueError(f"--repo {repository}: write OWNER/NAME")
    folder = Path(source)
    if not is_bundle(folder) and (folder / CONFIG).is_file() and (folder / "checkpoints").is_dir():
        with tempfile.TemporaryDirectory() as temporary:
            exported = export(str(folder), f"{temporary}/{repository.rpartition('/')[2]}")
            yield _upload(exported, "model")
    elif is_bundle(folder):
        yield _upload(folder, "model")
    elif (folder / JOURNAL).is_file():
        yield _upload(folder, "dataset")
    else:
        raise FileNotFoundError(
            f"{folder}: neither a run, nor what captioning export, captioning curate export or "
            "captioning check --export wrote"
        )


def _upload(folder: Path, kind: Literal["model", "dataset"]) -> Upload:
    names = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    sizes = {
        name.as_posix(): path.stat().st_size
        for name, path in sorted(names.items())
        if not any(part.startswith(".") for part in name.parts)
    }
    if CARD not in sizes:
        raise FileNotFoundError(f"{folder}: it has no card ({CARD}); export it again")
    return Upload(folder=folder, kind=kind, sizes=sizes)


def send(upload: Upload, repository: str, *, public: bool = False, replace: bool = False) -> str:
    """Send the files, so that the newest commit holds these and no others.

    Args:
        upload: see `prepared`.
        repository: ``OWNER/NAME``; made if it is not there.
        public: whether everybody may read a repository that is made; otherwise its owner alone.
        replace: whether other files of the repository leave its newest commit.

    Returns:
        ``OWNER/NAME@COMMIT``, which `Captioner.load` and ``data.root=`` take.

    Raises:
        PermissionError: the user is not logged in.
        ValueError: the repository has other files.
        ConnectionError: the hub cannot be reached, or refuses.
    """
    hub = importlib.import_module("huggingface_hub")  # slow, and needed here only
    if hub.get_token() is None:
        raise PermissionError("nobody is logged in at the hub: hf auth login, or set HF_TOKEN")
    api: Any = hub.HfApi()
    where = {"repo_id": repository, "repo_type": upload.kind}
    try:
        api.create_repo(**where, private=not public, exist_ok=True)
        others = {*api.list_repo_files(**where)} - {*upload.sizes, KEPT_BY_HUB}
        if others and not replace:
            raise ValueError(
                f"{repository} has other files, such as {min(others)}: take another name, or "
                "--replace, which keeps them in its history only"
            )
        commit = api.upload_folder(
            **where,
            folder_path=upload.folder,
            commit_message="Upload by captioning push",
            ignore_patterns=[".*", "*/.*"],
            delete_patterns="*" if others else None,
        )
    except (*request_errors(hub), ConnectionError, TimeoutError, RuntimeError) as error:
        causes = [str(e) for e in (error, error.__cause__) if e is not None]
        reason = " ".join(" ".join(causes).split())[:300]
        raise ConnectionError(f"{repository}: the hub refused the upload: {reason}") from error
    return f"{repository}@{commit.oid}"
