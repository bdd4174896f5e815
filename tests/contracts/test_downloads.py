"""Whatever is fetched is held against a digest: every place that can fetch is listed and checked.

A new call that reaches the network fails here until it stands below with what holds it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

PACKAGES = ("captioning", "curation", "augmentation", "examples")
# Calls and imports that may fetch, by the last part of their name.
FETCHING = {
    *("urlopen", "urlretrieve", "build_opener", "HTTPConnection", "HTTPSConnection"),
    *("snapshot_download", "hf_hub_download", "cached_file", "download_url_to_file"),
    *("load_state_dict_from_url", "download_url", "download_and_extract_archive"),
    *("load_dataset", "create_connection", "getaddrinfo", "HTTPConnection", "HTTPSConnection"),
}
# Of models, which fetch what is no folder.
LOADING = ("from_pretrained", "create_model", "create_model_from_pretrained", "get_model")
LIBRARIES = {
    "requests",
    "httpx",
    "aiohttp",
    "urllib3",
    "wget",
    "gdown",
    "ftplib",
    "boto3",
    "fsspec",
}
PROGRAMS = {"curl", "wget", "git", "pip", "mvn", "scp", "rsync", "aws", "gsutil", "hf"}
# Place -> what it is held against.
KNOWN = {
    "captioning.training.prepare: urlopen": "the SHA-256 of configs/data, which is required",
    "captioning.metrics.spice: mvn": "SHA256, before a jar gets its place",
    "captioning.metrics.fid: download_url_to_file": "the digest in the file's name",
    "captioning.runtime.model_folder: snapshot_download": "the commit, and its files' digests",
    "captioning.vision.detectors: get_model": "torchvision's check_hash, see below",
    # no downloads of files
    "captioning.served.client: HTTPConnection": "a model's answers",
    "captioning.served.client: HTTPSConnection": "a model's answers",
    "captioning.spread.ray_data: create_connection": "whether a cluster answers",
    "captioning.training.processes: create_connection": "processes of one run",
    "captioning.results.versions: git": "the commit of the checkout",
}
# The user's own programs, with a model that the user names.
EXAMPLES = {f"examples.{name}: from_pretrained" for name in (
    "lightning_module", "plain_loop", "transformers_trainer", "trl_sft"
)}  # fmt: skip


def fetching_places(module: str, source: str) -> Iterator[str]:
    """Calls, imports and programs of a module that may reach the network."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = {alias.name.split(".")[0] for alias in node.names}
            yield from (f"{module}: {name}" for name in names & LIBRARIES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LIBRARIES:
            yield f"{module}: {node.module}"
        elif isinstance(node, ast.Constant) and node.value in LIBRARIES:
            yield f"{module}: {node.value}"
        elif isinstance(node, ast.List | ast.Tuple) and node.elts:
            first = node.elts[0]
            if isinstance(first, ast.Constant) and first.value in PROGRAMS:
                yield f"{module}: {first.value}"
        elif isinstance(node, ast.Call):
            yield from (f"{module}: {name}" for name in _fetching_calls(node))


def _fetching_calls(call: ast.Call) -> Iterator[str]:
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", "")
    if name in FETCHING:
        yield name
    elif name in ("download", "load"):
        if ast.unparse(call.func) in ("nltk.download", "torch.hub.load"):
            yield name
    elif name in LOADING:
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        local = given.get("local_files_only") == "True"
        unfilled = given.get("pretrained") == "False" or given.get("weights") == "None"
        if not (local or unfilled or _from_folder(call, given)):
            yield name


def _from_folder(call: ast.Call, given: dict[str | None, str]) -> bool:
    """Whether the model is a folder of this machine, by how it is named or by its options."""
    first = ast.unparse(call.args[0]) if call.args else ""
    options = given.get(None, "")
    return bool(
        re.search(r"folder|local-dir:|config\.(start|autoencoder)|^None$|^source$", first)
        or re.search(r"\bsafe\b|\bsource\b|causal_source|options", options)
    )


def read_modules(repository: Path) -> dict[str, str]:
    files = [file for package in PACKAGES for file in (repository / package).rglob("*.py")]
    return {
        ".".join(file.relative_to(repository).with_suffix("").parts): file.read_text("utf-8")
        for file in files
    }


def test_every_place_that_fetches_is_known(repository: Path) -> None:
    modules = read_modules(repository)
    places = {place for name, source in modules.items() for place in fetching_places(name, source)}
    assert places == {*KNOWN, *EXAMPLES}


@pytest.mark.parametrize(
    "source",
    [
        "import requests",
        "from urllib.request import urlopen\nurlopen('x')",
        "import urllib.request\nurllib.request.urlretrieve('x', 'y')",
        "subprocess.run(['curl', '-O', 'x'])",
        "subprocess.run(['pip', 'download', 'x'])",
        "import nltk\nnltk.download('punkt')",
        "torch.hub.load('owner/name', 'model')",
        "timm.create_model(name, pretrained=True)",
        "AutoModel.from_pretrained(name)",
        "AutoModel.from_pretrained('owner/name', use_safetensors=True)",
        "hub.hf_hub_download('owner/name', 'file')",
        "importlib.import_module('requests')",
        "get_model(name, weights=published)",
    ],
)
def test_a_new_download_would_be_seen(source: str) -> None:
    assert list(fetching_places("new", source))


def test_torchvision_checks_what_it_fetches() -> None:
    """Its builders of detectors ask for the digest in the file's name."""
    import inspect

    from torchvision.models import detection

    for module in (detection.faster_rcnn, detection.mask_rcnn, detection.retinanet, detection.fcos):
        source = inspect.getsource(module)
        assert source.count("get_state_dict(") == source.count("check_hash=True") > 0


def test_data_sets_name_one_digest_for_an_address(repository: Path) -> None:
    digests: dict[str, set[str | None]] = {}
    for path in (repository / "configs" / "data").glob("*.yaml"):
        for entry in yaml.safe_load(path.read_text("utf-8")).get("files") or []:
            if entry.get("url"):
                digests.setdefault(entry["url"], set()).add(entry["sha256"])
    assert len(digests) > 10
    unknown = {url.rsplit("/", 1)[-1] for url, found in digests.items() if found == {None}}
    assert unknown == {"annotations.zip", "nocaps_val_4500_captions.json"}  # fetched by hand
    for url, found in digests.items():
        assert len(found) == 1, url
        assert all(digest is None or re.fullmatch("[0-9a-f]{64}", digest) for digest in found), url
