"""Benchmark ``captioning app`` with many suspected captions: loading time, memory, response time.

    python benchmarks/bench_app.py PHOTO_FOLDER [--suspects 5000] [--browser]

A check of all photos in the folder is made up, with so many flagged captions; nothing is embedded.
The app runs as the command does, and every suspect is decided on. ``--browser`` presses keys in a
headless Chromium first.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ("file", "sample_id", "caption", "flag", "suspicion", "issues", "reason")
KEYS = 60  # pressed in the browser
PRESSING = """
    const [keys, pause] = arguments, spent = [], at = () => byId("place").textContent;
    const rest = (ms) => new Promise((go) => setTimeout(go, ms));
    const shown = () => byId("suspect-photo").complete && byId("suspect-photo").naturalWidth;
    window.spent = null;
    (async () => {
      for (let key = 0; key < keys; key++) {
        const before = at(), began = performance.now();
        document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "r", bubbles: true }));
        const handled = performance.now() - began;
        while (at() === before || !shown()) await rest(1);
        spent.push([handled, performance.now() - began]);
        await rest(pause);
      }
      window.spent = spent;
    })();"""


def main() -> None:
    """Print the time that each action takes."""
    parser = argparse.ArgumentParser(description="Benchmark of the page of suspects.")
    parser.add_argument("folder", type=Path, help="folder of JPEG photos")
    parser.add_argument("--suspects", type=int, default=5000)
    parser.add_argument("--browser", action="store_true", help="time keys in Chromium")
    chosen = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from captioning.results.versions import versions

    print({k: v for k, v in versions().items() if k in ("commit", "machine")})
    with tempfile.TemporaryDirectory() as folder:
        photos = checked(chosen.folder, Path(folder), chosen.suspects)
        print(f"{photos:,} photos, {chosen.suspects:,} suspects")
        command = [sys.executable, "-m", "captioning", "app", folder, "--port", "0"]
        began = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--photos", str(chosen.folder)], stdout=subprocess.PIPE, text=True
        )
        try:
            address = printed_address(process)
            print(f"address printed after {time.perf_counter() - began:.2f} s")
            if chosen.browser:
                press(address, Path(folder))
            measure(address, chosen.suspects, process.pid)
        finally:
            process.terminate()
            process.wait()


def checked(photos: Path, folder: Path, number: int) -> int:
    """Write the result files of a check of the photos, and return the number of photos."""
    names = sorted(photos.glob("*.jpg"))
    with (folder / "issues.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for place in range(5 * len(names)):
            name, flagged = names[place // 5], place < number
            text = f"A man in a red shirt stands beside {place} dogs on the grass ."
            reason = f"the caption fits the photo less than others do (chance {place % 97}%)"
            suspicion = 0.9 - place / (10 * number) if flagged else 0.0
            issue = ("fit", "too_short", "too_long")[place % 3] if flagged else ""
            rows.writerow(
                (name, f"{name.name}#{place % 5}", text, flagged, suspicion, issue, reason)
            )
    return len(names)


def printed_address(process: subprocess.Popen[str]) -> str:
    """Read the address that the command prints."""
    for line in process.stdout or ():
        if line.startswith("open "):
            return line.split()[1]
    raise RuntimeError("the program ended before it printed an address")


def measure(address: str, number: int, pid: int) -> None:
    """Send the requests that the page sends."""
    page, seconds = timed(lambda: urlopen(address).read())
    print(f"the page: {len(page) / 1e3:.0f} kB in {1e3 * seconds:.0f} ms")
    sheet, seconds = timed(lambda: asked(address, "api/start", {}))
    size = len(json.dumps(sheet).encode())
    print(f"all suspects: {size / 1e6:.2f} MB in {1e3 * seconds:.0f} ms")
    shown = [timed(lambda n=n: urlopen(f"{address}suspect/{n}").read())[1] for n in range(50)]
    print(f"a photo: {1e3 * statistics.median(shown):.1f} ms (median of 50)")
    decide(address, number)
    print(f"memory of the program: {memory(pid):.0f} MB")


def decide(address: str, number: int) -> None:
    """Decide on every suspect, and print a line for each tenth of the list."""
    tenth = max(1, number // 10)
    for start in range(0, number, tenth):
        spent = [
            timed(lambda n=n: asked(address, "api/decide", {"number": n, "verdict": "keep"}))[1]
            for n in range(start, min(start + tenth, number))
        ]
        middle, most = statistics.median(spent), max(spent)
        print(f"a decision after {start:,}: {1e3 * middle:.1f} ms (most {1e3 * most:.0f})")


def press(address: str, folder: Path) -> None:
    """Seconds from a key press to the next photo on screen, in headless Chromium."""
    from tests.browser import Browser

    browser = Browser(folder / "browser")
    try:
        _, seconds = timed(
            lambda: (browser.open(address), browser.wait("document.body.dataset.ready"))
        )
        print(f"in Chromium: page with its first photo {seconds:.2f} s")
        for pause in (0, 400):
            browser.run(PRESSING, KEYS, pause)
            spent = browser.wait("window.spent")
            handled, photo = (sorted(values) for values in zip(*spent, strict=True))
            print(
                f"in Chromium, a key {pause} ms after the photo: text {handled[KEYS // 2]:.1f} ms, "
                f"photo {photo[KEYS // 2]:.0f} ms (median), {photo[-1]:.0f} ms (most)"
            )
    finally:
        browser.close()


def asked(address: str, path: str, record: dict[str, Any]) -> dict[str, Any]:
    """Return the server's answer to a JSON request."""
    body = json.dumps(record).encode()
    request = Request(f"{address}{path}", body, {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        return json.load(answer)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return a call's result and its seconds."""
    began = time.perf_counter()
    value = call()
    return value, time.perf_counter() - began


def memory(pid: int) -> float:
    """Resident memory of a process in MB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmRSS"].split()[0]) / 1024


if __name__ == "__main__":
    main()
