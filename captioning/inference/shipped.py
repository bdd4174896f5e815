"""The captioner that lies in the package."""

from __future__ import annotations

from pathlib import Path

from captioning.inference.bundle import is_bundle
from captioning.runtime.extras import check_shipped

SHIPPED = Path(__file__).parent / "weights" / "captioner"


def shipped_captioner(*, instead: str) -> Path:
    """Its folder, intact.

    Args:
        instead: what to do where this version ships none.

    Raises:
        FileNotFoundError: this version ships none.
        ValueError: a file has changed.
    """
    if not is_bundle(SHIPPED):
        raise FileNotFoundError(f"no captioner is shipped in this version: {instead}")
    check_shipped(SHIPPED.with_suffix(".sha256"))
    return SHIPPED
