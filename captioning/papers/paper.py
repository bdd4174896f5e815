"""Tables and figures of a paper, as described in ``papers/PAPER/PAPER.yaml``.

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
    """Column of a table in a paper.

    Attributes:
        name: name of the column in the paper.
        metric: this project's metric, as in ``metrics.json``; None if there is none.
        unit: key of `UNITS`: factor from this project's unit to the paper's.
        file: file of the run folder.
        part: dotted key of the corpus scores in the file; ``""``: the file itself.
        differs: how the metric differs from the paper's; empty if it does not.
        at: changes of metric, file and part by scale.
    """

    name: str
    metric: str | None
    unit: str
    file: str
    part: str
    differs: str
    at: Mapping[str, Mapping[str, str]]

    def on(self, scale: str) -> Column:
        """Column with the changes for a scale."""
        return replace(self, **self.at.get(scale, {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Row of a table in a paper.

    Attributes:
        name: name of the row in the paper.
        published: a number per column, None if the paper has none.
        run: id of the run that gives the measured numbers, or None.
        reason: why there is no run: ``("not possible" | "quoted", why)``; None if there is a run.
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
    """Table or figure of a paper.

    Attributes:
        id: ``table2``, ``figure5``.
        page: page or section of the paper.
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
        """Number of published numbers."""
        return sum(value is not None for row in self.rows for value in row.published)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Runs that were measured before and are stored in a file of records.

    Attributes:
        file: name without ``.jsonl``.
        values: config keys with their required values, as text.
        run: id of the runs in the file; None: any.
        files: old names of files that today's commands name differently.
        tests: names of further tests' corpus scores in a record (``flickr8k.json``), by their file
            in a run folder (``evaluation/cross/metrics.json``).
    """

    file: str
    values: Mapping[str, str] = field(default_factory=dict)
    run: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    tests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Commands and cost of a run at one scale.

    Attributes:
        steps: commands without ``captioning``.
        hours, memory: cost of all steps on the scale's machine, e.g. 8 and ``40 GB``; None:
            unknown.
        differs: differences from the paper, with reasons.
        recorded: where results are already recorded.
        impossible: why the run is impossible at this scale; it then has no steps.
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
        """Ids of the runs whose folders the commands name, each once."""
        names = (match["other"] for step in self.steps for match in PLACEHOLDER.finditer(step))
        return list(dict.fromkeys(name for name in names if name))


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperRun:
    """Run of a paper.

    Attributes:
        id: name of the run in the file.
        seeded: whether each seed has its own run; data shared by all seeds do not.
        ways: ways to measure it, by scale.
    """

    id: str
    seeded: bool
    ways: Mapping[str, Way]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """File or folder from third parties that runs read.

    Attributes:
        path: required path; ``{data}``, ``{models}`` and ``{cache}`` are the user's folders.
        what: description of the file, and how to get it.
        named: words in a command that show that it reads the file; by default, the path.
        is_on_hub: whether the path ends with the file's name on the model hub.
        scale: scale of the runs.
        num_photos: number of photos in a folder, at least 1; None: no folder of photos.
    """

    path: str
    what: str
    named: tuple[str, ...]
    is_on_hub: bool
    scale: str
    num_photos: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Claim of a paper: one row of a table compared with another.

    Attributes:
        id: name of the claim in the file.
        claim: the claim in a sentence.
        item, column: where the numbers are.
        rows: the changed row and the baseline row.
        sign: direction 1, -1 or 0 if the paper gives no numbers; None: computed from the numbers.
        here: this project's rows in place of the paper's, by scale: item, column, changed row,
            baseline row.
        cause: why the measured effect differs from the paper's, by scale.
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
    """Paper with its tables, runs and claims.

    Attributes:
        id: name of the file.
        file: the file.
        citation: authors, title, where and when it was published.
        needs: needs of all scales.
        scales: description of each scale: data, model, machine.
        effects: claims that the tables can test.
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
