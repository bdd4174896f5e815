"""A paper's tables and figures as ``papers/PAPER/PAPER.yaml`` has them.

A row of a table has the paper's numbers and names a run; a run has, for each scale, the commands
that give its result. Rows of several tables may name the same run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

SCALES = ("full", "flickr8k", "miniworld")
UNITS = {"percent": 100.0, "plain": 1.0, "count": 1.0}
AT = ("metric", "file", "part")  # of a column, which scales may have of their own
# What a step may name: its run's folder, another run's, the seed, folders of data and models.
PLACEHOLDER = re.compile(r"\{(run(?::(?P<other>[\w.]+))?|seed|data|models)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        name: the paper's.
        metric: ours, as in ``metrics.json``; None where nothing here measures it.
        unit: of `UNITS`: what ours is multiplied with to be in the paper's unit.
        file: of the run's folder.
        part: of the file, dotted: the corpus scores of its split; ``""``: the file itself.
        differs: how ours differs from the paper's metric; empty where it does not.
        at: scales whose numbers are elsewhere, with what differs of metric, file and part.
    """

    name: str
    metric: str | None
    unit: str
    file: str
    part: str
    differs: str
    at: Mapping[str, Mapping[str, str]]

    def on(self, scale: str) -> Column:
        """The column at a scale."""
        return replace(self, **self.at.get(scale, {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of a table.

    Attributes:
        name: the paper's words.
        published: a number a column, None where the paper has none.
        run: id of the run that gives the measured numbers, or None.
        reason: why there is no run: ``("not possible" | "quoted", why)``; None where there is one.
        file, part: place of a row's numbers, if it differs from its columns' place.
    """

    name: str
    published: tuple[float | None, ...]
    run: str | None
    reason: tuple[str, str] | None
    file: str | None
    part: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A table or figure.

    Attributes:
        id: ``table2``, ``figure5``.
        page: page of the paper, or its section where the text has no pages.
        title: title of the table or figure.
        note: remark on its numbers for readers.
        num_seeds: number of seeds of its runs, from seed 0: three for the main tables.
    """

    id: str
    page: int | str
    title: str
    note: str
    num_seeds: int
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def num_cells(self) -> int:
        """Published numbers."""
        return sum(value is not None for row in self.rows for value in row.published)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Runs that were measured before, in a file of records.

    Attributes:
        file: name without ``.jsonl``.
        values: config keys and what they must be, as text.
        run: id that the runs have in the file; None: of any.
        files: names there of files that today's commands name differently.
        tests: names under which a record has the corpus scores of further tests
            (``flickr8k.json``), by the files of a run folder that have them
            (``evaluation/cross/metrics.json``).
    """

    file: str
    values: Mapping[str, str] = field(default_factory=dict)
    run: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    tests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a run is carried out at one scale.

    Attributes:
        steps: commands without ``captioning``.
        hours, memory: cost of all steps on the scale's machine, e.g. 8 and ``40 GB``; None:
            unknown.
        differs: differences from the paper, with reasons.
        recorded: place of results that are recorded already.
        impossible: why it cannot be run at this scale; it has no steps then.
        without: columns, files or metrics that this scale lacks, and why.
    """

    steps: tuple[str, ...] = ()
    hours: float | None = None
    memory: str | None = None
    differs: tuple[str, ...] = ()
    recorded: tuple[Recorded, ...] = ()
    impossible: str | None = None
    without: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs(self) -> list[str]:
        """Ids of the runs whose folders its steps name, each once."""
        names = (match["other"] for step in self.steps for match in PLACEHOLDER.finditer(step))
        return list(dict.fromkeys(name for name in names if name))


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperRun:
    """A run of a paper.

    Attributes:
        id: its name in the file.
        seeded: whether each seed has a run of its own; data that all seeds share have not.
        ways: ways to measure it, by scale.
    """

    id: str
    seeded: bool
    ways: Mapping[str, Way]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A file or folder that runs read, and that somebody else has made.

    Attributes:
        path: required path; ``{data}``, ``{models}`` and ``{cache}`` are the user's folders.
        what: its description, and how to get it.
        named: texts of a command that reads it; its path, unless other words imply it.
        is_on_hub: whether the model hub has it under the path's last words.
        scale: scale of the runs.
        num_photos: photos that a folder of photos has, at least 1; None: it is none.
    """

    path: str
    what: str
    named: tuple[str, ...]
    is_on_hub: bool
    scale: str
    num_photos: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A claim of a paper: one row of a table against another.

    Attributes:
        id: its name in the file.
        claim: what the paper says, in a sentence.
        item, column: where the numbers are.
        rows: the changed row and the one that it is compared with.
        sign: 1, -1 or 0: the direction, where the paper shows it without numbers or sees no
            difference; None: the numbers tell it.
        here: by scale, rows of our own that stand for the paper's: item, column, changed row, row
            that it is compared with.
        cause: by scale, why the measured effect differs, and what it does not tell.
    """

    id: str
    claim: str
    item: str
    column: str
    rows: tuple[str, ...]
    sign: int | None = None
    here: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cause: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A paper.

    Attributes:
        id: the file's name.
        file: the file.
        citation: authors, title, where and when it was published.
        needs: needs of all scales.
        scales: description of each scale: data, model, machine.
        effects: its claims that the tables let one test.
    """

    id: str
    file: Path
    title: str
    citation: str
    scales: Mapping[str, str]
    needs: tuple[Need, ...]
    items: Mapping[str, Item]
    runs: Mapping[str, PaperRun]
    effects: tuple[Effect, ...] = ()
