"""Mutations of the product: one operator or constant is changed, and some test must fail.

``mutations.json`` holds the list, ``baseline.json`` what the suite made of it when the list was
drawn. ``make mutants`` finds the mutations in the code of today, notes which tests evaluate each
of them, applies one after another in a copy of the tree, runs those tests, and compares.

A mutation is found by its function and its expression, so a function may move to another file.
Where neither is left, correct ``module``, ``function``, ``line`` or ``from`` in the list by hand.
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.mutations import probe

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
LIST, BASELINE = HERE / "mutations.json", HERE / "baseline.json"
PACKAGES = ("captioning", "curation", "augmentation", "papers", "tools", "miniworld")

# Mutations of each core room; their sum is what `draw` keeps.
ROOMS = {
    "captioning/text": 5,
    "captioning/vision": 5,
    "captioning/decoding": 6,
    "captioning/models": 6,
    "captioning/metrics": 5,
    "captioning/data": 6,
    "captioning/results": 4,
    "captioning/training": 5,
    "captioning/evaluation": 4,
    "curation": 9,
    "augmentation": 5,
}
SPARE = (
    5  # times as many are drawn, as some lines are not covered and some mutations change nothing
)

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Pow: ast.Mult,
}


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One change of one expression; ``module`` is the file where it was drawn."""

    id: int
    room: str
    module: str
    function: str
    line: str
    occurrence: int  # of the expression in the function
    kind: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Place:
    """An expression of a function of a file, and what it becomes."""

    file: Path
    function: str
    line: str
    occurrence: int
    kind: str
    node: ast.expr
    after: ast.expr


# ---- what can be mutated ----


def places(file: Path) -> list[Place]:
    """All expressions in functions of a file that some rule changes, in the order of the source."""
    text = file.read_text(encoding="utf-8")
    lines, found = text.splitlines(), []
    for name, function in functions(ast.parse(text), ""):
        seen: dict[str, int] = defaultdict(int)
        for node in expressions(function):
            for kind, after in changes(node):
                key = f"{kind} {ast.unparse(node)} {ast.unparse(after)}"
                place = Place(
                    file=file,
                    function=name,
                    line=lines[node.lineno - 1].strip(),
                    occurrence=seen[key],
                    kind=kind,
                    node=node,
                    after=after,
                )
                found.append(place)
                seen[key] += 1
    return found


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    """Functions and methods with their qualified names, nested ones too."""
    for child in ast.iter_child_nodes(node):
        name = f"{prefix}{child.name}" if isinstance(child, Function | ast.ClassDef) else ""
        if isinstance(child, Function):
            yield name, child
        yield from functions(child, f"{name}." if name else prefix)


def expressions(function: Function) -> Iterator[ast.expr]:
    """What a function's body evaluates: no annotations, f-strings, patterns or error messages."""
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function | ast.ClassDef | ast.JoinedStr | ast.Raise | ast.pattern):
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":
            continue  # of `zip`: a check of the author's
        if isinstance(node, ast.expr):
            yield node
        annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
        children = [child for child in ast.iter_child_nodes(node) if child is not annotation]
        waiting += reversed(children)


def changes(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The changed expressions that the rules make of one."""
    if not isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp | ast.UnaryOp | ast.Constant):
        return
    changed = copy.copy(node)
    match changed:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            changed.ops = [COMPARISONS[type(operator)]()]
            yield "comparison", changed
        case ast.BinOp(op=operator) if type(operator) in ARITHMETIC:
            if not any(isinstance(side, ast.JoinedStr) for side in (changed.left, changed.right)):
                changed.op = ARITHMETIC[type(operator)]()
                yield "arithmetic", changed
        case ast.BoolOp(op=operator):
            changed.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "and/or", changed
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", operand
        case ast.Constant(value=bool(value)):
            yield "truth", ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", ast.Constant(value + 1)
        case _:
            pass


def draw(tree: Path, seed: int) -> list[Mutation]:
    """At most one mutation of a function, from functions of each room at random."""
    generator, drawn = random.Random(seed), []
    for room, wanted in ROOMS.items():
        by_function: dict[tuple[Path, str], list[Place]] = defaultdict(list)
        for file in sorted((tree / room).rglob("*.py")):
            for place in places(file):
                by_function[file, place.function].append(place)
        names = sorted(by_function)
        for name in generator.sample(names, min(wanted * SPARE, len(names))):
            place = generator.choice(by_function[name])
            drawn.append(as_mutation(place, tree, room, len(drawn)))
    return drawn


def as_mutation(place: Place, tree: Path, room: str, number: int) -> Mutation:
    return Mutation(
        id=number,
        room=room,
        module=str(place.file.relative_to(tree)),
        function=place.function,
        line=place.line,
        occurrence=place.occurrence,
        kind=place.kind,
        before=ast.unparse(place.node),
        after=ast.unparse(place.after),
    )


# ---- finding a mutation again ----


def locate(mutation: Mutation, tree: Path) -> Place:
    """Its place in the code of a tree; a ``LookupError`` says where one must help by hand."""
    file = tree / mutation.module
    alike = matching(mutation, file) if file.is_file() else []
    alike = alike or elsewhere(mutation, tree)
    exact = [place for place in alike if place.line == mutation.line]
    if len(exact) == 1:
        return exact[0]
    if mutation.occurrence < len(alike):
        return alike[mutation.occurrence]
    raise LookupError(
        f"{where(mutation)}: `{mutation.before}` is there {len(alike)} times: correct its "
        "occurrence"
    )


def elsewhere(mutation: Mutation, tree: Path) -> list[Place]:
    """Its places in the one other file that has its function; of several the one of its name."""
    definition = f"def {mutation.function.rpartition('.')[2]}("
    found = []
    for package in PACKAGES:
        for file in sorted((tree / package).rglob("*.py")):
            if definition in file.read_text(encoding="utf-8"):
                found.append(matching(mutation, file))
    found = [places for places in found if places]
    if len(found) > 1:
        name = Path(mutation.module).name
        found = [places for places in found if places[0].file.name == name] or found
    if not found:
        raise LookupError(
            f"{where(mutation)}: no function of that name evaluates `{mutation.before}`: correct "
            f"function or before in {LIST.name}, or put another mutation of the room there"
        )
    if len(found) > 1:
        files = ", ".join(str(places[0].file.relative_to(tree)) for places in found)
        raise LookupError(f"{where(mutation)}: {files} have it: name one in {LIST.name}")
    return found[0]


def where(mutation: Mutation) -> str:
    return f"mutation {mutation.id}, {mutation.function} of {mutation.module}"


def matching(mutation: Mutation, file: Path) -> list[Place]:
    """Places of a file with the function and the change of a mutation."""
    return [
        place
        for place in cached_places(file)
        if (place.function, place.kind) == (mutation.function, mutation.kind)
        and ast.unparse(place.node) == mutation.before
        and ast.unparse(place.after) == mutation.after
    ]


cached_places = functools.cache(places)


def rewritten(file: Path, texts: Sequence[tuple[ast.expr, str]]) -> bytes:
    """A file's source with expressions replaced by texts; columns of the syntax tree are bytes."""
    source = file.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, (
            starts[node.end_lineno - 1] + node.end_col_offset
        )

    following = len(source)
    for node, text in sorted(texts, key=lambda pair: span(pair[0]), reverse=True):
        start, end = span(node)
        if end > following:
            raise ValueError(f"{file}:{node.lineno}: one expression is part of another")
        held, following = source[start:end].decode(), start
        source = source[:start] + f"({text.replace(HELD, held)})".encode() + source[end:]
    ast.parse(source)
    return source


HELD = "\0"  # in a text: the expression's own source
DONE = "reached.done"  # folder of a tree


# ---- which tests evaluate which mutation ----


def reach(mutations: Sequence[Mutation], tree: Path, selection: Sequence[str]) -> None:
    """Run a selection of tests in a tree with a probe at each mutation."""
    for folder in (probe.REACHED, probe.REPORTS):
        shutil.rmtree(tree / folder, ignore_errors=True)
        (tree / folder).mkdir()
    texts: dict[Path, list[tuple[ast.expr, str]]] = defaultdict(list)
    for mutation in mutations:
        place = locate(mutation, tree)
        raised = f"__import__('sys').audit({probe.EVENT!r}, {mutation.id}) or ({HELD})"
        texts[place.file].append((place.node, raised))
    originals = {file: file.read_bytes() for file in texts}
    try:
        for file, changed in texts.items():
            file.write_bytes(rewritten(file, changed))
        code = run_pytest(tree, selection, tree / "reach.log")
        if code not in (0, 1):
            raise RuntimeError(f"pytest ended with {code}: see {tree / 'reach.log'}")
    finally:
        for file, source in originals.items():
            file.write_bytes(source)
        (tree / probe.REACHED).rename(tree / DONE)  # processes note no more


def read_rows(folder: Path) -> list[list[Any]]:
    return [
        json.loads(line)
        for file in sorted(folder.glob("*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]


def run_pytest(
    tree: Path, arguments: Sequence[str], output: Path, limit: float | None = None
) -> int | None:
    """Exit code of a pytest in a tree, in processes of its own; ``None`` where it took too long."""
    command = [sys.executable, "-m", "pytest", "-p", "sitecustomize", "-p", "no:cacheprovider"]
    paths = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH")]))
    with output.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": paths},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@dataclass(frozen=True)
class Reach:
    """Seconds of the tests that pass, and of each mutation the tests that evaluate it."""

    seconds: Mapping[str, float]
    tests: Mapping[int, set[str]]


def read_reach(tree: Path) -> Reach:
    """What a run of `reach` left. A set-up's result may be used by any test of its file."""
    seconds: dict[str, float] = defaultdict(float)
    failed = set()
    for test, _, outcome, duration in read_rows(tree / probe.REPORTS):
        seconds[test] += duration
        if outcome != "passed":
            failed.add(test)
    passed = {test: spent for test, spent in seconds.items() if test not in failed}
    by_file: dict[str, set[str]] = defaultdict(set)
    for test in passed:
        by_file[test.partition("::")[0]].add(test)
    tests: dict[int, set[str]] = defaultdict(set)
    for mutation, seen in read_rows(tree / DONE):
        test, _, phase = seen.rpartition(" ")
        tests[mutation] |= (
            {test} & passed.keys() if phase == "(call)" else by_file[test.partition("::")[0]]
        )
    return Reach(passed, tests)


def in_order(tests: set[str], reach: Reach, room: Path) -> list[list[str]]:
    """Tests in batches: those of files of a room come first, then those of the fastest files."""
    files: dict[str, list[str]] = defaultdict(list)
    for test in reach.seconds:
        if test in tests:
            files[test.partition("::")[0]].append(test)

    def cost(file: str) -> tuple[bool, float]:
        return not file.startswith(f"tests/{room}/"), sum(
            reach.seconds[test] for test in files[file]
        )

    ordered = sorted(files, key=cost)
    batches = [ordered[:FIRST], ordered[FIRST:]]
    return [[test for file in batch for test in files[file]] for batch in batches if batch]


FIRST = 8  # files of the first batch; most mutations are killed there


# ---- whether they fail ----


def try_out(mutation: Mutation, tree: Path, reach: Reach) -> dict[str, Any]:
    """Apply a mutation in a tree and run its tests until one fails; the tree is restored."""
    place = locate(mutation, tree)
    source, start = place.file.read_bytes(), time.monotonic()
    place.file.write_bytes(rewritten(place.file, [(place.node, mutation.after)]))
    result: dict[str, Any] = {"id": mutation.id, "killed": False}
    reaching = reach.tests.get(mutation.id, set())
    try:
        for tests in in_order(reaching, reach, place.file.relative_to(tree).parent):
            result |= run_chosen(tests, tree, 120 + 10 * sum(reach.seconds[test] for test in tests))
            if result["killed"]:
                break
    finally:
        place.file.write_bytes(source)
    return result | {"tests": len(reaching), "seconds": round(time.monotonic() - start)}


def run_chosen(tests: Sequence[str], tree: Path, limit: float) -> dict[str, Any]:
    """Run tests in their order: whether one fails, which, and its error's first line."""
    choice, log = tree / "chosen.json", tree / "chosen.log"
    choice.write_text(json.dumps(tests), encoding="utf-8")
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    os.environ[probe.CHOICE] = str(choice)
    code = run_pytest(tree, ["-x", "-q", "--tb=line", *files], log, limit)
    output = log.read_text(encoding="utf-8", errors="replace")
    if code == 0:
        return {"killed": False}
    if code is None:
        return {"killed": True, "by": "time limit", "error": f"over {limit:.0f} s"}
    failed = re.search(r"^(?:FAILED|ERROR) (\S+(?: \S+)*?)(?: - (.*))?$", output, re.MULTILINE)
    if code not in (1, 2) or not failed:
        raise RuntimeError(f"pytest ended with {code}, no failure of a test: see {log}")
    error = (failed[2] or "").replace(str(tree), ".")[:200]
    return {"killed": True, "by": failed[1], "error": error}


# ---- the list, the record and the command ----


def read_list(path: Path) -> list[Mutation]:
    """The mutations of a list; a key too many or too few is refused."""
    try:
        return [
            Mutation(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))["mutations"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: {error}: mutations have {list(Mutation.__annotations__)}"
        ) from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def clone(folder: Path) -> tuple[Path, str]:
    """A fresh tree of the last commit, for what is not committed is not measured; and its hash."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(folder)], check=True)
    shutil.copy(probe.__file__, folder / "sitecustomize.py")
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=folder, text=True)
    return folder, commit.strip()


def keep_reached(drawn: Iterable[Mutation], reach: Reach) -> list[Mutation]:
    """The first of each room that some test evaluates."""
    kept: list[Mutation] = []
    for room, wanted in ROOMS.items():
        kept += [one for one in drawn if one.room == room and reach.tests.get(one.id)][:wanted]
    return kept


def draw_list(seed: int, selection: Sequence[str], scratch: Path) -> None:
    """Write a new list; mutations that change nothing are replaced by hand, from ``drawn.json``."""
    tree, commit = clone(scratch / "tree")
    drawn = draw(tree, seed)
    reach(drawn, tree, selection)
    kept = keep_reached(drawn, read_reach(tree))
    for path, mutations in ((scratch / "drawn.json", drawn), (LIST, kept)):
        entries = [asdict(mutation) for mutation in mutations]
        write_json(path, {"commit": commit, "seed": seed, "mutations": entries})


def run(
    mutations: Sequence[Mutation], selection: Sequence[str], record: Path, scratch: Path
) -> None:
    """Try every mutation out on the last commit; the record is written after each."""
    tree, commit = clone(scratch / "tree")
    for mutation in mutations:
        locate(mutation, tree)  # before anything takes long
    reach(mutations, tree, selection)
    reached, results = read_reach(tree), []
    for mutation in mutations:
        results.append(try_out(mutation, tree, reached))
        killed = sum(result["killed"] for result in results)
        content = {"commit": commit, "selection": [*selection], "killed": killed}
        write_json(record, content | {"of": len(results), "results": results})
        print(line_of(mutation, results[-1]), flush=True)


def line_of(mutation: Mutation, result: Mapping[str, Any]) -> str:
    end = f"killed by {result['by']}" if result["killed"] else "SURVIVED"
    place = f"{mutation.module}:{mutation.function}"
    return f"{mutation.id:3} {place}: {mutation.before} -> {mutation.after}: {end}"


def compare(record: Path, mutations: Sequence[Mutation]) -> str:
    """How many were killed then and now, and which are no longer."""
    asked = {mutation.id for mutation in mutations}
    then, now = (
        {result["id"] for result in json.loads(path.read_text())["results"] if result["killed"]}
        for path in (BASELINE, record)
    )
    lost = [f"no longer killed: {where(one)}" for one in mutations if one.id in then - now]
    end = f"killed: {len(now)} of {len(mutations)}, {len(then & asked)} in the baseline"
    return "\n".join([*lost, end])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.epilog = "after --: pytest's arguments, the suite that is tried out"
    parser.add_argument("action", choices=("draw", "run"), help="a new list, or try the list out")
    parser.add_argument("--seed", type=int, help="of a draw")
    parser.add_argument("--only", type=int, nargs="*", help="ids of mutations to try out")
    parser.add_argument("--scratch", type=Path, default=REPOSITORY / "build" / "mutations")
    arguments = sys.argv[1:]
    mark = arguments.index("--") if "--" in arguments else len(arguments)
    given, selection = parser.parse_args(arguments[:mark]), arguments[mark + 1 :]
    if given.action == "draw":
        if given.seed is None:
            parser.error("a draw needs --seed")
        draw_list(given.seed, selection, given.scratch)
        return 0
    mutations = [one for one in read_list(LIST) if given.only is None or one.id in given.only]
    record = given.scratch / "record.json"
    run(mutations, selection, record, given.scratch)
    print(compare(record, mutations))
    return 0


if __name__ == "__main__":
    sys.exit(main())
