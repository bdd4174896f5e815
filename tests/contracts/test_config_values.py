"""Wrong values of every key end in one line before any work; what is accepted is valid.

Values are put into configs that are resolved already, so that thousands take seconds.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from captioning.commands.hydra_errors import explain_hydra_error
from captioning.config.check import check_config
from captioning.config.check.check import Problem, problems, resolved, schema_of
from captioning.config.compose import compose_config
from captioning.config.tasks import plain
from captioning.evaluation.settings import EvaluateSettings
from captioning.training.preflight import check_run, settings_of, settled
from captioning.training.settings import TrainSettings
from tests.task_calls import SCHEMAS, is_record, schema

JOINT = ("curation=remove", "curation/score=joint")
COMMANDS = {
    "defaults": ("train", TrainSettings, ()),
    "published UpDown": (
        "train",
        TrainSettings,
        ("model=updown_nocaps", "tokenizer=words_updown_baseline", "search=beam_allennlp"),
    ),
    "latents": (
        "train",
        TrainSettings,
        ("model=cos_cvae_small", "search=latents", "curation=replace_image"),
    ),
    "texts": (
        "train",
        TrainSettings,
        (
            "model=viecap_small",
            "search=diverse",
            "curation=remove",
            "curation/score=joint",
            "steps=[plant_mixed]",
        ),
    ),
    "end_to_end": (
        "train",
        TrainSettings,
        ("features=none", "curation=pseudo_label", "search=sampling", "schedule=rounds"),
    ),
    "capfilt": (
        "train",
        TrainSettings,
        ("curation=capfilt", "steps=[caption_slots]", "curation.captioner.captioner.name=FOLDER"),
    ),
    "capfilt of a run": (
        "train",
        TrainSettings,
        (
            "curation=replace_caption_model",
            "caption_source@curation.amend.source=run",
            "curation.amend.source.captioner.run=RUN",
            "+matching@curation.amend.accept=joint_space",
        ),
    ),
    "evaluate": ("evaluate", EvaluateSettings, ("run=RUN", "search=beam", "rerank=consensus")),
}
# What the configs of the other commands leave open.
OPEN = {
    "export": ("run=RUN", "to=TO"),
    "curate detect": ("run=RUN",),
    "curate capfilt": ("captioner.captioner.name=FOLDER",),
    "controllability": ("run=RUN",),
    "diverse-captions": ("run=RUN",),
    "image-distance": ("real=A", "other=B"),
    "augment": ("out=OUT", "data=miniworld", "spread=ray"),
    "augment round-trip": ("prompt=single",),
    "augment captioned": ("run=RUN", "augmented.root=MADE"),
}
COMMANDS |= {
    name: (command.config, schema(name), OPEN.get(name, ())) for name, command in SCHEMAS.items()
}
HUGE = 10**30
WRONG = (None, "abc", "", -1, 0, 1.5, math.nan, math.inf, [], {}, True, HUGE)
# Keys that no part reads: splits that are not trained on, and what other keys refer to.
FREE = ("data.test_", "curation.score", "curation.image_source", "curation.prompt")
FREE += ("curation.captioner", "curation.filter", "curation.threshold")
FREE += ("novel_classes", "model.objects", "model.pretrained", "model.names_path")
# Arguments of other libraries' networks, and readers below a key of any name.
FREE += ("unet.", "noise.", "sources.")
# Numbers that are whole in the config need not be; one file stands for a list of one.
FREE_OF = {
    "augment compare": ("figure.ratios", "target.train.annotations"),
    "augment teach": ("num_epochs",),
    "augment fine-tune": ("lora.alpha",),
}
# A version may be a number; devices are Lightning's to judge (`check_run` builds a trainer).
FREE += ("logger.csv.version", "logger.tensorboard.version", "trainer.devices")
# A number in the place of auto.
FREE += ("loader.num_workers",)
# Parts that curation.callback refers to; there they are refused.
REFERRED = [f"curation.{part}" for part in ("amend", "select", "probe", "schedule", "budget")]
Keys = tuple[str | int, ...]


@pytest.fixture(autouse=True)
def no_hydra_before() -> None:
    GlobalHydra.instance().clear()


def leaves(node: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """All values in a config with their keys, those of lists and the groups themselves too."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for name, value in items:
        yield (*keys, name), value
        if isinstance(value, dict | list):
            yield from leaves(value, (*keys, name))


def changed(values: dict[str, Any], keys: Keys, value: Any) -> dict[str, Any]:
    """A copy with another value in one place."""
    new = copy.copy(values)
    node = new
    for key in keys[:-1]:
        node[key] = copy.copy(node[key])
        node = node[key]
    node[keys[-1]] = value
    return new


def settable(node: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """What stands in a config itself, with its keys; not what refers to other keys."""
    for key, value in leaves(OmegaConf.to_container(node, resolve=False), keys):
        if not (isinstance(value, str) and value.startswith("${")):
            yield key, value


def may_follow(old: Any, new: Any) -> bool:
    """Whether a value may be valid in place of another: null, or of its type."""
    if new == HUGE:
        return False
    if old is None or new is None:
        return new is None or isinstance(new, str | int | float | list | dict)
    if isinstance(old, bool) or isinstance(new, bool):
        return type(old) is type(new)
    if isinstance(old, int | float) and isinstance(new, int | float):
        return math.isfinite(new) and (isinstance(old, float) or isinstance(new, int))
    return type(old) is type(new)


def fuzzed(
    config: DictConfig, settings: Callable[..., Any], tried: set[tuple[Keys, str]]
) -> Iterator[tuple[str, Any, Any, list[Problem]]]:
    """What is said of each wrong value of each key: the key, old and new value, problems."""
    hints = schema_of(settings).annotations
    values, _ = resolved(config)
    for keys, old in list(settable(config)):
        if (keys, repr(old)) in tried or keys[0] not in values or str(keys[-1]).startswith("_"):
            continue
        tried.add((keys, repr(old)))
        top = str(keys[0])
        for new in WRONG:
            group = changed(values, keys, new)[top]
            found = problems(group, hints.get(top, Any), top)
            yield ".".join(map(str, keys)), old, new, found


TRIED: set[tuple[Keys, str]] = set()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_wrong_value_is_refused_by_its_key(name: str):
    """What is accepted is null, or of the type of what stands there."""
    command, settings, overrides = COMMANDS[name]
    config = settled(compose_config(command, overrides=[*overrides]))
    check_config(config, settings)
    accepted, refused = [], 0
    for key, old, new, found in fuzzed(config, settings, TRIED):
        top = key.partition(".")[0]
        assert all(problem.key.partition(".")[0] == top for problem in found), key
        assert all("\n" not in problem.text for problem in found), key
        refused += bool(found)
        if (
            not found
            and not key.startswith((*FREE, *FREE_OF.get(name, ())))
            and key not in REFERRED
            and not may_follow(old, new)
        ):
            accepted.append((key, old, new))
    print(f"{name}: {refused} refused")
    told = sorted({f"{key}: {new!r} for {str(old)[:30]}" for key, old, new in accepted})
    assert told == [], "; ".join(told)
    assert refused > 0


TRAININGS = [name for name, (command, *_) in COMMANDS.items() if command == "train"]


@pytest.mark.parametrize("name", TRAININGS)
def test_settings_of_a_training_are_kept_as_its_config_has_them(name: str):
    """Run folders compare and keep them."""
    command, _, overrides = COMMANDS[name]
    config = settled(compose_config(command, overrides=[*overrides]))
    assert is_record(plain(settings_of(config)), config)


LINES = [
    ("loader.batch_size=0", "loader.batch_size: must be a whole number of at least 1, got 0"),
    (
        "loader.eval_batch_size=-1",
        "loader.eval_batch_size: must be a whole number of at least 1, got -1",
    ),
    ("loader.batch_size=true", "loader.batch_size: must be a whole number of at least 1, got true"),
    ("metrics.test=null", "metrics.test: must be a list of"),
    ("metrics.test=[CIDer]", "did you mean CIDEr?"),
    ("ema_decay=abc", "ema_decay: must be a number above 0 and below 1 or null, got abc"),
    ("first_images=1.5", "first_images: must be a whole number of at least 1 or null, got 1.5"),
    ("optimizer.lr=null", "optimizer.lr: must be a number of at least 0, got null"),
    ("+optimizer.learning=1", "optimizer.learning: there is no such key"),
    ("monitor=abc", "monitor: must be one of last, val/BLEU-1"),
    ("monitor=val/CIDER-D", "did you mean val/CIDEr-D?"),
    (
        "threads=-1",
        "threads: must be a whole number of at least 1 and at most 4096 or null, got -1",
    ),
    ("seed=1.5", "seed: must be a whole number"),
    (f"threads={10**12}", "threads: must be a whole number of at least 1 and at most 4096"),
    ("loader.num_workers=100000", "at most 1024, got 100000"),
    (f"loader.batch_size={10**30}", "whole numbers must be at most 9223372036854775807"),
    (f"optimizer.lr={10**400}", "optimizer.lr: must be a number of at least 0"),
    ("features.backbone.image_size=-1", "must be a whole number of at least 1 or null, got -1"),
    ("search._convert_=abc", "search._convert_: must be one of none, partial, object, all"),
    ("+search._partail_=true", "search._partail_: there is no such key; did you mean _partial_?"),
    ("+curation.selectt.ratio=1", "curation.selectt: there is no such key; did you mean select?"),
    ("+lodaer.batch_size=3", "lodaer: there is no such key; did you mean loader?"),
    ("start_from=missing", "start_from=missing: no such folder; give a run, an export"),
    ("trainer.precision=64-true", "trainer.precision: must be one of 32-true, 16-mixed"),
    ("+trainer.limit_train_batches=0", "trainer.limit_train_batches: must be a number above 0"),
    ("+trainer.overfit_batches=2", "trainer.overfit_batches is set by the run: set first_images"),
    ("+trainer.callbacks=[]", "trainer.callbacks is set by the run: choose callbacks=["),
    ("callbacks.early_stopping.monitor=abc", "callbacks.early_stopping.monitor: must be one of"),
    ("callbacks.early_stopping.patience=-1", "callbacks.early_stopping.patience: must be"),
    ("callbacks.early_stopping.mode=abc", "callbacks.early_stopping: `mode` can be min, max"),
    ("data.test_near=abc", "data.test_near: must be a mapping with _target_ or null, got abc"),
    ("model.module=null", "model.module: must be a mapping with _target_"),
    ("trainer.devices=abc", "trainer: "),
    ("features.kind=null", "features.kind: must be grid or regions"),
    ("+num_epoch=3", "num_epoch: there is no such key; did you mean num_epochs?"),
    ("features.imported=???", "features.imported: must be given"),
    ("data.train.size=${nothing}", "data.train.size: Interpolation key 'nothing' not found"),
]


@pytest.mark.parametrize(("override", "line"), LINES, ids=[override for override, _ in LINES])
def test_a_wrong_value_is_told_in_a_line_before_any_work(override: str, line: str, tmp_path: Path):
    override = f"+{override}" if override.startswith("features.imported") else override
    chosen = ["callbacks=[early_stopping]"] if "early_stopping" in override else []
    config = settled(compose_config("train", [f"run_dir={tmp_path}", *chosen, override]))
    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(line)) as raised:
        check_run(settings_of(config))
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", ["0", "0.0"])
def test_scores_of_validation_are_not_waited_for_without_validation(limit, tmp_path: Path):
    """Early stopping would end with an error behind the first epoch."""

    def settings(*overrides: str):
        own = (f"run_dir={tmp_path}", f"+trainer.limit_val_batches={limit}")
        return settled(compose_config("train", [*own, *overrides]))

    never = r"is never logged with trainer\.limit_val_batches=0; leave one of the two out"
    with pytest.raises(ValueError, match=rf"callbacks\.early_stopping\.monitor: .* {never}"):
        check_run(settings_of(settings("monitor=last", "callbacks=[early_stopping]")))
    with pytest.raises(ValueError, match=rf"monitor: val/CIDEr-D {never}, or set monitor=last"):
        check_run(settings_of(settings("monitor=val/CIDEr-D")))
    check_run(settings_of(settings("monitor=last")))
    on_loss = "callbacks.early_stopping.monitor=train/loss"
    check_run(settings_of(settings("monitor=last", "callbacks=[early_stopping]", on_loss)))


def test_all_wrong_values_are_told_at_once_by_the_keys_that_they_come_from():
    wrong = (
        "curation=remove",
        "curation.select.ratio=2",
        "curation.schedule.from_epoch=nan",
        "seed=-1",
    )
    with pytest.raises(ValueError) as raised:
        check_config(compose_config("train", ["curation=remove", *wrong]), TrainSettings)
    keys = [line.partition(":")[0] for line in str(raised.value).splitlines()]
    assert sorted(keys) == ["curation.schedule.from_epoch", "curation.select.ratio", "seed"]


def test_a_record_of_settings_says_what_holds_between_its_fields():
    wrong = ("curation=remove", "curation.schedule.from_epoch=3", "curation.schedule.until_epoch=1")
    with pytest.raises(ValueError, match="curation.schedule: until_epoch must not lie before"):
        check_config(settled(compose_config("train", [*wrong])), TrainSettings)


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("num_epoch=3", "num_epoch: there is no such key; did you mean num_epochs?"),
        (
            "loader.batchsize=3",
            "loader.batchsize: there is no such key; did you mean loader.batch_size?",
        ),
        ("optimiser=adam", "optimiser: there is no such key; did you mean optimizer?"),
        ("model=updwon", "model=updwon: there is no such choice; did you mean updown?"),
        ("curation/select=tpo", "curation/select=tpo: there is no such choice; did you mean top?"),
        ("optimizer=null", "optimizer: must be a choice of the group, got null"),
        ("seed", "seed has no value: write seed=VALUE"),
        (
            "steps=[plant_swp20]",
            "steps=plant_swp20: there is no such choice; did you mean plant_swap20?",
        ),
        (
            "callbacks=[early_stoping]",
            "callbacks=early_stoping: there is no such choice; did you mean early_stopping?",
        ),
        (
            "extra_metrics=[diversty]",
            "extra_metrics=diversty: there is no such choice; did you mean diversity?",
        ),
        (
            "experiment=viecap/flickr8k_smal",
            "experiment=viecap/flickr8k_smal: there is no such choice; did you mean "
            "viecap/flickr8k_small?",
        ),
        (
            "lodaer.batch_size=3",
            "lodaer.batch_size: there is no such key; did you mean loader.batch_size?",
        ),
        (
            "batch_size=3",
            "batch_size: there is no such key; did you mean features.batch_size or "
            "loader.batch_size?",
        ),
        (
            "curation.budget={abc: 3}",
            "curation.budget.abc: there is no such key; curation.budget has "
            "min_captions_per_image, min_captions_per_word; a new one is added by "
            "+curation.budget.abc=VALUE",
        ),
        ("trainer.max_epochs=3", "trainer.max_epochs is set by the run: set num_epochs=N"),
    ],
)
def test_what_hydra_refuses_is_told_in_a_line(override: str, line: str):
    overrides = ["curation=remove", override]
    with pytest.raises((HydraException, ValueError)) as raised:
        compose_config("train", overrides)
    told = explain_hydra_error(raised.value, name="train", overrides=overrides)
    assert told == line


def test_callbacks_of_a_plugin_may_monitor_what_they_log_or_nothing(tmp_path: Path):
    further = ["plugins=[my_package]", "callbacks=[early_stopping,learning_rate]"]
    monitor = "callbacks.early_stopping.monitor=mine/score"
    check_run(
        settings_of(settled(compose_config("train", [f"run_dir={tmp_path}", *further, monitor])))
    )


@pytest.mark.parametrize("experiment", ["viecap/coco", "blip/fine_tuning", "cic_bart/flickr30k"])
def test_smoke_runs_suit_every_tokenizer(experiment: str):
    config = compose_config("train", [f"experiment={experiment}", "debug=smoke"])
    check_config(settled(config), TrainSettings)


def test_smoke_runs_keep_every_word():
    assert compose_config("train", ["debug=smoke"]).tokenizer.min_count == 1
    assert compose_config("train", []).tokenizer.min_count == 5
