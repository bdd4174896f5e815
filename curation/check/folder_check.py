"""``check(FOLDER)``: read photos and captions in any layout, and find faults."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.progress import Progress

from captioning.data.readers.own.own import own_splits, read_own
from captioning.data.readers.own.questions import own_questions
from captioning.data.readers.split_words import Split
from captioning.data.roster import Roster
from captioning.interfaces import JointEmbedder, TextEmbedder
from captioning.runtime.model_folder import data_folder
from curation.check.checks import CHECKS, GENERATOR_CHECKS, THRESHOLDS, Check
from curation.check.evidence import Evidence, Scores
from curation.check.generator_folder import (
    EMPTY,
    GeneratorFolder,
    Purpose,
    is_for_generators,
    look_at_folder,
)
from curation.check.generators import own_words, set_notes
from curation.check.photo_vectors import look_at
from curation.check.result import CheckResult

LENIENT = {"missing_photos": "drop", "missing_captions": "drop", "bad_captions": "drop"}

SPACES = ("joint_space", "none")
SMALL = "small_photo"
HEADS = ".safetensors"  # a file of heads, as ``captioning train-space`` writes it


def check(
    folder: str | Path | Roster,
    *,
    space: str | JointEmbedder = "joint_space",
    thresholds: Mapping[str, float] | None = None,
    skip: Collection[str] = (),
    remove: Collection[str] = (),
    cache_folder: str | Path | None = None,
    seed: int = 0,
    quiet: bool = False,
    generator: Purpose | bool | None = None,
    **reading: Any,
) -> CheckResult:
    """Check photos and their captions.

    Args:
        folder: a folder in any layout of `captioning.data.readers.own.own.read_own`, or a roster.
        space: embedding space of photos and texts: ``"joint_space"``, which is in the package;
            other heads of it, ``"FILE.safetensors"``; a folder or hub name of a CLIP or SigLIP of
            transformers; ``"open_clip:NAME/WEIGHTS@COMMIT"``; a built one; or ``"none"``.
        thresholds: thresholds by check that differ from `curation.check.checks.CHECKS`.
        skip: names of checks that are not made.
        remove: names of checks that only tell of a photo, such as ``"blurry_photo"``, and shall
            flag its captions for removal.
        cache_folder: caches embeddings and the networks' scores of words; None: no cache.
        seed: seed of draws.
        quiet: whether no progress is shown.
        generator: whether the folder is for fine-tuning an image generator, with its settings;
            None: where it looks like one, see `is_for_generators`.
        **reading: arguments of `read_own`, such as ``layout="coco"``.

    Raises:
        FileNotFoundError, ValueError: the folder cannot be read, an unknown check or space, or
            thresholds of a generator's folder for another.
        ModuleNotFoundError: a package with weights is not installed; says which.

    Examples:
        >>> from captioning import check
        >>> result = check("my_photos", skip=["wrong_word"], quiet=True)
        >>> len(result.issues)
        60
    """
    limits = _limits(thresholds or {}, skip, remove)
    start = time.monotonic()
    roster = folder if isinstance(folder, Roster) else read_all(folder, **reading)
    root = None if isinstance(folder, Roster) else data_folder(folder)
    purpose = _purpose(generator, roster, root, thresholds or {})
    generators = None
    if purpose is not None:
        limits = {**limits, **({SMALL: purpose.bucket} if SMALL in limits else {})}
        generators = look_at_folder(roster, root, purpose)
        roster = _with_stray(roster, generators)
    wanted = [check for check in _made(roster, generators) if check.name in limits]
    encoder, sentences = None, None
    if any(check.needs_space for check in wanted):
        encoder, sentences = build_encoders(space, cache_folder)
    kept = {"cache_folder": None if cache_folder is None else Path(cache_folder)}
    evidence = _look_at(roster, encoder, sentences, generators, seed=seed, quiet=quiet, **kept)
    splits = {} if isinstance(folder, Roster) else read_splits(folder, **reading)
    evidence = replace(evidence, splits=splits)
    if encoder is None:
        wanted = [check for check in wanted if not check.needs_space]
    scores = _scored(wanted, evidence, quiet=quiet)
    return CheckResult(
        roster=roster,
        scores=scores,
        thresholds=limits,
        source=roster.name if isinstance(folder, Roster) else str(folder),
        seconds=time.monotonic() - start,
        remove=remove,
        splits=splits,
        questions={} if isinstance(folder, Roster) else read_questions(folder, roster, **reading),
        is_whole=not isinstance(folder, Roster),
        notes=() if generators is None else set_notes(evidence),
    )


def _purpose(
    generator: Purpose | bool | None,
    roster: Roster,
    root: Path | None,
    thresholds: Mapping[str, float],
) -> Purpose | None:
    """Settings for a folder for an image generator; None for other folders."""
    named = [check.name for check in GENERATOR_CHECKS if check.name in thresholds]
    if generator is False and named:
        raise ValueError(
            f"{named[0]} checks only folders for image generators, but this folder is checked as "
            "another kind"
        )
    is_one = bool(generator) or bool(named)
    if generator is None and not is_one and root is not None:
        is_one = is_for_generators(roster, root)
    if not is_one:
        return None
    purpose = generator if isinstance(generator, Purpose) else Purpose()
    return replace(purpose, bucket=int(thresholds.get(SMALL, purpose.bucket)))


def _made(roster: Roster, generators: GeneratorFolder | None) -> Sequence[Check]:
    """Checks to make for a folder: the default checks that apply, and checks for generators."""
    if generators is None:
        return CHECKS
    captions = [sample.caption for sample in roster.samples]
    replaced = {"same_caption"}
    if generators.shared or not own_words(generators, captions):
        replaced.add("too_short")
    if 2 * len(generators.shared) > len(captions):  # the middle length is theirs
        replaced.add("too_long")
    return (*(check for check in CHECKS if check.name not in replaced), *GENERATOR_CHECKS)


def _with_stray(roster: Roster, generators: GeneratorFolder) -> Roster:
    """Add the folder's unused files to the roster's unreadable items."""
    dropped = [replace(d, rule=EMPTY) if d.item in generators.empty else d for d in roster.dropped]
    return replace(roster, dropped=(*dropped, *generators.stray))


def _look_at(
    roster: Roster,
    encoder: JointEmbedder | None,
    sentences: TextEmbedder | None,
    generators: GeneratorFolder | None,
    **options: Any,
) -> Evidence:
    """Compute the evidence; triggers are removed from captions, because no encoder knows them."""
    if generators is None:
        return look_at(roster, encoder, sentences, **options)
    texts = generators.plain_captions(roster)
    samples = [replace(s, caption=t) for s, t in zip(roster.samples, texts, strict=True)]
    read = replace(roster, samples=tuple(samples))
    evidence = look_at(read, encoder, sentences, **options)
    return replace(evidence, roster=roster, generators=generators)


def _scored(checks: Sequence[Check], evidence: Evidence, *, quiet: bool) -> dict[str, Scores]:
    """Score the captions by each check; slow checks report their progress."""
    with Progress(transient=True, disable=quiet) as bar:
        task = bar.add_task("checks", total=len(checks))

        def advance(done: float) -> None:
            bar.update(task, completed=place + done)

        evidence, scores = replace(evidence, progress=advance), {}
        for place, check in enumerate(checks):
            bar.update(task, completed=place, description=check.name.replace("_", " "))
            scores[check.name] = check.score(evidence)
    return scores


def read_all(folder: str | Path, **reading: Any) -> Roster:
    """Read all captions of a folder; record unusable items and skip them.

    Args:
        folder: see `check`.
        **reading: arguments of `read_own`.
    """
    name = Path(folder).resolve().name
    return read_own(name=name, folder=folder, part="all", **{**LENIENT, **reading})


def read_splits(folder: str | Path, **reading: Any) -> dict[Path, Split]:
    """Read the split of each photo that `read_all` returns; empty if the folder names no splits.

    Args:
        folder: see `check`.
        **reading: arguments of `read_own`.
    """
    return own_splits(folder, **{**LENIENT, **reading})


def read_questions(folder: str | Path, roster: Roster, **reading: Any) -> dict[str, str]:
    """Read the questions that the captions of `read_all` answer; empty without questions.

    Args:
        folder: see `check`.
        roster: the folder's roster.
        **reading: arguments of `read_own`.
    """
    return own_questions(folder, roster, **reading)


def _limits(
    thresholds: Mapping[str, float], skip: Collection[str], remove: Collection[str]
) -> dict[str, float]:
    unknown = sorted({*thresholds, *skip, *remove}.difference(THRESHOLDS))
    if unknown:
        raise ValueError(f"unknown check {unknown[0]!r}; choose from {', '.join(THRESHOLDS)}")
    for name, value in thresholds.items():
        if not value >= 0:
            raise ValueError(f"the threshold of {name} must be at least 0: got {value}")
    limits = {**THRESHOLDS, **thresholds}
    return {name: limits[name] for name in THRESHOLDS if name not in skip}


def build_encoders(
    space: str | JointEmbedder, cache_folder: str | Path | None
) -> tuple[JointEmbedder | None, TextEmbedder | None]:
    """Build the embedding space, and the encoder that compares captions; see `check`."""
    if not isinstance(space, str):
        return space, None
    if space == "none":
        return None, None
    cache = None if cache_folder is None else Path(cache_folder) / "sentences"
    if space == "joint_space" or space.endswith(HEADS):
        from captioning.text.sentences import build_sentence_encoder
        from captioning.vision.backbones import build_backbone
        from captioning.vision.joint_space import build_joint_space

        weights = None if space == "joint_space" else space
        sentences = build_sentence_encoder(name="minilm", cache_folder=cache)
        backbone = build_backbone(name="efficientnet_lite0", inference=True)
        built = build_joint_space(backbone=backbone, sentences=sentences, weights=weights)
        return built, sentences
    if space.startswith("open_clip:"):
        from captioning.vision.clip import build_clip

        name, weights = _of_open_clip(space.removeprefix("open_clip:"))
        return build_clip(name=name, weights=weights), None
    from captioning.vision.dual_encoder import build_dual_encoder

    return build_dual_encoder(name=space), None


def _of_open_clip(place: str) -> tuple[str, str | None]:
    """Parse ``NAME/TAG@COMMIT`` into name and weights for `build_clip`; a hub model has no tag."""
    if place.startswith("hf-hub:") or Path(place).is_dir():
        return place, None
    name, _, weights = place.partition("/")
    return name, weights or "openai"
