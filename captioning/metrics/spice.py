"""SPICE with pycocoevalcap's jar, adapted to current Java, and the download of missing jars.

pycocoevalcap ships SPICE without Stanford CoreNLP 3.6.0 and its models (380 MB). Java 15 and later
also lack the JavaScript engine with which SPICE writes its results: Nashorn replaces it, and
FST, its serializer, needs access to some packages of ``java.base``. `prepare_spice` downloads all.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np

from captioning.metrics.java import JavaError, find_java, java_major, run_java, try_twice
from captioning.runtime.extras import checked

CORENLP_JARS = {
    "stanford-corenlp-3.6.0.jar": "edu.stanford.nlp:stanford-corenlp:3.6.0",
    "stanford-corenlp-3.6.0-models.jar": "edu.stanford.nlp:stanford-corenlp:3.6.0:jar:models",
}
NASHORN_JARS = {
    "nashorn-core-15.4.jar": "org.openjdk.nashorn:nashorn-core:15.4",
    "asm-7.3.1.jar": "org.ow2.asm:asm:7.3.1",
    "asm-analysis-7.3.1.jar": "org.ow2.asm:asm-analysis:7.3.1",
    "asm-commons-7.3.1.jar": "org.ow2.asm:asm-commons:7.3.1",
    "asm-tree-7.3.1.jar": "org.ow2.asm:asm-tree:7.3.1",
    "asm-util-7.3.1.jar": "org.ow2.asm:asm-util:7.3.1",
}
SHA256 = {
    "stanford-corenlp-3.6.0.jar": (
        "d341d5863276f55782c5ef73212222d6b3b48e02ae1951ab6de7618d28b12742"
    ),
    "stanford-corenlp-3.6.0-models.jar": (
        "d285157bd7887ee3018094b5dbae092e49088b023361ccdb550ee1daf9b2c9bd"
    ),
    "nashorn-core-15.4.jar": "6f816e84dfd63a81d4eaa7829c08337bbaff3ec683ff3bf6bbd90d017a00dc6f",
    "asm-7.3.1.jar": "2f67e11ceec819ebd88ddee5300aba699b1cbab2e20c22e97cf027d3be93959b",
    "asm-analysis-7.3.1.jar": "46b8a8efd4b94facb5ab4b35afe30ee0546ae7a43d2c64e6def56c2f168fefa5",
    "asm-commons-7.3.1.jar": "87cd8bb3c6bf6bcbb33fca48060c5065f66ebf6a3d7de9bf18bff51bcf156ebc",
    "asm-tree-7.3.1.jar": "f91a4a8aa868c5c4665bb4fd134019a91f9f8b9216527fba295e3c8b5422b78b",
    "asm-util-7.3.1.jar": "182128592742ed4883ac82bf205f137b6bfbe1234c68e6feb13759e75a85b729",
}
_FIRST_JAVA_WITHOUT_JAVASCRIPT = 15
# The parser's memory grows with the square of a caption's length and its time with the cube:
# a few hundred words need 8 GB and minutes.
MAX_WORDS = 100
# Parsing takes nearly all of SPICE's time; cached parses avoid it.
SECONDS_PER_PARSE = 0.05
# Up to this number of captions Java's optimising compiler costs more than it saves: loading the
# models takes 8 CPU seconds without it and 13 with it.
FEW_CAPTIONS = 1000
# SPICE parses a caption as often as it occurs in a call, and an oracle repeats references for every
# candidate. This many repeats take longer than another start of Java.
MANY_REPEATS = 200
OPENED_PACKAGES = (
    "lang",
    "math",
    "net",
    "text",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
)


def spice_folder() -> Path:
    """Return the folder of SPICE's jars and parse cache, in ``CAPTIONING_CACHE`` or ``cache``."""
    return (Path(os.environ.get("CAPTIONING_CACHE") or "cache") / "spice").absolute()


def missing_jars(folder: Path, java_version: str) -> list[str]:
    """Return the names of jars that SPICE needs with this Java version and that are missing."""
    required = dict(CORENLP_JARS)
    if java_major(java_version) >= _FIRST_JAVA_WITHOUT_JAVASCRIPT:
        required |= NASHORN_JARS
    folders = (folder, _package_folder() / "lib")
    return [name for name in required if not any(_is_jar(parent / name) for parent in folders)]


def prepare_spice(folder: Path | None = None, *, timeout: float = 3600) -> list[Path]:
    """Download SPICE's missing jars with Maven, and check their SHA-256.

    pycocoevalcap's own downloader is not used, because it uses plain HTTP.

    Args:
        folder: folder for the jars; default: `spice_folder`.
        timeout: seconds for each download.

    Returns:
        Paths of the downloaded jars; empty if none were missing.

    Raises:
        JavaError: Java is missing.
        FileNotFoundError: some jars could not be downloaded; the message lists files and folder.
    """
    folder = folder or spice_folder()
    _, java_version = find_java()
    missing = missing_jars(folder, java_version)
    failures: list[str] = []
    if missing and shutil.which("mvn") is not None:
        failures += [_fetch_with_maven(name, folder, timeout) for name in missing]
    remaining = missing_jars(folder, java_version)
    if remaining:
        raise FileNotFoundError(_instructions(remaining, folder, [f for f in failures if f]))
    return [folder / name for name in missing if (folder / name).is_file()]


def _instructions(missing: Sequence[str], folder: Path, failures: Sequence[str]) -> str:
    coordinates = CORENLP_JARS | NASHORN_JARS
    files = "\n".join(
        f"  {name} (Maven coordinates {coordinates[name]}, SHA-256 {SHA256[name]})"
        for name in missing
    )
    tried = "".join(f"\n  tried: {failure}" for failure in failures)
    return (
        f"SPICE needs these files in {folder}:\n{files}\n"
        "Install Maven (`apt-get install maven`) and run `captioning prepare metrics` "
        f"again, or put them there by hand.{tried}"
    )


def _fetch_with_maven(name: str, folder: Path, timeout: float) -> str:
    """Copy one artefact into ``folder`` and check its hash; return the problem, if any."""
    folder.mkdir(parents=True, exist_ok=True)
    artifact = (CORENLP_JARS | NASHORN_JARS)[name]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}"]
        command.append(f"-DoutputDirectory={scratch}")
        problem = _run_download(command, timeout)
        if not problem:
            try:
                os.replace(checked(Path(scratch) / name, SHA256[name]), folder / name)
                return ""
            except (FileNotFoundError, ValueError) as error:
                problem = str(error).replace(f"{scratch}{os.sep}", "")
    return f"mvn for {name}: {problem}"


def _run_download(command: Sequence[str], timeout: float) -> str:
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    text = (done.stdout + done.stderr).decode(errors="replace").strip()
    return "" if done.returncode == 0 else (text.splitlines() or ["no message"])[-1][:300]


def score_spice(
    image_ids: Sequence[str],
    candidates: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    folder: Path | None = None,
    timeout: float | None = None,
) -> tuple[float, list[float]]:
    """Compute SPICE (F-score over scene-graph tuples) of tokenized captions, as pycocoevalcap does.

    pycocoevalcap returns per-image scores sorted by id; this function keeps the given order.

    Parses are cached in ``folder`` by the caption's text: a test split's references are parsed
    once for all runs, and captions that repeat within a call are parsed once. Calls
    from several processes wait for each other, as long as waiting takes less time than parsing the
    same captions again.

    Args:
        image_ids: one id per image.
        candidates: one tokenized caption per image.
        references: tokenized references of the same images.
        folder: folder of the jars and the parse cache; default: `spice_folder`.
        timeout: seconds before Java is killed; default: 600 s plus 2 s per image.

    Returns:
        The mean over images, and one score per image, in [0, 1].

    Raises:
        JavaError: Java or a jar is missing, a caption has more than `MAX_WORDS` words, or Java
            crashed or hung twice.
    """
    folder = folder or spice_folder()
    _, java_version = find_java()
    missing = missing_jars(folder, java_version)
    if missing:
        others = f" and {len(missing) - 1} further files" if missing[1:] else ""
        raise JavaError(f"SPICE lacks {missing[0]}{others}: run `captioning prepare metrics`")
    _check_lengths(image_ids, candidates, references)
    items = [
        {"image_id": image_id, "test": candidate, "refs": list(refs)}
        for image_id, candidate, refs in zip(image_ids, candidates, references, strict=True)
    ]
    seconds = timeout or 600 + 2.0 * len(items)
    # the retry works without the shared cache, which may be what makes Java crash
    scores_by_image = try_twice(
        lambda again: _run_spice(items, folder, java_version, seconds, share=not again)
    )
    scores = [scores_by_image[image_id] for image_id in image_ids]
    return float(np.mean(scores)), scores


def _check_lengths(
    image_ids: Sequence[str], candidates: Sequence[str], references: Sequence[Sequence[str]]
) -> None:
    for image_id, candidate, refs in zip(image_ids, candidates, references, strict=True):
        longest = max(len(caption.split()) for caption in (candidate, *refs))
        if longest > MAX_WORDS:
            raise JavaError(
                f"SPICE parses captions of at most {MAX_WORDS} words: one of image {image_id!r} "
                f"has {longest}; shorten the caption, or leave SPICE out"
            )


def _run_spice(
    items: list[dict[str, Any]], folder: Path, java_version: str, timeout: float, *, share: bool
) -> dict[str, float]:
    texts = [text for item in items for text in (item["test"], *item["refs"])]
    distinct = list(dict.fromkeys(filter(None, texts)))
    max_wait = SECONDS_PER_PARSE * len(distinct)
    with (
        tempfile.TemporaryDirectory(prefix="spice-") as scratch,
        _cache(folder if share else None, scratch, max_wait) as cache,
    ):
        options = [*_java_options(java_version, len(texts)), "-cp", _class_path(folder)]
        options += ["edu.anu.spice.SpiceScorer"]
        if len(texts) - len(distinct) >= MANY_REPEATS:
            _call(_each_once(distinct), options, cache, Path(scratch), timeout)
        scores = _call(items, options, cache, Path(scratch), timeout)
    if scores.keys() != {item["image_id"] for item in items}:
        raise JavaError(f"SPICE returned scores of {len(scores)} images for {len(items)} images")
    return scores


def _each_once(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return items that hold each caption once, because SPICE caches parses only between calls."""
    groups = [texts[start : start + 6] for start in range(0, len(texts), 6)]
    return [
        {"image_id": str(number), "test": first, "refs": rest or [first]}
        for number, (first, *rest) in enumerate(groups)
    ]


def _call(
    items: list[dict[str, Any]],
    options: Sequence[str],
    cache: Path,
    scratch: Path,
    timeout: float,
) -> dict[str, float]:
    source, target = scratch / "captions.json", scratch / "scores.json"
    source.write_text(json.dumps(items), encoding="utf-8")
    files = [str(source), "-cache", str(cache), "-out", str(target)]
    run_java([*options, *files, "-subset", "-silent"], name="SPICE", timeout=timeout)
    try:
        return {
            item["image_id"]: float(item["scores"]["All"]["f"])
            for item in json.loads(target.read_text(encoding="utf-8"))
        }
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise JavaError(f"SPICE: Java wrote no scores ({error!r})") from error


@contextlib.contextmanager
def _cache(folder: Path | None, scratch: str, max_wait: float) -> Iterator[Path]:
    """Yield the shared parse cache, which only one process may use at a time.

    A process that has waited ``max_wait`` seconds gets a temporary cache instead.
    """
    if folder is None:
        yield _private_cache(scratch)
        return
    try:
        shared = folder / "parses"
        shared.mkdir(parents=True, exist_ok=True)
        lock = (folder / "parses.lock").open("w")
    except OSError:
        yield _private_cache(scratch)
        return
    with lock:
        yield shared if _locked(lock, max_wait) else _private_cache(scratch)


def _locked(lock: IO[str], max_wait: float) -> bool:
    """Lock a file, waiting at most ``max_wait`` seconds; return whether it is locked."""
    end = time.monotonic() + max_wait
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
        except OSError:  # a file system without locks
            return False
        time.sleep(0.1)


def _private_cache(scratch: str) -> Path:
    path = Path(scratch) / "parses"
    path.mkdir()
    return path


def _java_options(java_version: str, num_captions: int) -> list[str]:
    # Garbage collection on all cores costs more CPU time and saves no wall time.
    options = ["-Xmx8G", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8"]
    if num_captions <= FEW_CAPTIONS:
        options.append("-XX:TieredStopAtLevel=1")
    if java_major(java_version) > 8:
        options += [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED_PACKAGES]
        options.append("--add-opens=java.sql/java.sql=ALL-UNNAMED")
    return options


def _class_path(folder: Path) -> str:
    package = _package_folder()
    parts = (package / "spice-1.0.jar", package / "lib" / "*", folder / "*")
    return os.pathsep.join(str(part) for part in parts)


def _package_folder() -> Path:
    spec = find_spec("pycocoevalcap.spice")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("pycocoevalcap is not installed: pip install pycocoevalcap")
    return Path(spec.origin).parent


def _is_jar(path: Path) -> bool:
    return path.is_file() and zipfile.is_zipfile(path)
