"""Commands that score finished runs, captions and pictures."""

from __future__ import annotations

from typing import Any

from captioning.commands.command import HydraCommand
from captioning.commands.quick_imports import quick_imports


def _evaluate(config: Any) -> None:
    with quick_imports():
        from captioning.evaluation.run import evaluate

    evaluate(config)


def _controllability(config: Any) -> None:
    with quick_imports():
        from captioning.evaluation.controllability import evaluate_control

    evaluate_control(config)


def _diverse_captions(config: Any) -> None:
    with quick_imports():
        from captioning.evaluation.diverse_captions import evaluate_draws

    evaluate_draws(config)


def _image_distance(config: Any) -> None:
    with quick_imports():
        from captioning.evaluation.image_distance import image_distance

    result = image_distance(config)
    numbers = " and ".join(str(number) for number in result["num_images"])
    print(f"{result['name']} {result['value']:.4f} ({numbers} images)")


def _export(config: Any) -> None:
    with quick_imports():
        from captioning.exports.energy import CardFacts
        from captioning.exports.export import export

    facts = CardFacts(**config.card)
    print(f"exported to {export(config.run, config.to, onnx=config.onnx, facts=facts)}")


EVALUATE = HydraCommand(
    name="evaluate",
    summary="Caption a data set with a finished run and score it, or score a file of captions.",
    config="evaluate",
    task=_evaluate,
    checks_itself=True,
)
CONTROLLABILITY = HydraCommand(
    name="controllability",
    summary="Score how well a run does what controls ask for.",
    config="controllability",
    task=_controllability,
)
DIVERSE_CAPTIONS = HydraCommand(
    name="diverse-captions",
    summary="Draw many captions of each photo: oracle, consensus and diversity.",
    config="diverse_captions",
    task=_diverse_captions,
)
IMAGE_DISTANCE = HydraCommand(
    name="image-distance",
    summary="Compare two sets of pictures by Fréchet distance.",
    config="image_distance",
    task=_image_distance,
)
EXPORT = HydraCommand(
    name="export",
    summary="Write a finished run's captioner for others: safetensors, a card, ONNX.",
    config="export",
    task=_export,
)
