"""Models of the hub: a commit is named, and what came is held against its digests."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

from captioning.runtime.model_folder import _check_layers, model_folder

COMMIT = "0123456789" * 4


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A snapshot as the hub's cache lays it out: links to files that are named by their digests."""
    cache = tmp_path / "models--owner--name"
    snapshot = cache / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (cache / "blobs").mkdir()
    config, weights = b"{}", b"weights" * 100
    blobs = {
        "config.json": (config, hashlib.sha1(b"blob 2\0" + config).hexdigest()),
        "model.safetensors": (weights, hashlib.sha256(weights).hexdigest()),
    }
    for name, (content, digest) in blobs.items():
        (cache / "blobs" / digest).write_bytes(content)
        (snapshot / name).symlink_to(cache / "blobs" / digest)

    def fetch(name: str, *, revision: str | None = None, **options: object) -> str:
        if name != "owner/name" or revision not in (None, COMMIT):
            raise OSError("no network")
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    return snapshot


def test_a_commit_is_fetched_and_checked(hub: Path) -> None:
    assert model_folder(f"owner/name@{COMMIT}", instead="a folder") == hub


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_changed_file_is_refused(hub: Path, file: str) -> None:
    blob = (hub / file).resolve()
    content = bytearray(blob.read_bytes())
    content[1] ^= 1
    blob.write_bytes(content)
    with pytest.raises(ValueError, match=f"{file}: not the file of this commit.*delete"):
        model_folder(f"owner/name@{COMMIT}", instead="a folder")


@pytest.mark.parametrize("name", ["owner/name", "owner/name@", "owner/name@main", "owner/name@v1"])
def test_a_name_without_its_commit_is_refused_with_the_one_at_hand(hub: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"lacks its commit.*write owner/name@{COMMIT}"):
        model_folder(name, instead="a folder")


def test_a_name_is_first_looked_for_where_the_user_keeps_models(
    hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "mine" / "owner" / "name"
    kept.mkdir(parents=True)
    monkeypatch.setenv("CAPTIONING_MODELS", str(tmp_path / "mine"))
    with pytest.raises(ValueError, match=f"is not in {kept}, and as a name on the model hub"):
        model_folder("owner/name", instead="a folder")
    (kept / "config.json").write_text("{}")
    assert model_folder("owner/name", instead="a folder") == kept
    # A commit that is asked for is that of the hub: nobody knows which one is kept.
    assert model_folder(f"owner/name@{COMMIT}", instead="a folder") == hub


def test_todays_commit_is_asked_for(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = SimpleNamespace(model_info=lambda name, timeout: SimpleNamespace(sha="f" * 40))
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
    with pytest.raises(ValueError, match="write owner/other@f{40}"):
        model_folder("owner/other", instead="a folder")


def test_without_network_it_is_said_how(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="write owner/other@COMMIT with the 40 digits"):
        model_folder("owner/other", instead="a folder")
    with pytest.raises(ConnectionError, match=f"--revision {COMMIT} --local-dir"):
        model_folder(f"owner/other@{COMMIT}", instead="a folder")


def test_a_checkpoint_in_the_place_of_a_folder_is_to_be_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.pth").touch()
    monkeypatch.chdir(tmp_path)
    for name in ("model.pth", str(tmp_path / "model.pth")):
        with pytest.raises(ValueError, match="is a file; give the folder .* `captioning convert`"):
            model_folder(name, instead="another")


@pytest.mark.parametrize(
    "config",
    [
        '{"num_hidden_layers": 100000}',
        '{"num_hidden\\u005flayers": 100000}',
        '{"vision_config": {"depth": 100000000}}',
        '{"depths": [2, 2000, 2]}',
        '{"text_config": {"decoder_layers": 1e9}}',
    ],
)
def test_a_number_of_layers_that_no_model_has_is_refused(tmp_path: Path, config: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(config, encoding="utf-8")
    with pytest.raises(ValueError, match=r"config.json: .* is .*, at most 1000"):
        _check_layers(path)


def test_other_numbers_of_a_model_may_be_large(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"vocab_size": 50257, "num_hidden_layers": 80, "depth": 32}', encoding="utf-8")
    _check_layers(path)
