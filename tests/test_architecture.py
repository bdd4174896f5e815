"""The house rules hold in every file, and each rule is seen to catch a small bad example."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests import ceilings, rules

REPOSITORY = Path(__file__).resolve().parent.parent
SCRIPTS = ("train.py", "evaluate.py")
TEXTS = (".py", ".md", ".yaml", ".yml", ".toml", ".txt", ".cff", ".json", ".csv", "")
FOLDERS = (*rules.PACKAGES, "tests", "configs", "docs", "papers", "benchmarks", "tools")
FOLDERS += ("examples", ".ci", ".github")


def read_modules() -> dict[str, str]:
    """Product code by module name: the packages and the scripts of the root."""
    files = [file for package in rules.PACKAGES for file in (REPOSITORY / package).rglob("*.py")]
    files += [REPOSITORY / name for name in SCRIPTS if (REPOSITORY / name).exists()]
    return {module_name(file): file.read_text(encoding="utf-8") for file in sorted(files)}


def read_scripts() -> dict[str, str]:
    """Studies, benchmarks and examples by name."""
    files = [file for name in rules.SCRIPTS for file in (REPOSITORY / name).rglob("*.py")]
    return {module_name(file): file.read_text(encoding="utf-8") for file in sorted(files)}


def module_name(file: Path) -> str:
    parts = file.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def read_texts() -> dict[str, str]:
    """All text files of the repository by path."""
    # in a worktree of git, .git is a file with a path
    files = [file for file in REPOSITORY.iterdir() if file.is_file() and file.name != ".git"]
    files += [file for folder in FOLDERS for file in (REPOSITORY / folder).rglob("*")]
    return {
        str(file.relative_to(REPOSITORY)): file.read_text(encoding="utf-8")
        for file in sorted(files)
        if file.is_file()
        and file.suffix in TEXTS
        and not {"__pycache__", "weights"} & set(file.parts)
    }


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, str]]:
    yield read_modules()
    rules.parse.cache_clear()


STRUCTURE = [
    rules.forbidden_imports,
    rules.knots,
    rules.tied_methods,
    rules.cycles,
    rules.long_functions,
    rules.deep_nesting,
    rules.weak_statements,
    rules.subclasses_of_concrete_classes,
    rules.vague_names,
    rules.repeated_types,
    rules.opened_photos,
]


@pytest.mark.parametrize("rule", STRUCTURE, ids=lambda rule: rule.__name__)
def test_product_code_keeps_the_rule(rule: Callable[..., list[str]], modules: dict[str, str]):
    assert rule(modules) == []


@pytest.mark.parametrize("rule", [rules.forbidden_imports, rules.cycles])
def test_scripts_keep_the_rules_of_imports(rule: Callable[..., list[str]]):
    assert rule(read_scripts()) == []


def test_the_walk_sees_the_code(modules: dict[str, str]):
    assert {"tools.studies.page_tables", "benchmarks.bench_updown"} <= set(read_scripts())
    assert {"captioning.types", "captioning.data.roster", "curation", "augmentation"} <= set(
        modules
    )


def test_contracts_use_torch_annotated_types_and_the_standard_library_alone(
    modules: dict[str, str],
):
    contracts = {name: modules[name] for name in rules.CONTRACTS}
    foreign = rules.third_party(contracts, sys.stdlib_module_names)
    assert set(foreign) <= set(rules.THIRD_PARTY_OF_CONTRACTS)


def test_adapters_to_loops_lead_to_no_captioner_and_no_training(modules: dict[str, str]):
    importers = rules.reached(modules, "curation.adapters")
    assert {"curation.loop.curator", "captioning.config.build"} <= set(importers)
    closed = ("captioning.models", "captioning.training", "captioning.commands")
    assert [name for name in importers if any(rules.within(name, room) for room in closed)] == []


def test_what_is_reached_at_one_remove_is_seen():
    sources = {
        "curation.adapters.a": "from curation.loop.b import c",
        "curation.loop.b": "def f():\n    import captioning.training.run",
        "captioning.training.run": "",
        "captioning.models.blip": "",
    }
    expected = {"curation.adapters.a", "curation.loop.b", "captioning.training.run"}
    assert set(rules.reached(sources, "curation.adapters")) == expected


def test_texts_speak_of_the_project_alone():
    assert rules.forbidden_texts(read_texts()) == []


def test_the_page_shows_who_may_import_whom():
    shown = rules.PAGE.read_text(encoding="utf-8").partition("<!-- imports -->")[2]
    shown = shown.partition("<!-- /imports -->")[0].strip().splitlines()
    assert shown == rules.import_table(), (
        f"{rules.PAGE.name} shows another table than MAY_IMPORT of tests/rules.py: make it anew by "
        ".venv/bin/python -m tests.rules"
    )


def test_rooms_of_one_folder_are_shown_together(monkeypatch: pytest.MonkeyPatch):
    may_import = {
        "captioning.a.b": (*rules.CONTRACTS, "captioning.x.c", "curation", "captioning.x.d"),
        "captioning.a.e": (*rules.CONTRACTS, "captioning.x.c", "curation", "captioning.x.d"),
        "train": (),
    }
    monkeypatch.setattr(rules, "MAY_IMPORT", may_import)
    first = "| `captioning.a.{b,e}` | the contracts, `captioning.x.{c,d}`, `curation` |"
    assert rules.import_table()[2:] == [first, "| `train` | nothing of ours |"]


def undeclared(names: dict[str, str], declared: set[str]) -> list[str]:
    """Imported packages that no declared distribution brings."""
    brings = packages_distributions()
    return [
        f"{place}: {name} is imported but pyproject.toml does not name it"
        for name, place in names.items()
        if not declared & {canonical(dist) for dist in brings.get(name, [name])}
    ]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_imported_package_is_declared(modules: dict[str, str]):
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {canonical(re.match(r"[\w.-]+", line)[0]) for group in groups for line in group}
    names = rules.third_party(modules, sys.stdlib_module_names)
    assert undeclared(names, declared) == []


# In parts, so that this file keeps the rule itself.
SLASH, UNFINISHED = "/", "TO" + "DO"

# What each rule is for: the smallest code that breaks it.
BAD = [
    (rules.forbidden_imports, {"captioning.text.tags": "from captioning.vision import photos"}),
    (rules.forbidden_imports, {"captioning.data.readers.coco": "import captioning.models.updown"}),
    (
        rules.forbidden_imports,
        {"captioning.training.run": "def f():\n    import curation.loop.ledger"},
    ),
    (
        rules.forbidden_imports,
        {"curation.review.edit_report": "from captioning.data.readers.coco import read_coco"},
    ),
    (rules.forbidden_imports, {"captioning.types": "from captioning import interfaces"}),
    (rules.forbidden_imports, {"captioning.decoding.beam": "from train import main"}),
    (rules.forbidden_imports, {"elsewhere": ""}),
    (rules.forbidden_imports, {"curation.base": "from tools.studies.report_parts import spread"}),
    (rules.forbidden_imports, {"tools.studies.a": "from tests.tiny import build"}),
    (rules.forbidden_imports, {"benchmarks.a": "from tools.studies.page_tables import fill"}),
    (
        rules.cycles,
        {"tools.studies.a": "def f():\n    from b import x", "tools.studies.b": "from a import y"},
    ),
    (rules.knots, {"captioning.evaluation.a": "from captioning.models.viecap import ViECap"}),
    (rules.knots, {"augmentation.run": "from augmentation.toca.method import ToCa"}),
    (
        rules.knots,
        {"captioning.commands.a": "def f():\n    import augmentation.toca.method"},
    ),
    (
        rules.tied_methods,
        {"augmentation.toca.corpus_similarity": "from augmentation.cutswap.a import x"},
    ),
    (rules.tied_methods, {"augmentation.regions.mentions": "import augmentation.ssa.a"}),
    (rules.knots, {"captioning.training.a": "if config.model.name == 'viecap':\n    f()"}),
    (
        rules.knots,
        {"captioning.data.a": "match name:\n    case 'blip' | 'own':\n        f()"},
    ),
    (
        rules.cycles,
        {
            "curation.a": "from curation import b",
            "curation.b": "from curation.c import x",
            "curation.c": "import curation.a",
        },
    ),
    (rules.long_functions, {"curation.a": "def f():\n    '''Doc.'''\n" + "    x = 1\n" * 41}),
    (
        rules.deep_nesting,
        {
            "curation.a": "def f(x):\n if x:\n  for y in x:\n   with y:\n"
            "    try:\n     y()\n    finally:\n     while x:\n      x()"
        },
    ),
    (rules.weak_statements, {"curation.a": "assert 1"}),
    (rules.weak_statements, {"curation.a": "try:\n    f()\nexcept OSError:\n    pass"}),
    (rules.weak_statements, {"curation.a": "def f():\n    raise NotImplementedError"}),
    (
        rules.subclasses_of_concrete_classes,
        {"curation.a": "class A: ...", "curation.b": "class B(A): ..."},
    ),
    (rules.vague_names, {"captioning.data.utils": ""}),
    (
        rules.repeated_types,
        dict.fromkeys(("curation.a", "curation.b"), "Box = tuple[float, float, float, float]"),
    ),
    (rules.opened_photos, {"captioning.metrics.extra": "with Image.open(path) as image:\n    f()"}),
    (rules.forbidden_texts, {"a.yaml": f"path: {SLASH}home/me/photos"}),
    (rules.forbidden_texts, {"a.py": f"# {UNFINISHED}: finish"}),
]


@pytest.mark.parametrize(("rule", "sources"), BAD, ids=lambda value: getattr(value, "__name__", ""))
def test_the_rule_catches_what_breaks_it(rule: Callable[..., list[str]], sources: dict[str, str]):
    assert len(rule(sources)) == 1


GOOD = {
    "captioning.types": "import torch",
    "captioning.text.tags": "import captioning.types\nfrom captioning.text import lemmas",
    "captioning.text.lemmas": "import re",
    "captioning.data.readers.coco": (
        "from captioning.text.tags import x\nimport captioning.data.roster"
    ),
    "captioning.data.roster": "class AbstractA: ...\nclass A(AbstractA): ...",
    "captioning.training.run": "import captioning.models.base\nimport captioning.metrics.coco",
    "curation.loop.policy": (
        "from captioning.data.roster import CurationView\nimport augmentation.base"
    ),
    "train": "from captioning.commands.main import main",
}


@pytest.mark.parametrize("rule", STRUCTURE, ids=lambda rule: rule.__name__)
def test_the_rule_lets_good_code_pass(rule: Callable[..., list[str]]):
    assert rule(GOOD) == []


def test_an_undeclared_package_is_caught():
    names = rules.third_party({"curation.a": "import numpy.linalg, re"}, sys.stdlib_module_names)
    assert names == {"numpy": "curation.a:1"}
    assert undeclared(names, {"numpy"}) == []
    assert len(undeclared(names, {"torch"})) == 1


def test_elif_is_no_nesting():
    chain = "def f(x):\n    if x == 0:\n        return 1\n"
    chain += "".join(f"    elif x == {n}:\n        return {n}\n" for n in range(1, 9))
    assert rules.deep_nesting({"curation.a": chain}) == []


def test_the_entry_of_a_module_closes_a_circle_too():
    entry = 'if __name__ == "__main__":\n    from curation.b import main\n    main()'
    circle = ["curation.a -> curation.b -> curation.a"]
    assert rules.cycles({"curation.a": entry, "curation.b": "import curation.a"}) == circle


def test_the_house_stays_below_its_ceilings():
    measured, limits = ceilings.measured(), ceilings.ceilings()
    assert set(measured) <= set(limits)
    above = {
        name: (number, limits[name]) for name, number in measured.items() if number > limits[name]
    }
    assert not above, (
        "docs/concepts/architecture.md gives lower ceilings: merge, delete, or say why it grows"
    )


def test_what_a_ceiling_counts():
    modules = {
        "captioning.a": "from captioning.b import x\n\n\ndef f(config: DictConfig): ...\n",
        "captioning.b": "def x(config: Config) -> None:\n    pass\n",
        "curation.c": "import captioning.a\nfrom captioning.a import f\n",
    }
    assert ceilings.importers(modules) == {
        "captioning.b": {"captioning.a"},
        "captioning.a": {"curation.c"},
    }
    assert ceilings.untyped(modules) == ["captioning.a:4"]
