"""Photos, suspects of a check, and the page over them with the captioner of the package."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image

from captioning.inference.captioner import Captioner
from curation.check import check
from curation.check.check_files import write_result
from curation.review.app import app
from curation.review.page_server import PageServer

CAPTIONS = {
    "dog.jpg": "A dog runs on grass.",
    "hopper.jpg": "IMG_2043.JPG",
    "c.jpg": "See www.example.org/dogs for more.",
    "d.jpg": "I'm sorry, I cannot describe this image.",
}


@pytest.fixture(scope="session")
def hopper() -> Path:
    """A photo of a person, in the public domain, which comes with matplotlib."""
    return Path(matplotlib.get_data_path()) / "sample_data" / "grace_hopper.jpg"


@pytest.fixture(scope="session")
def shipped() -> Captioner:
    return Captioner.load(device="cpu")


@pytest.fixture
def photos(tmp_path: Path, hopper: Path) -> Path:
    """Four photos, of which three have no captions but a file name, an address and a refusal."""
    folder = tmp_path / "my photos"
    folder.mkdir()
    for number, name in enumerate(CAPTIONS):
        pixels = np.random.default_rng(number).integers(0, 255, (96, 128, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)
    (folder / "hopper.jpg").write_bytes(hopper.read_bytes())
    rows = [f'{name},"{caption}"' for name, caption in CAPTIONS.items()]
    (folder / "metadata.csv").write_text("\n".join(["file_name,text", *rows]) + "\n")
    return folder


@pytest.fixture
def checked(photos: Path, tmp_path: Path) -> Path:
    result = check(photos, space="none", skip=("duplicate_photo",), quiet=True)
    write_result(result, tmp_path / "my photos-check")
    return tmp_path / "my photos-check"


@pytest.fixture
def open_page(shipped: Captioner, monkeypatch) -> Iterator[Callable[..., PageServer]]:
    """Starts the page as the command does; the captioner is loaded once for all tests."""
    monkeypatch.setattr(app.Captioner, "load", lambda *_, **__: shipped)
    with ExitStack() as stack:

        def start(**settings) -> PageServer:
            opened = app.open_app(app.Settings(**settings), host="127.0.0.1", port=0)
            server, _ = stack.enter_context(opened)
            stack.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            return server

        yield start


@pytest.fixture
def page(open_page, checked: Path, photos: Path) -> PageServer:
    return open_page(suspects=str(checked), photos=[str(photos)])
