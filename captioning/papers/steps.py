"""Runs of a paper as tasks with commands, in an order that meets their needs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from captioning.config.folders import own_folder
from captioning.data.photo_folder import PHOTO_SUFFIXES
from captioning.papers.cells import Results
from captioning.papers.paper import PLACEHOLDER, Need, Paper, PaperRun, Way
from captioning.results.runs import STEPS
from captioning.runtime.files import read_json

SHOWN_RUNS = 3  # that need the same
SAMPLED_PHOTOS = 9  # at least, where there are as many
# A split may leave out some of a data set's photos, Karpathy's 2.4% of Flickr30k's; a folder with
# fewer is not unpacked to its end.
MOST = 0.9


def check_needs(paper: Paper, scale: str, tasks: Iterable[Task]) -> None:
    """Check that all files exist that tasks need but do not create.

    Raises:
        FileNotFoundError: something is missing, or photos cannot be opened; each is named once,
            with the runs that need it.
    """
    missing = [
        f"{told(need)}; {problem}for {_some(runs)}"
        for need, runs in needed(paper, scale, tasks)
        if (problem := _problem(need)) is not None
    ]
    if missing:
        raise FileNotFoundError(
            "nothing was started, as these runs need files that are missing:\n"
            + "\n".join(missing)
            + "\nadd the files, or choose other runs with --rows"
        )


def _problem(need: Need) -> str | None:
    """Problem with an existing file or folder of photos; empty if it does not exist.

    A few photos of a folder are opened, spread from the first name to the last.
    """
    place = place_of(need)
    if not place.exists():
        return ""
    if need.num_photos is None:
        return None
    from captioning.vision.photos import photo_problem  # Pillow, for papers that need photos

    paths = place.iterdir() if place.is_dir() else ()
    names = sorted(path.name for path in paths if path.suffix.lower() in PHOTO_SUFFIXES)
    if len(names) < MOST * need.num_photos:
        return f"it has {len(names):,} of {need.num_photos:,} photos; "
    for name in names[:: max(1, len(names) // SAMPLED_PHOTOS)] + names[-1:]:
        if problem := photo_problem(place / name):
            return f"{name} {problem}; "
    return None


def needed(paper: Paper, scale: str, tasks: Iterable[Task]) -> list[tuple[Need, Sequence[str]]]:
    """Needs of the unfinished tasks, each with the runs that have it."""
    texts = {task.run.id: " ".join(task.way.steps) for task in tasks if not task.is_done}
    found = []
    for need in (need for need in paper.needs if need.scale == scale):
        runs = [run for run, text in texts.items() if any(name in text for name in need.named)]
        found += [(need, runs)] if runs else []
    return found


def place_of(need: Need) -> Path:
    """Path at which a need is searched."""
    path = need.path
    for name, folder in folders().items():
        path = path.replace(f"{{{name}}}", folder)
    return Path(path).expanduser()


def told(need: Need) -> str:
    """Path and description of a need, and a command to download it if there is one."""
    place = place_of(need)
    name = need.path.removeprefix("{models}/")
    fetch = f" (hf download {name} --local-dir {place})" if need.is_on_hub else ""
    return f"{place}: {need.what}{fetch}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_RUNS
    return ", ".join(names[:SHOWN_RUNS]) + (f" and {more} more" if more > 0 else "")


DEVICES, BATCH, PARTS = (
    f"{key}=" for key in ("trainer.devices", "loader.batch_size", "trainer.accumulate_grad_batches")
)


def num_devices(command: Sequence[str]) -> int:
    """Number of devices that a command asks for; 1 by default."""
    return _number(command, DEVICES)


def on_devices(command: Sequence[str], number: int) -> tuple[str, ...]:
    """Limit a command to a number of devices; its updates keep their number of captions.

    Raises:
        ValueError: the requested number is not a multiple of the limit, or its batches are unknown.
    """
    asked = num_devices(command)
    if asked <= number:
        return tuple(command)
    batch, parts_before = _number(command, BATCH), _number(command, PARTS)
    parts = asked // number
    if asked % number or batch % parts:
        raise ValueError(
            f"--devices {number}: a training is for {asked} devices and batches of {batch} "
            "captions, which cannot be shared out evenly"
        )
    rest = [word for word in command if not word.startswith((DEVICES, BATCH, PARTS))]
    sizes = (f"{BATCH}{batch // parts}", f"{PARTS}{parts * parts_before}")
    return (*rest, f"{DEVICES}{number}", *sizes)


def work_of(command: Sequence[str]) -> tuple[str, ...]:
    """Command without the settings that divide its updates among devices."""
    batch = _number(command, BATCH) * _number(command, PARTS)
    rest = (word for word in command if not word.startswith((DEVICES, BATCH, PARTS)))
    return (*rest, str(batch))


def _number(command: Sequence[str], key: str) -> int:
    return int(next((word.removeprefix(key) for word in command if word.startswith(key)), 1))


# KEY= of a setting, which Hydra reads; a value in it with a placeholder; what needs no quotes.
SETTING = re.compile(r"[+~]*[A-Za-z_][\w./@-]*=")
VALUE = re.compile(rf"(?:{PLACEHOLDER.pattern}|[^\s=,\[\]{{}}:\"'])+")
PLAIN = re.compile(r"[\w/.:\\+@%*?| -]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Run at one scale with one seed.

    Attributes:
        folder: folder of the results.
        commands: arguments of ``captioning``, in order.
        needs: folders of the tasks whose results its commands read.
    """

    run: PaperRun
    seed: int
    way: Way
    folder: Path
    commands: tuple[tuple[str, ...], ...]
    needs: tuple[Path, ...]

    @property
    def name(self) -> str:
        """Name of the task in messages."""
        return f"{self.run.id}, seed {self.seed}"

    @property
    def is_done(self) -> bool:
        """Whether all commands have finished."""
        return self.num_done == len(self.commands)

    @property
    def num_devices(self) -> int:
        """Number of devices that the task's trainings ask for."""
        return max(map(num_devices, self.commands), default=1)

    @property
    def num_done(self) -> int:
        """Number of finished commands, counted from the first."""
        done = read_json(self.folder / STEPS) if (self.folder / STEPS).is_file() else []
        both = zip(self.commands, done, strict=False)
        same = (work_of(one) == work_of(other) for one, other in both)
        known = min(len(self.commands), len(done))  # the file may have had more steps
        return next((number for number, is_same in enumerate(same) if not is_same), known)

    def on_devices(self, number: int) -> Task:
        """Task limited to a number of devices (`captioning.papers.steps`)."""
        commands = tuple(on_devices(command, number) for command in self.commands)
        return replace(self, commands=commands)

    @property
    def lines(self) -> list[str]:
        """Commands as typed in a shell."""
        return [shlex.join(["captioning", *command]) for command in self.commands]


def tasks_of(
    paper: Paper, names: Iterable[str], scale: str, seeds: Iterable[int], results: Results
) -> list[Task]:
    """Tasks of runs, each after the tasks that it needs; a run shared by all seeds comes once."""
    tasks: dict[Path, Task] = {}

    def add(name: str, seed: int) -> list[Path]:
        run = paper.runs[name]
        seed = seed if run.seeded else 0  # what all seeds share is made of the first one's runs
        way = run.ways.get(scale)
        folder = results.folder(paper, run, scale, seed)
        if way is None or way.impossible is not None:
            return []
        if folder not in tasks:
            needs = tuple(need for other in way.needs for need in add(other, seed))
            commands = tuple(_command(step, paper, run, scale, seed, results) for step in way.steps)
            tasks[folder] = Task(
                run=run, seed=seed, way=way, folder=folder, commands=commands, needs=needs
            )
        return [folder]

    names = list(names)
    for seed in seeds:
        for name in names:
            add(name, seed)
    return list(tasks.values())


def _command(
    step: str, paper: Paper, run: PaperRun, scale: str, seed: int, results: Results
) -> tuple[str, ...]:
    folder = results.folder(paper, run, scale, seed)

    def text(match: re.Match[str]) -> str:
        other = match["other"]
        of = results.folder(paper, paper.runs[other], scale, seed) if other else folder
        return {"seed": str(seed), **folders()}.get(match[1], str(of))

    words = shlex.split(step)
    if words[0] == "train":
        words += [f"seed={seed}", "run_dir={run}"]
    return tuple(_filled(word, text) for word in words)


def _filled(word: str, text: Callable[[re.Match[str]], str]) -> str:
    """Fill in a word's placeholders, quoting values that Hydra would misread."""
    if not SETTING.match(word):
        return PLACEHOLDER.sub(text, word)

    def value(match: re.Match[str]) -> str:
        filled = PLACEHOLDER.sub(text, match[0])
        in_quotes = word[: match.start()].endswith(("'", '"'))
        return filled if filled == match[0] or in_quotes else quoted(filled)

    return VALUE.sub(value, word)


def quoted(value: str) -> str:
    """Quote a value for Hydra if it has brackets, umlauts or other special characters."""
    if PLAIN.fullmatch(value):
        return value
    from hydra.core.override_parser.types import Quote, QuotedString  # a quarter of a second

    return QuotedString(text=value, quote=Quote.double).with_quotes()


def folders() -> dict[str, str]:
    """User's folders, by their placeholders in steps and needs."""
    return {name: str(own_folder(name)) for name in ("data", "models", "cache")}
