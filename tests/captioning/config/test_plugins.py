from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from captioning.config.build import build_part
from captioning.config.plugins import check_targets, import_plugins


@pytest.mark.parametrize(
    "part",
    [
        {"_target_": "os.system", "command": "true"},
        {"_target_": "torch.nn.Sequential", "_args_": [{"_target_": "subprocess.run"}]},
        {"_target_": "torch.nn.Identity", "inner": {"deep": [{"_target_": "builtins_.eval"}]}},
    ],
)
def test_what_a_config_may_not_name_is_refused(part: dict) -> None:
    with pytest.raises(ValueError, match=r"configs may name only .* add plugins=\["):
        build_part(OmegaConf.create(part))


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("torch.load", "library functions may run anything"),
        ("torch.hub.load", "library functions may run anything"),
        ("torch.utils.collect_env.run", "library functions may run anything"),
        ("pytorch_lightning.Trainer.fit", "library functions may run anything"),
        ("torch.serialization.os.system", "posix defines it"),
        ("captioning.runtime.files.os.system", "posix defines it"),
        ("torch.package.PackageImporter", "of torch, configs may name only torch.nn"),
        ("captioning.runtime.files.write_text", "configs may not build it"),
        ("captioning.config.build.build_part", "configs may not build it"),
        ("captioning.training.run.train", "configs may not build it"),
        ("curation.review.edit_report.write_report", "configs may not build it"),
    ],
)
def test_what_reads_writes_or_runs_is_refused_wherever_it_is_reached_from(
    target: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=rf"_target_: {target}: {reason}"):
        build_part(OmegaConf.create({"inner": {"_target_": target}}))


def test_code_from_a_hub_is_refused() -> None:
    part = {"_target_": "transformers.AutoModel.from_pretrained", "trust_remote_code": True}
    with pytest.raises(
        ValueError, match="trust_remote_code runs code of unknown origin; leave it out"
    ):
        check_targets(part)


def test_libraries_and_the_project_may_be_named() -> None:
    check_targets([{"_target_": "torch.optim.Adam"}, {"x": {"_target_": "captioning.data.x"}}])
    check_targets({"_target_": "transformers.AutoModel.from_pretrained"})
    check_targets({"_target_": "captioning.training.optim.cosine"})


def test_a_package_of_the_current_folder_may_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugin_of_a_test.py").write_text("def build(size):\n    return [0] * size\n")
    part = OmegaConf.create({"_target_": "plugin_of_a_test.build", "size": 2})
    with pytest.raises(ValueError, match=r"plugins=\[plugin_of_a_test\]"):
        build_part(part)
    monkeypatch.chdir(tmp_path)
    import_plugins(["plugin_of_a_test"])
    assert build_part(part) == [0, 0]


def test_a_plugin_that_is_nowhere_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no module no_such_plugin in .* folder that"):
        import_plugins(["no_such_plugin"])


def test_all_packages_of_a_config_are_named_at_once() -> None:
    names = ("my_steps.a.A", "captioning.types.Batch", "my_models.b.B", "my_steps.c.C")
    config = OmegaConf.create({f"k{n}": {"_target_": name} for n, name in enumerate(names)})
    with pytest.raises(ValueError, match=r"plugins=\[my_steps,my_models\] .* my_steps my_mod"):
        check_targets(config.k0)


def test_a_name_in_the_place_of_a_list_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got my_package; write plugins=\[my_package\]"):
        import_plugins("my_package")
