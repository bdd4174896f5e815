"""HTTP client for models with OpenAI's chat interface.

vLLM, llama.cpp, Ollama, LM Studio, ``transformers serve`` and paid services offer it.
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

TIMED_OUT = "the request timed out"
FAILED = "the request failed"
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
KEPT = "earlier answers are saved, and the same command resumes after them"
_STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)
_BROKEN = (OSError, http.client.HTTPException, ValueError, LookupError, TypeError)
Message = Mapping[str, Any]
TokenChances = tuple[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to a served model, with its sampling seed and token limit.

    Attributes:
        messages: chat messages.
        seed: sampling seed; None: the server's default. Servers may ignore it.
        max_tokens: maximum tokens of the answer; None: the client's setting.
        is_greedy: use temperature 0, whatever the client's setting.
    """

    messages: Sequence[Message]
    seed: int | None = None
    max_tokens: int | None = None
    is_greedy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer of a served model, or why there is no usable answer.

    Attributes:
        text: cleaned text, see `captioning.served.answer_text.cleaned`; kept beside a problem.
        problem: why the text is unusable (truncated, empty, refused, failed); empty: usable.
        is_failed: the request failed, so the same question may be asked again later.
        prompt_tokens, completion_tokens: as the server counts; 0 if the server gives no counts.
        model: the model that the server names as the author; empty if the server names none.
        tokens: each generated token with the log-probabilities of the likeliest tokens in its
            place; empty if not requested, or if the server gives none.
    """

    text: str = ""
    problem: str = ""
    is_failed: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model: str = ""
    tokens: Sequence[TokenChances] = ()


def split_place(place: str) -> tuple[str, str]:
    """Split ``http://HOST:PORT/v1#NAME`` into address and model name.

    Raises:
        ValueError: an invalid address, or no model name.
    """
    address, mark, model = place.partition("#")
    checked_address(address)
    if not mark or not model:
        raise ValueError(
            f"{address} names no model; append # and the model's name on the server, such as "
            f"{address}#NAME"
        )
    return address.rstrip("/"), model


def is_place(name: str | None) -> bool:
    """Whether a model's name is an HTTP address."""
    return name is not None and name.lower().startswith(("http://", "https://"))


def checked_address(address: str) -> SplitResult:
    """Split an address such as ``http://HOST:PORT/v1`` into its parts, and check them.

    Raises:
        ValueError: not an HTTP address, or it holds a password, a question mark or a #.
    """
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"address must begin with http:// or https://, got {address!r}")
    parts = urlsplit(address)
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            f"address of {parts.hostname} must not hold a user or password, which files would "
            "record; put the key into an environment variable (OPENAI_API_KEY) instead"
        )
    try:
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or not re.fullmatch(r"[!-~]+", address):
        raise ValueError(f"address must have the form http://HOST:PORT/v1, got {address!r}")
    return parts


class ServedModel:
    """A model served over HTTP, with retries, timeouts and parallel requests.

    All methods are thread-safe. Connections are reused. All threads share the waiting times that
    a busy server asks for, and the count of consecutive failures.

    Args:
        address: address with version, such as ``http://localhost:8000/v1``.
        model: the model's name on the server.
        temperature, top_p: sampling parameters; None: not sent, for models that accept none.
        max_tokens: maximum tokens of an answer. A truncated answer is requested once more with
            `MORE_TOKENS` times as many.
        num_parallel: simultaneous requests.
        timeout: seconds for one request, including its time in the server's queue.
        retries: further attempts after a failed request; at most one after a timeout.
        wait: seconds before the first retry, doubled before each further retry, unless the server
            sets the time (``Retry-After``).
        key_variable: environment variable with the server's API key, if it requires one.
        extra_body: further fields of each request, such as ``{"top_k": 20}`` for vLLM.

    Raises:
        ValueError: an invalid address, a number out of range, or an invalid API key.
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
                "num_parallel and timeout must be positive, retries and wait 0 or more, got "
                f"{num_parallel}, {timeout}, {retries} and {wait}"
            )
        if taken := {"messages", "model", "stream", "n"} & set(extra_body or ()):
            raise ValueError(f"extra_body must not hold {sorted(taken)}: use client arguments")
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
        """Yield replies in the order of the questions, with `num_parallel` requests at a time.

        Raises:
            ConnectionError: the server is unreachable, or several questions in a row fail.
            ValueError: the server refuses all requests: wrong key, model name, or unpaid bill.
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
        """Ask a question; if the answer is truncated, ask once more with more tokens.

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
                f"{self.address}: {MAX_IN_A_ROW} questions in a row failed, the last with: "
                f"{reply.problem}; check the server's log: {KEPT}"
            )
        return reply

    def ask_once(self, question: Question) -> Reply:
        """Ask a test question, with at most one retry; the answer may be truncated.

        Raises:
            ConnectionError, ValueError: see `replies`.
        """
        return self._asked(question, self.max_tokens, retries=min(1, self._retries))

    def _asked(self, question: Question, max_tokens: int, retries: int | None = None) -> Reply:
        """Send requests, with retries, until an answer arrives or the retries are used up."""
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
        """Wait before the next request; if the server is busy, all threads wait."""
        seconds = min(self._wait * 2**number, MAX_WAIT_SECONDS) * (1 + _jitter() / 4)
        if failure.retry_after is not None:
            seconds = failure.retry_after
            if seconds > MAX_RETRY_AFTER:
                raise ConnectionError(
                    f"{self.address} asks to wait {seconds:.0f} s ({failure.reason}), longer than "
                    f"{MAX_RETRY_AFTER:.0f} s: start again later; {KEPT}"
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
        """Post a request and return the server's JSON.

        Raises:
            _Failure: this request failed.
            ConnectionError, ValueError: all requests would fail.
        """
        try:
            status, headers, content = self._sent("chat/completions", json.dumps(body).encode())
        except TimeoutError as error:
            raise _Failure(TIMED_OUT) from error
        except ssl.SSLCertVerificationError as error:
            raise ValueError(f"{self.address}: invalid TLS certificate: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            if not self._was_reached and isinstance(error, _Unreached):
                raise ConnectionError(
                    f"{self.address} cannot be reached ({reason}); start the server and repeat the "
                    "same command: it resumes where it stopped"
                ) from error
            raise _Failure(f"{FAILED} ({reason})") from error
        if status != 200:
            self._refused(status, headers, self._reason(content))
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise _Failure(f"{FAILED} (the answer is not JSON)") from error

    def _refused(self, status: int, headers: http.client.HTTPMessage, reason: str) -> NoReturn:
        """Raise the error that a status other than 200 stands for."""
        said = f"{status}: {reason}" if reason else f"{status}"
        if 300 <= status < 400:
            there = urlsplit(headers.get("Location", ""))
            raise ValueError(
                f"{self.address} redirects ({status}) to {there.scheme}://{there.hostname}"
                f"{there.path}; use that address, because the key is not sent to other hosts"
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
            return f"; the API key (environment variable {self._key_variable}) {state}"
        if status in (404, 405, 410) and not self._parts.path.strip("/"):
            return f"; the address lacks the version: try {self.address}/v1#{self.model}"
        if status in (404, 410):
            return f"; check the address and the model's name ({self.model})"
        return ""

    def _reason(self, content: bytes) -> str:
        """Return the error text of a response body on one line, without the API key."""
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
        """Close idle connections; the next request opens a new one."""
        _close_all(self._free)

    def listed(self) -> list[str]:
        """Return the names of the models that the server lists; empty if it lists none."""
        try:
            status, _, content = self._sent("models", None)
            found = json.loads(content)["data"] if status == 200 else []
            return [str(one["id"]) for one in found]
        except _BROKEN:
            return []

    def _sent(self, path: str, body: bytes | None) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send a request; return status, headers and body. Reopen a connection that timed out."""
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
        """Send a request over this connection, and keep the connection open after success."""
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
    """The server requires ``max_completion_tokens`` instead of ``max_tokens``."""


@dataclass(eq=False)
class _Failure(Exception):
    """A failed request: the reason, and whether and when to retry."""

    reason: str
    is_retried: bool = True
    retry_after: float | None = None
    is_busy: bool = field(default=False)


def _jitter() -> float:
    """Return a random number in [0, 1), so that threads do not retry at the same moment."""
    return secrets.randbelow(1000) / 1000


def _key(variable: str) -> str:
    """Read the API key from an environment variable.

    Raises:
        ValueError: the key has characters that no HTTP header can hold; the key is not shown.
    """
    key = os.environ.get(variable, "").strip()
    if key and not re.fullmatch(r"[!-~]+", key):
        raise ValueError(
            f"environment variable {variable} must hold the API key alone, without blanks, line "
            "ends or non-ASCII letters: set it again"
        )
    return key


def _close_all(lines: list[_Line]) -> None:
    while lines:
        lines.pop().connection.close()


class _Unreached(OSError):
    """The connection to the server cannot be opened."""


@dataclass(frozen=True, kw_only=True)
class _Line:
    """An HTTP connection to the server, or to a proxy in front of it.

    Attributes:
        connection: the open connection.
        before: prefix that a proxy requires before the path.
        headers: headers for the proxy.
    """

    connection: http.client.HTTPConnection
    before: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def opened(cls, parts: SplitResult, timeout: float) -> _Line:
        """Open a new connection.

        Raises:
            _Unreached: the connection cannot be opened.
            ssl.SSLCertVerificationError: the server's TLS certificate is invalid.
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
        """Prepare a connection, through the environment's proxy unless the server is local."""
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
        """Send a request; return status, headers and body. Close if the server asks for it."""
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
    """Whether a host name means this machine, which needs no proxy."""
    return (
        host == "localhost"
        or host.endswith(".localhost")
        or host in ("::1", "0.0.0.0")
        or bool(re.fullmatch(r"127(?:\.\d{1,3}){3}", host))
    )


def _read(
    connection: http.client.HTTPConnection, response: http.client.HTTPResponse, deadline: float
) -> bytes:
    """Read a response body before the deadline, even if it arrives slowly.

    Raises:
        TimeoutError: the deadline passed.
        http.client.IncompleteRead: the body is truncated.
    """
    chunks, size = [], 0
    while chunk := response.read1(2**16):
        chunks.append(chunk)
        size += len(chunk)
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer arrived after the deadline")
        if size > MAX_ANSWER_BYTES:
            raise http.client.HTTPException("the answer has more than 32 MB")
        if connection.sock is not None:
            connection.sock.settimeout(left)
    if response.length:  # read1 ends quietly
        raise http.client.IncompleteRead(b"".join(chunks), response.length)
    return b"".join(chunks)


def _seconds(retry_after: str | None) -> float | None:
    """Convert ``Retry-After``, a number or a date, to seconds; None for other values."""
    try:
        if retry_after is None or re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", retry_after):
            return None if retry_after is None else float(retry_after)
        seconds = parsedate_to_datetime(retry_after) - datetime.now(UTC)
    except (ValueError, TypeError):  # no date, or one without a time zone
        return None
    return max(0.0, seconds.total_seconds())


def _reply(body: Any) -> Reply:
    """Convert a server's JSON to a `Reply`.

    Raises:
        _Failure: the JSON has an unexpected form.
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
        raise _Failure(f"{FAILED} (the answer has no chat message)") from error
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
    """Return tokens with log-probabilities; empty if the server gives none that are readable."""
    try:
        return [
            (one["token"], {each["token"]: float(each["logprob"]) for each in one["top_logprobs"]})
            for one in choice["logprobs"]["content"]
        ]
    except (LookupError, TypeError, ValueError):
        return []


def _text(content: Any) -> str:
    """Return the text of a message whose content is a string, a list of parts, or None.

    Raises:
        TypeError, LookupError: the content has another form.
    """
    if content is None:
        return ""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    if not isinstance(content, str):
        raise TypeError(f"content must be a string, got {type(content).__name__}")
    return content
