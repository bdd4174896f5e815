"""Answers of a causal language model of transformers, in batches that read examples once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from augmentation.captions.writing.gap_filling import GapFilling, SentenceState
from augmentation.captions.writing.prompt import Prompt
from augmentation.captions.writing.writers import AbstractWriter, Answer
from captioning.ranges import Device, NonNegativeFloat, NonNegativeInt, PositiveInt, Share
from captioning.text.causal import causal_source, imported, load_causal
from captioning.vision.placement import chosen_device

LINE_END = "\n"


class CausalWriter(AbstractWriter):
    """Samples sentences; the examples that prompts share are read once for all of them.

    Args:
        name: ``"smollm2"``, a folder of a transformers model, or such a model's name on the hub.
        temperature: of sampling; 0 takes the likeliest token.
        top_p: share of probability that is sampled from.
        max_new_tokens: of a sentence.
        max_small_words: sentences hold the required words, in order, with at most so many small
            words before each, see `GapFilling`; None: free text.
        precision: ``"float32"`` or ``"bfloat16"``.
        device: ``"auto"`` takes a GPU if there is one.

    Raises:
        ModuleNotFoundError, FileNotFoundError, ConnectionError, ValueError: see
            `captioning.text.causal.load_causal`; or a wrong setting.
    """

    def __init__(
        self,
        *,
        name: str = "smollm2",
        temperature: NonNegativeFloat = 0.3,
        top_p: Share = 0.9,
        max_new_tokens: PositiveInt = 32,
        max_small_words: NonNegativeInt | None = None,
        precision: str = "float32",
        device: Device = "auto",
    ) -> None:
        if precision not in ("float32", "bfloat16"):
            raise ValueError(f"precision must be float32 or bfloat16: got {precision!r}")
        if temperature < 0 or not 0 < top_p <= 1:
            raise ValueError(
                "temperature must not be negative and top_p must lie in (0, 1]: got "
                f"{temperature} and {top_p}"
            )
        self._device = chosen_device(device)
        self._temperature, self._top_p, self._max_new = temperature, top_p, max_new_tokens
        self._tokenizer = imported("transformers").AutoTokenizer.from_pretrained(
            **causal_source(name)
        )
        network: Any = load_causal(name).to(self._device, getattr(torch, precision))
        self._network = network.eval().requires_grad_(False)
        self._stops = self._stop_tokens()
        self._filling: GapFilling | None = None
        if max_small_words is not None:
            end = int(self._stops.nonzero()[0])
            self._filling = GapFilling(self._tokenizer, end=end, max_small_words=max_small_words)

    def _stop_tokens(self) -> Tensor:
        """``(V,) bool``: tokens that end a line or a text."""
        size = self._network.get_output_embeddings().weight.shape[0]
        stops = torch.zeros(size, dtype=torch.bool)
        for text, token in self._tokenizer.get_vocab().items():
            written = self._tokenizer.convert_tokens_to_string([text])
            stops[token] = LINE_END in written or token in self._tokenizer.all_special_ids
        return stops.to(self._device)

    @torch.inference_mode()
    def answers(self, prompts: Sequence[Prompt], *, seed: int) -> list[Answer]:
        """See `AbstractWriter`.

        Raises:
            ValueError: prompts with different examples, longer ones than the model takes, or ones
                without required words where ``max_small_words`` is set.
        """
        if not prompts:
            return []
        opening = prompts[0].opening()
        if any(prompt.opening() != opening for prompt in prompts):
            raise ValueError("prompts of one call must have the same examples")
        if self._filling is not None and not all(prompt.required_tokens for prompt in prompts):
            raise ValueError(
                "max_small_words is for sentence templates, and a prompt has none: set "
                "method.writer.max_small_words=null (writer@method.writer=smollm2_free)"
            )
        head = self._ids(opening)
        tails = [self._ids(prompt.ending()) for prompt in prompts]
        self._check_length(len(head) + max(map(len, tails)) + self._max_new)
        sentences = (
            []
            if self._filling is None
            else self._filling.new_sentences([p.required_tokens for p in prompts])
        )
        draw = partial(self._draw, generator=torch.Generator(self._device).manual_seed(seed))
        cache = self._read_prefix(head, len(prompts))
        tokens, mask = padded_left(tails)
        mask = torch.cat([torch.ones(len(tails), len(head), dtype=torch.long), mask], 1)
        tokens, mask = tokens.to(self._device), mask.to(self._device)
        rows, sums = self._sample(tokens, mask, cache, draw, sentences)
        return [
            Answer(
                text=self._tokenizer.decode(row).strip(),
                likelihood=total / len(row) if row else None,
            )
            for row, total in zip(rows, sums, strict=True)
        ]

    def _check_length(self, length: int) -> None:
        max_length = getattr(self._network.config, "max_position_embeddings", length)
        if length > max_length:
            raise ValueError(
                f"prompt and answer may have {length} tokens, the language model takes "
                f"{max_length}: give fewer examples (method.prompts.num_examples)"
            )

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]

    def _read_prefix(self, head: list[int], copies: int) -> Any:
        """Keys and values of the prompts' common beginning."""
        output = self._network(input_ids=torch.tensor([head], device=self._device), use_cache=True)
        output.past_key_values.batch_repeat_interleave(copies)
        return output.past_key_values

    def _sample(
        self,
        tokens: Tensor,
        mask: Tensor,
        cache: Any,
        draw: Callable[[Tensor], Tensor],
        lines: Sequence[SentenceState],
    ) -> tuple[list[list[int]], list[float]]:
        """Tokens of each row up to the end of its line, and the sum of their log-probabilities.

        Rows that have ended are no longer computed.
        """
        positions = (mask.cumsum(1) - 1)[:, -tokens.shape[1] :].clamp(min=0)
        answers: list[list[int]] = [[] for _ in range(len(tokens))]
        sums = [0.0] * len(tokens)
        numbers = torch.arange(len(tokens), device=tokens.device)
        for _ in range(self._max_new):
            logits = (
                self._network(
                    input_ids=tokens,
                    attention_mask=mask,
                    position_ids=positions,
                    past_key_values=cache,
                    logits_to_keep=1,
                )
                .logits[:, -1]
                .float()
            )
            if self._filling is None:
                next_tokens = draw(logits)
            else:
                next_tokens = self._filling.choose(logits, [lines[int(n)] for n in numbers], draw)
            active = (~self._stops[next_tokens]).nonzero().squeeze(1)
            log_probs = logits.gather(1, next_tokens[:, None]).squeeze(1) - logits.logsumexp(1)
            rows: list[int] = active.tolist()
            for row in rows:
                number = int(numbers[row])
                answers[number].append(int(next_tokens[row]))
                sums[number] += float(log_probs[row])
            if len(active) == 0:
                break
            if len(active) < len(next_tokens):
                cache.batch_select_indices(active)
                numbers, mask, positions = numbers[active], mask[active], positions[active]
            tokens, positions = next_tokens[active, None], positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
        return answers, sums

    def _draw(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """``(B,) int64`` tokens of ``(B, V)`` logits."""
        if self._temperature == 0:
            return logits.argmax(1)
        values, order = (logits / self._temperature).topk(min(64, logits.shape[1]), dim=1)
        shares = values.softmax(1)
        shares = shares.masked_fill(shares.cumsum(1) - shares > self._top_p, 0.0)
        tokens = torch.multinomial(shares, 1, generator=generator)
        return order.gather(1, tokens).squeeze(1)


def padded_left(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """``(B, T) int64`` tokens and their mask."""
    longest = max(map(len, rows))
    tokens = torch.tensor([[*[0] * (longest - len(row)), *row] for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    return tokens, mask
