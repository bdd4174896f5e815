"""Upload a captioner or a curated dataset to the hub: ``captioning push``.

huggingface_hub sends the files. It finds the user's token (``hf auth login`` or ``HF_TOKEN``) and
the hub's address (``HF_ENDPOINT``) itself; this module prints neither.
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
    """Files to upload to the hub.

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
    """Collect the files of a folder to upload; export a run to a temporary folder first.

    Args:
        source: folder of a run, an exported captioner, or an exported dataset.
        repository: ``OWNER/NAME``; NAME becomes the name of an exported run.

    Raises:
        FileNotFoundError: the folder does not exist or is no export.
        ValueError: the repository has no owner, or the run cannot be exported.
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
        raise FileNotFoundError(f"{folder} has no model card ({CARD}); export it again")
    return Upload(folder=folder, kind=kind, sizes=sizes)


def send(upload: Upload, repository: str, *, public: bool = False, replace: bool = False) -> str:
    """Upload the files, so that the newest commit holds exactly these files.

    Args:
        upload: see `prepared`.
        repository: ``OWNER/NAME``; created if it does not exist.
        public: whether a new repository is public; otherwise only its owner may read it.
        replace: whether to delete other files of the repository in the newest commit.

    Returns:
        ``OWNER/NAME@COMMIT``, which `Captioner.load` and ``data.root=`` take.

    Raises:
        PermissionError: the user is not logged in.
        ValueError: the repository has other files, and ``replace`` is false.
        ConnectionError: the hub cannot be reached, or rejects the upload.
    """
    hub = importlib.import_module("huggingface_hub")  # slow, and needed here only
    if hub.get_token() is None:
        raise PermissionError("not logged in at the hub: run hf auth login, or set HF_TOKEN")
    api: Any = hub.HfApi()
    where = {"repo_id": repository, "repo_type": upload.kind}
    try:
        api.create_repo(**where, private=not public, exist_ok=True)
        others = {*api.list_repo_files(**where)} - {*upload.sizes, KEPT_BY_HUB}
        if others and not replace:
            raise ValueError(
                f"{repository} has other files, such as {min(others)}: choose another name, or "
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
