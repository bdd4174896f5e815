"""Set-up of all tests: no display, one thread, and the optional folder of real data."""

from __future__ import annotations

import functools
import gc
import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path

# Read where the hub's client is imported: a name that is not cached is refused at once, without
# the client's minute of trying again.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# As commands do it (`captioning.runtime.cores`): read where torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# A suite of the processor, also beside a GPU; `make gpu-test` is for that one.
if os.environ.get("GPU_TESTS") != "1":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import hypothesis
import matplotlib
import pytest
import torch
from hydra.core.hydra_config import HydraConfig

import captioning  # noqa: F401  # registers what configs use
from captioning.config.plugins import import_plugins
from captioning.results import versions
from captioning.text import parser, tagger, word_tables
from tests import changed
from tests.browser import Browser, missing
from tests.kept_configs import kept_configs

# Configs of tests name classes and functions of theirs.
import_plugins(["tests"])

matplotlib.use("Agg")
torch.set_num_threads(1)
# Processes that tests start have one thread, too: idle ones of small work spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Examples are derived from the test itself, so that two runs of the suite test the same things.
hypothesis.settings.register_profile("suite", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("suite")

REPOSITORY = Path(__file__).resolve().parent.parent
LONG_ROOMS = frozenset(REPOSITORY / room for room in changed.LONG_ROOMS)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """No garbage is looked for while tests are collected, nor later in what that imported."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        # Seldom, too: a tenth of the time of composing configs went into looking for it.
        gc.set_threshold(50_000, 20, 20)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The first tier does not import tests of rooms that are wholly of the second."""
    is_second = collection_path in LONG_ROOMS and config.option.markexpr == "not long"
    return True if is_second else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests of these rooms, and those that drive a browser, are long."""
    drives_browser = "browser" in getattr(item, "fixturenames", ())
    if drives_browser or LONG_ROOMS.intersection(item.path.parents):
        item.add_marker(pytest.mark.long)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long tests come first, so that processes of the suite end together."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_unconfigure() -> None:
    """Modules are freed at the end as always; some complain otherwise."""
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def configs_are_parsed_once() -> Iterator[None]:
    """Composing takes less than half of the time: no test changes the project's configs."""
    with kept_configs(REPOSITORY / "configs"):
        yield


@pytest.fixture(autouse=True, scope="session")
def git_is_asked_once() -> Iterator[None]:
    """Each run asks twice for the checkout's commit: two processes that take half a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "_git", functools.cache(versions._git))
        yield


@pytest.fixture(autouse=True, scope="session")
def the_packaged_parser_is_loaded_once() -> Iterator[None]:
    """Loading takes 0.6 s, parsing a caption a hundredth of that."""
    load = parser.load_pipeline
    kept = functools.cache(load)
    with pytest.MonkeyPatch.context() as patch:
        for module in (parser, tagger):
            patch.setattr(
                module,
                "load_pipeline",
                lambda folder: (kept if folder == parser.PACKAGED else load)(folder),
            )
        patch.setattr(word_tables, "Tokenizer", _Tokenizers)
        yield


class _Tokenizers:
    """Tokenizers by file, each read once."""

    from_file = staticmethod(functools.cache(word_tables.Tokenizer.from_file))


@pytest.fixture(autouse=True, scope="session")
def no_state_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs of tests, and of processes that they start, have a key of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True, scope="session")
def nothing_waits_for_the_disk() -> Iterator[None]:
    """The power stays on: two dozen files of each small run need not be on the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(autouse=True)
def no_command_goes_on() -> Iterator[None]:
    """Hydra keeps the config of a command that ran in the tests' process, for `${hydra:...}`."""
    yield
    HydraConfig.instance().cfg = None


@pytest.fixture(autouse=True)
def logging_stays_as_it_was() -> Iterator[None]:
    """Commands that run in the tests' process set logging up: Hydra switches loggers off."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.setLevel(level)
    root.handlers[:] = [handler for handler in root.handlers if handler in handlers]
    for logger in logging.Logger.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.disabled = False


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real photos and annotations; the test is skipped where there is none."""
    named = os.environ.get("CAPTIONING_SHARED_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs real data: {folder} is no folder; set CAPTIONING_SHARED_DATA")
    return folder


@pytest.fixture(scope="session")
def one_browser(tmp_path_factory) -> Iterator[Browser]:
    """Chromium, started once; the test is skipped where there is none."""
    if missing_programs := missing():
        pytest.skip(f"needs {missing_programs} (Debian: chromium, chromium-driver)")
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def browser(one_browser: Browser) -> Iterator[Browser]:
    """Chromium with an empty page; nothing may go wrong in its console."""
    one_browser.open("about:blank")
    one_browser.messages()
    for file in one_browser.downloads.iterdir():
        file.unlink()
    yield one_browser
    assert one_browser.messages() == []


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return REPOSITORY
