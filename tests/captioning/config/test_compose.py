"""How a config is composed."""

import re
from pathlib import Path

import pytest
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from captioning.config.compose import compose_config
from captioning.config.folders import config_folder

VLM = "experiment=vlm/fine_tuning"
# Config, choices, and a key whose default is empty.
TO_FILL = [
    ("train", (VLM,), "model.template"),
    ("train", (VLM,), "features.reader.options"),
    ("train", ("curation=remove", "curation/score=yes_no"), "curation.score.pairs.scorer.template"),
    ("evaluate", (), "template"),
    ("evaluate", ("search=constrained", "constraints=detections"), "constraints.renames"),
    ("evaluate", ("search=constrained", "constraints=detections"), "constraints.parents"),
    ("evaluate", ("search=constrained", "constraints=detections"), "constraints.forms"),
    ("capfilt", (), "captioner.captioner.template"),
    ("capfilt", (), "captioner.captioner.options"),
    ("capfilt", ("caption_source@captioner=server",), "captioner.captioner.extra_body"),
    ("capfilt", ("matching@filter=yes_no",), "filter.scorer.template"),
    ("augmentation", ("method=ssa_published",), "method.rules.min_noun_similarity_of"),
]
# Lists of parts, whose keys come with a choice of their group.
OF_GROUPS = {"steps"}


@pytest.mark.parametrize(("name", "choices", "key"), TO_FILL)
@pytest.mark.parametrize("form", ["{}={{some_option: false}}", "{}.some_option=false"])
def test_a_mapping_that_users_fill_needs_no_plus(
    name: str, choices: tuple[str, ...], key: str, form: str
) -> None:
    config = compose_config(name, [*choices, form.format(key)])
    assert OmegaConf.select(config, key) == {"some_option": False}
    older = compose_config(name, [*choices, "+" + form.format(key)])
    assert OmegaConf.select(older, key) == {"some_option": False}


def test_the_keys_to_fill_are_all_that_configs_leave_empty() -> None:
    """A new empty mapping belongs into the list above, or among the groups."""
    empty = re.compile(r"^ *(\w+): \{\}", re.MULTILINE)
    names = {
        name
        for path in Path(config_folder()).rglob("*.yaml")
        for name in empty.findall(path.read_text())
    }
    assert names == {key.rpartition(".")[2] for _, _, key in TO_FILL} | OF_GROUPS


@pytest.mark.parametrize(
    ("choices", "override"),
    [
        ((), "objective.reward=1"),
        ((), "steps.hold_out={classes: {}}"),
        ((), "model.template.x=1"),
        ((VLM,), "model.templates.x=1"),
        ((VLM,), "model.module.other=1"),
    ],
)
def test_other_keys_are_refused(choices: tuple[str, ...], override: str) -> None:
    with pytest.raises(HydraException, match="Could not override"):
        compose_config("train", [*choices, override])


def test_options_of_a_template_reach_the_reader_and_the_tokenizer() -> None:
    config = compose_config("train", [VLM, "model.template={enable_thinking: false}"])
    for part in (config.features.reader, config.tokenizer):
        assert isinstance(part, DictConfig)
        assert part.template == {"enable_thinking": False}
