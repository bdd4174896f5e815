"""Commands of these tests read stand-ins below the working folder."""

import pytest


@pytest.fixture(autouse=True)
def _data_of_the_working_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CAPTIONING_DATA", "CAPTIONING_MODELS", "CAPTIONING_CACHE", "CAPTIONING_RUNS"):
        monkeypatch.delenv(name, raising=False)
