"""Processors of transformers, and how a wrong one is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# One of each line; the first is what transformers writes today.
NEEDED = (
    ("preprocessor_config.json", "processor_config.json"),
    ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model"),
)


def load_processor(folder: Path, name: str) -> Any:
    """The processor of photos and texts in a model's folder.

    Args:
        folder: of the model.
        name: of the model as the config has it, for messages.

    Raises:
        FileNotFoundError: a file of it is missing.
        ValueError: it cannot be read.
        ModuleNotFoundError: it needs a package that is not installed.
    """
    for files in NEEDED:
        if not any((folder / file).is_file() for file in files):
            raise FileNotFoundError(
                f"{name}: no {files[0]} in {folder}; copy the model's processor beside its weights"
            )
    from transformers import AutoProcessor

    try:
        return AutoProcessor.from_pretrained(folder, local_files_only=True)
    except ImportError as error:
        package = error.name or "sentencepiece"
        raise ModuleNotFoundError(
            f"{name}: its processor needs a package that is not installed: pip install {package}"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{name}: its processor cannot be read ({reason}); copy the model's own beside its "
            "weights"
        ) from error


@contextmanager
def refuse_misfit(name: str, processor: Any, network: Any) -> Iterator[None]:
    """Turns what a trial raises into one line that names processor and network.

    Raises:
        ValueError: the trial failed.
    """
    try:
        yield
    except (ValueError, RuntimeError, IndexError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{name}: its processor ({type(processor).__name__}) does not fit its network "
            f"({type(network).__name__}): {reason}; copy the model's own processor beside its "
            "weights"
        ) from error
