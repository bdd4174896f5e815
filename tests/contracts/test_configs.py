"""Every config composes, resolves, and names arguments that its target takes.

An experiment is a file under configs/experiment; `NUM_EXPERIMENTS` is raised with each new one, so
that a file that the search for configs misses is noticed.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf

from captioning.config.compose import VERSION_BASE, compose_config

NUM_EXPERIMENTS = 59

CONFIGS = Path(__file__).resolve().parent.parent.parent / "configs"
EXPERIMENTS = sorted((CONFIGS / "experiment").rglob("*.yaml"))
GROUPS = [
    folder.relative_to(CONFIGS)
    for folder in sorted(CONFIGS.rglob("*"))
    if folder.is_dir() and folder.relative_to(CONFIGS).parts[0] not in ("experiment", "hydra")
]
# A file that chooses of other groups itself, or reads their settings, is composed alone.
CHOOSES = re.compile(r"^ *- [\w/@. ]+: |\$\{data\.", re.MULTILINE)
needs_train = pytest.mark.skipif(
    not (CONFIGS / "train.yaml").exists(), reason="configs/train.yaml is not there"
)


@pytest.fixture(autouse=True, scope="module")
def hydra_on_configs() -> Iterator[None]:
    GlobalHydra.instance().clear()
    yield
    HydraConfig.instance().cfg = None
    compose_experiment.cache_clear()


def composed(*overrides: str) -> DictConfig:
    """The training config with overrides, as a run would see it."""
    config = compose_config("train", overrides=[*overrides], return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    return config


@functools.cache
def compose_experiment(file: Path) -> DictConfig:
    """The training config with an experiment; two tests look at each."""
    name = file.relative_to(CONFIGS / "experiment").with_suffix("").as_posix()
    return composed(
        f"+experiment={name}" if "experiment" not in choices() else f"experiment={name}"
    )


def options() -> Iterator[tuple[str, ...]]:
    """Overrides that pick every config file once, of each group one at a time."""
    together = []
    for group in GROUPS:
        # of `base` the others of a group are made; it is not chosen by itself
        files = [file for file in sorted((CONFIGS / group).glob("*.yaml")) if file.stem != "base"]
        nests = any(other.parent == group for other in GROUPS)
        alone = [f for f in files if nests or CHOOSES.search(f.read_text(encoding="utf-8"))]
        yield from ((option(file),) for file in alone)
        together.append([option(file) for file in files if file not in alone])
    for row in itertools.zip_longest(*together):
        yield tuple(override for override in row if override is not None)


def option(file: Path) -> str:
    """The override that picks a config file: ``group=name``, or ``+group=name`` for a new group."""
    relative = file.relative_to(CONFIGS).with_suffix("")
    group, name = relative.parent.as_posix(), relative.name
    return f"{'' if group in choices() else '+'}{group}={name}"


@functools.cache
def choices() -> frozenset[str]:
    """Groups of which the training config already names one."""
    return frozenset(composed().hydra.runtime.choices)


def targets(node: Any) -> Iterator[Mapping[str, Any]]:
    """All parts of a resolved config that Hydra would build."""
    if isinstance(node, Mapping):
        if "_target_" in node:
            yield node
        for value in node.values():
            yield from targets(value)
    elif isinstance(node, list):
        for value in node:
            yield from targets(value)


def wrong_arguments(node: Mapping[str, Any]) -> str | None:
    """What is wrong with a part's ``_target_`` or its arguments, or None."""
    try:
        target = get_object(node["_target_"])
    except (ImportError, AttributeError, ValueError) as error:
        return f"{node['_target_']}: {error}"
    arguments = {key: value for key, value in node.items() if not key.startswith("_")}
    try:
        signature = inspect.signature(target)
        signature.bind_partial(*node.get("_args_", ()), **arguments)
    except TypeError as error:
        return f"{node['_target_']}: {error}"
    return None


def check(config: DictConfig) -> None:
    parts = {key: value for key, value in config.items() if key != "hydra"}
    resolved = OmegaConf.to_container(OmegaConf.create(parts), resolve=True)
    wrong = [message for node in targets(resolved) if (message := wrong_arguments(node))]
    assert wrong == []


def test_all_experiments_are_found():
    assert len(EXPERIMENTS) == NUM_EXPERIMENTS


@needs_train
def test_the_defaults_compose():
    check(composed())


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_config_of_every_command_composes(file: Path):
    assert len(compose_config(file.stem)) > 0


@needs_train
@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_every_experiment_composes(file: Path):
    config = compose_experiment(file)
    HydraConfig.instance().set_config(config)
    check(config)


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_every_experiment_says_its_command(file: Path):
    name = file.relative_to(CONFIGS / "experiment").with_suffix("").as_posix()
    lines = file.read_text(encoding="utf-8").splitlines()
    head = [line for line in lines if line.startswith("#")]
    assert lines[0].startswith("#"), "an experiment begins with what it is"
    assert any(f"experiment={name}" in line for line in head), f"no command with experiment={name}"


@needs_train
def test_every_part_composes_with_training():
    for overrides in options():
        try:
            check(composed(*overrides))
        except Exception as error:
            error.add_note(" ".join(overrides))
            raise


@needs_train
def test_a_command_that_hydra_runs_composes_another_config():
    with initialize_config_dir(str(CONFIGS), version_base=VERSION_BASE):
        running = GlobalHydra.instance().hydra
        assert composed("num_epochs=7").num_epochs == 7
        assert GlobalHydra.instance().hydra is running


@needs_train
def test_a_smoke_run_keeps_the_steps_of_an_experiment():
    config = composed("experiment=cutswap/updown", "debug=smoke")
    assert list(config.steps) == ["share_of_photos", "add_pairs"]
    assert 0 < config.first_images < 100


@needs_train
def test_steps_are_taken_in_the_order_in_which_they_are_named():
    config = composed("experiment=demo", "steps=[plant_mixed,share_of_photos,hold_out_coco]")
    assert list(config.steps) == ["plant_faults", "share_of_photos", "hold_out"]


@needs_train
@pytest.mark.parametrize("data", ["flickr8k", "miniworld"])
@pytest.mark.parametrize("amend", ["remove", "replace_caption", "replace_image"])
@pytest.mark.parametrize("schedule", ["every_epoch", "once", "before_training"])
def test_every_policy_can_be_scheduled_in_a_table(data: str, amend: str, schedule: str):
    options = (f"curation={amend}", f"curation/schedule={schedule}")
    config = composed(f"experiment=data_curation/table2_{data}", *options)
    due = instantiate(config.curation.schedule).due
    epochs = {"every_epoch": [1, 2, 3], "once": [1], "before_training": [-1]}
    assert [epoch for epoch in range(-1, 4) if due(epoch)] == epochs[schedule]


@needs_train
@pytest.mark.parametrize("data", ["flickr8k", "miniworld"])
def test_rows_of_a_table_of_policies_have_different_folders(data: str):
    rows = [("curation=track",), ("curation=remove", "curation/select=sigma")]
    for policy in ("curation=remove", "curation=replace_caption", "curation=replace_image"):
        rows += [(policy, f"curation.select.ratio={ratio}") for ratio in (0.01, 0.05, 0.1)]
    before = ("curation=replace_image", "curation/select=share", "curation.select.ratio=0.01")
    rows.append((*before, "curation/schedule=before_training"))
    experiment = f"experiment=data_curation/table2_{data}"
    assert len({composed(experiment, *row).run_name for row in rows}) == len(rows)


@needs_train
@pytest.mark.parametrize("policy", ["none", "track", "remove", "replace_image"])
def test_a_source_of_pictures_can_be_named_with_any_policy(policy: str):
    """A sweep over policies is composed without one first."""
    pool = "curation.image_source.pool=FOLDER"
    config = composed(f"curation={policy}", "curation/image_source=retrieval", pool)
    assert config.curation.image_source.pool == "FOLDER"


@needs_train
@pytest.mark.parametrize("experiment", ["coco_d", "coco_dt", "flickr8k_d_small", "coco_dt_small"])
def test_trainings_on_different_texts_have_different_folders(experiment: str):
    """Else the second one is refused the folder of the first."""
    overrides = ("corpus.share=0.1", "corpus.share=1", "corpus.name=r_wo", "corpus.name=tau_1")
    names = {composed(f"experiment=toca/{experiment}", override).run_name for override in overrides}
    assert len(names) == len(overrides)


@needs_train
def test_rows_of_a_table_of_texts_have_different_folders():
    photos, rows = ("coco", "flickr8k"), ("d", "dt", "t")
    small = [f"experiment=toca/{data}_{row}_small" for data in photos for row in rows]
    large = [f"experiment={row}" for row in ("viecap/coco", "toca/coco_d", "toca/coco_dt")]
    shares = [("viecap/coco", 0.01), ("viecap/coco", 0.1), ("viecap/coco_to_flickr8k", 0.1)]
    alone = [(f"experiment={row}", f"corpus.share={share}") for row, share in shares]
    across = ["experiment=toca/flickr30k_to_coco", "experiment=viecap/flickr30k_to_coco"]
    prior = ("experiment=toca/flickr30k_to_coco", "corpus.name=s_x")
    runs = [*((override,) for override in (*small, *large, *across)), *alone, prior]
    assert len({composed(*override).run_name for override in runs}) == len(runs)


@needs_train
@pytest.mark.parametrize(
    ("experiment", "name"),
    [
        ("flickr8k_small", "flickr8k/viecap_small-text_own"),
        ("coco_to_flickr8k_small", "flickr8k/viecap_small-text_coco"),
        ("flickr30k_to_coco_small", "coco/viecap_small-text_flickr30k"),
    ],
)
def test_recorded_runs_on_texts_keep_their_names(experiment: str, name: str):
    assert composed(f"experiment=viecap/{experiment}").run_name == name


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_no_tested_caption_is_in_a_corpus(file: Path):
    """``corpus=coco`` holds the captions of all photos of COCO, the tested ones too."""
    config = compose_experiment(file)
    if not config.data.name.startswith("coco"):
        return
    for group in ("corpus", "corpus@prior"):
        commands = file.read_text(encoding="utf-8").replace("\\\n#", "").splitlines()
        reads_all = [line for line in commands if f" {group}=coco" in line]
        assert all("exclude_ids=" in line for line in reads_all)
    if config.corpus.name == "coco":
        assert config.corpus.train.exclude_ids == config.data.test.image_ids


def test_the_prior_of_a_synthesis_may_be_the_training_captions_of_a_data_set():
    config = compose_config(
        "augmentation", ["corpus=flickr30k", "data=coco_karpathy", "corpus@prior=own"]
    )
    assert config.prior.train.split == "train"
    assert config.prior.train.annotations.endswith("dataset_coco.json")


@pytest.mark.parametrize(
    "overrides",
    [
        ("data=nocaps", "extra_metrics=[nocaps]"),
        ("data=nocaps", "extra_metrics=[nocaps]", "extra_metrics.nocaps.frequencies=group"),
        ("data=flickr30k_entities",),
    ],
)
def test_a_run_may_be_tested_across_domains(overrides: tuple[str, ...]):
    check(compose_config("evaluate", ["run=RUN", *overrides]))


def test_a_wrong_argument_is_seen():
    good = {"_target_": "captioning.types.Region", "box": (0, 0, 1, 1), "label": "dog"}
    assert wrong_arguments(good) is None
    assert "colour" in wrong_arguments({**good, "colour": "red"})
    assert "Regions" in wrong_arguments({**good, "_target_": "captioning.types.Regions"})


@needs_train
def test_pseudo_labels_of_constrained_search_alone():
    overrides = (
        "steps=[hold_out_coco]",
        "steps.hold_out.samples_per_photo=1",
        "curation.amend.plain=null",
    )
    config = composed("curation=pseudo_label", "schedule=rounds", *overrides)
    amender = instantiate(config.curation.amend)
    assert amender.searches["plain"] is None
    assert amender.constraints([]).words == {}


@needs_train
def test_the_commands_of_partial_supervision_can_say_the_words_held_out():
    page = (CONFIGS.parent / "docs" / "cards" / "partial_supervision.md").read_text(
        encoding="utf-8"
    )
    lines = page.replace("\\\n", " ").splitlines()
    commands = [shlex.split(line)[2:] for line in lines if line.startswith("python train.py ")]
    assert len(commands) == 4
    for config in (composed(*options) for options in commands):
        forms = {
            word
            for class_forms in config.steps.hold_out.classes.values()
            for form in class_forms
            for word in form.split()
        }
        assert forms <= set(config.tokenizer.extra_words)
        assert config.model.module.tied
        assert config.schedule._target_.endswith(("linear", "rounds"))
    assert config.start_from.endswith("in_domain/seed0")


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.yaml")), ids=lambda file: file.stem)
def test_no_setting_of_a_command_has_the_name_of_a_group(file: Path):
    """Hydra would take ``key=value`` for a choice in the group, and refuse it."""
    groups = {folder.name for folder in CONFIGS.iterdir() if folder.is_dir()}
    settings = OmegaConf.to_container(OmegaConf.load(file))
    plain = {key for key, value in settings.items() if not isinstance(value, dict)}
    assert (plain - {"defaults"}) & groups == set()


@needs_train
@pytest.mark.parametrize(
    ("experiment", "names", "threshold", "search"),
    [
        ("viecap/coco", "coco", 0.4, "beam"),
        ("viecap/flickr30k_to_coco", "coco", 0.2, "greedy"),
        ("toca/flickr30k_to_coco", "coco", 0.2, "greedy"),
        ("viecap/coco_to_flickr8k", None, 0.4, "beam"),
        ("viecap/flickr8k_small", None, 0.4, "beam"),
    ],
)
def test_entities_of_photos_are_published_by_data_set(experiment, names, threshold, search):
    config = composed(f"experiment={experiment}")
    assert config.model.photo_names == names
    assert config.model.module.threshold == threshold
    assert search in config.search._target_.rpartition(".")[0].lower()


def test_published_searches_of_viecap_end_alike():
    """Both tokens of a full stop end a caption; there are no empty ones to be avoided."""
    beam, greedy = (
        compose_config("evaluate", ["run=RUN", f"search={name}"]).search
        for name in ("beam_viecap", "greedy_sentences")
    )
    shared = ("end_words", "max_length", "min_length", "special_tokens")
    assert [greedy[key] for key in shared] == [beam[key] for key in shared]


def test_published_toca_switches_off_what_is_not_in_the_paper():
    method = compose_config("augmentation", ["method=toca_published"]).method
    assert (method.complete_first, method.pace.keep, method.tau) == (False, 1, None)
    assert method.whole_words is False
    assert (method.writer.chat, method.writer.max_small_words) == (True, None)
    assert "Mistral-7B-Instruct" in method.writer.name
