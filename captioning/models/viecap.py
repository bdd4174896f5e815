"""ViECap: a language model that reads a photo embedding and names of entities (Fei et al., 2023).

The model is trained on captions alone and then captions photos. In a joint space of photos and
texts, the caption's embedding plus noise replaces the missing photo's embedding. If batches have
photos, the model is trained on pairs instead; without entities that is ClipCap (Mokady et al.,
2021).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

from captioning.config.ranges import (
    DropRate,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from captioning.interfaces import AbstractTokenizer
from captioning.models.base import AbstractCaptioner
from captioning.models.layers.causal_stepper import CausalStepper, PromptedState
from captioning.models.layers.cross_entropy import caption_losses
from captioning.models.layers.cuda_graphs import (
    AbstractGraphedPart,
    GraphedPart,
    Room,
    trains_on_gpu,
)
from captioning.models.layers.gaussian import keyed_noise
from captioning.models.layers.on_device import on_device
from captioning.models.layers.packing import CaptionPlaces
from captioning.runtime.model_folder import checkpoint_layers
from captioning.runtime.sample_dropout import by_caption
from captioning.text.causal import load_causal
from captioning.text.entities import hard_prompt
from captioning.text.entity_index import EntityIndex
from captioning.types import Batch, CaptionLosses


class PrefixProjector(nn.Module, AbstractGraphedPart):
    """Transformer over vectors projected from the embedding, and learned vectors.

    Its outputs at the learned vectors are the soft prompt (Mokady et al., 2021, figure 2; ViECap).

    Args:
        embedding_size: size of the embedding.
        hidden_size: word vector size D of the language model.
        num_projected: number of vectors to which the embedding is projected.
        num_learned: number of learned vectors, the soft prompt's length.
        num_layers: number of transformer layers (pre-norm, no dropout).
        num_heads: number of attention heads; queries, keys and values have no bias.
        mlp_ratio: hidden size of feed-forward parts divided by D.

    Raises:
        ValueError: num_heads does not divide D, or no learned vector.
    """

    def __init__(
        self,
        *,
        embedding_size: int,
        hidden_size: int,
        num_projected: int = 10,
        num_learned: int = 10,
        num_layers: int = 8,
        num_heads: int = 8,
        mlp_ratio: float = 2.0,
    ) -> None:
        super().__init__()
        if hidden_size % num_heads:
            raise ValueError(
                f"num_heads of the projector must divide the language model's {hidden_size} dims: "
                f"got num_heads={num_heads}"
            )
        if num_learned < 1 or num_projected < 1:
            raise ValueError(
                "num_projected and num_learned must be at least 1: got "
                f"{num_projected} and {num_learned}"
            )
        self.project = nn.Linear(embedding_size, num_projected * hidden_size)
        self.learned = nn.Parameter(torch.randn(num_learned, hidden_size))
        inner = int(hidden_size * mlp_ratio)
        self.layers = nn.ModuleList(
            _Layer(hidden_size, num_heads, inner) for _ in range(num_layers)
        )
        self._graphed: GraphedPart | None = None
        self._room = Room()

    def use_cuda_graphs(self) -> None:
        """Project on a GPU by one CUDA graph, with batches padded to the largest seen."""
        self._graphed = GraphedPart(self, self._project)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Return soft prompts ``(B, num_learned, D)`` of embeddings ``(B, embedding_size)``."""
        if self._graphed is None or not trains_on_gpu(embeddings):
            return self._project(embeddings)[0]
        number = len(embeddings)
        (all_embeddings,) = self._room.for_sizes(number)
        padded = functional.pad(embeddings, (0, 0, 0, all_embeddings - number))
        return self._graphed(padded)[0][:number]

    def _project(self, embeddings: Tensor) -> tuple[Tensor]:
        """Compute `forward` without CUDA graphs."""
        size = self.learned.shape[1]
        projected = self.project(embeddings).view(len(embeddings), -1, size)
        hidden = torch.cat([projected, self.learned.expand(len(embeddings), -1, -1)], dim=1)
        for layer in self.layers:
            hidden = layer(hidden)
        return (hidden[:, projected.shape[1] :],)


class _Layer(nn.Module):
    """Self-attention of all vectors, then a feed-forward part."""

    def __init__(self, size: int, num_heads: int, inner: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm_attention = nn.LayerNorm(size)
        self.queries = nn.Linear(size, size, bias=False)
        self.keys_values = nn.Linear(size, 2 * size, bias=False)
        self.output = nn.Linear(size, size)
        self.norm_inner = nn.LayerNorm(size)
        self.inner = nn.Sequential(nn.Linear(size, inner), nn.ReLU(), nn.Linear(inner, size))

    def forward(self, hidden: Tensor) -> Tensor:
        """Transform ``(B, N, D)``."""
        normed = self.norm_attention(hidden)
        parts = (self.queries(normed), *self.keys_values(normed).chunk(2, dim=-1))
        by_head = [part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in parts]
        attended = functional.scaled_dot_product_attention(*by_head)
        hidden = hidden + self.output(attended.transpose(1, 2).flatten(2))
        return hidden + self.inner(self.norm_inner(hidden))


def with_noise(embeddings: Tensor, variance: float, keys: Sequence[tuple[int, ...]]) -> Tensor:
    """Return ``normalised(normalised(x) + n)`` with normal noise n.

    In a joint space texts and photos are separated. A decoder trained on the neighbourhood of each
    text can read photos, too.

    Args:
        embeddings: ``(B, E)`` float.
        variance: noise variance, at least 0; .016 in ViECap, which for 512 dimensions makes the
            noise more than twice as long as the embedding.
        keys: keys of the B texts; a text's noise depends only on its key, see `keyed_noise`.

    Returns:
        ``(B, E)`` of unit length.
    """
    embeddings = functional.normalize(embeddings, dim=-1)
    if not variance:
        return embeddings
    noise = keyed_noise(keys, [1] * len(keys), embeddings.shape[1])[:, 0].to(embeddings.dtype)
    noise = on_device(noise, embeddings.device)
    return functional.normalize(embeddings + noise * variance**0.5, dim=-1)


# Keys of `Batch.extras` in training on captions alone, filled by `caption_texts`.
EMBEDDINGS, ENTITIES = "text_embeddings", "text_entities"
NONE = -1  # no entity


class ViECap(AbstractCaptioner[PromptedState]):
    """Causal language model that reads soft prompt, hard prompt and caption as one text.

    A batch with caption embeddings (`EMBEDDINGS`) is trained as text, any other batch by its
    images. An image's embedding is the mean of its regions.

    Args:
        feature_size: size E of the embeddings.
        pretrained: language model by name, see `captioning.text.causal.load_causal`; None: a
            randomly initialised GPT-2 of the sizes below.
        hidden_size: hidden size of the GPT-2.
        num_layers: number of layers of the GPT-2.
        num_heads: number of heads of the GPT-2.
        max_positions: maximum text length in tokens, including prompts.
        dropout: dropout of the GPT-2; a pretrained model keeps its own.
        checkpointing: recompute the language model's layers in the backward pass, which saves
            memory and takes more time.
        tied: whether the GPT-2's output shares its word vectors.
        num_projected: see `PrefixProjector`.
        num_learned: see `PrefixProjector`; the soft prompt's length.
        projector_layers: see `PrefixProjector`.
        projector_heads: see `PrefixProjector`.
        mlp_ratio: see `PrefixProjector`.
        noise_variance: noise in training on captions alone, see `with_noise`.
        masking: share of a prompt's entities left out in training.
        entities: entities that hard prompts may name; None: no hard prompts.
        num_entities: maximum number of entities of a photo.
        temperature: temperature of the softmax over cosines of a photo and all entities.
        threshold: minimum softmax probability of a named entity.
        **captioner: see `AbstractCaptioner`.

    Raises:
        ValueError: a language model of another vocabulary or kind, hard prompt words missing in
            the vocabulary, or embeddings of different sizes.
    """

    entities: Tensor | None
    in_vocabulary: Tensor

    def __init__(
        self,
        *,
        feature_size: int,
        pretrained: str | None = None,
        hidden_size: PositiveInt = 768,
        num_layers: PositiveInt = 12,
        num_heads: PositiveInt = 12,
        max_positions: PositiveInt = 1024,
        dropout: DropRate = 0.1,
        checkpointing: bool = False,
        tied: bool = True,
        num_projected: PositiveInt = 10,
        num_learned: PositiveInt = 10,
        projector_layers: PositiveInt = 8,
        projector_heads: PositiveInt = 8,
        mlp_ratio: PositiveFloat = 2.0,
        noise_variance: NonNegativeFloat = 0.016,
        masking: Fraction = 0.4,
        entities: EntityIndex | None = None,
        num_entities: NonNegativeInt = 3,
        temperature: PositiveFloat = 0.01,
        threshold: Fraction = 0.4,
        **captioner: Any,
    ) -> None:
        super().__init__(**captioner)
        if pretrained is None:
            sizes: dict[str, Any] = {
                "n_embd": hidden_size,
                "n_layer": num_layers,
                "n_head": num_heads,
            }
            sizes |= {"n_positions": max_positions, "tie_word_embeddings": tied}
            self.network = _new_gpt2(self.tokenizer, dropout, **sizes)
        else:
            self.network = load_causal(pretrained)
        self.stepper = CausalStepper(self.network)
        _check_vocabulary(self.stepper, self.tokenizer)
        self.stepper.check()
        # Recomputed layers, and other code of transformers, may wait for the device.
        self._can_be_graphed = isinstance(self.network, GPT2LMHeadModel) and not checkpointing
        if checkpointing:
            checkpoint_layers(self.network)
        self.projector = PrefixProjector(
            embedding_size=feature_size,
            hidden_size=self.stepper.words.embedding_dim,
            num_projected=num_projected,
            num_learned=num_learned,
            num_layers=projector_layers,
            num_heads=projector_heads,
            mlp_ratio=mlp_ratio,
        )
        self.noise_variance, self.masking = noise_variance, masking
        self.num_entities, self.temperature = num_entities, temperature
        self.threshold, self.feature_size = threshold, feature_size
        self._prompts: dict[tuple[str, ...], list[int]] = {}
        # entities of photos, followed by those of captions if captions have their own names
        self.names: tuple[str, ...] = ()
        self._prompt_names: tuple[str, ...] = ()
        self.register_buffer("entities", None)
        if entities is not None:
            self._set_entities(entities)

    def prepare_evaluation(self, changes: Mapping[str, Any]) -> None:
        """Search for other entities in photos; ``changes`` are arguments of `use_entities`."""
        known = ("entities", "num_entities", "temperature", "threshold")
        super().prepare_evaluation({k: v for k, v in changes.items() if k not in known})
        if changes:
            self.use_entities(**changes)

    def use_entities(
        self,
        entities: EntityIndex | None = None,
        *,
        num_entities: NonNegativeInt | None = None,
        temperature: PositiveFloat | None = None,
        threshold: Fraction | None = None,
    ) -> None:
        """Search for other entities in photos from now on; None keeps a setting.

        Raises:
            ValueError: the model was trained without entities, or an error of the constructor.
        """
        if self.entities is None:
            raise ValueError("the run was trained without entities: leave out entities")
        if entities is not None:
            self._set_entities(entities, device=self.entities.device)
        self.num_entities = self.num_entities if num_entities is None else num_entities
        self.temperature = self.temperature if temperature is None else temperature
        self.threshold = self.threshold if threshold is None else threshold

    def _set_entities(self, entities: EntityIndex, device: torch.device | None = None) -> None:
        """Store the entities, and which of them the vocabulary can name."""
        if entities.embeddings.shape[1] != self.feature_size:
            raise ValueError(
                f"entities have {entities.embeddings.shape[1]} dimensions, but photos have "
                f"{self.feature_size}: set features= to the encoder of the entities"
            )
        if self.tokenizer.unk_id in self._prompt(()):
            raise ValueError(
                f"the vocabulary lacks words of the prompt {hard_prompt(())!r}; set "
                "tokenizer.extra_words=[there,are,something,in,image]"
            )
        in_vocabulary = [bool(self.tokenizer.spellings(name)) for name in entities.names]
        if not any(in_vocabulary):
            raise ValueError(
                f"the vocabulary has none of the {len(in_vocabulary)} entities; give a list of "
                "names that the captions use: model.module.entities.names_path=FILE"
            )
        self.names = entities.names
        self._prompt_names = (*entities.names, *entities.caption_names)
        self.entities = entities.embeddings.clone().to(device)
        in_vocabulary = torch.tensor(in_vocabulary, device=device)
        self.register_buffer("in_vocabulary", in_vocabulary, persistent=False)

    def use_cuda_graphs(self) -> None:
        """Use CUDA graphs in training, see `CausalStepper`."""
        super().use_cuda_graphs()
        if self._can_be_graphed:
            self.stepper.use_cuda_graphs()

    def losses(self, batch: Batch) -> CaptionLosses:
        """Compute the cross-entropy of each caption token; prompts have no loss."""
        embeddings, entity_ids = self._embeddings_and_entities(batch)
        if EMBEDDINGS not in batch.extras:
            embeddings = embeddings[batch.image_index]
            entity_ids = None if entity_ids is None else entity_ids[batch.host.image_index]
        if entity_ids is not None and self.training:
            entity_ids = self._masked(entity_ids, batch)
        tokens, predicts = self._texts(batch.host, entity_ids)
        soft = self.projector(embeddings)
        words = self.stepper.words(on_device(tokens, soft.device))
        with by_caption(batch):
            states = self.stepper.read(torch.cat([soft, words], dim=1))[:, soft.shape[1] - 1 :]
        index = on_device(predicts.flatten().nonzero().squeeze(1), soft.device)
        logits = self.stepper.logits(states.flatten(0, 1).index_select(0, index))
        return caption_losses(logits, batch, CaptionPlaces.of(batch))

    def _masked(self, entity_ids: Tensor, batch: Batch) -> Tensor:
        """Drop a random share of each caption's entities ``(B, .)``."""
        size = entity_ids.shape[1]
        chances = [np.random.default_rng(key).random(size) for key in _keys(batch)]
        return entity_ids.masked_fill(torch.from_numpy(np.stack(chances)) < self.masking, NONE)

    def _texts(self, batch: Batch, entity_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return tokens ``(B, W)`` of prompts and captions, and a mask ``(B, W + 1)`` of captions.

        All tensors are on the CPU, including the batch.
        """
        hard, hard_lengths = self._hard_prompts(entity_ids, len(batch))
        captions, exist = batch.caption_tokens()
        lengths = hard_lengths + exist.sum(1) - 2  # neither begin nor end is read
        tokens = _joined(hard, hard_lengths, captions[:, 1:], int(lengths.max()))
        places = torch.arange(tokens.shape[1] + 1)
        return tokens, (places >= hard_lengths[:, None]) & (places <= lengths[:, None])

    def start(self, batch: Batch) -> PromptedState:
        """Read the images' prompts, or the captions' prompts for a batch without photos."""
        embeddings, entity_ids = self._embeddings_and_entities(batch)
        hard, lengths = self._hard_prompts(entity_ids, len(embeddings))
        soft = self.projector(embeddings)
        words = self.stepper.words(on_device(hard, soft.device))
        lengths = on_device(lengths + soft.shape[1], soft.device)
        return self.stepper.start(torch.cat([soft, words], dim=1), lengths)

    def step(self, tokens: Tensor, state: PromptedState) -> tuple[Tensor, PromptedState]:
        """Return log-probabilities of the next token; the begin token is not read."""
        return self.stepper.step(tokens, state)

    def next_logits(self, tokens: Tensor, state: PromptedState) -> tuple[Tensor, PromptedState]:
        """Return logits instead of log-probabilities; otherwise as `step`."""
        return self.stepper.next_logits(tokens, state)

    def find_entities(self, embeddings: Tensor) -> Tensor:
        """Return ``(I, num_entities) int64`` for images ``(I, E)``, likeliest first, then `NONE`.

        Raises:
            ValueError: the model has no entities.
        """
        if self.entities is None:
            raise ValueError("the model has no entities: set model.module.entities")
        # In half precision a cosine's step is .2 of a logit at temperature .01.
        with torch.autocast(embeddings.device.type, enabled=False):
            cosines = functional.normalize(embeddings.float(), dim=-1) @ self.entities.float().T
        logits = (cosines / self.temperature).masked_fill(~self.in_vocabulary, -torch.inf)
        shares, ranking = logits.softmax(-1).sort(dim=-1, descending=True, stable=True)
        shares, ranking = shares[:, : self.num_entities], ranking[:, : self.num_entities]
        return ranking.masked_fill(shares <= self.threshold, NONE)

    def _embeddings_and_entities(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return unit embeddings ``(N, E)`` and entities ``(N, .)`` of captions or images.

        Entities are on the CPU, where prompts are built. Those of images are found on the
        device: only there a step waits for it.
        """
        text_embeddings = batch.extras.get(EMBEDDINGS)
        if text_embeddings is None:
            embeddings = functional.normalize(self._images(batch), dim=-1)
            if self.entities is None:
                return embeddings, None
            return embeddings, self.find_entities(embeddings).cpu()
        if text_embeddings.shape[1] != self.feature_size:
            raise ValueError(
                f"caption embeddings have {text_embeddings.shape[1]} dimensions, but photos have "
                f"{self.feature_size}: set features= and model.texts to the same encoder"
            )
        entity_ids = None if self.entities is None else batch.host.extras.get(ENTITIES)
        if self.entities is not None and entity_ids is None:
            raise ValueError(
                "training on captions alone needs the captions' entities: set model.texts.parser"
            )
        if entity_ids is not None and len(self._prompt_names) > len(self.names):
            entity_ids = torch.where(entity_ids == NONE, NONE, entity_ids + len(self.names))
        noise = self.noise_variance if self.training else 0.0
        text_embeddings = text_embeddings.to(self.projector.learned.dtype)
        return with_noise(text_embeddings, noise, _keys(batch) if noise else ()), entity_ids

    def _images(self, batch: Batch) -> Tensor:
        """Return embeddings ``(I, E)``: the mean of a photo's regions."""
        regions = self._regions(batch).to(self.projector.learned.dtype)
        if batch.region_mask is None:
            return regions.mean(1)
        exist = batch.region_mask.unsqueeze(-1)
        return regions.masked_fill(~exist, 0).sum(1) / exist.sum(1)

    def _hard_prompts(self, entity_ids: Tensor | None, number: int) -> tuple[Tensor, Tensor]:
        """Return padded tokens ``(number, P)`` of hard prompts, and lengths ``(number,)``."""
        if entity_ids is None:
            return torch.zeros((number, 0), dtype=torch.long), torch.zeros(number, dtype=torch.long)
        rows = [self._prompt(self._entity_names(row)) for row in entity_ids.tolist()]
        longest = max(map(len, rows))
        padded = [row + [self.tokenizer.pad_id] * (longest - len(row)) for row in rows]
        return torch.tensor(padded), torch.tensor([len(row) for row in rows])

    def _entity_names(self, row: Sequence[int]) -> tuple[str, ...]:
        names = (self._prompt_names[n] for n in row if n != NONE)
        return tuple(name for name in names if self.tokenizer.spellings(name))

    def _prompt(self, names: tuple[str, ...]) -> list[int]:
        """Return the tokens of a hard prompt, including the full stop or end token."""
        if names not in self._prompts:
            self._prompts[names] = self.tokenizer.encode(hard_prompt(names))[1:]
        return self._prompts[names]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the entities in a checkpoint, too."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["captioner"]["entities"] = list(self._prompt_names)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Raise an error for weights trained with other entities.

        Raises:
            ValueError: an error of `AbstractCaptioner`, or other entities.
        """
        super().on_load_checkpoint(checkpoint)
        saved = checkpoint["captioner"].get("entities")
        if saved != list(self._prompt_names):
            raise ValueError(
                f"checkpoint was trained with {len(saved or ())} entities, but this run has "
                f"{len(self._prompt_names)} or other ones; set the same model.names_path and "
                "model.photo_names"
            )


def _keys(batch: Batch) -> list[tuple[int, ...]]:
    """Return keys of random numbers: each caption's row, with a number from the training seed."""
    number = int(torch.randint(2**31, ()))
    return [(number, row) for row in batch.host.rows.tolist()]


def _new_gpt2(tokenizer: AbstractTokenizer, dropout: float, **sizes: Any) -> GPT2LMHeadModel:
    options: dict[str, Any] = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    options |= {"bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    return GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes, **options))


def _check_vocabulary(stepper: CausalStepper, tokenizer: AbstractTokenizer) -> None:
    model_size = stepper.words.num_embeddings
    if model_size != len(tokenizer):
        raise ValueError(
            f"the language model has {model_size} tokens, but the tokenizer {len(tokenizer)}: use "
            "the tokenizer that belongs to the model (tokenizer=causal)"
        )


def _joined(hard: Tensor, hard_lengths: Tensor, captions: Tensor, width: int) -> Tensor:
    """Return tokens ``(B, width)``: hard prompt, then caption; further values are arbitrary."""
    places = torch.arange(width, device=captions.device).expand(len(captions), -1)
    offsets = places - hard_lengths[:, None]
    words = captions.gather(1, offsets.clamp(0, captions.shape[1] - 1))
    if not hard.shape[1]:
        return words
    prompt = hard.gather(1, places.clamp(max=hard.shape[1] - 1))
    return torch.where(offsets < 0, prompt, words)
