"""The client against a server that misbehaves in each known way."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import pytest

from captioning.served.answer_text import CUT, EMPTY, FILTERED, REFUSED
from captioning.served.client import (
    FAILED,
    MAX_IN_A_ROW,
    TIMED_OUT,
    Question,
    ServedModel,
    split_place,
)
from tests.served_model import asked, chat, served

KEY = "sk-secret-of-mine"


def question(text: str = "dog") -> Question:
    return Question(messages=[{"role": "user", "content": text}])


@contextmanager
def raw(*answers: bytes, host: str = "127.0.0.1") -> Iterator[str]:
    """The address of a server that sends these bytes, one answer a connection, and closes."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listening:

        def serve() -> None:
            for answer in answers:
                with listening.accept()[0] as connection, connection.makefile("rb") as sent:
                    head = iter(sent.readline, b"\r\n")
                    length = next(int(one[15:]) for one in head if one.startswith(b"Content-Len"))
                    list(head)
                    sent.read(length)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{listening.getsockname()[1]}/v1"


def model(address: str, **settings: Any) -> ServedModel:
    return ServedModel(**{"address": address, "model": "m", "wait": 0.01, **settings})


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_what_may_pass_is_asked_again(status: int) -> None:
    answers = iter([(status, {}, b"busy"), (status, {}, b"busy"), "A dog."])
    with served(lambda _: next(answers)) as server:
        assert model(server.address).ask(question()).text == "A dog."
        assert len(server.bodies) == 3


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_question_that_is_refused_fails_alone_with_its_reason(status: int) -> None:
    said = {400: {"error": {"message": "too odd", "code": "x"}}, 413: b"too odd"}
    body = said.get(status, {"detail": [{"msg": "too odd"}]})
    with served(lambda b: (status, {}, body) if asked(b) == "odd" else "Yes.") as server:
        one = model(server.address)
        replies = list(one.replies([question(text) for text in ("a", "odd", "b")]))
        assert [reply.text for reply in replies] == ["Yes.", "", "Yes."]
        assert replies[1].is_failed
        assert f"{status}: " in replies[1].problem
        assert "too odd" in replies[1].problem
        assert len(server.bodies) == 3  # none is asked again


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (
            401,
            {"error": {"message": f"bad key {KEY}"}},
            r"401: bad key \*\*\*.*MY_KEY. is set",
        ),
        (402, b"pay", "402: pay"),
        (403, b"", "MY_KEY"),
        (404, {"error": {"message": "no model m"}}, r"no model m.*model's name \(m\)"),
        (429, {"error": {"message": "no", "code": "insufficient_quota"}}, "insufficient_quota"),
        (429, {"error": {"message": "Check your billing details."}}, "billing"),
    ],
)
def test_what_is_refused_to_all_ends_the_run_at_once(
    status: int, body: Any, said: str, monkeypatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with served(lambda _: (status, {}, body)) as server:
        with pytest.raises(ValueError, match=said) as error:
            list(model(server.address, key_variable="MY_KEY").replies([question()] * 20))
        assert KEY not in str(error.value)
        assert len(server.bodies) <= 8


@pytest.mark.parametrize(
    ("retry_after", "waits"),
    [("soon", (0.1, 0.2)), ("0", (0, 0)), ("1", (1, 1)), ("PAST", (0, 0))],
)
def test_a_busy_server_is_given_time(retry_after: str, waits: tuple[float, float]) -> None:
    past = format_datetime(datetime.now(UTC), usegmt=True)
    headers = {"Retry-After": past if retry_after == "PAST" else retry_after}
    with served(lambda _: (503, headers, b"")) as server:
        reply = model(server.address, wait=0.1, retries=2).ask(question())
        assert reply.problem.startswith(FAILED)
        between = [later - earlier for earlier, later in pairwise(server.times)]
        assert all(w <= pause < w + 0.6 for pause, w in zip(between, waits, strict=True))


def test_all_threads_wait_for_a_busy_server() -> None:
    first = threading.Lock()

    def answer(_: object) -> Any:
        if first.acquire(blocking=False):
            return 429, {"Retry-After": "1"}, b""
        time.sleep(0.1)
        return "A dog."

    with served(answer) as server:
        list(model(server.address, num_parallel=4).replies([question()] * 16))
        begun = server.times[0]
        assert not [t for t in server.times if 0.2 < t - begun < 0.98]


def test_a_server_that_asks_for_hours_ends_the_run() -> None:
    with (
        served(lambda _: (429, {"Retry-After": "7200"}, b"")) as server,
        pytest.raises(ConnectionError, match=r"asks to wait 7200 s .*saved"),
    ):
        model(server.address).ask(question())


def test_resets_and_cut_bodies_are_asked_again() -> None:
    answers = iter(
        [None, (200, {"Content-Length": "500"}, b'{"choices"'), "A dog.", None, "A cat."]
    )
    with served(lambda _: next(answers)) as server:
        one = model(server.address)
        assert one.ask(question()).text == "A dog."
        assert one.ask(question()).text == "A cat."  # the kept connection is closed


@pytest.mark.parametrize("body", [b"no json", {"nothing": 1}, [], {"choices": []}])
def test_other_forms_than_a_chat_are_failures(body: Any) -> None:
    with served(lambda _: (200, {}, body)) as server:
        reply = model(server.address, retries=1).ask(question())
        assert reply.is_failed
        assert len(server.bodies) == 2


def test_the_key_is_sent_to_no_other_server(monkeypatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with served(lambda _: "A dog.") as other:
        there = {"Location": f"{other.address}/chat/completions"}
        with served(lambda _: (307, there, b"")) as server:
            with pytest.raises(ValueError, match=r"redirects \(307\) to http://127.0.0.1/v1"):
                model(server.address, key_variable="MY_KEY").ask(question())
            assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
        assert not other.bodies


def test_the_loopback_address_needs_no_proxy(monkeypatch) -> None:
    with served(lambda _: "by proxy") as proxy, served(lambda _: "A dog.") as server:
        monkeypatch.setenv("http_proxy", proxy.address.removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert model(server.address).ask(question()).text == "A dog."
        assert model("http://model.invalid/v1").ask(question()).text == "by proxy"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("localhost:8000", "must begin with http"),
        ("http://me:secret@host/v1", "address of host must not hold a user or password"),
        ("http://me@host/v1", "must not hold a user"),
        ("http://host:99999/v1", "must have the form http://HOST:PORT"),
        ("http:///v1", "must have the form http://HOST:PORT"),
        ("http://host/v1?key=1", "must have the form http://HOST:PORT"),
    ],
)
def test_addresses_that_are_none_are_refused(address: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        model(address)
    assert "secret" not in str(error.value)


def test_a_place_is_address_and_model() -> None:
    assert split_place("http://host:1/v1/#Owner/Name") == ("http://host:1/v1", "Owner/Name")
    with pytest.raises(ValueError, match="append # and"):
        split_place("http://host:1/v1")


def test_a_key_that_no_header_holds_is_not_shown(monkeypatch) -> None:
    monkeypatch.setenv("MY_KEY", f"{KEY}\nX: y")
    with pytest.raises(ValueError, match="MY_KEY must hold the API key alone") as error:
        model("http://host/v1", key_variable="MY_KEY")
    assert KEY not in str(error.value)


def test_a_server_that_is_not_there_is_said_at_once() -> None:
    begun = time.monotonic()
    with pytest.raises(ConnectionError, match="cannot be reached .* resumes where it stopped"):
        list(model("http://127.0.0.1:9/v1", wait=9).replies([question()] * 9))
    assert time.monotonic() - begun < 2


def test_slow_answers_are_given_up_once_retried() -> None:
    def answer(_: object) -> Any:
        time.sleep(0.5)
        return "A dog."

    with served(answer) as server:
        assert model(server.address, timeout=0.2).ask(question()).problem == TIMED_OUT
        assert len(server.bodies) == 2  # the server may still be at work on them
        assert model(server.address, timeout=2).ask(question()).text == "A dog."


def test_max_tokens_has_another_name_with_some() -> None:
    said = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."

    def answer(body: Any) -> Any:
        return (400, {}, {"error": {"message": said}}) if "max_tokens" in body else "A dog."

    with served(answer) as server:
        one = model(server.address, max_tokens=7)
        assert [one.ask(question()).text for _ in range(2)] == ["A dog.", "A dog."]
        assert [body.get("max_completion_tokens") for body in server.bodies] == [None, 7, 7]


def test_few_fields_are_sent() -> None:
    with served(lambda _: "A dog.") as server:
        model(server.address).ask(question())
        model(server.address, temperature=0.5, extra_body={"top_k": 3}).ask(question())
        assert set(server.bodies[0]) == {"model", "messages", "max_tokens"}
        assert set(server.bodies[1]) == {*server.bodies[0], "temperature", "top_k"}
    with pytest.raises(ValueError, match="extra_body must not hold"):
        model("http://host/v1", extra_body={"n": 2})


def test_cut_answers_are_asked_once_more_and_then_left_out() -> None:
    def answer(body: Any) -> Any:
        needed = {"long": 500, "endless": 10**6}.get(asked(body), 1)
        return chat("A dog in", ended="length") if body["max_tokens"] < needed else "A dog."

    with served(answer) as server:
        one = model(server.address, max_tokens=20)
        replies = list(one.replies([question(text) for text in ("short", "long", "endless")]))
        assert [(reply.problem, reply.is_failed) for reply in replies] == [
            ("", False),
            ("", False),
            (CUT, False),
        ]
        assert len(server.bodies) == 5


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (chat("I'm sorry, I can't help."), REFUSED),
        (chat(None, refusal="No."), REFUSED),
        (chat("A dog", ended="content_filter"), FILTERED),
        (chat(""), EMPTY),
        (chat("", ended="tool_calls", tool_calls=[{"function": {"name": "look"}}]), EMPTY),
        (chat([{"type": "thinking", "thinking": "A dog?"}]), EMPTY),
        (chat(None, reasoning_content="A dog?"), EMPTY),
        (chat("<think>A dog?</think>"), EMPTY),
    ],
)
def test_what_is_no_answer_is_named(reply: Any, problem: str) -> None:
    with served(lambda _: reply) as server:
        got = model(server.address).ask(question())
        assert (got.problem, got.is_failed) == (problem, False)


def test_different_questions_that_fail_in_a_row_end_the_run() -> None:
    with served(lambda _: (500, {}, b"out of memory")) as server:
        one = model(server.address, retries=0, num_parallel=2)
        with pytest.raises(ConnectionError, match=r"in a row.*500: out of memory.*saved"):
            list(one.replies([question(str(number)) for number in range(50)]))
        assert MAX_IN_A_ROW <= len(server.bodies) <= MAX_IN_A_ROW + 2


def test_connections_are_kept() -> None:
    with served(lambda _: "A dog.") as server:
        replies = list(model(server.address, num_parallel=3).replies([question()] * 30))
        assert len(replies) == len(server.bodies) == 30
        assert len(server.connections) <= 3


DOG = json.dumps(chat("A dog.")).encode()
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\n\r\n" + DOG,
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\xef\xbb\xbf" + DOG,
        CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(DOG), DOG),
        b"HTTP/1.0 200 OK\r\n\r\n"
        + json.dumps(chat([{"type": "text", "text": "A dog."}])).encode(),
    ],
    ids=["http 1.0", "byte order mark", "chunked", "parts"],
)
def test_unlike_servers_are_read(answer: bytes) -> None:
    with raw(answer) as address:
        assert model(address, timeout=5, retries=1).ask(question()).text == "A dog."


@pytest.mark.parametrize(
    "cut",
    [
        CHUNKED + b"%x\r\n%s" % (len(DOG), DOG[:40]),
        CHUNKED + b"%x\r\n%s\r\n" % (len(DOG), DOG),  # nothing says that this is all
        CHUNKED,
        b"HTTP/1.0 200 OK\r\n\r\n" + DOG[:40],
        b"HTTP/1.1 200",
        b"",
    ],
)
def test_an_answer_that_ends_early_is_asked_for_again(cut: bytes) -> None:
    with raw(cut, b"HTTP/1.0 200 OK\r\n\r\n" + DOG) as address:
        assert model(address, timeout=5, retries=1).ask(question()).text == "A dog."


def test_an_address_of_ipv6_is_reached() -> None:
    try:
        with raw(b"HTTP/1.0 200 OK\r\n\r\n" + DOG, host="::1") as address:
            assert model(f"{address}/", timeout=5).ask(question()).text == "A dog."
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")


def test_an_address_without_version_is_told() -> None:
    with served(lambda _: (404, {}, b"Not Found")) as server:
        bare = server.address.removesuffix("/v1")
        with pytest.raises(ValueError, match=rf"404: Not Found.*try {bare}/v1#m; "):
            model(f"{bare}/").ask(question())


@pytest.mark.parametrize("name", ["a#b", "Owner/Name", "my model", "gemma3:4b", "é@1"])
def test_a_name_is_sent_as_it_is(name: str) -> None:
    with served(lambda _: "A dog.") as server:
        address, found = split_place(f"{server.address}/#{name}")
        assert model(address, model=found).ask(question()).text == "A dog."
        assert server.bodies[0]["model"] == name
