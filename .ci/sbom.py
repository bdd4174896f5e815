"""A CycloneDX list of the packages of this environment, as JSON: ``make sbom``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from typing import Any

from packaging.requirements import Requirement

OURS = "caption-curation"


def bill_of_materials(packages: Iterable[Distribution]) -> dict[str, Any]:
    """The list, with what needs what; the project is what it describes.

    Args:
        packages: all that are installed, the project among them.
    """
    by_name = {normal(package.name): package for package in packages}
    project = component(by_name[OURS]) | {"type": "application"}
    others = [component(by_name[name]) for name in sorted(by_name) if name != OURS]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": project},
        "components": others,
        "dependencies": [
            {"ref": reference(by_name[name]), "dependsOn": needed(by_name[name], by_name)}
            for name in sorted(by_name)
        ],
    }


def component(package: Distribution) -> dict[str, Any]:
    """One package, with its licence as it states it."""
    metadata = package.metadata
    entry = {
        "type": "library",
        "bom-ref": reference(package),
        "name": normal(package.name),
        "version": package.version,
        "purl": reference(package),
    }
    if expression := metadata.get("License-Expression"):
        entry["licenses"] = [{"expression": expression}]
    elif named := [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or ()
        if line.startswith("License :: ")
    ]:
        entry["licenses"] = [{"license": {"name": name}} for name in named]
    return entry


def needed(package: Distribution, by_name: dict[str, Distribution]) -> list[str]:
    """References of the installed packages that a package asks for, extras aside."""
    requirements = [Requirement(line) for line in package.requires or ()]
    names = {
        normal(requirement.name)
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    }
    return sorted(reference(by_name[name]) for name in names & set(by_name))


def reference(package: Distribution) -> str:
    """The package's address in all lists of this kind (package URL)."""
    return f"pkg:pypi/{normal(package.name)}@{package.version}"


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    json.dump(bill_of_materials(distributions()), sys.stdout, indent=1)
    sys.stdout.write("\n")
