"""A set of captions may be gone on with on another device: nothing else may differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from augmentation.run import without_execution_keys
from captioning.config.compose import compose_config
from captioning.config.tasks import plain

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
KEYS = ("seed", "split", "first_images", "steps", "method")
AMR = ("+amr@method.graph_parser=parser", "method.graph_parser.name=folder")


def settings(*overrides: str) -> dict[str, Any]:
    config = compose_config("augmentation", overrides=["out=x", *overrides])
    return without_execution_keys(plain({key: config[key] for key in KEYS}))


@pytest.mark.parametrize(
    ("method", "place"),
    [
        (("method=ssa", *AMR), "method.graph_parser.device=cuda:1"),
        (("method=paraphrase",), "method.writer.device=cuda:1"),
        (("method=toca", "writer@method.writer=smollm2"), "method.writer.device=cuda:1"),
    ],
)
def test_devices_at_any_depth_are_no_settings_of_a_set(method: tuple[str, ...], place: str) -> None:
    assert settings(*method) == settings(*method, place)


def test_what_a_model_is_and_does_is_one() -> None:
    plain = settings("method=ssa", *AMR)
    for change in ("name=other", "num_beams=1", "max_length=9"):
        assert settings("method=ssa", *AMR, f"method.graph_parser.{change}") != plain
