"""What workers of several processes are told."""

from __future__ import annotations

from typing import Any

import pytest

from captioning.spread.ray_data import Order
from tests.captioning.spread.toy_work import Backwards


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[Order]:
    """What workers were told."""
    told: list[Order] = []
    real = Backwards._outcomes

    def outcomes(self: Backwards, ray: Any, order: Order, shards: Any) -> Any:
        told.append(order)
        return real(self, ray, order, shards)

    monkeypatch.setattr(Backwards, "_outcomes", outcomes)
    return told
