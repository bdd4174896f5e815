"""Language models that answer prompts: abstract class, servers, and llama.cpp model files."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from captioning.served.client import FAILED, TIMED_OUT, Question, Reply, ServedModel
from captioning.text.causal import imported

FAILURES = (TIMED_OUT, FAILED)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A language model's text, or the reason why there is none.

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
        """Learn from the corpus that prompts are made of; pretrained models ignore this call."""

    @abstractmethod
    def answers(self, prompts: Sequence[Prompt], *, seed: int) -> list[Answer]:
        """Return one answer for each prompt, in order.

        Args:
            prompts: prompts with the same examples.
            seed: seed of the draws; the same prompts and seed give the same answers where the model
                can promise that.

        Raises:
            OSError: the model cannot be reached; captions made before are kept.
            ValueError: the model refuses such requests.
        """


class ServerWriter(AbstractWriter):
    """Client of a server with OpenAI's chat API (llama.cpp, vLLM, Ollama and others).

    An answer that is cut off, refused by the model or by the server's filter is none.

    Args:
        address, model, temperature, top_p, num_parallel: see `ServedModel`.
        max_new_tokens: maximum new tokens of an answer.
        timeout, retries, wait, key_variable, extra_body: see `ServedModel`.

    Raises:
        ValueError: the address is invalid, or a number is out of range.
    """

    uses_gpu = False

    def __init__(
        self,
        *,
        address: str,
        model: str,
        temperature: NonNegativeFloat | None = 0.7,
        top_p: Share | None = 0.9,
        max_new_tokens: PositiveInt = 48,
        num_parallel: PositiveInt = 8,
        timeout: PositiveFloat = 600.0,
        retries: NonNegativeInt = 5,
        wait: NonNegativeFloat = 1.0,
        key_variable: str = "OPENAI_API_KEY",
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self._model = ServedModel(
            address=address,
            model=model,
            temperature=temperature,
            top_p=top_p,
            max_tokens=max_new_tokens,
            num_parallel=num_parallel,
            timeout=timeout,
            retries=retries,
            wait=wait,
            key_variable=key_variable,
            extra_body=extra_body,
        )

    def answers(self, prompts: Sequence[Prompt], *, seed: int) -> list[Answer]:
        """See `AbstractWriter`; some servers ignore the seed."""
        questions = [
            Question(messages=prompt.messages(), seed=seed + number)
            for number, prompt in enumerate(prompts)
        ]
        return [self._answer(reply) for reply in self._model.replies(questions)]

    def _answer(self, reply: Reply) -> Answer:
        if not reply.is_failed:
            return Answer(text=reply.text, problem=reply.problem)
        log.warning("%s: %s", self._model.address, reply.problem)
        return Answer(problem=TIMED_OUT if reply.problem == TIMED_OUT else FAILED)


def _text_of(reply: Any) -> str:
    """Text of a llama.cpp chat response.

    Raises:
        TypeError, LookupError: the response has another form.
    """
    text = reply["choices"][0]["message"]["content"]
    if not isinstance(text, str):
        raise TypeError(f"the content of the answer must be a text: got {type(text).__name__}")
    return text


class LlamaCppWriter(AbstractWriter):
    """A llama.cpp model file, such as the paper's Mistral-7B-Instruct in 8 bits.

    Args:
        path: a ``.gguf`` file, or a folder with one.
        temperature, top_p, max_new_tokens: settings of sampling.
        context: tokens that prompt and answer may have.
        num_gpu_layers: number of layers on the graphics card; -1: all.

    Raises:
        ModuleNotFoundError: llama-cpp-python is not installed.
        FileNotFoundError: the path is neither a .gguf file nor a folder with one.
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
                f"{path}: must be a .gguf file or a folder with one: found "
                f"{[file.name for file in files if file.is_file()]}"
            )
        self.uses_gpu = num_gpu_layers != 0
        self._sampling = {"temperature": temperature, "top_p": top_p, "max_tokens": max_new_tokens}
        self._model = _llama_cpp().Llama(
            model_path=str(files[0]), n_ctx=context, n_gpu_layers=num_gpu_layers, verbose=False
        )

    def answers(self, prompts: Sequence[Prompt], *, seed: int) -> list[Answer]:
        """See `AbstractWriter`; prompts run one by one, as llama.cpp caches their common start."""
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
            "llama.cpp models need a package that is not installed: pip install llama-cpp-python"
        ) from error
