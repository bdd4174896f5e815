"""What is tried with each server, by the command that users give."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from PIL import Image

from captioning.commands.main import main
from tests.servers.colour_model import ENDLESS, SIDE, save_photos

ROOT = Path(__file__).parents[2]
MAX_TOKENS = 24  # a learnt caption has at most 14
ANSWERS_BEFORE_KILL = 12
KILL_SECONDS = 120


class Bench:
    """A server's place, and a folder to work in.

    Args:
        place: ``ADDRESS#NAME``.
        folder: for photos, caches and outputs.
    """

    def __init__(self, place: str, folder: Path) -> None:
        self.place, self.folder = place, folder
        self.photos = folder / "photos"
        save_photos(self.photos)

    def arguments(self, photos: Path, out: Path, *options: str) -> list[str]:
        """Of the command; later options win."""
        given = ["--format", "csv", "--out", str(out), "--max-tokens", str(MAX_TOKENS), *options]
        return ["caption", str(photos), "--model", self.place, *given]

    def caption(self, photos: Path, out: str, *options: str) -> tuple[int, str, Path]:
        """Exit status, standard error and output of the command, with answers kept nowhere else."""
        file, said = self.folder / out, io.StringIO()
        cache = mock.patch.dict(os.environ, {"CAPTIONING_CACHE": str(self.folder / f"{out}.cache")})
        with cache, redirect_stderr(said), redirect_stdout(io.StringIO()):
            status = main(self.arguments(photos, file, *options))
        return status, said.getvalue(), file


def forty_photos(bench: Bench) -> str:
    """All of them, in order."""
    begun = time.monotonic()
    status, said, out = bench.caption(bench.photos, "whole.csv")
    rows = list(csv.DictReader(out.open())) if out.exists() else []
    assert status == 0, said
    assert [Path(row["file"]) for row in rows] == sorted(bench.photos.iterdir()), rows
    captions = {row["caption"] for row in rows}
    assert len(captions) > 3, captions
    return f"{len(rows)} captions of {len(captions)} texts, {time.monotonic() - begun:.1f} s"


def killed_and_resumed(bench: Bench) -> str:
    """``kill -9`` in the middle; the same command gives the bytes of an undisturbed one."""
    whole, out = bench.folder / "whole.csv", bench.folder / "killed.csv"
    cache = bench.folder / "killed.csv.cache" / "served"
    command = [sys.executable, "-m", "captioning", *bench.arguments(bench.photos, out)]
    environment = {**os.environ, "CAPTIONING_CACHE": str(cache.parent)}
    with subprocess.Popen(
        [*command, "--parallel", "2"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        deadline = time.monotonic() + KILL_SECONDS
        while len(_kept(cache)) < ANSWERS_BEFORE_KILL and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    num_kept = len(_kept(cache))
    assert ANSWERS_BEFORE_KILL <= num_kept < 40, f"{num_kept} answers when it was killed"
    assert not out.exists(), "an output of a killed command"
    status, said, _ = bench.caption(bench.photos, "killed.csv")
    assert status == 0, said
    assert out.read_bytes() == whole.read_bytes(), "other bytes than undisturbed"
    keys = _kept(cache)
    assert len(keys) == len({*keys}) == 40, "answers kept were asked for again"
    return f"killed after {num_kept} answers; the same bytes; none of these asked twice"


def _kept(cache: Path) -> list[str]:
    """Keys of whole lines."""
    lines = (line for file in cache.glob("*.jsonl") for line in file.read_bytes().splitlines(True))
    return [json.loads(line)[0] for line in lines if line.endswith(b"\n")]


def _few(bench: Bench, name: str) -> Path:
    folder = bench.folder / name
    folder.mkdir()
    for photo in sorted(bench.photos.iterdir())[::8]:
        shutil.copy(photo, folder)
    return folder


def broken_photo(bench: Bench) -> str:
    """A file that is no photo among five that are."""
    folder = _few(bench, "broken")
    (folder / "broken.jpg").write_bytes(b"none")
    status, said, out = bench.caption(folder, "broken.csv")
    assert status == 1, said
    assert "broken.jpg: photo is not an image" in said, said
    assert len(out.read_text().splitlines()) == 6, out.read_text()
    return "named, never sent; the 5 others captioned"


def wrong_name(bench: Bench) -> str:
    """A model that the server has not."""
    place = f"{bench.place.partition('#')[0]}#no-such-model"
    status, said, out = bench.caption(_few(bench, "named"), "named.csv", "--model", place)
    last = said.strip().splitlines()[-1]
    if status == 0:  # such a server serves one model under every name
        assert out.exists()
        assert "the server answers with another model" in said, said
        return "captions all the same, with a warning: it answers in another model's name"
    assert "no-such-model" in last, said
    assert not out.exists()
    return f"ends at once: {_shown(last)}"


def _shown(line: str) -> str:
    """A line without what differs from run to run."""
    line = re.sub(r"http://127\.0\.0\.1:\d+/v1", "ADDRESS", line.removeprefix("caption: "))
    line = re.sub(r"/\S*/model\b", "MODEL", line)
    return f"`{line.partition(';')[0][:150].replace('|', '/')}`"


def cut_answers(bench: Bench) -> str:
    """Every answer is cut at first."""
    status, said, out = bench.caption(_few(bench, "cut"), "cut.csv", "--max-tokens", "2")
    assert status == 0, said
    captions = [row["caption"] for row in csv.DictReader(out.open())]
    whole = {
        Path(row["file"]).name: row["caption"]
        for row in csv.DictReader((bench.folder / "whole.csv").open())
    }
    expected = [whole[photo.name] for photo in sorted((bench.folder / "cut").iterdir())]
    assert captions == expected, captions
    return "at 2 tokens each is asked once more with 512; the same captions"


def endless_answer(bench: Bench) -> str:
    """One answer has no end."""
    folder = _few(bench, "endless")
    Image.new("RGB", (SIDE, SIDE), ENDLESS).save(folder / "endless.png")
    status, said, out = bench.caption(folder, "endless.csv")
    if status == 0:  # of other arithmetic the model may stop
        return "not tried: the model stops here"
    assert status == 1, said
    assert "endless.png: the answer is cut off" in said, said
    assert len(out.read_text().splitlines()) == 6, out.read_text()
    card = json.loads((bench.folder / "endless.csv.card.json").read_text())
    assert card["without"] == {"the answer is cut off": 1}, card
    return "left out and counted; the 5 others captioned"


CASES: Mapping[str, Callable[[Bench], str]] = {
    "40 photos": forty_photos,
    "killed half way, resumed": killed_and_resumed,
    "one broken photo": broken_photo,
    "a wrong model name": wrong_name,
    "answers that are cut": cut_answers,
    "an answer without an end": endless_answer,
}
