"""Benchmark ``captioning caption`` with a model server that answers after 200 ms.

    python benchmarks/bench_served.py [--photos 2000] [--parallel 32] [--openai PYTHON]

The server is a stand-in in a process of its own, which takes any number of requests at once. Beside
it in the same run: as many threads with the ``openai`` package, by the PYTHON of an environment
that has it and Pillow, which encode photos as the command does and keep answers in memory. Writes
`RECORD` and the table of docs/guides/servers.md, unless ``--no-record``.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from captioning.results.table_formats import put_between_marks
from captioning.results.versions import versions
from captioning.runtime.files import write_text

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "2026-11-30-bench_served.json"
PAGE = ROOT / "docs" / "guides" / "servers.md"
SECONDS, REPEATS, SIZE = 0.2, 3, (500, 375)  # photos as large as Flickr8k's
PLAIN = """
import base64, io, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from openai import OpenAI
from PIL import Image, ImageOps

address, folder, parallel, kept = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
client = OpenAI(base_url=address, api_key="none")

def ask(photo):
    jpeg = io.BytesIO()
    opened = ImageOps.exif_transpose(Image.open(photo)).convert("RGB")
    opened.thumbnail((1024, 1024))
    opened.save(jpeg, "JPEG", quality=90)
    url = f"data:image/jpeg;base64,{base64.b64encode(jpeg.getvalue()).decode()}"
    seen = {"type": "image_url", "image_url": {"url": url}}
    turn = [{"role": "user", "content": [seen, {"type": "text", "text": "Describe."}]}]
    said = client.chat.completions.create(model="m", messages=turn, max_tokens=256, temperature=0)
    return said.choices[0].message.content

with ThreadPoolExecutor(parallel) as pool, open(kept, "w") as file:
    for text in pool.map(ask, sorted(folder.iterdir())):
        print(text, file=file, flush=True)
"""


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer all requests of a connection; requests with a photo report more tokens."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            await asyncio.sleep(SECONDS)
            message = {"content": f"A photo of {len(body)} bytes."}
            usage = {"prompt_tokens": 300 if b"image_url" in body else 9, "completion_tokens": 6}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            fields = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
            data = json.dumps({**fields, "choices": [choice], "usage": usage}).encode()
            kind = f"Content-Type: application/json\r\nContent-Length: {len(data)}"
            writer.write(f"HTTP/1.1 200 OK\r\n{kind}\r\n\r\n".encode() + data)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, limit=2**24, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _photos(folder: Path, number: int) -> None:
    """Different photos, each with the bytes of a usual photo."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    width, height = SIZE
    for index in range(number):
        coarse = rng.integers(0, 256, (height // 15, width // 20, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize(SIZE, Image.Resampling.BICUBIC).save(
            folder / f"{index:05}.jpg", quality=90
        )


def _timed(command: list[str], kept: Path, environment: dict[str, str]) -> dict[str, float]:
    """Wall and CPU time, time until an answer is on disk, and peak memory of a process."""
    first, peak = 0.0, 0
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, env=environment, stderr=said)
        while True:
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            peak = max(peak, _peak_kib(process.pid))
            if not first:
                files = [kept] if kept.is_file() else kept.rglob("*")
                if any(one.is_file() and one.stat().st_size for one in files):
                    first = time.perf_counter() - begun
            time.sleep(0.02)
        seconds = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise ChildProcessError(said.read()[-2000:])
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "first_answer_seconds": round(first, 2),
        "peak_mb": round(peak * 1024 / 1e6),
    }


def _peak_kib(pid: int) -> int:
    """Peak memory of a process so far; ``ru_maxrss`` would include memory of this process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has just ended
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def table(record: dict[str, Any]) -> str:
    """Markdown table with the best run of each client."""
    ideal = record["ideal_seconds"]
    lines = [
        "| client | time | beside ideal | CPU time | first answer on disk | peak memory |",
        "|---|---|---|---|---|---|",
    ]
    for name, runs in record["clients"].items():
        best = min(runs, key=lambda one: one["seconds"])
        lines.append(
            f"| {name} | {best['seconds']:.1f} s | {best['seconds'] / ideal:.2f} | "
            f"{best['cpu_seconds']:.1f} s | {best['first_answer_seconds']:.1f} s | "
            f"{best['peak_mb']} MB |"
        )
    loads = ", ".join(f"{one:.1f}" for one in record["loads"])
    lines += [
        "",
        f"The best of {REPEATS} runs each; load of the machine before each pair: {loads}. "
        f"`{record['command']}`, {record['date']}, commit {record['commit']}; {record['machine']}. "
        f"Record: `benchmarks/results/{RECORD.name}`.",
    ]
    return "\n".join(lines)


def _measured(options: argparse.Namespace, folder: Path, address: str) -> dict[str, Any]:
    photos = folder / "photos"
    _photos(photos, options.photos)
    clients: dict[str, list[dict[str, float]]] = {}
    loads = []
    for number in range(REPEATS):
        loads.append(round(os.getloadavg()[0], 2))
        cache = folder / f"cache{number}"
        out = str(folder / "captions.csv")
        command = ["-m", "captioning", "caption", str(photos), "--model", f"{address}#m"]
        command += ["--parallel", str(options.parallel), "--format", "csv", "--out", out]
        runs = {"`captioning caption`": ([sys.executable, *command], cache)}
        if options.openai:
            kept = folder / f"plain{number}.txt"
            plain = ["-c", PLAIN, address, str(photos), str(options.parallel), str(kept)]
            runs["threads with `openai`"] = ([options.openai, *plain], kept)
        for name, (given, kept) in runs.items():
            environment = {**os.environ, "CAPTIONING_CACHE": str(cache)}
            clients.setdefault(name, []).append(_timed(given, kept, environment))
            print(name, clients[name][-1], flush=True)
    facts = versions()
    command = f"python benchmarks/bench_served.py --photos {options.photos}"
    return {
        "clients": clients,
        "ideal_seconds": options.photos / options.parallel * SECONDS,
        "loads": loads,
        "command": f"{command} --parallel {options.parallel} --openai PYTHON",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "commit": facts["commit"],
        "machine": facts["machine"],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--photos", type=int, default=2000)
    parser.add_argument("--parallel", type=int, default=32)
    parser.add_argument("--openai", metavar="PYTHON")
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(_serve())
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE) as server,
    ):
        try:
            port = int(server.stdout.readline()) if server.stdout else 0
            record = _measured(options, Path(folder), f"http://127.0.0.1:{port}/v1")
        finally:
            server.kill()
    print(table(record))
    if not options.no_record:
        write_text(RECORD, json.dumps(record, indent=1) + "\n")
        put_between_marks(PAGE, f"{table(record)}\n", "table:served_speed")


if __name__ == "__main__":
    main()
