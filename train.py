"""Train and test a captioner: ``python train.py [experiment=GROUP/NAME] [key=value ...]``."""

from __future__ import annotations

import sys

import hydra
from omegaconf import DictConfig

from captioning.training.run import train
from captioning.training.summary import print_summary


@hydra.main(version_base="1.3", config_path="configs", config_name="train")
def main(config: DictConfig) -> float | None:
    """Run one experiment.

    Returns:
        The test CIDEr-D, for sweepers that look for the best setting.
    """
    scores = train(config)
    print_summary(config, scores)
    return scores.get("CIDEr-D")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt as stopped:
        sys.exit(f"{stopped}" or 130)
