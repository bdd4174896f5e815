from __future__ import annotations

from functools import partial
from typing import Any

import hydra.utils
import pytest
from omegaconf import OmegaConf

from captioning.config.build import build_part
from captioning.config.plugins import import_plugins

SHOWN = "tests.captioning.config.shown.shown"
INNER = {"_target_": SHOWN, "depth": 2, "of": "${root}"}
PARTS: dict[str, dict[str, Any]] = {
    "plain": {"a": 1, "b": None, "c": "text", "d": 2.5, "e": True},
    "mapping": {"a": {"b": {"c": 1}}, "d": {}},
    "list": {"a": [1, [2, {"b": 3}]], "d": []},
    "references": {"a": "${root}", "b": "${a}", "c": "${.a}", "d": "x${root}y", "e": "${deep.er}"},
    "parts": {"a": INNER, "b": {"c": INNER}, "d": [INNER, {"e": INNER}]},
    "partial": {"a": INNER | {"_partial_": True}, "b": [INNER | {"_partial_": True}]},
    "positional": {"_args_": [1, {"a": 2}, INNER], "b": 3},
    "not within": {"_recursive_": False, "a": INNER, "b": [INNER]},
    "partial itself": {"_partial_": True, "a": INNER},
    "a reference to a part": {"a": "${part}", "b": "${mapping}"},
    "converted within": {"a": INNER | {"_convert_": "all", "b": {"c": [1]}}, "d": {"e": 1}},
}
MORE: dict[str, dict[str, Any]] = {
    "none": {},
    "further": {"a": 7, "further": [1]},
    "a mapping": {"a": {"b": 1}},
}


def composed(part: dict[str, Any], convert: str | None) -> Any:
    marks = {"_convert_": convert} if convert else {}
    whole = {
        "root": "here",
        "deep": {"er": [1, 2]},
        "part": INNER,
        "mapping": {"a": [1]},
        "a": 5,
        "it": {"_target_": SHOWN, **part, **marks},
    }
    return OmegaConf.create(whole).it


def by_hydra(config: Any, **more: Any) -> Any:
    """Hydra's own way, further arguments as they are: it would make configs of mappings."""
    if not more:
        return hydra.utils.instantiate(config)
    part = hydra.utils.instantiate(config, _partial_=True)
    return partial(part, **more) if config.get("_partial_") else part(**more)


def result_of(build: Any, config: Any, more: dict[str, Any]) -> Any:
    try:
        built = build(config, **more)
    except Exception as error:  # noqa: BLE001 - both fail, each by an error of its own
        return "error", type(error).__name__ if isinstance(error, KeyError) else "an error"
    return built(2) if callable(built) else built


@pytest.mark.parametrize("convert", [None, "none", "partial", "object", "all"])
@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_built_as_hydra_builds_it(part: str, more: str, convert: str | None) -> None:
    import_plugins(["tests"])
    config = composed(PARTS[part], convert)
    expected = result_of(by_hydra, config, MORE[more])
    assert expected[0] != "error"
    assert result_of(build_part, config, MORE[more]) == expected
