"""``captioning caption PHOTO|FOLDER...``: write a caption for each photo."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from captioning.commands.command import PlainCommand
from captioning.commands.first_look import look_for_captioner, look_for_photos
from captioning.commands.quick_imports import quick_imports
from captioning.data.photo_folder import PHOTO_SUFFIXES, UNREAD_SUFFIXES
from captioning.types import Box, CaptionedPhoto, Prediction

if TYPE_CHECKING:
    from captioning.decoding.sampling import Sampling
    from captioning.served.caption_writer import ServedCaptioner

FORMATS = ("text", "csv", "json")
PRECISIONS = ("auto", "float32", "bfloat16", "float16")
_ABOUT = "exit status: 0; 1 for an error or a broken photo (named and skipped); 2 for wrong usage"
Format = Literal["text", "csv", "json"]
_OF_SERVERS = ("parallel", "max_tokens", "language")
# Options that a server knows nothing of, with their defaults.
_NOT_OF_SERVERS: Mapping[str, Any] = {
    **dict.fromkeys(("beam", "min_length", "max_length", "boxes", "precision", "batch_size")),
    "template": [],
    "must_include": [],
    "plugins": [],
    "device": "auto",
}


def _at_least(minimum: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        with suppress(ValueError):
            if int(text) >= minimum:
                return int(text)
        raise ArgumentTypeError(f"must be a whole number of at least {minimum}: got {text!r}")

    return number


def _arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _ABOUT
    add = parser.add_argument
    add("photos", nargs="+", metavar="PHOTO|FOLDER", help="photos, and folders of photos")
    add(
        "--model", metavar="FOLDER",
        help="a run folder, an export, a model of transformers (BLIP, a VLM), or a served model, "
             "http://HOST:PORT/v1#NAME; default: the shipped captioner",
    )  # fmt: skip
    add("--prompt", help="prompt for a model of transformers or a served model")
    add(
        "--template", nargs="+", default=[], metavar="OPTION=VALUE", type=_option,
        help="options of the model's chat template, such as enable_thinking=false",
    )  # fmt: skip
    add("--n-best", type=_at_least(1), default=1, metavar="N", help="captions per photo (1)")
    add("--beam", type=_at_least(1), metavar="K", help="beam size (default: the captioner's own)")
    add("--diverse", action="store_true", help="sample captions at random, seeded by --seed")
    add("--seed", type=_at_least(0), help="random seed of --diverse (0)")
    add("--min-length", type=_at_least(0), metavar="WORDS", help="minimum length of a caption")
    add("--max-length", type=_at_least(1), metavar="WORDS", help="maximum length of a caption")
    add(
        "--must-include", nargs="+", default=[], metavar="WORD",
        help="words that every caption must have; WORD,WORD means either word",
    )  # fmt: skip
    add("--boxes", metavar="FILE", help="boxes of captioning find-objects, for region models")
    add("--format", choices=FORMATS, default="text", help="text: file, tab, caption (default)")
    add("--out", type=Path, metavar="FILE", help="output file; default: standard output")
    add("--device", default="auto", help="cpu, cuda or auto (a GPU if there is one)")
    add(
        "--precision", choices=PRECISIONS,
        help="precision of networks: float32 (default), or auto (half precision on a GPU, where it "
             "is faster; default for models of transformers)",
    )  # fmt: skip
    add("--batch-size", type=_at_least(1), metavar="N", help="photos at a time (16; 64 on a GPU)")
    add("--parallel", type=_at_least(1), metavar="N", help="requests at a time to a server (8)")
    add("--max-tokens", type=_at_least(1), metavar="N", help="tokens in a server's answer (256)")
    add("--language", metavar="CODE", help="language of a server's captions, such as en, or any")
    add("--plugins", nargs="+", default=[], metavar="PACKAGE", help="your own packages to import")


def _option(text: str) -> tuple[str, Any]:
    """Parse ``NAME=VALUE``, with the value in YAML."""
    name, mark, value = text.partition("=")
    if not mark or not name.isidentifier():
        raise ArgumentTypeError(f"must be OPTION=VALUE: got {text!r}")
    return name, yaml.safe_load(value)


def _caption(options: Namespace) -> int:
    look_for_photos(options.photos)
    if options.model is not None and options.model.lower().startswith(("http://", "https://")):
        return _caption_by_server(options)
    if given := [name for name in _OF_SERVERS if getattr(options, name) is not None]:
        raise ValueError(
            f"{_typed(given)}: for --model http://HOST:PORT/v1#NAME alone; leave it out"
        )
    look_for_captioner(options.model)
    with quick_imports():
        from captioning.inference.captioner import Captioner

    if options.out is not None and options.out.is_dir():
        raise ValueError(f"--out {options.out} is a folder; name a file")
    photos = find_photos(options.photos)
    boxes = read_boxes(options.boxes, photos) if options.boxes else None
    captioner = Captioner.load(
        options.model,
        device=options.device,
        plugins=options.plugins,
        prompt=options.prompt,
        template=dict(options.template),
        precision=options.precision,
    )
    results = captioner.stream(
        photos,
        batch_size=options.batch_size,
        boxes=boxes,
        must_include=[words.split(",") for words in options.must_include],
        skips_broken=True,
        **_search(options),
    )
    bar_shown = options.out is not None or not sys.stdout.isatty()
    watch = _Watch()
    _write(watch.good(_with_bar(results, len(photos), shown=bar_shown)), options)
    return watch.report()


def _caption_by_server(options: Namespace) -> int:
    """Caption by a served model; answers are cached, so each request is made once."""
    unlike = [name for name, value in _NOT_OF_SERVERS.items() if getattr(options, name) != value]
    if unlike:
        raise ValueError(
            f"{_typed(unlike)}: not available for a model behind an address; leave it out"
        )
    if options.out is not None and options.out.is_dir():
        raise ValueError(f"--out {options.out} is a folder; name a file")
    if options.n_best > 1 and not options.diverse:
        raise ValueError("--n-best: a server gives one best caption; add --diverse to draw several")
    if options.seed is not None and not options.diverse:
        raise ValueError("--seed: needs --diverse; add it, or leave --seed out")
    with quick_imports():
        from captioning.runtime.files import write_text
        from captioning.served.caption_writer import ServedCaptioner

    given = {"num_parallel": options.parallel, "max_tokens": options.max_tokens}
    given["language"] = options.language
    cache = Path(os.environ.get("CAPTIONING_CACHE") or "cache") / "served"
    captioner = ServedCaptioner(
        name=options.model,
        prompt=options.prompt or "",
        search=_draws(options) if options.diverse else None,
        cache_folder=cache,
        **{name: value for name, value in given.items() if value is not None},
    )
    photos = find_photos(options.photos)
    watch = _Watch()
    try:
        _write(watch.good(_served(captioner, photos)), options)
    except BaseException:
        print(f"caption: the answers so far are cached in {cache}", file=sys.stderr)
        raise
    if options.out is not None:
        card = json.dumps(captioner.card(), indent=1, ensure_ascii=False)
        write_text(options.out.with_name(f"{options.out.name}.card.json"), card + "\n")
    return watch.report()


def _draws(options: Namespace) -> Sampling:
    """Sampling settings of ``--diverse`` for a server; only these need torch."""
    from captioning.decoding.sampling import Sampling

    drawn = {"num_captions": options.n_best, "seed": options.seed or 0}
    return Sampling.with_settings(**drawn, top_p=0.9)


def _served(captioner: ServedCaptioner, photos: Sequence[str]) -> Iterator[CaptionedPhoto]:
    """Captions of a served model for each photo, without scores."""
    for photo, replies in zip(photos, captioner.in_order(photos), strict=True):
        texts = dict.fromkeys(" ".join(one.text.split()) for one in replies if not one.problem)
        captions = tuple(Prediction(image_id=photo, caption=text, score=-inf) for text in texts)
        problem = "" if captions else replies[0].problem
        if problem and not problem.startswith(photo):
            problem = f"{photo}: {problem}"
        yield CaptionedPhoto(photo=photo, captions=captions, problem=problem)


def _typed(names: Iterable[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in names)


def _search(options: Namespace) -> dict[str, Any]:
    """Search settings given on the command line."""
    given = {
        "num_captions": options.n_best if options.n_best > 1 else None,
        "beam_size": options.beam,
        "seed": options.seed,
        "min_words": options.min_length,
        "max_words": options.max_length,
    }
    return {"diverse": options.diverse} | {n: v for n, v in given.items() if v is not None}


def _with_bar(results: Iterable[Any], total: int, *, shown: bool) -> Iterator[Any]:
    """Iterate over results, with a progress bar on standard error if that is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    hidden = not shown or not console.is_terminal
    yield from track(results, "captions", total, console=console, disable=hidden, transient=True)


class _Watch:
    """Count broken photos, and captions without their required words."""

    def __init__(self) -> None:
        self.num_broken = self.num_good = self.num_unmet = 0

    def good(self, results: Iterable[Any]) -> Iterator[Any]:
        """Yield the results of good photos; name broken photos on standard error."""
        for photo in results:
            if photo.problem:
                self.num_broken += 1
                print(f"caption: {shown_name(photo.problem)}", file=sys.stderr)
                continue
            self.num_good += 1
            self.num_unmet += photo.captions[0].satisfied is False
            yield photo

    def report(self) -> int:
        """Print the errors and return the exit status."""
        if self.num_unmet:
            print(
                f"caption: for {self.num_unmet} of {self.num_good} photos, no caption with the "
                "words of --must-include was found",
                file=sys.stderr,
            )
        if not self.num_broken:
            return 0
        total = self.num_broken + self.num_good
        print(f"caption: {self.num_broken} of {total} photos left out", file=sys.stderr)
        return 1


def _write(photos: Iterator[Any], options: Namespace) -> None:
    """Print captions as they arrive, or write all captions to a file."""
    from captioning.runtime.files import write_text

    if options.format == "json":
        parts = iter([json_table(list(photos), num_captions=options.n_best)])
    else:
        parts = (table_lines(photo, options.format) for photo in photos)
    head = "file,caption,score\n" if options.format == "csv" else ""
    if options.out is not None:
        write_text(options.out, head + "".join(parts))
        return
    sys.stdout.write(head)
    for part in parts:
        sys.stdout.write(part)
        sys.stdout.flush()


CAPTION = PlainCommand(
    name="caption",
    summary="Caption each photo with the shipped captioner or any other.",
    examples=(
        "caption photo.jpg",
        "caption holidays --format csv --out captions.csv",
        "caption photo.jpg --model runs/flickr8k/updown_small/seed0 --n-best 3",
        "caption photo.jpg --must-include dog grass,lawn",
        "caption holidays --model http://localhost:8000/v1#NAME --out captions.csv",
    ),
    add_arguments=_arguments,
    call=_caption,
)


def find_photos(places: Sequence[str | Path]) -> list[str]:
    """Photos named as files, and photos in folders and below, sorted by name; each once.

    Hidden files and folders are left out. A named file that does not exist or lacks a photo's
    suffix is treated as a broken photo.

    Raises:
        ValueError: no photo is found.
    """
    found = [path for place in places for path in _below(os.fspath(place))]
    if not found:
        shown = ", ".join(map(str, places))
        raise ValueError(f"{shown}: no photos here or below ({', '.join(sorted(PHOTO_SUFFIXES))})")
    return list(dict.fromkeys(found))


def _below(place: str) -> Iterator[str]:
    if not os.path.isdir(place):
        yield str(Path(place))
        return
    for folder, inner, names in os.walk(place):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(names):
            is_photo = os.path.splitext(name)[1].lower() in PHOTO_SUFFIXES | UNREAD_SUFFIXES
            if is_photo and not name.startswith("."):
                yield str(Path(folder, name))


def read_boxes(file: str | Path, photos: Sequence[str]) -> list[tuple[Box, ...]]:
    """Read the boxes of each photo from a file of ``captioning find-objects``.

    A photo's ``image_id`` there is its path, its file name, or that without suffix.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file has another format, or lacks a photo.
    """
    from captioning.data.steps.take_detections import read_detections

    regions = read_detections(file)[1]
    boxes = []
    for photo in photos:
        names = (photo, Path(photo).name, Path(photo).stem)
        name = next((name for name in names if name in regions), None)
        if name is None:
            raise ValueError(
                f"{file}: has no line with the image_id {names[1]!r} or {names[2]!r}: add the "
                "boxes of this photo, or an empty list"
            )
        boxes.append(tuple(region.box for region in regions[name]))
    return boxes


def table_lines(photo: CaptionedPhoto, form: Format) -> str:
    """Lines of a photo in a line format, one per caption.

    Args:
        photo: the photo with its captions.
        form: ``"text"`` is ``file<TAB>caption``, ``"csv"`` is ``file,caption,score``.
    """
    name = shown_name(photo.photo)
    if form == "text":
        return "".join(f"{name}\t{one.caption}\n" for one in photo.captions)
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    rows = [[name, one.caption, _number(one.score)] for one in photo.captions]
    writer.writerows(rows)
    return lines.getvalue()


def json_table(photos: Sequence[CaptionedPhoto], *, num_captions: int) -> str:
    """List of objects with ``file``, ``caption`` and ``score``, for JSON output.

    With several captions a photo ``captions`` holds all of them; ``boxes`` and ``has_words`` (the
    required words occur) are included if available.
    """
    entries = []
    for photo in photos:
        entry: dict[str, Any] = {"file": shown_name(photo.photo)}
        entry |= _entry(photo.captions[0])
        if num_captions > 1:
            entry["captions"] = [_entry(one) for one in photo.captions]
        if photo.boxes:
            entry["boxes"] = [list(box) for box in photo.boxes]
        entries.append(entry)
    return json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _entry(one: Any) -> dict[str, Any]:
    entry = {"caption": one.caption, "score": _number(one.score)}
    return entry if one.satisfied is None else entry | {"has_words": one.satisfied}


def _number(score: float) -> float | None:
    """Score for output; None if the search found no caption."""
    return round(score, 6) if isfinite(score) else None


def shown_name(name: str) -> str:
    """File name as one line of text; undecodable names are written as Python prints them."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
