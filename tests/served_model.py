"""A stand-in for servers with OpenAI's chat interface: it answers as a test says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = Mapping[str, Any]


class Answers:
    """What a server answers, and what it was asked.

    Args:
        answer: of a request's body: a text, a whole reply, or status, headers and body. Bytes of a
            reply that are fewer than promised are an answer that is cut.
    """

    def __init__(self, answer: Callable[[Body], Any]) -> None:
        self.answer, self.lock = answer, threading.Lock()
        self.bodies: list[Body] = []
        self.headers: list[Mapping[str, str]] = []
        self.times: list[float] = []
        self.connections: set[tuple[str, int]] = set()
        self.address = ""


@contextmanager
def served(answer: Callable[[Body], Any]) -> Iterator[Answers]:
    """A server on a free port of this machine."""
    answers = Answers(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with answers.lock:
                answers.bodies.append(body)
                answers.headers.append(dict(self.headers))
                answers.times.append(time.monotonic())
                answers.connections.add(self.client_address)
            self.reply(answers.answer(body))

        def do_GET(self) -> None:
            self.reply({"data": [{"id": "m"}]})

        def reply(self, answer: Any) -> None:
            if answer is None:  # a reset
                self.close_connection = True
                return
            status, headers, content = answer if isinstance(answer, tuple) else (200, {}, answer)
            content = chat(content) if isinstance(content, str) else content
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(data))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
            self.close_connection |= len(data) < int(headers.get("Content-Length", 0))

        def log_message(self, format: str, *args: object) -> None:
            return None

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        answers.address = f"http://127.0.0.1:{server.server_address[1]}/v1"
        yield answers
        server.shutdown()


def chat(
    text: str | list[dict[str, str]] | None,
    *,
    ended: str = "stop",
    tokens: int = 10,
    **message: Any,
) -> Body:
    """A reply of a chat."""
    return {
        "model": "m",
        "choices": [{"message": {"content": text, **message}, "finish_reason": ended}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": 3},
    }


def asked(body: Body) -> str:
    """The last question's text."""
    content = body["messages"][-1]["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def photo_of(body: Body) -> str:
    """The data URL in the last question; empty without a photo."""
    content = body["messages"][-1]["content"]
    parts = [] if isinstance(content, str) else content
    return next((part["image_url"]["url"] for part in parts if part["type"] == "image_url"), "")
