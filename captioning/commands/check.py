"""``captioning check FOLDER``: find faults in photos and captions."""

from __future__ import annotations

import logging
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.commands.command import PlainCommand, add_format, print_json
from captioning.commands.curation import (
    EXPORT_FORMATS,
    add_held_out,
    add_photo_arguments,
    cache_of,
    held_out_of,
    style_of,
    without_photos,
)
from captioning.commands.quick_imports import quick_imports
from captioning.config.setting_error import AbstractSettingError, Setting
from captioning.data.readers.own.root import check_root

if TYPE_CHECKING:
    from captioning.served.judge import ServedJudge
    from curation.check.generator_folder import Purpose
    from curation.check.result import CheckResult
    from curation.export.tool_files import Style

LAYOUTS = (
    "concepts", "imagefolder", "token_file", "karpathy", "coco", "jsonl", "table", "arrow",
    "webdataset", "line_pairs", "text_files", "file_names",
)  # fmt: skip
WORD_CHANCE = 0.7  # below it fewer than half of the words are wrong: --chance does not go there
# Arguments of the reader, as this command has them.
_OPTIONS = {
    "layout": "--layout",
    "annotations": "--annotations",
    "image_folder": "--image-folder",
    "file_column": "--file-column",
    "caption_columns": "--caption-column",
    "caption_per": "--caption-per",
}
_ABOUT = """checks and their thresholds (--threshold NAME=VALUE, --skip NAME):
  fit=0.5             chance that the caption does not fit its photo (also --chance)
  wrong_photo=0.5     chance that none of the photo's captions fits it (also --chance)
  shifted=10          evidence for a run of captions of the neighbouring photos, in nats
  wrong_word=0.7      chance that a word is wrong (also --chance)
  wrong_sentence=0.5  * chance that a sentence of a long caption does not fit (also --chance)
  same_caption=5      photos with the same caption
  duplicate_photo=.95 likeness to an earlier photo
  split_copy=.95      likeness to an earlier photo of another split
  broken_photo=1      photo that cannot be opened
  blank_photo=4       contrast below this, of 255
  tiny_photo=64       smaller side below this, in pixels
  dark_photo=0.32     * 99% darker than this, of 1
  light_photo=0.95    * 95% brighter than this, of 1
  blurry_photo=0.45   * what another blur leaves of the sharpest parts, of 1
  low_information=3   * bits of the colours below this
  odd_aspect=0.35     * shorter by longer side below this
  grey_photo=6        * no pixel's channels differ by this, of 255
  address=1           web and e-mail addresses
  file_name=1         names of files and cameras
  code=1              code, HTML, probabilities
  mojibake=1          letters of a text that was read in a wrong encoding
  refusal=1           phrases of a language model to its user, or that the photo cannot be described
  marker=1            marks of chats and tokenizers, such as USER:, <|im_start|>, startseq
  template=1          unfilled places of a template, such as {subject}
  no_caption=1        N/A, none, "no caption" and the like
  repetition=3        words that only repeat what is before them
  too_long=3          times the words of the median caption
  too_short=2         words below this
  other_language=0.6  share that speaks for another language or script than the set's
of folders for fine-tuning image generators also
  trigger_missing=1   captions without the trigger
  trigger_misspelt=1  the trigger with a slip, or in other letters
  trigger_not_first=1 words before the trigger
  class_missing=1     captions without the words of --class-word
  mixed_style=1       tags among sentences, or sentences among tags
  long_for_clip=78    tokens of CLIP
  long_for_t5=513     tokens of T5
  small_photo=512     smaller side below this, in pixels (also --bucket)
  repeated_caption=2  photos with the same caption, in the place of same_caption
  alike_caption=0.9   words shared with another photo's caption, of the words of either
  shared_caption=1    photos whose caption is their folder's"""


def _arguments(parser: ArgumentParser) -> None:
    parser.formatter_class, parser.epilog = RawDescriptionHelpFormatter, _ABOUT
    add = parser.add_argument
    add("folder", help="photos and captions, in any layout of docs/tutorials/own_photos.md")
    add("--out", help="folder for the table and the page (NAME-check)")
    add(
        "--chance",
        type=float,
        metavar="P",
        help="probability of a fault above which to flag (0.5; for words at least 0.7)",
    )
    add("--fit-threshold", type=float, metavar="P", help="the same threshold for fit only")
    add("--threshold", action="append", default=[], metavar="NAME=VALUE", help="see checks below")
    add("--skip", action="append", default=[], metavar="NAME", help="name of a check to skip")
    add("--remove", action="append", default=[], metavar="NAME",
        help="also flag findings of checks marked *, not only report")  # fmt: skip
    add(
        "--space", default="joint_space", metavar="SPACE",
        help="embedding of photos and texts: joint_space (shipped), a CLIP or SigLIP of "
             "transformers (FOLDER or OWNER/NAME@COMMIT), open_clip:NAME/WEIGHTS@COMMIT, or none",
    )  # fmt: skip
    add("--export", choices=EXPORT_FORMATS, help="also write the set without flagged items")
    add(
        "--mend", choices=("words", "sentences"),
        help="in the exported dataset, replace wrong words by the right word in the photo's other "
             "captions, or remove sentences that do not fit the photo",
    )  # fmt: skip
    add_photo_arguments(parser, of="in the exported dataset: ")
    add_held_out(parser)
    add("--shown", type=int, default=24, metavar="N", help="captions of each kind on the page (24)")
    add_reading(parser)
    add("--for", dest="purpose", choices=("captioner", "generator"),
        help="purpose of the photos (detected); image generators have more checks")  # fmt: skip
    add("--trigger", metavar="WORD", help="image generators: new concept's word (detected)")
    add("--class-word", action="append", default=[], metavar="WORD",
        help="image generators: word that every caption should have")  # fmt: skip
    add("--bucket", type=int, metavar="N", help="image generators: resolution in pixels (512)")
    _add_judge(parser)
    add("--cache", metavar="FOLDER", help="folder for cached embeddings of captions (cache)")
    add("--seed", type=int, default=0, help="seed for drawing random pairs (0)")
    add_format(parser)


def _add_judge(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--judge",
        metavar="PLACE",
        help="model at http://HOST:PORT/v1#NAME that judges flagged captions again",
    )
    add("--parallel", type=int, default=8, metavar="N", help="parallel requests to --judge (8)")


def add_reading(parser: ArgumentParser, *, annotations: str = "annotations") -> None:
    """Add the options that override a folder's detected layout.

    Args:
        parser: the command's parser.
        annotations: name under which the parsed file name is stored.
    """
    add = parser.add_argument
    add("--layout", choices=LAYOUTS, help="layout of the folder, if another was detected")
    add(
        "--annotations", metavar="NAME", dest=annotations,
        help="file with the captions, if several files could be meant",
    )  # fmt: skip
    add("--image-folder", metavar="NAME", help="subfolder that photos' names are relative to")
    add("--file-column", metavar="NAME", help="column of file names in a table or Parquet")
    add(
        "--caption-column",
        action="append",
        metavar="NAME",
        help="column of captions in a table or Parquet; give several to read several columns",
    )
    add("--caption-per", choices=("line", "file", "cell", "bar", "semicolon"),
        help="file: one caption per text file (default: per line); bar, semicolon, line: separator "
             "of captions in a cell; cell: one caption per cell")  # fmt: skip


def reading_of(options: Namespace, *, annotations: str = "annotations") -> dict[str, Any]:
    """Reader arguments given as options on the command line."""
    return {
        "layout": options.layout,
        "annotations": getattr(options, annotations),
        "image_folder": options.image_folder,
        "file_column": options.file_column,
        "caption_columns": options.caption_column,
        "caption_per": options.caption_per,
    }


def _check(options: Namespace) -> None:
    if options.format == "text":
        _checked(options)
        return
    with redirect_stdout(sys.stderr):
        answer = _checked(options)
    print_json(answer)


def _checked(options: Namespace) -> dict[str, Any]:
    """Check the folder and return the result and its summary, for people or scripts."""
    with by_options():
        check_root(Path(options.folder), options.annotations)
    with quick_imports():
        from curation.check.check_files import check_place, export_cleaned, write_result

    style, judge = _checked_options(options), _judge_of(options)
    draw = held_out_of(options)
    if options.export:
        style.check(options.export)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    folder = Path(options.folder)
    out = Path(options.out or f"{folder.resolve().name}-check")
    cleaned = out / "cleaned"
    if options.export and cleaned.exists():
        raise ValueError(f"{cleaned} is there already; remove it, or choose another --out")
    check_place(out)
    result, stopped = _result(options), None
    if judge is not None:
        result, stopped = judged(result, judge)
    print(result.summary())
    files = write_result(result, out, num_shown=options.shown)
    print(*files, sep="\n")
    answer = _answer(result, files)
    if stopped is not None:
        raise stopped
    if options.export:
        kept = export_cleaned(
            result, cleaned, format=options.export, photos=options.photos, mend=options.mend,
            seed=options.seed, style=style, **draw,
        )  # fmt: skip
        answer |= {"cleaned": str(cleaned), "kept": kept}
        without = without_photos(options.export, options.photos)
        print(f"{cleaned}: {kept:,} captions kept; README.md lists the changes{without}")
    return answer


def _answer(result: CheckResult, files: Sequence[Path]) -> dict[str, Any]:
    return {
        "captions": len(result.roster.samples),
        "photos": len(result.roster.rows_by_image),
        "flagged": int(result.flagged.sum()),
        "checks": {
            check.name: {
                "captions": int(result.flags[check.name].sum()),
                "removes": check.name in result.removing,
            }
            for check in result.checks
        },
        "left_out": len(result.roster.dropped),
        "files": [str(file) for file in files],
    }


def _checked_options(options: Namespace) -> Style:
    """Style of the exported dataset; raise an error for options that need an export."""
    from curation.export.tool_files import Style

    if options.shown < 1:
        raise ValueError(f"--shown must be at least 1: got {options.shown}")
    if options.mend and not options.export:
        raise ValueError("--mend needs --export: choose a format")
    if options.photos and not options.export:
        raise ValueError("--photos needs --export: choose a format")
    style = Style(**style_of(options))
    if style != Style() and not options.export:
        raise ValueError("--form, --question and --repeats need --export: choose a format")
    if options.held_out is not None and not options.export:
        raise ValueError("--held-out needs --export: choose a format")
    return style


def _judge_of(options: Namespace) -> ServedJudge | None:
    """Build the requested judge before the checks start."""
    if options.parallel < 1:
        raise ValueError(f"--parallel must be at least 1: got {options.parallel}")
    if options.judge is None:
        return None
    with quick_imports():
        from captioning.served.judge import ServedJudge

    try:
        return ServedJudge(
            name=options.judge,
            cache_folder=cache_of(options) / "served",
            num_parallel=options.parallel,
        )
    except ValueError as error:
        raise ValueError(f"--judge: {error}") from error


def judged(result: CheckResult, judge: ServedJudge) -> tuple[CheckResult, BaseException | None]:
    """Result with the judge's verdicts on flagged captions, and the error that stopped the judge.

    The function first prints the number of requests and, after some requests, the estimated time.
    """
    from curation.check.result import Judgement

    rows = result.flagged.nonzero()[0].tolist()
    samples = [result.roster.samples[row] for row in rows]
    questions = [judge.question(sample.image_path, sample.caption) for sample in samples]
    new = [place for place, question in enumerate(questions) if not judge.answers.is_kept(question)]
    kept = [place for place in range(len(rows)) if place not in set(new)]
    print(
        f"judge {judge.name}: {len(rows):,} flagged captions, at most {len(new):,} requests"
        + (f"; {len(kept):,} answers are cached" if kept else "")
    )
    first = new[: max(4, judge.answers.model.num_parallel)]
    said = {row: Judgement(problem="not asked") for row in rows}
    stopped: BaseException | None = None
    start = time.monotonic()
    try:
        for places in (kept, first, new[len(first) :]):
            if places and places is not kept and places is not first:
                seconds = (time.monotonic() - start) / len(first) * len(places)
                print(f"judge: about {seconds:,.0f} s for the other {len(places):,}", flush=True)
            for place, reply in judge.answers.as_they_come([questions[place] for place in places]):
                score, problem = judge.read(reply)
                said[rows[places[place]]] = Judgement(score=score, problem=problem)
            if places is kept:
                start = time.monotonic()
    except (KeyboardInterrupt, ConnectionError, ValueError) as error:
        stopped = error
        why = "stopped" if isinstance(error, KeyboardInterrupt) else str(error)
        print(f"judge: {why}; what it said is kept, and the same command asks for the rest")
    return replace(result, judge=judge.name, judgements=said), stopped


def _result(options: Namespace) -> CheckResult:
    """Run the checks; errors name this command's options."""
    with quick_imports():
        from curation.check import check

    thresholds, generator = _thresholds(options), _generator(options)
    with by_options():
        return check(
            options.folder,
            space=options.space,
            thresholds=thresholds,
            skip=options.skip,
            remove=options.remove,
            cache_folder=cache_of(options),
            seed=options.seed,
            generator=generator,
            **reading_of(options),
        )


def _generator(options: Namespace) -> Purpose | bool | None:
    """Facts on a folder for an image generator; None: detect them."""
    from curation.check.generator_folder import BUCKET, Purpose, words_in

    named = {"--trigger": [options.trigger or "x"], "--class-word": options.class_word}
    for option, texts in named.items():
        for text in texts:
            if not words_in(text):
                raise ValueError(f"{option} {text!r} has no letter or digit; give a word")
    bucket = options.bucket
    if bucket is not None and bucket < 1:
        raise ValueError(f"--bucket must be at least 1: got {bucket}")
    is_said = bool(options.trigger or options.class_word or bucket)
    if is_said and options.purpose == "captioner":
        raise ValueError(
            "--trigger, --class-word and --bucket apply to folders for image generators: leave "
            "them out, or leave out --for captioner"
        )
    if not is_said:
        return None if options.purpose is None else options.purpose == "generator"
    words = tuple(options.class_word)
    return Purpose(trigger=options.trigger or "", class_words=words, bucket=bucket or BUCKET)


@contextmanager
def by_options(folder: str = "FOLDER") -> Iterator[None]:
    """Within the block, reader errors name the command's options; ``folder`` holds the photos."""
    try:
        yield
    except AbstractSettingError as error:
        raise error.worded(partial(_option, _OPTIONS | {"folder": folder})) from error


def _option(options: Mapping[str, str], setting: Setting) -> str:
    """Command-line option for a reader's argument."""
    name = options.get(setting.name)
    return str(setting) if name is None else f"{name} {setting.value}".rstrip()


def _thresholds(options: Namespace) -> dict[str, float]:
    thresholds = {}
    for text in options.threshold:
        name, mark, value = text.partition("=")
        try:
            thresholds[name] = float(value)
        except ValueError as error:
            hint = "" if mark else "; write NAME=VALUE"
            raise ValueError(f"--threshold {text}: {value!r} is not a number{hint}") from error
    floors = {"fit": 0.0, "wrong_photo": 0.0, "wrong_sentence": 0.0, "wrong_word": WORD_CHANCE}
    chances = {
        "--fit-threshold": (options.fit_threshold, {"fit": 0.0}),
        "--chance": (options.chance, floors),
    }
    for option, (chance, floors) in chances.items():
        if chance is None:
            continue
        if not 0 <= chance <= 1:
            raise ValueError(f"{option} must be in [0, 1]: got {chance}")
        for name, floor in floors.items():
            thresholds.setdefault(name, max(chance, floor))
    return thresholds


CHECK = PlainCommand(
    name="check",
    summary="Find wrong captions and faulty photos; write a table, a page and a cleaned dataset.",
    examples=(
        "check my_photos",
        "check my_photos --export jsonl --format json",
    ),
    add_arguments=_arguments,
    call=_check,
)
