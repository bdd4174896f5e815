"""Trainings, sweeps of rates and evaluations, called with configs as commands call them."""

from __future__ import annotations

from omegaconf import DictConfig

from captioning.evaluation import run as evaluation
from captioning.training import find_lr as sweeping
from captioning.training import run
from captioning.training.find_lr import Suggestion
from captioning.training.preflight import settings_of


def train(config: DictConfig, finished: run.Finished | None = None) -> dict[str, float]:
    """The test scores of a training."""
    return run.train(settings_of(config), finished)


def find_lr(config: DictConfig) -> Suggestion:
    """The learning rate that a training is advised to take."""
    return sweeping.find_lr(settings_of(config))


def evaluate(config: DictConfig) -> dict[str, float]:
    """The scores of an evaluation, which are printed, too."""
    evaluated = evaluation.evaluate(evaluation.settings_of(config))
    evaluation.show_evaluation(evaluated)
    return evaluated.metrics
