"""Parts that a stranger's config might name, and that would run something if they were built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from augmentation.writing.writers import LlamaCppWriter

READER = "captioning.data.readers.jsonl.read_jsonl"


def attacks(folder: Path, trace: Path) -> dict[str, dict[str, Any]]:
    """Parts that would run something if they were built."""
    home, text = str(folder), {"path": str(trace), "text": "x"}
    write = {"_target_": "captioning.runtime.files.write_text", **text}
    pickled = {"weights_only": False, "map_location": "cpu"}
    return {
        "torch.load": {"_target_": "torch.load", "f": f"{home}/evil.pt", "weights_only": False},
        "torch.hub.load": {
            "_target_": "torch.hub.load",
            "repo_or_dir": f"{home}/hub",
            "source": "local",
            "model": "model",
        },
        "write_text": write,
        "write_json": {
            "_target_": "captioning.runtime.files.write_json",
            "path": str(trace),
            "value": 1,
        },
        "exec": {"_target_": "builtins.exec", "_args_": [f"open({str(trace)!r}, 'w')"]},
        "system": {"_target_": "os.system", "command": f"touch {trace}"},
        "torch.os.system": {"_target_": "torch.os.system", "command": f"touch {trace}"},
        "hydra": {"_target_": "hydra.utils.call", "config": write},
        "build_part": {"_target_": "captioning.config.build.build_part", "config": write},
        "partial": {**write, "_partial_": True},
        "nested": {"_target_": READER, "name": write, "annotations": "x", "image_folder": None},
        "deeply nested": {"_target_": READER, "name": {"a": [{"b": write}]}},
        "of a model": {
            "_target_": "captioning.models.training_steps.TrainingSteps.load_from_checkpoint",
            "checkpoint_path": f"{home}/evil.pt",
            **pickled,
        },
        "of Lightning": {
            "_target_": "pytorch_lightning.LightningDataModule.load_from_checkpoint",
            "checkpoint_path": f"{home}/evil.pt",
            **pickled,
        },
        "a class of the project": {
            "_target_": f"{LlamaCppWriter.__module__}.{LlamaCppWriter.__qualname__}",
            "model": "m",
            "program": "touch",
        },
        "a class of a library": {
            "_target_": "pytorch_lightning.loggers.CSVLogger",
            "save_dir": home,
        },
        "a function of the project": {"_target_": "captioning.training.loggers.wandb_logger"},
        "a plugin that the user has not named": {"_target_": "plugin_of_a_stranger.model"},
        "code of a hub": {"_target_": READER, "trust_remote_code": True},
    }
