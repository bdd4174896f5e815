"""The rules of the house as pure functions: source texts in, sentences about violations out.

A source is known by its module name; scripts of the root by their stem, such as ``train``.

    .venv/bin/python -m tests.rules

puts the table of who may import whom into docs/concepts/architecture.md.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from captioning.results.table_formats import markdown_lines, put_between_marks

Sources = Mapping[str, str]

PACKAGES = ("captioning", "curation", "augmentation")
# Folders of scripts beside the packages; a script imports those beside it by their stems.
SCRIPTS = ("benchmarks", "examples", "tools")
CONTRACTS = (
    *("captioning.types", "captioning.interfaces", "captioning.runtime", "captioning.text.lengths"),
    *(f"captioning.config.{name}" for name in ("loadable", "ranges", "setting_error")),
)
PARTS = ("captioning.text", "captioning.vision", "captioning.decoding")
# Experiments are entries, as train.py is: they read data and leave cards as training does.
AUGMENTATION_ENTRIES = (
    *(f"augmentation.{name}" for name in ("run", "regions.captioned", "training")),
    *(
        f"augmentation.image_replacement.{name}"
        for name in ("made_ahead", "round_trip", "training")
    ),
    *(f"augmentation.toca.{name}" for name in ("corpus_similarity", "teaching")),
)

# Room -> what it may import besides itself; the longest matching name is a module's room.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(CONTRACTS, ()),
    "captioning.interfaces": ("captioning.types",),
    "captioning.runtime": ("captioning.types", "captioning.config.folders"),
    "captioning.config.folders": (),
    "captioning.config.plugins": ("captioning.config.folders", "captioning.config.loadable"),
    "captioning.config.check": ("captioning.config.ranges", "captioning.config.plugins"),
    "captioning.config.build": ("captioning.config.plugins", "captioning.config.setting_error"),
    "captioning.results.figures": ("captioning.runtime.files",),
    # Work in other processes, which import a user's plugins first.
    "captioning.spread": (*CONTRACTS, "captioning.config.plugins", "captioning.config.build"),
    **dict.fromkeys(PARTS, CONTRACTS),
    # Photos and their captions are asked of models elsewhere.
    "captioning.served": (*CONTRACTS, "captioning.vision", "captioning.decoding"),
    # A photo and its prompt are one call of a processor.
    "captioning.vision.prompt_tensors": (
        *(*CONTRACTS, "captioning.text.prompts", "captioning.vision.photos"),
    ),
    "captioning.metrics": (
        *(*CONTRACTS, "captioning.vision.photos", "captioning.vision.photo_keys"),
        *("captioning.text.spaceless", "captioning.text.sentence_spans", "captioning.served"),
    ),
    "captioning.data": (*CONTRACTS, "captioning.text", "captioning.vision"),
    "captioning.models": (*CONTRACTS, *PARTS),
    "captioning.results": (
        *(*CONTRACTS, "captioning.metrics", "captioning.config.plugins", "captioning.config.moved"),
    ),
    # Photos that runs will need are looked for and opened before the first of them.
    "captioning.papers": (
        *(*CONTRACTS, "captioning.config.folders", "captioning.results"),
        *("captioning.data.photo_folder", "captioning.vision.photos"),
    ),
    "captioning": ("captioning",),  # training, prepare
    # The subcommands join all packages; nothing else in captioning/ knows the other two.
    "captioning.commands": ("captioning", "augmentation", "curation"),
    "captioning.__main__": ("captioning.commands",),
    # Pools of photos are listed and opened as training does it.
    "augmentation": (*CONTRACTS, *PARTS, "captioning.data.roster", "captioning.data.photo_folder"),
    # New captions are judged by the score that tables report, and counted by coverage as they are
    # mixed in.
    **dict.fromkeys(
        [f"augmentation.{name}" for name in ("captions", "ssa", "toca", "writing")],
        (
            *(*CONTRACTS, *PARTS, "captioning.data.roster", "captioning.data.json_files"),
            *("captioning.data.steps.added_captions", "captioning.metrics.well_formedness"),
            *("captioning.spread", "captioning.served", "augmentation.base"),
            "augmentation.set_folder",
            *(f"augmentation.{name}" for name in ("captions", "regions", "writing")),
        ),
    ),
    **dict.fromkeys(AUGMENTATION_ENTRIES, ("captioning", "augmentation")),
    "curation": (
        *CONTRACTS,
        *("captioning.data.roster", "captioning.data.readers.split_words"),
        "captioning.results.figures",
        "captioning.data.readers.generator_folders",
        "captioning.config.plugins",  # where the user's data lie
        *("captioning.vision.photos", "captioning.vision.photo_places"),
        *("captioning.vision.photo_keys", "captioning.metrics.detection"),
        "captioning.served.photo_answers",  # counts, for records
        *(
            "captioning.text.word_rows",
            "captioning.text.word_forms",
            "captioning.text.sentence_spans",
        ),
        *("captioning.text.control_tokens", "captioning.text.sentence_spans"),
        "augmentation.base",
    ),
    "curation.score.words": (
        *(*CONTRACTS, "captioning.text", "curation.base"),
        "curation.score.caption_fit",
    ),
    "curation.manifest": (
        *CONTRACTS,
        *("captioning.data.roster", "captioning.results.folder_config"),
        *("captioning.vision.photo_places", "curation.loop"),
    ),
    # Loops of others get by without our captioners and training, also at one remove: see `reached`.
    "curation.adapters": (
        *CONTRACTS,
        "captioning.data.roster",
        "captioning.runtime.file_lock",
        "captioning.text.sentence_spans",
        "captioning.text.tokenizers.token_spans",
        "captioning.vision.photos",
        "curation.base",
        "curation.journal",
        "curation.loop",
        "curation.manifest",
    ),
    "curation.adapters.rosters": (*CONTRACTS, "captioning.data.roster", "captioning.data.readers"),
    "curation.adapters.presets": (
        *(*CONTRACTS, "captioning.config.check"),
        "captioning.config.compose",
        "captioning.config.build",
        "curation.loop",
    ),
    # Commands on a finished run or on annotations alone read the data as the run did.
    "curation.finished_run": (
        *CONTRACTS,
        *("captioning.data.roster", "captioning.data.readers.split_words"),
        *("captioning.data.readers.own.own", "captioning.data.readers.own.questions"),
        "captioning.results.folder_config",
        "captioning.results.run_folder",
        "captioning.training.data_checks",
        "captioning.training.settings",
        "captioning.training.rosters",
        "curation",
    ),
    "curation.review.runs": (
        *("captioning.data.roster", "captioning.results.figures", "captioning.metrics.bootstrap"),
        *(*CONTRACTS, "captioning.results", "captioning.training.data_checks"),
        *("captioning.training.rosters", "captioning.training.settings", "curation"),
    ),
    "curation.detect": (
        *(*CONTRACTS, "captioning.data.roster", "captioning.metrics.detection"),
        *("captioning.spread", "captioning.config.build", "captioning.config.tasks"),
        *("captioning.results.run_folder", "captioning.vision.pair_scores"),
        *("captioning.training.rosters", "captioning.training.settings", "curation"),
    ),
    # Sets made outside training are claimed and appended to as those of augmentation are.
    "curation.capfilt": (
        *CONTRACTS,
        "captioning.data.roster",
        "captioning.runtime.file_lock",
        "captioning.data.steps.hold_out",
        "captioning.vision.pair_scores",
        "captioning.vision.photo_captions",
        *("captioning.spread", "captioning.served.photo_answers"),
        "captioning.results.versions",
        *("captioning.config.build", "captioning.config.tasks"),
        "captioning.training.rosters",
        "captioning.training.settings",
        "augmentation.set_folder",
        "augmentation.captions.line_log",
        "curation",
    ),
    # A check reads photos in any layout, and embeds them; it trains nothing.
    "curation.check": (*CONTRACTS, *PARTS[:2], "captioning.data", "curation"),
    # The page captions photos, and shows those of a set.
    "curation.review.app": (
        *(*CONTRACTS, "captioning.runtime.file_lock", "captioning.data.steps.take_detections"),
        *("captioning.inference", "captioning.config.plugins", "captioning.vision", "curation"),
    ),
    **dict.fromkeys(
        ("curation.export.apply", "curation.study.items"),
        (*CONTRACTS, "captioning.data", "curation"),
    ),
    # Nothing imports these but themselves. Some benchmarks borrow small models of the tests.
    "examples": PACKAGES,
    "tools": PACKAGES,
    "benchmarks": (
        *PACKAGES,
        "tools.assets",
        "tests.browser",
        "tests.augmentation.image_replacement.tiny_pipeline",
    ),
    "train": ("captioning.commands",),
    "evaluate": ("captioning.commands",),
}
# Packages whose public names lie in other rooms, too; they are imported when they are used.
LENDS = {"captioning": ("curation",)}
# Core knows no paper: these rooms ask a model or method by attributes and hooks alone.
CORE = (
    *(f"captioning.{room}" for room in ("training", "evaluation", "results", "data", "decoding")),
    *(f"captioning.{room}" for room in ("text", "vision", "metrics", "commands")),
    "curation",
    *(f"augmentation.{name}" for name in ("base", "run", "set_folder")),
    *("augmentation.captions.caption_set", "augmentation.captions.new_captions"),
)
# Commands of one paper, whose tasks these import where they are run.
COMMANDS_OF_PAPERS = ("captioning.commands.augmentation",)
# Methods of augmentation, none of which imports another one.
METHODS = {
    "cutswap": ("augmentation.cutswap",),
    "image_replacement": ("augmentation.image_replacement",),
    "novel_objects": ("augmentation.novel_objects",),
    "ssa": ("augmentation.ssa",),
    "toca": ("augmentation.toca",),
}
# What belongs to one paper; configs name it.
OF_PAPERS = (
    *(f"captioning.models.{name}" for name in ("blip", "cic_bart", "cos_cvae", "updown", "viecap")),
    "captioning.models.layers.vl_bart",
    *("captioning.vision.blip", "captioning.vision.blip_matching"),
    *("captioning.text.tokenizers.bart", "captioning.text.tokenizers.published_words"),
    "captioning.text.tokenizers.subwords",  # BLIP's
    *(module for modules in METHODS.values() for module in modules),
)
NAMES_OF_PAPERS = (
    *("blip", "cic_bart", "cos_cvae", "updown", "viecap"),
    *METHODS,
)
# The contracts use torch, the type of pictures, marks of ranges and the standard library alone.
THIRD_PARTY_OF_CONTRACTS = ("torch", "PIL", "annotated_types", "safetensors")

MAX_LINES_OF_A_FUNCTION = 40
DEEPEST_NESTING = 3
# The opener of photos, and what reads the notes in pictures that it wrote itself.
# The third is copied into exports, where this package need not be installed.
OPENERS = (
    "captioning.vision.photos",
    "augmentation.image_replacement.cache",
    "captioning.export.onnx_caption",
)
EXTENDED = ("Score", "Selector", "Amender")  # public names of base classes
VAGUE_NAMES = ("utils", "util", "helpers", "helper", "common", "misc", "parts")

MACHINE_PATH = re.compile(r"(?<![\w.}/:-])/(?:work|root|home|Users|mnt)/")
LEFT_OVER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME)\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef
# A `with` says how long something is held, not what happens when: it is no nesting.
parse = functools.cache(ast.parse)  # many rules look at each file
NESTING = (ast.If, ast.For, ast.While, ast.Try, ast.Match, ast.AsyncFor)


@functools.cache
def imports(source: str) -> Sequence[tuple[str, int]]:
    """Names of imported modules (and of what is imported from them) with their lines."""
    found = []
    for node in nodes(source):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return found


@functools.cache
def nodes(source: str) -> Sequence[ast.AST]:
    """All nodes of a text's syntax tree."""
    return [*ast.walk(parse(source))]


def our_imports(module: str, sources: Sources) -> Iterator[tuple[str, int]]:
    """Imports of a module, those of scripts beside it by their full names."""
    folder = module.rpartition(".")[0]
    for name, line in imports(sources[module]):
        beside = f"{folder}.{name}" if folder.split(".")[0] in SCRIPTS else name
        yield beside if _target(beside, sources) else name, line


def import_table() -> list[str]:
    """`MAY_IMPORT` in Markdown, a row for all rooms that may import the same."""
    rooms = defaultdict(list)
    for room, allowed in MAY_IMPORT.items():
        rooms[allowed].append(room)
    rows = [
        [_braced(alike), _named(allowed) or "nothing of ours"] for allowed, alike in rooms.items()
    ]
    return markdown_lines(["room", "may import, besides itself"], rows)


def _named(allowed: tuple[str, ...]) -> str:
    """Rooms in short: the contracts as one word."""
    if not set(CONTRACTS) <= set(allowed):
        return _braced(allowed)
    others = [name for name in allowed if name not in CONTRACTS]
    return ", ".join(["the contracts", *([_braced(others)] if others else [])])


def _braced(names: Iterable[str]) -> str:
    """Names in code, those of one folder together: ``captioning.text.{prompts,spaceless}``."""
    folders = defaultdict(list)
    for name in dict.fromkeys(names):
        folder, _, module = name.rpartition(".")
        folders[folder].append(module)
    texts = []
    for folder, modules in folders.items():
        if folder and len(modules) > 1:
            modules = [f"{{{','.join(modules)}}}"]
        texts += [f"{folder}.{module}".lstrip(".") for module in modules]
    return ", ".join(f"`{text}`" for text in texts)


def within(name: str, room: str) -> bool:
    """Whether a dotted name is ``room`` or lies in it."""
    return name == room or name.startswith(room + ".")


def forbidden_imports(sources: Sources) -> list[str]:
    """Imports against the layering of the house."""
    violations = []
    ours = (*PACKAGES, *SCRIPTS, "tests", "train", "evaluate")
    for module in sources:
        room = max((room for room in MAY_IMPORT if within(module, room)), key=len, default=None)
        if room is None:
            violations.append(f"{module}: in no room of MAY_IMPORT; add it there")
            continue
        allowed = (room, *MAY_IMPORT[room], *LENDS.get(module, ()))
        for name, line in our_imports(module, sources):
            is_internal = name.split(".")[0] in ours
            if is_internal and not any(within(name, other) for other in allowed):
                violations.append(f"{module}:{line}: {room} must not import {name}")
    return violations


def tied_methods(sources: Sources) -> list[str]:
    """Methods of augmentation that import another one, and shared modules that import one."""
    return [
        f"{module}:{line}: must not import {name}, which is {other}'s: share it or cut it"
        for module, source in sources.items()
        if within(module, "augmentation")
        for name, line in imports(source)
        if (other := _method_of(name)) not in (None, _method_of(module))
    ]


def _method_of(name: str) -> str | None:
    """The method that a module belongs to."""
    rooms = ((method, room) for method, modules in METHODS.items() for room in modules)
    return next((method for method, room in rooms if within(name, room)), None)


def knots(sources: Sources) -> list[str]:
    """Core that imports what belongs to one paper, or asks whether a name is that of one."""
    violations = []
    for module, source in sources.items():
        is_core = any(within(module, room) for room in CORE)
        if not is_core or _of_paper(module) or module in COMMANDS_OF_PAPERS:
            continue
        violations += [
            f"{module}:{line}: core must not import {name}: let it be an attribute or a hook"
            for name, line in imports(source)
            if _of_paper(name)
        ]
        violations += [
            f"{module}:{node.lineno}: core must not ask for {name!r}: ask for an attribute"
            for node in nodes(source)
            if isinstance(node, ast.Compare | ast.MatchValue)
            for name in _strings(node)
            if name in NAMES_OF_PAPERS
        ]
    return violations


def _of_paper(name: str) -> bool:
    return any(within(name, room) for room in OF_PAPERS)


def _strings(node: ast.AST) -> list[str]:
    return [
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]


def reached(sources: Sources, room: str) -> dict[str, str]:
    """All modules of ours that a room's imports lead to, each with a module that imports it."""
    importers = {module: module for module in sources if within(module, room)}
    waiting = list(importers)
    while waiting:
        module = waiting.pop()
        for name, _ in imports(sources[module]):
            target = _target(name, sources)
            if target is not None and target not in importers:
                importers[target] = module
                waiting.append(target)
    return importers


def third_party(sources: Sources, standard_library: frozenset[str]) -> dict[str, str]:
    """Top-level names of other projects' packages, each with a place that imports it."""
    internal = {*PACKAGES, *(module.split(".")[0] for module in sources)}
    return {
        name.split(".")[0]: f"{module}:{line}"
        for module, source in sources.items()
        for name, line in imports(source)
        if name.split(".")[0] not in internal | standard_library
    }


def cycles(sources: Sources) -> list[str]:
    """Circles of imports, each said once."""
    edges = {
        module: {t for name, _ in our_imports(module, sources) if (t := _target(name, sources))}
        for module in sources
    }
    circles, done = [], set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        if module in path:
            circles.append(" -> ".join((*path[path.index(module) :], module)))
        elif module not in done:
            for target in sorted(edges[module] - {module}):
                visit(target, (*path, module))
            done.add(module)

    for module in sorted(edges):
        visit(module, ())
    return circles


def _target(name: str, sources: Sources) -> str | None:
    if name in sources:
        return name
    parent = name.rpartition(".")[0]
    return parent if parent in sources else None


def functions(source: str) -> Iterator[Function]:
    """All functions and methods."""
    for node in nodes(source):
        if isinstance(node, Function):
            yield node


def long_functions(sources: Sources) -> list[str]:
    """Functions whose body, docstring aside, is too long."""
    violations = []
    for module, source in sources.items():
        for function in functions(source):
            first = function.body[0]
            if ast.get_docstring(function) is not None:
                first = function.body[1] if len(function.body) > 1 else first
            count = function.end_lineno - first.lineno + 1
            if count > MAX_LINES_OF_A_FUNCTION:
                violations.append(f"{module}.{function.name}: {count} lines of body")
    return violations


def deep_nesting(sources: Sources) -> list[str]:
    """Functions with blocks in blocks in blocks in blocks."""
    return [
        f"{module}.{function.name}: blocks nested {depth} deep"
        for module, source in sources.items()
        for function in functions(source)
        if (depth := _depth(function.body)) > DEEPEST_NESTING
    ]


def _depth(body: list[ast.stmt]) -> int:
    deepest = 0
    for node in body:
        if isinstance(node, NESTING):
            deepest = max(deepest, 1 + max(_depth(block) for block in _blocks(node)))
        elif isinstance(node, ast.With | ast.AsyncWith):
            deepest = max(deepest, _depth(node.body))
    return deepest


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of a statement; those of its `elif` branches are its own."""
    for part in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield getattr(part, "body", [])
    yield getattr(node, "finalbody", [])
    orelse = getattr(node, "orelse", [])
    if isinstance(node, ast.If) and len(orelse) == 1 and isinstance(orelse[0], ast.If):
        yield from _blocks(orelse[0])
    else:
        yield orelse


def repeated_types(sources: Sources) -> list[str]:
    """Types of numbers and choices that two modules define: one should import the other's."""
    places = defaultdict(list)
    for module, source in sources.items():
        for node in parse(source).body:
            text = ast.unparse(node) if isinstance(node, ast.Assign) else ""
            if re.match(r"[A-Z]\w+ = (tuple\[(int|float)|Literal\[)", text):
                places[text].append(module)
    return [f"{', '.join(m)}: {text}" for text, m in places.items() if len(m) > 1]


def opened_photos(sources: Sources) -> list[str]:
    """Photos opened elsewhere than in the one opener, which turns them and checks their size."""
    return [
        f"{module}:{node.lineno}: open photos by captioning.vision.photos.load_rgb"
        for module, source in sources.items()
        if module not in OPENERS
        for node in nodes(source)
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "Image.open"
    ]


def weak_statements(sources: Sources) -> list[str]:
    """What product code must not hold: assertions, swallowed exceptions, unwritten parts."""
    violations = []
    for module, source in sources.items():
        for node in nodes(source):
            if isinstance(node, ast.Assert):
                violations.append(
                    f"{module}:{node.lineno}: assert; raise an exception that names the remedy"
                )
            elif isinstance(node, ast.ExceptHandler) and _only_passes(node.body):
                violations.append(f"{module}:{node.lineno}: an exception is swallowed")
            elif isinstance(node, ast.Raise) and "NotImplementedError" in ast.dump(node):
                violations.append(f"{module}:{node.lineno}: an unwritten part")
    return violations


def _only_passes(body: list[ast.stmt]) -> bool:
    return all(isinstance(node, ast.Pass) for node in body)


def subclasses_of_concrete_classes(sources: Sources) -> list[str]:
    """Classes that extend a concrete class of ours: neither ``Abstract...`` nor in `EXTENDED`."""
    classes = [
        (module, node)
        for module, source in sources.items()
        for node in nodes(source)
        if isinstance(node, ast.ClassDef)
    ]
    class_names = {node.name for _, node in classes if not _is_protocol(node)}
    return [
        f"{module}.{node.name} extends {base.id}: only classes named Abstract... are extended"
        for module, node in classes
        for base in node.bases
        if isinstance(base, ast.Name)
        and base.id in class_names
        and not base.id.startswith("Abstract")
        and base.id not in EXTENDED
    ]


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)


def vague_names(sources: Sources) -> list[str]:
    """Modules named after nothing."""
    return [module for module in sources if module.rpartition(".")[2] in VAGUE_NAMES]


def forbidden_texts(texts: Mapping[str, str]) -> list[str]:
    """Paths of one machine, and notes of unfinished work, in any text file."""
    violations = []
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines(), start=1):
            if MACHINE_PATH.search(line):
                violations.append(f"{name}:{number}: a path of one machine: {line.strip()[:80]}")
            if LEFT_OVER.search(line):
                violations.append(f"{name}:{number}: unfinished work: {line.strip()[:80]}")
    return violations


PAGE, MARK = (
    Path(__file__).resolve().parent.parent / "docs" / "concepts" / "architecture.md",
    "imports",
)

if __name__ == "__main__":
    put_between_marks(PAGE, "\n".join(["", *import_table(), "", ""]), MARK)
