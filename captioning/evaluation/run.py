"""Scores of a file of captions, or of what a finished run predicts: ``captioning evaluate``."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig, OmegaConf, open_dict

from captioning.config_check.check import check_config
from captioning.data.roster import Roster
from captioning.evaluation.settings import EvaluateSettings
from captioning.files import write_json
from captioning.metrics.bootstrap import Bootstrap
from captioning.metrics.evaluation import evaluate_all
from captioning.results.coco_results import read_results, write_captions
from captioning.results.per_caption import caption_columns, write_per_caption
from captioning.results.run_folder import RunFolder
from captioning.results.show import show_result
from captioning.results.versions import versions
from captioning.training.parts import build_part

OF_RUN = ("data", "steps")  # keys that parts of an evaluation may refer to


def evaluate(config: DictConfig) -> dict[str, float]:
    """Score a results file, or what a run predicts.

    Writes ``metrics.json`` and a table of captions with their scores into ``config.out``.

    Returns:
        The corpus scores by name.

    Raises:
        ValueError: neither or both of ``predictions`` and ``run`` are given, no data set, or
            captions of images that the data set does not have.
    """
    config = _resolved(config)
    if (config.predictions is None) == (config.run is None):
        raise ValueError("give predictions=FILE with data=NAME, or run=FOLDER, and not both")
    extra = {name: build_part(part) for name, part in (config.get("extra_metrics") or {}).items()}
    standard = {"metrics": list(config.metrics.test), "tokenizer": config.metrics.tokenizer}
    if config.resamples:
        standard["bootstrap"] = Bootstrap(resamples=config.resamples, seed=config.seed or 0)
    if config.predictions is not None:
        if config.get("first_images") is not None:
            raise ValueError("first_images is for run=: a file's captions are scored all")
        captions, roster = read_results(config.predictions), _roster(config)
        out, decoding = Path(config.out or Path(config.predictions).with_suffix("")), None
    else:
        from captioning.evaluation.predict import predict_run  # slow to import, needed here only

        options = {"split": config.split}
        keys = ("search", "rerank", "constraints", "detections", "imported", "entities")
        keys += ("first_images", "device", "precision", "accept_changes")
        options |= {key: config.get(key) for key in keys}
        predictions, roster, decoding = predict_run(Path(config.run), config.get("data"), **options)
        captions = {group[0].image_id: [p.caption for p in group] for group in predictions}
        # records and tables take what is in "evaluation", and no trials
        place = f"first{config.first_images}" if config.get("first_images") else "evaluation"
        out = Path(config.out or Path(config.run) / place / roster.name.replace("/", "-"))
        write_captions(out, predictions)
    result = evaluate_all(captions, roster, extra=extra, decoding=decoding, **standard)
    resolved = OmegaConf.to_container(config)
    write_json(out / "versions.json", versions())
    write_json(out / "metrics.json", {config.split: result.to_dict(), "evaluated": resolved})
    columns = caption_columns({i: group[0] for i, group in captions.items()}, result)
    left_out = write_per_caption(out, columns)
    show_result(result, title=roster.name, out=out, num_images=len(roster.rows_by_image))
    for line in left_out:
        print(line)
    return result.corpus


def _resolved(config: DictConfig) -> DictConfig:
    """The checked config without references; see ``OF_RUN`` for those to the config of a run.

    Where a seed is requested, the run's own search gets it, too.
    """
    config, seed = _with_acceptance(config), config.seed
    config.seed = 0 if seed is None else seed
    check_config(config, EvaluateSettings)
    trained = DictConfig({})
    # predict_run tells of a folder that is not a run's
    if config.run is not None and (Path(config.run) / "config.yaml").is_file():
        trained = RunFolder(Path(config.run)).config()
    borrowed = [key for key in OF_RUN if config.get(key) is None and trained.get(key) is not None]
    before = {"seed": seed} | {key: config[key] for key in borrowed if key in config}
    with open_dict(config):
        search = trained.get("search") or {}
        if seed is not None and config.get("search") is None and "seed" in search:
            config.search = OmegaConf.merge(search, {"seed": seed})
        config.update({key: trained[key] for key in borrowed})
        OmegaConf.resolve(config)
        # No other data are requested, and metrics.json has what was.
        for key in borrowed:
            del config[key]
        config.update(before)
    return config


def _with_acceptance(config: DictConfig) -> DictConfig:
    """A copy in which ``accept_changes`` stands apart from the data, which may be the run's own."""
    config = config.copy()
    with open_dict(config):
        data = config.get("data")
        config.accept_changes = bool(data and data.pop("accept_changes", False))
        if data is not None and not data:
            del config["data"]
    return config


def _roster(config: DictConfig) -> Roster:
    data = config.get("data")
    if data is None:
        raise ValueError("data=NAME is missing: which data set has the references?")
    if data.get(config.split) is None:
        splits = ", ".join(key for key in ("train", "val", "test") if data.get(key) is not None)
        raise ValueError(f"data={data.name} has no split {config.split!r}; it has {splits}")
    return build_part(data[config.split])
