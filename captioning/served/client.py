"""The client of models behind an address with OpenAI's chat interface.

vLLM, llama.cpp, Ollama, LM Studio, ``transformers serve`` and paid services speak it.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import secrets
import ssl
import threading
import time
import urllib.request
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn
from urllib.parse import SplitResult, unquote, urlsplit

from captioning.config.ranges import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Share,
)
from captioning.runtime.work_ahead import done_as_they_come
from captioning.served.answer_text import CUT, FILTERED, REFUSED, cleaned, problem_of

TIMED_OUT = "the model took too long"
FAILED = "the model failed"
MAX_WAIT_SECONDS = 60.0  # between two requests, where the server does not ask for more
MAX_RETRY_AFTER = 900.0  # a server that asks for more ends the run
MAX_IN_A_ROW = 5  # different questions that fail, until the server is taken to be at fault
CONNECT_SECONDS = 20.0
MAX_ANSWER_BYTES = 32 * 2**20
MORE_TOKENS, FEWEST_MORE_TOKENS = 4, 512  # of the second try after an answer that was cut
_RETRIED = (408, 409, 425, 429)  # and all from 500
_BUSY = (429, 503, 529)  # of the server, not of one question: all threads wait
_OF_ALL = (401, 402, 403, 404, 405, 407, 410)  # of every question alike
_OF_MONEY = re.compile(
    r"insufficient[_ ]quota|billing|credit balance|exceeded your current quota|payment required",
    re.IGNORECASE,
)
KEPT = "what was answered before is kept, and the same command resumes there"
_STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)
_BROKEN = (OSError, http.client.HTTPException, ValueError, LookupError, TypeError)
Message = Mapping[str, Any]
TokenChances = tuple[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a model is asked.

    Attributes:
        messages: turns of a chat.
        seed: seed of draws; None: the server's own. Servers may ignore it.
        max_tokens: the answer's maximum tokens; None: the client's.
        is_greedy: asked at temperature 0, whatever the client's.
    """

    messages: Sequence[Message]
    seed: int | None = None
    max_tokens: int | None = None
    is_greedy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a model answered.

    Attributes:
        text: clean, see `captioning.served.answer_text.cleaned`; kept beside a problem for reports.
        problem: why the text is no answer: it is cut off, empty or refused, or the request failed.
        is_failed: the request failed, so that the same question may be answered later.
        prompt_tokens, completion_tokens: by the server; 0 where it does not say.
        model: by which the server says that it answered; empty where it does not say.
        tokens: tokens of the answer as it came, each with log-probabilities of the likeliest tokens
            in its place; empty where they were not asked for, or the server gives none.
    """

    text: str = ""
    problem: str = ""
    is_failed: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model: str = ""
    tokens: Sequence[TokenChances] = ()


def split_place(place: str) -> tuple[str, str]:
    """Address and model of ``http://HOST:PORT/v1#NAME``.

    Raises:
        ValueError: no such place.
    """
    address, mark, model = place.partition("#")
    checked_address(address)
    if not mark or not model:
        raise ValueError(
            f"{address}: names no model; give it after a #, such as {address}#NAME, as the server "
            "knows it"
        )
    return address.rstrip("/"), model


def is_place(name: str | None) -> bool:
    """Whether a model's name is an address."""
    return name is not None and name.lower().startswith(("http://", "https://"))


def checked_address(address: str) -> SplitResult:
    """The parts of an address up to the version.

    Raises:
        ValueError: it is none, or holds a password, a question mark or a #.
    """
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"address must begin with http:// or https://: got {address!r}")
    parts = urlsplit(address)
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            f"address of {parts.hostname}: holds a user or password, which would stand in files; "
            "leave it out, and put the key into an environment variable (OPENAI_API_KEY)"
        )
    try:
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or not re.fullmatch(r"[!-~]+", address):
        raise ValueError(f"address must be http://HOST:PORT/v1: got {address!r}")
    return parts


class ServedModel:
    """A model behind an address.

    All of its methods may be called by several threads. Connections are kept; waits that a busy
    server asks for, and failures in a row, are those of all threads.

    Args:
        address: up to the version, such as ``http://localhost:8000/v1``.
        model: the name by which the server knows the model.
        temperature, top_p: of sampling; None: not sent, for models that take none.
        max_tokens: maximum tokens of an answer. One that is cut off is asked for once more with
            `MORE_TOKENS` times as many.
        num_parallel: simultaneous requests.
        timeout: seconds that one request may take, with its time in the server's queue.
        retries: further requests after one that failed; after one that took too long, at most one.
        wait: seconds before the first retry, doubled before each further one, unless the server
            sets the time (``Retry-After``).
        key_variable: environment variable with the server's key, if it requires one.
        extra_body: further fields of a request, such as ``{"top_k": 20}`` of vLLM.

    Raises:
        ValueError: no such address, a wrong number, or a key that no header can hold.
    """

    def __init__(
        self,
        *,
        address: str,
        model: str,
        temperature: NonNegativeFloat | None = None,
        top_p: Share | None = None,
        max_tokens: PositiveInt = 256,
        num_parallel: PositiveInt = 8,
        timeout: PositiveFloat = 600.0,
        retries: NonNegativeInt = 5,
        wait: NonNegativeFloat = 1.0,
        key_variable: str = "OPENAI_API_KEY",
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self._parts = checked_address(address)
        if num_parallel < 1 or timeout <= 0 or min(retries, wait) < 0:
            raise ValueError(
                "num_parallel and timeout must be above 0, and retries and wait not below: got "
                f"{num_parallel}, {timeout}, {retries} and {wait}"
            )
        if taken := {"messages", "model", "stream", "n"} & set(extra_body or ()):
            raise ValueError(f"extra_body must not hold {sorted(taken)}: these are not settings")
        self.address, self.model, self.num_parallel = address.rstrip("/"), model, num_parallel
        sampling = {"temperature": temperature, "top_p": top_p}
        self.sampling = {name: value for name, value in sampling.items() if value is not None}
        self.sampling |= dict(extra_body or {})
        self.max_tokens = max_tokens
        self._timeout, self._retries, self._wait = timeout, retries, wait
        self._key = _key(key_variable)
        self._key_variable = key_variable
        self._tokens_field = "max_tokens"
        self._lock = threading.Lock()
        self._free: list[_Line] = []  # a thread takes one out while it uses it
        weakref.finalize(self, _close_all, self._free)
        self._busy_until, self._was_reached, self._failed_in_a_row = 0.0, False, 0

    def replies(self, questions: Iterable[Question]) -> Iterator[Reply]:
        """Replies in the order of the questions; `num_parallel` are asked at a time.

        Raises:
            ConnectionError: the server cannot be reached, or different questions fail in a row.
            ValueError: it refuses all requests: its key, the model's name, a bill.
        """
        waiting: dict[int, Reply] = {}
        number = 0
        numbered = enumerate(questions)
        for (place, _), reply in done_as_they_come(
            lambda item: self.ask(item[1]), numbered, threads=self.num_parallel
        ):
            waiting[place] = reply
            while number in waiting:
                yield waiting.pop(number)
                number += 1

    def ask(self, question: Question) -> Reply:
        """The reply to a question; one that is cut off is asked for once more with more tokens.

        Raises:
            ConnectionError, ValueError: see `replies`.
        """
        most = question.max_tokens or self.max_tokens
        reply = self._asked(question, most)
        if reply.problem == CUT:
            reply = self._asked(question, max(MORE_TOKENS * most, FEWEST_MORE_TOKENS))
        with self._lock:
            self._failed_in_a_row = self._failed_in_a_row + 1 if reply.is_failed else 0
            has_failed = self._failed_in_a_row >= MAX_IN_A_ROW
        if has_failed:
            raise ConnectionError(
                f"{self.address}: {MAX_IN_A_ROW} different questions failed in a row, the last by: "
                f"{reply.problem}; look at the server's log: {KEPT}"
            )
        return reply

    def ask_once(self, question: Question) -> Reply:
        """The reply to a question that is no photo's of the user; it may be cut off.

        Raises:
            ConnectionError, ValueError: see `replies`.
        """
        return self._asked(question, self.max_tokens, retries=min(1, self._retries))

    def _asked(self, question: Question, max_tokens: int, retries: int | None = None) -> Reply:
        """The reply after as many requests as it takes."""
        retries = self._retries if retries is None else retries
        body = {"model": self.model, "messages": list(question.messages), **self.sampling}
        if question.seed is not None:
            body["seed"] = question.seed
        if question.is_greedy:
            body = {name: value for name, value in body.items() if name != "top_p"}
            body["temperature"] = 0.0
        failure, num_timeouts, number = _Failure(FAILED), 0, 0
        while number <= retries and num_timeouts < 2:
            self._wait_for_server()
            try:
                return _reply(self._posted(body | {self._tokens_field: max_tokens}))
            except _OtherField:
                self._tokens_field = "max_completion_tokens"
                continue
            except _Failure as error:
                failure = error
            number += 1
            num_timeouts += failure.reason == TIMED_OUT
            if not failure.is_retried:
                break
            if number <= retries:
                self._pause(failure, number - 1)
        return Reply(problem=failure.reason, is_failed=True)

    def _pause(self, failure: _Failure, number: int) -> None:
        """Wait before the next request; a busy server is left alone by all threads."""
        seconds = min(self._wait * 2**number, MAX_WAIT_SECONDS) * (1 + _jitter() / 4)
        if failure.retry_after is not None:
            seconds = failure.retry_after
            if seconds > MAX_RETRY_AFTER:
                raise ConnectionError(
                    f"{self.address} asks to wait for {seconds:.0f} s ({failure.reason}); {KEPT}"
                )
        if failure.is_busy:
            with self._lock:
                self._busy_until = max(self._busy_until, time.monotonic() + seconds)
        else:
            time.sleep(seconds)

    def _wait_for_server(self) -> None:
        while (seconds := self._busy_until - time.monotonic()) > 0:
            time.sleep(seconds + _jitter() * min(0.1, seconds / 4))

    def _posted(self, body: Mapping[str, Any]) -> Any:
        """The JSON that the server sends.

        Raises:
            _Failure: of this request.
            ConnectionError, ValueError: of all requests.
        """
        try:
            status, headers, content = self._sent("chat/completions", json.dumps(body).encode())
        except TimeoutError as error:
            raise _Failure(TIMED_OUT) from error
        except ssl.SSLCertVerificationError as error:
            raise ValueError(f"{self.address}: its certificate is refused ({error})") from error
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            if not self._was_reached and isinstance(error, _Unreached):
                raise ConnectionError(
                    f"{self.address} cannot be reached ({reason}); start the server and give "
                    "the same command again: it resumes where it stopped"
                ) from error
            raise _Failure(f"{FAILED} ({reason})") from error
        if status != 200:
            self._refused(status, headers, self._reason(content))
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise _Failure(f"{FAILED} (its answer is no JSON)") from error

    def _refused(self, status: int, headers: http.client.HTTPMessage, reason: str) -> NoReturn:
        """Raise what a status other than 200 means."""
        said = f"{status}: {reason}" if reason else f"{status}"
        if 300 <= status < 400:
            there = urlsplit(headers.get("Location", ""))
            raise ValueError(
                f"{self.address} redirects ({status}) to {there.scheme}://{there.hostname}"
                f"{there.path}; give the address itself, as the key is not sent elsewhere"
            )
        retry_after = _seconds(headers.get("Retry-After"))
        owes = status == 429 and retry_after is None and _OF_MONEY.search(reason)
        if status in _OF_ALL or owes:
            raise ValueError(
                f"{self.address} refuses requests ({said}){self._remedy(status)}; {KEPT}"
            )
        names_other = "max_completion_tokens" in reason and "max_tokens" in reason
        if status == 400 and names_other and self._tokens_field == "max_tokens":
            raise _OtherField
        is_retried = status in _RETRIED or status >= 500
        raise _Failure(
            f"{FAILED} ({said})",
            is_retried=is_retried,
            retry_after=retry_after,
            is_busy=status in _BUSY or (is_retried and retry_after is not None),
        )

    def _remedy(self, status: int) -> str:
        if status in (401, 403):
            state = "is set" if self._key else "is not set"
            return (
                f"; the key comes from the environment variable {self._key_variable}, which {state}"
            )
        if status in (404, 405, 410) and not self._parts.path.strip("/"):
            return f"; the address names no version: try {self.address}/v1#{self.model}"
        if status in (404, 410):
            return f"; look at the address, and at the model's name ({self.model})"
        return ""

    def _reason(self, content: bytes) -> str:
        """What the body of a refusal says, in a line and without the key."""
        text = content[:4000].decode("utf-8", "replace")
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = None
        if isinstance(body, dict):
            error = body.get("error", body.get("detail", body.get("message", text)))
            if isinstance(error, dict):
                parts = [error.get("message"), error.get("code") or error.get("type")]
                error = " ".join(str(part) for part in parts if part) or text
            text = error if isinstance(error, str) else json.dumps(error)
        if self._key:
            text = text.replace(self._key, "***")
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return text if len(text) <= 300 else f"{text[:300]} ..."

    def close(self) -> None:
        """Close the connections that are kept; the next request opens one."""
        _close_all(self._free)

    def listed(self) -> list[str]:
        """The names of models that the server lists; none where it lists none."""
        try:
            status, _, content = self._sent("models", None)
            found = json.loads(content)["data"] if status == 200 else []
            return [str(one["id"]) for one in found]
        except _BROKEN:
            return []

    def _sent(self, path: str, body: bytes | None) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and body; a kept connection that was closed is opened again."""
        try:
            kept = self._free.pop()
        except IndexError:
            kept = None
        try:
            if kept is not None:
                return self._sent_by(kept, path, body)
        except _STALE:
            _close_all(self._free)  # of the same age
        return self._sent_by(_Line.opened(self._parts, self._timeout), path, body)

    def _sent_by(
        self, line: _Line, path: str, body: bytes | None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """The same by a connection, which is kept where nothing went wrong."""
        headers = {"Accept": "application/json", **line.headers}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        where = f"{line.before}{self._parts.path.rstrip('/')}/{path}"
        try:
            status, replied, content = line.sent(where, headers, body, self._timeout)
        except BaseException:
            line.connection.close()
            raise
        self._was_reached = True
        if line.connection.sock is not None:
            self._free.append(line)
        return status, replied, content


class _OtherField(Exception):
    """The server wants ``max_completion_tokens``."""


@dataclass(eq=False)
class _Failure(Exception):
    """A request without an answer."""

    reason: str
    is_retried: bool = True
    retry_after: float | None = None
    is_busy: bool = field(default=False)


def _jitter() -> float:
    """In [0, 1): threads that failed together do not ask again together."""
    return secrets.randbelow(1000) / 1000


def _key(variable: str) -> str:
    """The key in the environment.

    Raises:
        ValueError: it holds what no header can hold; it is not shown.
    """
    key = os.environ.get(variable, "").strip()
    if key and not re.fullmatch(r"[!-~]+", key):
        raise ValueError(
            f"environment variable {variable}: holds blanks, line ends or letters that no key has; "
            "set it to the key alone"
        )
    return key


def _close_all(lines: list[_Line]) -> None:
    while lines:
        lines.pop().connection.close()


class _Unreached(OSError):
    """No connection to the server."""


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A connection of a thread, to the server or to a proxy before it.

    Attributes:
        connection: open.
        before: what a proxy wants before a path.
        headers: for a proxy.
    """

    connection: http.client.HTTPConnection
    before: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def opened(cls, parts: SplitResult, timeout: float) -> _Line:
        """A new connection.

        Raises:
            _Unreached: there is none.
            ssl.SSLCertVerificationError: the server is not who it says.
        """
        line = cls._to(parts, min(timeout, CONNECT_SECONDS))
        try:
            line.connection.connect()
        except ssl.SSLCertVerificationError:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise _Unreached(getattr(error, "strerror", None) or str(error)) from error
        return line

    @classmethod
    def _to(cls, parts: SplitResult, timeout: float) -> _Line:
        """By the proxy of the environment, if there is one and the server is not this machine."""
        host, port = parts.hostname or "", parts.port
        is_near = is_loopback(host) or bool(urllib.request.proxy_bypass(host))
        found = "" if is_near else _proxy(parts.scheme)
        headers = {}
        if found:
            proxy = urlsplit(found if "://" in found else f"http://{found}")
            host, port = proxy.hostname or "", proxy.port
            if proxy.username is not None:
                user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
                headers["Proxy-Authorization"] = f"Basic {base64.b64encode(user).decode()}"
        if parts.scheme == "http":
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
            before = f"http://{parts.netloc}" if found else ""
            return cls(connection=connection, before=before, headers=headers)
        connection = http.client.HTTPSConnection(host, port, timeout=timeout)
        if found:
            connection.set_tunnel(parts.hostname or "", parts.port, headers)
        return cls(connection=connection)

    def sent(
        self, where: str, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and body; closed where the server wants so."""
        deadline = time.monotonic() + timeout
        if self.connection.sock is not None:
            self.connection.sock.settimeout(timeout)
        method = "GET" if body is None else "POST"
        self.connection.request(method, where, body, dict(headers))
        response = self.connection.getresponse()
        content = _read(self.connection, response, deadline)
        will_close = response.will_close
        response.close()
        if will_close:
            self.connection.close()
        return response.status, response.headers, content


def _proxy(scheme: str) -> str:
    proxies = urllib.request.getproxies()
    return proxies.get(scheme) or proxies.get("all") or ""


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, which no proxy reaches."""
    return (
        host == "localhost"
        or host.endswith(".localhost")
        or host in ("::1", "0.0.0.0")
        or bool(re.fullmatch(r"127(?:\.\d{1,3}){3}", host))
    )


def _read(
    connection: http.client.HTTPConnection, response: http.client.HTTPResponse, deadline: float
) -> bytes:
    """The body, which must end before the deadline, however slowly it comes.

    Raises:
        TimeoutError: it does not.
        http.client.IncompleteRead: it is cut.
    """
    chunks, size = [], 0
    while chunk := response.read1(2**16):
        chunks.append(chunk)
        size += len(chunk)
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer came too slowly")
        if size > MAX_ANSWER_BYTES:
            raise http.client.HTTPException("an answer of more than 32 MB")
        if connection.sock is not None:
            connection.sock.settimeout(left)
    if response.length:  # read1 ends quietly
        raise http.client.IncompleteRead(b"".join(chunks), response.length)
    return b"".join(chunks)


def _seconds(retry_after: str | None) -> float | None:
    """Seconds by ``Retry-After``, a number or a date; None where it is neither."""
    try:
        if retry_after is None or re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", retry_after):
            return None if retry_after is None else float(retry_after)
        seconds = parsedate_to_datetime(retry_after) - datetime.now(UTC)
    except (ValueError, TypeError):  # no date, or one without a time zone
        return None
    return max(0.0, seconds.total_seconds())


def _reply(body: Any) -> Reply:
    """What a server's JSON holds.

    Raises:
        _Failure: it has another form.
    """
    try:
        choice = body["choices"][0]
        message = choice["message"]
        text = _text(message.get("content"))
        usage = body.get("usage") or {}
        used = {
            "prompt_tokens": int(usage.get("prompt_tokens") or 0),
            "completion_tokens": int(usage.get("completion_tokens") or 0),
            "model": str(body.get("model") or ""),
        }
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise _Failure(f"{FAILED} (its answer is no chat's)") from error
    text = cleaned(text)
    ended = choice.get("finish_reason")
    if ended == "content_filter":
        problem = FILTERED
    elif message.get("refusal"):
        problem = REFUSED
    else:
        problem = CUT if ended == "length" else problem_of(text)
    return Reply(text=text, problem=problem, tokens=_token_chances(choice), **used)


def _token_chances(choice: Mapping[str, Any]) -> list[TokenChances]:
    """Tokens with log-probabilities; none where the server gives none, or in another form."""
    try:
        return [
            (one["token"], {each["token"]: float(each["logprob"]) for each in one["top_logprobs"]})
            for one in choice["logprobs"]["content"]
        ]
    except (LookupError, TypeError, ValueError):
        return []


def _text(content: Any) -> str:
    """The text of a message: a text, parts with texts, or nothing.

    Raises:
        TypeError, LookupError: another form.
    """
    if content is None:
        return ""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    if not isinstance(content, str):
        raise TypeError(f"content must be a text: got {type(content).__name__}")
    return content
