"""Runs of a paper as tasks: their commands, in an order that meets each one's needs."""

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
    """Look for all that tasks need and is not theirs to make.

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
            "nothing was begun, as files are missing that these runs need:\n"
            + "\n".join(missing)
            + "\nput them there, or choose other runs with --rows"
        )


def _problem(need: Need) -> str | None:
    """What is wrong with what is there, with a mark behind it; empty: it is not there.

    Of a folder of photos a few are opened, from its first name to its last.
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
    """Needs of the tasks that are not done, with the runs that have them."""
    texts = {task.run.id: " ".join(task.way.steps) for task in tasks if not task.is_done}
    found = []
    for need in (need for need in paper.needs if need.scale == scale):
        runs = [run for run, text in texts.items() if any(name in text for name in need.named)]
        found += [(need, runs)] if runs else []
    return found


def place_of(need: Need) -> Path:
    """The path at which it is searched."""
    path = need.path
    for name, folder in folders().items():
        path = path.replace(f"{{{name}}}", folder)
    return Path(path).expanduser()


def told(need: Need) -> str:
    """Its path, its description, and the command that fetches it, if there is one."""
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
    """Devices that a command asks for; one where it does not say."""
    return _number(command, DEVICES)


def on_devices(command: Sequence[str], number: int) -> tuple[str, ...]:
    """A command for so many devices at most; an update is of as many captions as before.

    Raises:
        ValueError: the requested number is not a multiple of them, or its batches are unknown.
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
    """A command without how its updates are shared out among devices."""
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
    """A run at one scale with one seed.

    Attributes:
        folder: its results.
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
        """Its name in messages."""
        return f"{self.run.id}, seed {self.seed}"

    @property
    def is_done(self) -> bool:
        """Whether all commands ended well."""
        return self.num_done == len(self.commands)

    @property
    def num_devices(self) -> int:
        """Devices that its trainings ask for."""
        return max(map(num_devices, self.commands), default=1)

    @property
    def num_done(self) -> int:
        """Commands that ended well, from the first on."""
        done = read_json(self.folder / STEPS) if (self.folder / STEPS).is_file() else []
        both = zip(self.commands, done, strict=False)
        same = (work_of(one) == work_of(other) for one, other in both)
        known = min(len(self.commands), len(done))  # the file may have had more steps
        return next((number for number, is_same in enumerate(same) if not is_same), known)

    def on_devices(self, number: int) -> Task:
        """The task for so many devices at most (`captioning.papers.steps`)."""
        commands = tuple(on_devices(command, number) for command in self.commands)
        return replace(self, commands=commands)

    @property
    def lines(self) -> list[str]:
        """Commands as they are typed."""
        return [shlex.join(["captioning", *command]) for command in self.commands]


def tasks_of(
    paper: Paper, names: Iterable[str], scale: str, seeds: Iterable[int], results: Results
) -> list[Task]:
    """Tasks of runs, those first that others need; a run that all seeds share comes once."""
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
    """A word with its placeholders' texts, in quotes where Hydra would misread them."""
    if not SETTING.match(word):
        return PLACEHOLDER.sub(text, word)

    def value(match: re.Match[str]) -> str:
        filled = PLACEHOLDER.sub(text, match[0])
        in_quotes = word[: match.start()].endswith(("'", '"'))
        return filled if filled == match[0] or in_quotes else quoted(filled)

    return VALUE.sub(value, word)


def quoted(value: str) -> str:
    """A value as Hydra reads it: as it is, or in quotes where it has umlauts, brackets or such."""
    if PLAIN.fullmatch(value):
        return value
    from hydra.core.override_parser.types import Quote, QuotedString  # a quarter of a second

    return QuotedString(text=value, quote=Quote.double).with_quotes()


def folders() -> dict[str, str]:
    """The user's, by the names that steps and needs have for them."""
    return {name: str(own_folder(name)) for name in ("data", "models", "cache")}
