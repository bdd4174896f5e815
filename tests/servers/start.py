"""Servers of the colour model: a stand-in, ``transformers serve`` and llama.cpp."""

from __future__ import annotations

import base64
import contextlib
import io
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from captioning.served.caption_writer import REQUEST
from tests.served_model import Body, chat, photo_of, served
from tests.servers.colour_model import COLOURS, ENDLESS, caption_of, save_colour_model

ROOT = Path(__file__).parents[2]
# made by make server-test
PYTHON = Path(os.environ.get("SERVERS_PYTHON") or ROOT / ".venv" / "servers" / "bin" / "python")
START_SECONDS = 300


def by_colour(body: Body) -> Any:
    """What the colour model says, with each token a word."""
    url = photo_of(body)
    if not url:
        return chat("Which photo?", tokens=9)
    pixels = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB")
    seen = pixels.tobytes()[:3]
    known = {**COLOURS, "": ENDLESS}

    def distance(name: str) -> int:
        return sum((a - b) ** 2 for a, b in zip(seen, known[name], strict=True))

    name = min(known, key=distance)
    words = caption_of(name).split() if name else ["and"] * 10_000
    most = int(body["max_tokens"])
    return chat(" ".join(words[:most]), ended="length" if len(words) > most else "stop", tokens=50)


@contextmanager
def stand_in(folder: Path) -> Iterator[str]:
    """The stand-in; it answers after 20 ms."""

    def answer(body: Body) -> Any:
        time.sleep(0.02)
        if body["model"] != "colours":
            return 404, {}, {"error": {"message": f"no model {body['model']}"}}
        return by_colour(body)

    with served(answer) as server:
        yield f"{server.address}#colours"


@contextmanager
def transformers_serve(folder: Path) -> Iterator[str]:
    """``transformers serve`` with the colour model."""
    model, port = _model(folder), _free_port()
    command = ["-m", "transformers.cli.transformers", "serve", str(model), "--device", "cpu"]
    with _running([*command, "--port", str(port)], port, folder / "transformers.log"):
        yield f"http://127.0.0.1:{port}/v1#{model}"


@contextmanager
def llama_cpp(folder: Path) -> Iterator[str]:
    """llama.cpp's server with the colour model."""
    model, port = _model(folder), _free_port()
    program = Path(__file__).with_name("llama_cpp_files.py")
    with _running(
        [str(program), str(model), str(folder), str(port)], port, folder / "llama.cpp.log"
    ):
        yield f"http://127.0.0.1:{port}/v1#colours"


SERVERS: Mapping[str, Callable[[Path], contextlib.AbstractContextManager[str]]] = {
    "stand-in": stand_in,
    "transformers serve": transformers_serve,
    "llama.cpp": llama_cpp,
}


def _model(folder: Path) -> Path:
    model = folder / "model"
    return model if model.exists() else save_colour_model(model, prompts=[REQUEST])


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def _running(command: list[str], port: int, log: Path) -> Iterator[None]:
    """A server's process, from its first answer on."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with (
        log.open("w") as output,
        subprocess.Popen(
            [str(PYTHON), *command], stdout=output, stderr=output, env=environment
        ) as process,
    ):
        try:
            _wait(process, port, log)
            yield
        finally:
            process.kill()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(2 * START_SECONDS):
        if _is_up(port):
            return
        if process.poll() is not None:
            break
        time.sleep(0.5)
    raise ChildProcessError(f"the server does not run: {log.read_text()[-2000:]}")


def _is_up(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False
