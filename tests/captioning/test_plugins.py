from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from captioning.plugins import check_targets, import_plugins
from captioning.training.parts import build_part


@pytest.mark.parametrize(
    "part",
    [
        {"_target_": "os.system", "command": "true"},
        {"_target_": "torch.nn.Sequential", "_args_": [{"_target_": "subprocess.run"}]},
        {"_target_": "torch.nn.Identity", "inner": {"deep": [{"_target_": "builtins_.eval"}]}},
    ],
)
def test_what_a_config_may_not_name_is_refused(part: dict) -> None:
    with pytest.raises(ValueError, match=r"configs may name what .* add plugins=\["):
        build_part(OmegaConf.create(part))


def test_libraries_and_the_project_may_be_named() -> None:
    check_targets([{"_target_": "torch.optim.Adam"}, {"x": {"_target_": "captioning.data.x"}}])


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
    with pytest.raises(ModuleNotFoundError, match="plugins: there is no module no_such_plugin in"):
        import_plugins(["no_such_plugin"])
