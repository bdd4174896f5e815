"""Downloads that go on after a broken connection, and archives unpacked in one step."""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from rich.progress import Progress, TaskID

_BLOCK = 1 << 20
_BROKEN = (http.client.HTTPException, TimeoutError, ConnectionError, urllib.error.URLError)


def download(
    url: str,
    path: Path,
    *,
    progress: Progress,
    sha256: str,
    attempts: int = 5,
    pause_seconds: float = 2.0,
    timeout: float = 60,
) -> None:
    """Fetch ``url`` to ``path``, which appears only when it is complete and checked.

    The bytes of an earlier try (``.NAME.part``) are kept if the server says that its file is still
    the same (ETag or Last-Modified).

    Args:
        url: http or https.
        path: where to; the folder must exist.
        progress: shows the bytes.
        sha256: hexadecimal digest of the file; another file is refused.
        attempts: tries in a row that bring nothing before it gives up.
        pause_seconds: between two tries.
        timeout: seconds without a byte that end a try.

    Raises:
        ConnectionError: the server cannot be reached, refuses, or breaks off every time.
        ValueError: another kind of address, or the file has another digest.
        OSError: no space.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url}: only http and https addresses can be fetched")
    part = path.with_name(f".{path.name}.part")
    task, failures = progress.add_task(path.name, total=None), 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            _fetch(url, part, progress, task, timeout)
            break
        except urllib.error.HTTPError as error:
            _refused(error, url, part)
            failures += 1
        except _BROKEN as error:
            after = part.stat().st_size if part.exists() else 0
            failures = 0 if after > before else failures + 1
            if failures >= attempts:
                raise ConnectionError(
                    f"{url}: the connection failed {failures} times ({error}); {after} bytes are "
                    f"kept. Run it again to go on, or put the file at {path} yourself"
                ) from error
        if failures >= attempts:
            raise ConnectionError(f"{url}: refused {failures} times; put the file at {path}")
        time.sleep(pause_seconds)
    _check_digest(part, sha256, url)
    part.replace(path)
    _note(part).unlink(missing_ok=True)


def unpack(archive: Path, root: Path, members: Sequence[str]) -> None:
    """Take files or folders out of a zip archive; each appears complete or not at all.

    Args:
        archive: the zip file.
        root: folder that ``members`` are relative to.
        members: paths as in the archive.

    Raises:
        ValueError: a damaged archive, or one that lacks a member.
    """
    staging = root / f".{archive.name}.unpacking"
    shutil.rmtree(staging, ignore_errors=True)
    try:
        with zipfile.ZipFile(archive) as file:
            for path in members:
                names = [name for name in file.namelist() if _inside(name, path)]
                if not names:
                    raise ValueError(
                        f"{archive}: holds no {path}; it begins with "
                        f"{', '.join(file.namelist()[:3])}"
                    )
                file.extractall(staging, names)
        for path in members:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (staging / path).replace(root / path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{archive}: a damaged zip file ({error}); delete it and retry") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _inside(name: str, path: str) -> bool:
    parts, folder = PurePosixPath(name).parts, PurePosixPath(path).parts
    return parts[: len(folder)] == folder and ".." not in parts


def _fetch(url: str, part: Path, progress: Progress, task: TaskID, timeout: float) -> None:
    """One try: append to ``part``, or begin anew where the server's file has changed."""
    num_bytes, validator = _earlier(part)
    headers = {"Range": f"bytes={num_bytes}-", "If-Range": validator} if num_bytes else {}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=timeout) as response:
        resumed = response.status == 206
        start = num_bytes if resumed else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else start + int(length)
        _check_space(part, start, total, url)
        validator = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        _note(part).write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")
        progress.update(task, total=total, completed=start)
        done = start
        with part.open("ab" if resumed else "wb") as file:
            while block := response.read(_BLOCK):
                file.write(block)
                done += len(block)
                progress.update(task, completed=done)
    if total is not None and done < total:
        raise ConnectionError(f"broke off after {done} of {total} bytes")


def _note(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _earlier(part: Path) -> tuple[int, str]:
    """Bytes that can be kept and the server's mark for them; ``(0, "")`` to begin anew."""
    try:
        validator = str(json.loads(_note(part).read_text(encoding="utf-8"))["validator"])
        # A weak ETag does not promise the same bytes.
        usable = bool(validator) and not validator.startswith("W/")
        return (part.stat().st_size, validator) if usable else (0, "")
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ""


def _refused(error: urllib.error.HTTPError, url: str, part: Path) -> None:
    if error.code == 416:  # the local part is longer than the server's file: it is another file
        part.unlink(missing_ok=True)
    elif error.code < 500 and error.code != 429:
        raise ConnectionError(
            f"{url}: the server refuses ({error.code} {error.reason}); fetch it by hand"
        ) from error


def _check_space(part: Path, start: int, total: int | None, url: str) -> None:
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - start > free:
        raise OSError(
            f"{part.parent}: {url} needs {total - start} bytes, free are {free}; free some space "
            "or set CAPTIONING_DATA to another disk"
        )


def _check_digest(part: Path, sha256: str, url: str) -> None:
    with part.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256.lower():
        part.unlink()
        _note(part).unlink(missing_ok=True)
        raise ValueError(
            f"{url}: SHA-256 must be {sha256}: got {digest}; it was deleted, try again"
        )
