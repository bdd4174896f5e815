"""Read a paper from ``papers/PAPER/PAPER.yaml`` or from the user's own file."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from captioning.config.folders import config_folder, shipped_folder, user_folder
from captioning.papers.paper import (
    AT,
    SCALES,
    UNITS,
    Column,
    Effect,
    Item,
    Need,
    Paper,
    PaperRun,
    Recorded,
    Row,
    Way,
)

# Eight times as fast as the one in Python, where PyYAML was built with it.
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DIRECTIONS = {"up": 1, "down": -1, "level": 0}  # of a claimed effect
DATA_SET = "data="  # before a data set's name, where its files are needed


def paper_folder() -> Path:
    """Folders of the papers; for errors see `shipped_folder`."""
    return shipped_folder("papers", "*/*.yaml", installed="published", checkout="papers")


def paper_names() -> list[str]:
    """Names of all papers."""
    files = paper_folder().glob("*/*.yaml")
    return sorted(path.stem for path in files if path.stem == path.parent.name)


def load_paper(name: str) -> Paper:
    """Load a paper by name, or from the user's own file.

    Raises:
        ValueError: the paper is unknown, or its file is invalid.
        FileNotFoundError: the file does not exist.
    """
    if name.endswith(".yaml"):
        return read_paper(Path(name))
    if name not in paper_names():
        known = ", ".join(paper_names())
        raise ValueError(f"no paper is called {name!r}; there are {known}, or FILE.yaml")
    return read_paper(paper_folder() / name / f"{name}.yaml")


def argument_of(paper: Paper) -> str:
    """Argument by which commands accept a paper: its name, or its file if not shipped."""
    is_shipped = paper.file.parent.parent == paper_folder()
    return paper.id if is_shipped else str(paper.file.resolve())


def read_paper(path: Path) -> Paper:
    """Read a paper from its file.

    Raises:
        ValueError: the file is no YAML, a key is unknown or missing, a value or a row's number of
            values is wrong, or a run is missing; the message names the place.
    """
    content = _Entry(_yaml_of(path), path.name)
    runs = {name: _run(name, entry) for name, entry in content.entries("runs")}
    paper = Paper(
        id=path.stem,
        file=path,
        title=content.take("title"),
        citation=content.take("citation"),
        scales=content.mapping("scales"),
        needs=tuple(
            need for path, entry in content.entries("needs", {}) for need in _needs(path, entry)
        ),
        items={name: _item(name, entry) for name, entry in content.entries("items")},
        runs=runs,
        effects=tuple(_effect(name, entry) for name, entry in content.entries("effects", {})),
    )
    content.end()
    _check_names(paper, path.name)
    return paper


def _yaml_of(path: Path) -> Any:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), YAML_LOADER)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())  # in one line, with the place
        raise ValueError(f"{path} is not valid YAML: {reason}; correct the file") from error


class _Entry:
    """Mapping whose keys are read one by one; keys left at the end are unknown."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"{where}: must hold keys and values: got {value!r}")
        self._value, self.where = dict(value), where

    def take(self, key: str, *default: Any) -> Any:
        if key not in self._value and not default:
            raise ValueError(f"{self.where}: {key!r} is missing")
        return self._value.pop(key, *default)

    def mapping(self, key: str, *default: Any) -> dict[str, Any]:
        values = self.take(key, *default)
        if not isinstance(values, dict):
            raise ValueError(f"{self.where}: {key}: must hold keys and values: got {values!r}")
        return values

    def listed(self, key: str, *default: Any) -> Sequence[Any]:
        values = self.take(key, *default)
        values = default[0] if values is None and default else values
        if not isinstance(values, list | tuple):
            raise ValueError(f"{self.where}: {key}: must be a list: got {values!r}")
        return values

    def entries(self, key: str, *default: Any) -> Iterator[tuple[str, _Entry]]:
        for name, value in self.mapping(key, *default).items():
            yield str(name), _Entry(value, f"{self.where}: {key}.{name}")

    def end(self) -> None:
        if self._value:
            raise ValueError(f"{self.where}: {', '.join(map(repr, self._value))} is not known")


def _needs(path: str, entry: _Entry) -> Sequence[Need]:
    """Need of a file, or with ``data=NAME`` of all files of a dataset."""
    if path.startswith(DATA_SET):
        return _data_set(path.removeprefix(DATA_SET), entry)
    return [_need(path, entry)]


def _data_set(name: str, entry: _Entry) -> Sequence[Need]:
    """Files of a dataset, as its config lists them; photos are counted by `photos_named`."""
    config = _data_config(name, entry.where)
    named = _texts(entry, "named", (f"{DATA_SET}{name}",))
    photos_named = _texts(entry, "photos_named", named)
    scale = _scale(entry)
    entry.end()
    root = str(config["root"]).replace("${paths.data}", "{data}")
    needs = []
    for file in config["files"]:
        is_photos = bool(file.get("photos"))
        number = re.match(r"[\d,]+(?= photos)", file["what"])
        needs.append(
            Need(
                path=posixpath.normpath(f"{root}/{file['path']}"),
                what=f"{file['what']} (see `captioning prepare {DATA_SET}{name}`)",
                named=photos_named if is_photos else named,
                is_on_hub=False,
                scale=scale,
                num_photos=int(number[0].replace(",", "") if number else 1) if is_photos else None,
            )
        )
    return [need for need in needs if need.named]


def _data_config(name: str, where: str) -> dict[str, Any]:
    """Keys ``root`` and ``files`` of a dataset's config or of a config that it is based on."""
    folders = [folder for folder in (user_folder(), config_folder()) if folder]
    file = next((f for d in folders if (f := d / "data" / f"{name}.yaml").is_file()), None)
    if file is None:
        raise ValueError(
            f"{where}: no dataset {name!r} in {folders[-1] / 'data'}; correct its name"
        )
    config = _yaml_of(file)
    bases = [base for base in config.get("defaults", ()) if base != "_self_"]
    merged = {key: value for base in bases for key, value in _data_config(base, where).items()}
    merged |= config
    return {"root": merged["root"], "files": merged["files"]}


def _need(path: str, entry: _Entry) -> Need:
    need = Need(
        path=path,
        what=entry.take("what"),
        named=_texts(entry, "named", (path,)),
        is_on_hub=entry.take("hub", False),
        scale=_scale(entry),
        num_photos=entry.take("num_photos", None),
    )
    entry.end()
    number = need.num_photos
    if number is not None and (not isinstance(number, int) or number < 1):
        raise ValueError(f"{entry.where}.num_photos: must be at least 1: got {number!r}")
    return need


def _scale(entry: _Entry) -> str:
    scale = entry.take("scale", "full")
    if scale not in SCALES:
        raise ValueError(f"{entry.where}.scale: {scale!r} is not one of {', '.join(SCALES)}")
    return scale


def _run(name: str, entry: _Entry) -> PaperRun:
    seeded = entry.take("seeded", True)
    ways = {}
    for scale in SCALES:
        value = entry.take(scale, None)
        if isinstance(value, str):
            ways[scale] = Way(impossible=value)
        elif value is not None:
            ways[scale] = _way(_Entry(value, f"{entry.where}.{scale}"))
    entry.end()
    return PaperRun(id=name, seeded=seeded, ways=ways)


def _way(entry: _Entry) -> Way:
    way = Way(
        steps=_steps(entry),
        hours=_number(entry.take("hours", None), f"{entry.where}: hours"),
        memory=entry.take("memory", None),
        differs=_texts(entry, "differs"),
        recorded=tuple(
            _recorded(_Entry(value, f"{entry.where}.recorded"))
            for value in entry.listed("recorded", ())
        ),
        without=entry.mapping("without", {}),
    )
    entry.end()
    return way


def _steps(entry: _Entry) -> tuple[str, ...]:
    steps = _texts(entry, "steps", None)
    for step in steps:
        try:
            words = shlex.split(step)
        except ValueError as error:  # a quote that is not closed
            raise ValueError(f"{entry.where}: steps: {error}: {step!r}") from error
        if not words:
            raise ValueError(f"{entry.where}: steps: must be commands: got {step!r}")
    return tuple(" ".join(step.split()) for step in steps)


def _number(value: Any, where: str) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"{where}: must be a number or null: got {value!r}")
    return value


def _texts(entry: _Entry, key: str, default: Sequence[str] | None = ()) -> tuple[str, ...]:
    """Read a list of texts, which is required without a default."""
    texts = tuple(entry.listed(key) if default is None else entry.listed(key, default))
    for text in texts:
        if not isinstance(text, str):  # a colon makes a mapping of a sentence
            raise ValueError(f"{entry.where}: {key}: must be texts, put in quotes: got {text!r}")
    return texts


def _recorded(entry: _Entry) -> Recorded:
    values = {str(key): str(value) for key, value in entry.mapping("values", {}).items()}
    recorded = Recorded(
        file=entry.take("file"),
        values=values,
        run=entry.take("run", None),
        files=entry.mapping("files", {}),
        tests=entry.mapping("tests", {}),
    )
    entry.end()
    if not recorded.values and recorded.run is None:
        raise ValueError(f"{entry.where}: needs values or run, which tell the runs of the file")
    return recorded


def _item(name: str, entry: _Entry) -> Item:
    where = entry.where
    columns = tuple(
        _column(_Entry(value, f"{where}.columns[{place}]"))
        for place, value in enumerate(entry.listed("columns"))
    )
    rows = tuple(
        _row(_Entry(value, f"{where}.rows[{place}]"), len(columns))
        for place, value in enumerate(entry.listed("rows"))
    )
    item = Item(
        id=name,
        page=entry.take("page"),
        title=entry.take("title"),
        note=entry.take("note", ""),
        num_seeds=_num_seeds(entry),
        columns=columns,
        rows=rows,
    )
    entry.end()
    return item


def _num_seeds(entry: _Entry) -> int:
    number = entry.take("seeds", 1)
    if not isinstance(number, int) or number < 1:
        raise ValueError(f"{entry.where}: seeds must be a number, at least 1: got {number!r}")
    return number


def _column(entry: _Entry) -> Column:
    column = Column(
        name=str(entry.take("name")),
        metric=entry.take("metric"),
        unit=entry.take("unit", "percent"),
        file=entry.take("file", "metrics.json"),
        part=entry.take("part", "test.corpus"),
        differs=entry.take("differs", ""),
        at=_at(entry),
    )
    entry.end()
    if column.unit not in UNITS:
        raise ValueError(f"{entry.where}: unit must be one of {tuple(UNITS)}: got {column.unit!r}")
    return column


def _at(entry: _Entry) -> dict[str, dict[str, str]]:
    at = {}
    for scale, value in entry.mapping("at", {}).items():
        overrides = _Entry(value, f"{entry.where}.at.{scale}")
        at[scale] = {key: value for key in AT if (value := overrides.take(key, None)) is not None}
        overrides.end()
        if scale not in SCALES:
            raise ValueError(f"{entry.where}.at: scales are {SCALES}: got {scale!r}")
    return at


def _row(entry: _Entry, num_columns: int) -> Row:
    published = entry.listed("published", ()) or [None] * num_columns
    numbers = [_number(value, f"{entry.where}: published") for value in published]
    if len(published) != num_columns:
        raise ValueError(f"{entry.where}: {len(published)} numbers for {num_columns} columns")
    impossible, quoted = entry.take("not_possible", None), entry.take("quoted", None)
    row = Row(
        name=entry.take("name"),
        published=tuple(None if number is None else float(number) for number in numbers),
        run=entry.take("run", None),
        reason=("not possible", impossible) if impossible else quoted and ("quoted", quoted),
        file=entry.take("file", None),
        part=entry.take("part", None),
    )
    entry.end()
    if (row.run is None) == (row.reason is None):
        raise ValueError(f"{entry.where}: needs one of run, not_possible and quoted")
    return row


def _effect(name: str, entry: _Entry) -> Effect:
    where, direction, cause = entry.where, entry.take("direction", None), entry.take("cause", {})
    if direction not in (None, *DIRECTIONS):
        raise ValueError(f"{where}.direction: must be up, down or level: got {direction!r}")
    here = {
        scale: _place(values, 4, f"{where}.here.{scale}")
        for scale, values in entry.mapping("here", {}).items()
    }
    effect = Effect(
        id=name,
        claim=entry.take("claim"),
        item=entry.take("item"),
        column=str(entry.take("column")),
        rows=_place(entry.take("rows"), 2, f"{where}.rows"),
        sign=None if direction is None else DIRECTIONS[direction],
        here=here,
        cause=dict.fromkeys(SCALES, cause) if isinstance(cause, str) else dict(cause),
    )
    entry.end()
    for scale in {*effect.here, *effect.cause} - set(SCALES):
        raise ValueError(f"{where}: {scale!r} is not one of {', '.join(SCALES)}")
    return effect


def _place(values: Any, number: int, where: str) -> tuple[str, ...]:
    is_list = isinstance(values, list) and all(isinstance(value, str) for value in values)
    if not is_list or len(values) != number:
        raise ValueError(f"{where}: must be {number} names: got {values!r}")
    return tuple(values)


def _check_names(paper: Paper, where: str) -> None:
    """Check that rows and steps name existing runs, and that a row uses every run."""
    used = {row.run for item in paper.items.values() for row in item.rows if row.run}
    ways = [(run.id, scale, way) for run in paper.runs.values() for scale, way in run.ways.items()]
    needs = [(name, scale, need) for name, scale, way in ways for need in way.needs]
    for name, scale, need in needs:
        if need not in paper.runs or scale not in paper.runs[need].ways:
            raise ValueError(f"{where}: runs.{name}.{scale}: the run {need!r} does not exist")
    used.update(need for _, _, need in needs)
    for name in sorted(used - set(paper.runs)):
        raise ValueError(f"{where}: a row names the run {name!r}, which does not exist")
    for name in sorted(set(paper.runs) - used):
        raise ValueError(f"{where}: no row uses runs.{name}")
    for effect in paper.effects:
        own = (effect.item, effect.column, *effect.rows)
        for item, *names in (own, *effect.here.values()):
            _check_place(paper, item, names, f"{where}: effects.{effect.id}")
    unknown = sorted(set(paper.scales) - set(SCALES))
    if unknown:
        raise ValueError(f"{where}: scales must be of {SCALES}: got {unknown}")


def _check_place(paper: Paper, name: str, names: Sequence[str], where: str) -> None:
    """Check that an item exists and has the rows and columns."""
    if name not in paper.items:
        raise ValueError(f"{where}: there is no item {name!r}; there are {', '.join(paper.items)}")
    item = paper.items[name]
    known = [part.name for part in (*item.rows, *item.columns)]
    for part in names:
        if part not in known:
            raise ValueError(f"{where}: {name} has no {part!r}")
