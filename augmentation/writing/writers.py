"""Language models that answer prompts: their interface, servers, and model files of llama.cpp."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from augmentation.writing.prompt import Prompt
from captioning.config.ranges import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Share,
)
from captioning.text.causal import imported

TIMED_OUT = "the model took too long"
FAILED = "the model failed"
FAILURES = (TIMED_OUT, FAILED)
MAX_WAIT_SECONDS = 60.0  # between two requests for an answer
BUSY_STATUSES = (408, 429, 500, 502, 503, 504)  # of servers that may answer later


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A language model's text, or why there is none.

    ``likelihood`` is the mean log-probability of its tokens, None where the model gives none.
    """

    text: str = ""
    problem: str = ""
    likelihood: float | None = None


class AbstractWriter(ABC):
    """A language model that completes prompts.

    Attributes:
        uses_gpu: whether this process computes the answers, on a GPU where there is one.
    """

    uses_gpu: bool = True

    def learn(self, captions: Sequence[str]) -> None:  # noqa: B027 (most need not do anything)
        """Learn the corpus that prompts come from; pretrained models need not."""

    @abstractmethod
    def answers(self, prompts: Sequence[Prompt], *, seed: int) -> list[Answer]:
        """An answer a prompt, in order.

        Args:
            prompts: with the same examples.
            seed: of the draws; the same prompts and seed give the same answers where the model
                can promise that.

        Raises:
            OSError: the model cannot be reached; captions made before are kept.
            ValueError: the model refuses such requests.
        """


class ServerWriter(AbstractWriter):
    """Any server with OpenAI's chat interface (llama.cpp, vLLM, Ollama and others).

    Args:
        address: up to the version, such as ``http://localhost:8000/v1``.
        model: the name by which the server knows the model.
        temperature, top_p, max_new_tokens: of sampling.
        num_parallel: simultaneous requests.
        timeout: seconds that one answer may take.
        retries: further requests after one that failed.
        wait: seconds before the first retry, doubled before each further one, unless the
            server sets the time (``Retry-After``); never more than a minute.
        key_variable: environment variable with the server's key, if it requires one.

    Raises:
        ValueError: no such address, or a wrong number.
    """

    uses_gpu = False

    def __init__(
        self,
        *,
        address: str,
        model: str,
        temperature: NonNegativeFloat = 0.7,
        top_p: Share = 0.9,
        max_new_tokens: PositiveInt = 48,
        num_parallel: PositiveInt = 8,
        timeout: PositiveFloat = 60.0,
        retries: NonNegativeInt = 2,
        wait: NonNegativeFloat = 1.0,
        key_variable: str = "OPENAI_API_KEY",
    ) -> None:
        if not address.startswith(("http://", "https://")):
            raise ValueError(f"address must begin with http:// or https://: got {address!r}")
        if num_parallel < 1 or timeout <= 0 or min(retries, wait) < 0:
            raise ValueError(
                "num_parallel and timeout must be above 0, and retries and wait not below: got "
                f"{num_parallel}, {timeout}, {retries} and {wait}"
            )
        self._address = address.rstrip("/")
        self._settings = {
            "model": model,
            "temperature": temperature,
            "top_p": top_p,
            "max_tokens": max_new_tokens,
        }
        self._num_parallel, self._timeout, self._retries = num_parallel, timeout, retries
        self._wait = wait
        self._key = os.environ.get(key_variable, "")

    def answers(self, prompts: Sequence[Prompt], *, seed: int) -> list[Answer]:
        """See `AbstractWriter`; a server may ignore the seed."""
        requests = [
            self._settings | {"messages": prompt.messages(), "seed": seed + number}
            for number, prompt in enumerate(prompts)
        ]
        with ThreadPoolExecutor(self._num_parallel) as pool:
            return list(pool.map(self._ask, requests))

    def _ask(self, body: dict[str, Any]) -> Answer:
        """The first answer without a problem; waits between requests to a busy server."""
        answer, retry_after = self._ask_once(body)
        for number in range(self._retries):
            if not answer.problem:
                break
            wait = self._wait * 2**number if retry_after is None else retry_after
            time.sleep(min(wait, MAX_WAIT_SECONDS))
            answer, retry_after = self._ask_once(body)
        return answer

    def _ask_once(self, body: dict[str, Any]) -> tuple[Answer, float | None]:
        """An answer, and the seconds that the server asks to wait, if it does."""
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(
            f"{self._address}/chat/completions", json.dumps(body).encode(), headers
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as reply:
                return Answer(text=_text_of(json.load(reply))), None
        except urllib.error.HTTPError as error:
            if error.code in BUSY_STATUSES:
                return Answer(problem=FAILED), _seconds(error.headers.get("Retry-After"))
            reason = error.read(300).decode("utf-8", "replace")
            raise ValueError(
                f"{self._address} refuses requests ({error.code}: {reason})"
            ) from error
        except TimeoutError:
            return Answer(problem=TIMED_OUT), None
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                return Answer(problem=TIMED_OUT), None
            raise ConnectionError(
                f"{self._address} cannot be reached ({error.reason}); start the server and give "
                "the same command again: it goes on where it stopped"
            ) from error
        except (ValueError, LookupError, TypeError, OSError, http.client.HTTPException):
            return Answer(problem=FAILED), None  # an incomplete answer, or not a chat


def _seconds(retry_after: str | None) -> float | None:
    """Seconds by ``Retry-After``, a number or a date; None where it is neither."""
    try:
        if retry_after is None or retry_after.strip().isdecimal():
            return None if retry_after is None else float(retry_after)
        seconds = parsedate_to_datetime(retry_after) - datetime.now(UTC)
    except (ValueError, TypeError):  # no date, or one without a time zone
        return None
    return max(0.0, seconds.total_seconds())


def _text_of(reply: Any) -> str:
    """The text of a server's reply.

    Raises:
        TypeError, LookupError: it has another form.
    """
    text = reply["choices"][0]["message"]["content"]
    if not isinstance(text, str):
        raise TypeError(f"content must be a text: got {type(text).__name__}")
    return text


class LlamaCppWriter(AbstractWriter):
    """A model file of llama.cpp, such as the paper's Mistral-7B-Instruct in 8 bits.

    Args:
        path: a ``.gguf`` file, or a folder with one.
        temperature, top_p, max_new_tokens: of sampling.
        context: tokens that prompt and answer may have.
        num_gpu_layers: on the graphics card; -1 for all.

    Raises:
        ModuleNotFoundError: llama-cpp-python is not installed.
        FileNotFoundError: no file, or a folder with none or several.
    """

    def __init__(
        self,
        *,
        path: str | Path,
        temperature: NonNegativeFloat = 0.7,
        top_p: Share = 0.9,
        max_new_tokens: PositiveInt = 48,
        context: PositiveInt = 2048,
        num_gpu_layers: int = -1,
    ) -> None:
        path = Path(path)
        files = sorted(path.glob("*.gguf")) if path.is_dir() else [path]
        if len(files) != 1 or not files[0].is_file():
            raise FileNotFoundError(
                f"{path}: wanted a .gguf file or a folder with one: found "
                f"{[file.name for file in files if file.is_file()]}"
            )
        self.uses_gpu = num_gpu_layers != 0
        self._sampling = {"temperature": temperature, "top_p": top_p, "max_tokens": max_new_tokens}
        self._model = _llama_cpp().Llama(
            model_path=str(files[0]), n_ctx=context, n_gpu_layers=num_gpu_layers, verbose=False
        )

    def answers(self, prompts: Sequence[Prompt], *, seed: int) -> list[Answer]:
        """See `AbstractWriter`; one after the other, as llama.cpp keeps what prompts share."""
        answers = []
        for number, prompt in enumerate(prompts):
            reply = self._model.create_chat_completion(
                prompt.messages(), seed=seed + number, **self._sampling
            )
            answers.append(Answer(text=_text_of(reply)))
        return answers


def _llama_cpp() -> Any:
    try:
        return imported("llama_cpp")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "models of llama.cpp need a package that is not installed: pip install llama-cpp-python"
        ) from error
