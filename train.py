"""Train and test a captioner: ``python train.py [experiment=GROUP/NAME] [key=value ...]``."""

from __future__ import annotations

import os
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
    try:
        scores = train(config)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        if os.environ.get("HYDRA_FULL_ERROR"):
            raise
        sys.exit(f"train.py: {error}\n(HYDRA_FULL_ERROR=1 shows where it was raised)")
    except KeyboardInterrupt as stopped:
        print(f"train.py: {stopped}", file=sys.stderr)
        sys.exit(130)
    print_summary(config, scores)
    return scores.get("CIDEr-D")


if __name__ == "__main__":
    main()
