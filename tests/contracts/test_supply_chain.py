"""The locked set, the bill of materials, the audit and the release workflow."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml
from packaging.requirements import Requirement

VULNERABLE = [
    {"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]},
    {"name": "b", "version": "1", "vulns": []},
]


def tool(repository: Path, name: str) -> ModuleType:
    """A program of ``.ci``."""
    spec = importlib.util.spec_from_file_location(name, repository / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines_of(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_every_tested_package_has_its_digest(repository: Path) -> None:
    normal = tool(repository, "sbom").normal
    tested = {normal(line) for line in lines_of(repository / "constraints.txt")}
    locked = {}
    for line in lines_of(repository / "constraints.lock"):
        package, *digests = line.split(" --hash=sha256:")
        assert digests
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests), line
        locked[normal(package)] = digests
    assert set(locked) == tested  # else: make lock
    every = [digest for digests in locked.values() for digest in digests]
    assert len(set(every)) == len(every)


def test_what_tested_packages_need_is_tested_too(repository: Path) -> None:
    """Of those that are installed here; `make locked-env` asks pip about all."""
    normal = tool(repository, "sbom").normal
    pinned = (line.split("==") for line in lines_of(repository / "constraints.txt"))
    tested = {normal(name): version for name, version in pinned}
    missing = [
        f"{package.name} needs {need}"
        for package in distributions()
        if package.version.split("+")[0] == tested.get(normal(package.name))
        for need in map(Requirement, package.requires or [])
        if need.marker is None or need.marker.evaluate({"extra": ""})
        if normal(need.name) not in tested
    ]
    assert missing == []


def test_a_package_without_digest_is_not_locked(repository: Path) -> None:
    locked = tool(repository, "lock").locked

    def file(version: str, digest: str | None, kind: str = "sha256") -> SimpleNamespace:
        return SimpleNamespace(version=version, link=SimpleNamespace(hash=digest, hash_name=kind))

    files = [file("1.0", "b" * 64), file("1.0", "a" * 64), file("2.0", "c" * 64)]
    line = f"name==1.0 --hash=sha256:{'a' * 64} --hash=sha256:{'b' * 64}"
    assert locked("name==1.0", files) == line
    for wrong in ([], [file("2.0", "c" * 64)], [file("1.0", None, "")], [file("1.0", "a", "md5")]):
        with pytest.raises(ValueError, match="name==1.0: the index gives no SHA-256"):
            locked("name==1.0", wrong)


def test_the_bill_of_materials_lists_what_is_installed(repository: Path) -> None:
    bill = tool(repository, "sbom").bill_of_materials(distributions())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    project = bill["metadata"]["component"]
    assert project["name"] == "caption-curation"
    versions = {entry["name"]: entry["version"] for entry in bill["components"]}
    assert versions["torch"].split("+")[0] == __import__("torch").__version__.split("+")[0]
    references = {entry["bom-ref"] for entry in bill["components"]} | {project["bom-ref"]}
    needed = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert set(needed) == references
    assert {name for names in needed.values() for name in names} <= references
    direct = {name.split("/")[1].split("@")[0] for name in needed[project["bom-ref"]]}
    assert {"torch", "timm", "nltk", "hydra-core"} <= direct
    assert "pytest" not in direct  # of an extra
    licensed = [entry for entry in bill["components"] if entry.get("licenses")]
    assert len(licensed) > len(bill["components"]) / 2


@pytest.mark.parametrize(
    ("script", "status", "last"),
    [
        ("echo 'cannot connect' >&2; exit 1", 0, "NOT AUDITED: .*cannot connect"),
        ("echo '{\"dependencies\": []}' > $out", 0, "0 packages audited, 0 known"),
        (
            f"echo '{json.dumps({'dependencies': VULNERABLE})}' > $out; exit 1",
            1,
            "a 1: X-1, mended in 2\n2 packages audited, 1 known",
        ),
    ],
)
def test_the_audit_says_whether_it_was_made(
    repository: Path, tmp_path: Path, script: str, status: int, last: str
) -> None:
    program = tmp_path / "pip-audit"
    program.write_text(f'#!/bin/sh\nfor a; do out="$a"; done\n{script}\n')
    program.chmod(0o755)
    audit = tool(repository, "audit").audit
    found, text = audit(str(program), "constraints.txt")
    assert found == status
    assert re.match(last, text)
    found, text = audit(str(tmp_path / "missing"), "constraints.txt")
    assert (found, text[:11]) == (0, "NOT AUDITED")


def test_the_release_holds_no_secret_and_no_wide_permission(repository: Path) -> None:
    text = (repository / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text
    assert "password" not in text
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as true
    publish = workflow["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "release"
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    for step in steps:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[\w./]+", step.get("uses", "a/b@c"))
        assert "${{" not in step.get("run", "")  # a tag's name could hold a command
    makefile = (repository / "Makefile").read_text(encoding="utf-8")
    targets = {word for s in steps for word in re.findall(r"make (\w+)", s.get("run", ""))}
    assert targets == {"audit", "dist", "docs"}
    assert all(f"\n{target}: " in makefile for target in targets)


def test_proposals_are_tested_on_every_python_without_secrets(repository: Path) -> None:
    text = (repository / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets" not in text
    tests, docs = workflow["jobs"]["tests"], workflow["jobs"]["docs"]
    assert tests["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert not any("permissions" in job for job in (tests, docs))
    for step in (*tests["steps"], *docs["steps"]):
        assert "${{" not in step.get("run", "")
    assert tests["steps"][-1]["run"] == ".ci/run"
    assert docs["steps"][-1]["run"] == "make docs"


def test_the_citation_file_has_the_fields_of_its_format(repository: Path) -> None:
    """Those that version 1.2.0 of the Citation File Format requires or types."""
    citation = yaml.safe_load((repository / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    known = {"cff-version", "message", "title", "authors", "type", "version", "license", "keywords"}
    known |= {"abstract", "commit", "date-released", "doi", "identifiers", "references", "url"}
    assert set(citation) <= known | {"preferred-citation", "repository-code"}
    assert citation["type"] in ("software", "dataset")
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    people = {"family-names", "given-names", "name-particle", "name-suffix", "orcid", "affiliation"}
    assert citation["authors"]
    assert all("name" in author or set(author) <= people for author in citation["authors"])
    assert all(isinstance(word, str) for word in citation["keywords"])
    assert len(set(citation["keywords"])) == len(citation["keywords"])


def test_security_page_names_pages_that_exist(repository: Path) -> None:
    text = (repository / "SECURITY.md").read_text(encoding="utf-8")
    for page, _, anchor in re.findall(r"\]\(([\w/.]+)(#([\w-]+))?\)", text):
        headings = re.findall(r"^#+ (.*)$", (repository / page).read_text("utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
        assert not anchor or anchor in anchors
