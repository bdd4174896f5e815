"""UpDown's decoder with a latent for every word, and its memory in search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioning.config.ranges import NonNegativeFloat
from captioning.interfaces import AbstractLatentState
from captioning.models.layers.cuda_graphs import AbstractGraphedPart
from captioning.models.layers.gaussian import Gaussian, key_of, keyed_noise
from captioning.models.layers.graphed_recurrence import GraphedRecurrence, Recurrence
from captioning.models.layers.latent_form import LatentForm
from captioning.models.layers.latent_prior import LatentPrior, ReadWords
from captioning.models.layers.latents import Chain
from captioning.models.layers.packing import Packing
from captioning.models.layers.twins import add_twin
from captioning.models.layers.updown_cell import (
    CellWeights,
    attend,
    lstm_gates,
    recurrence,
    squashed,
)
from captioning.models.layers.weighted_mean import LEAST
from captioning.runtime.sample_dropout import by_token

# A latent dimension is active if its divergence exceeds this, in nats per word.
ACTIVE_NATS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWeights:
    """Weights of the loss terms in one phase of training.

    Attributes:
        nll: weight of the words' negative log-likelihood.
        kl: weight of the divergence of posteriors from priors.
        nll_nn, kl_nn: the same weights for pseudo captions, if batches have them.
    """

    nll: NonNegativeFloat = 1.0
    kl: NonNegativeFloat = 1.0
    nll_nn: NonNegativeFloat = 0.0
    kl_nn: NonNegativeFloat = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Terms of the bound, one value per caption.

    Attributes:
        nll: ``(B,)`` summed over words, in nats.
        kl_context, kl_objects: ``(B, Z)`` summed over words, by dimension, in nats.
        lengths: ``(B,)`` number of words, including the end token.
        context, objects: sampled latents.
        priors: prior distributions of both latents.
        masked: sums and lengths with weighted words, if weights are not all 1.
    """

    nll: Tensor
    kl_context: Tensor
    kl_objects: Tensor
    lengths: Tensor
    context: Chain
    objects: Chain
    priors: tuple[Gaussian, Gaussian]
    masked: Terms | None = None

    def with_weights(
        self, weights: Tensor, *, nll: Tensor, kls: Sequence[Tensor], packing: Packing
    ) -> Terms:
        """Return these terms, together with terms for weighted words.

        A word's part of the bound is its likelihood and the divergence of its latents.

        Args:
            weights: ``(B, T)`` weights of the words.
            nll: ``(N,)`` packed negative log-likelihoods.
            kls: ``(B, T, Z)`` divergences of the words' latents, 0 in padding.
            packing: packing of the captions.
        """
        weights = weights.to(nll)
        kl_context, kl_objects = ((kl * weights[:, :, None]).sum(1) for kl in kls)
        weights = packing.pack(weights[packing.order])
        masked = replace(
            self,
            nll=packing.sum_by_caption(nll * weights),
            kl_context=kl_context,
            kl_objects=kl_objects,
            # a caption whose words all have weight 0 is divided by its length, too
            lengths=packing.sum_by_caption(weights).clamp(min=LEAST),
        )
        return replace(self, masked=masked)

    @property
    def kl(self) -> Tensor:
        """Divergence ``(B,)`` of both latents, summed over dimensions."""
        return self.kl_context.sum(1) + self.kl_objects.sum(1)

    def log_ratios(self, real: Tensor) -> Tensor:
        """Return ``log p(x | z) p(z) / q(z | x)`` of the sampled latents, ``(B,)`` in nats.

        Args:
            real: ``(B, T) bool``, False in padding.
        """
        ratios = -self.nll
        for chain, prior in zip((self.context, self.objects), self.priors, strict=True):
            gain = prior.log_density(chain.values) - chain.distribution.log_density(chain.values)
            ratios = ratios + (gain * real).sum(1)
        return ratios

    def parts(self) -> dict[str, Tensor]:
        """Return values to log: nats per word, and the share of active latent dimensions.

        A collapsed latent has no information about its caption: no dimension is active.
        """
        words = self.lengths.sum()
        parts = {"nll": self.nll.detach().sum() / words}
        for name, divergence in (("context", self.kl_context), ("objects", self.kl_objects)):
            by_dimension = divergence.detach().sum(0) / words
            parts[f"kl_{name}"] = by_dimension.sum()
            parts[f"active_{name}"] = (by_dimension > ACTIVE_NATS).float().mean()
        return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionMemory:
    """Projections of regions, computed once per image.

    Attributes:
        keys: ``(I, R, A)``.
        values: ``(I, R, D)``.
        mean: ``(I, D)`` over the regions that exist.
        mask: ``(I, R) bool``, True where a region exists, or None.
    """

    keys: Tensor
    values: Tensor
    mean: Tensor
    mask: Tensor | None

    def select(self, images: Tensor) -> RegionMemory:
        """Select images, repeats allowed."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        selected: dict[str, Any] = {k: None if v is None else v[images] for k, v in tensors.items()}
        return RegionMemory(**selected)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentState(AbstractLatentState):
    """Decoder memory of G hypotheses in blocks of equal size, one block per latent sample.

    Attributes:
        memory: projected regions of each block's image.
        latents: ``(blocks, T, Z)`` latents sampled before the first word; if the prior reads
            words, the noise for sampling them.
        cells: h1, c1, h2 and c2, ``(G, H)`` or ``(G, L)`` each.
        step: number of words read so far.
        prior: prior that samples other latents.
        read: memory of a prior that reads words, else None.
        temperature: sampling temperature of latents.
    """

    memory: RegionMemory
    latents: Tensor
    cells: tuple[Tensor, Tensor, Tensor, Tensor]
    step: int
    prior: LatentPrior
    read: ReadWords | None = None
    temperature: float = 0.0

    def select(self, index: Tensor) -> LatentState:
        """Select hypotheses by index."""
        num_blocks = len(self.latents)
        blocks = torch.unique_consecutive(index // (len(self.cells[0]) // num_blocks))
        memory, latents = self.memory, self.latents
        if len(blocks) != num_blocks:
            memory, latents = memory.select(blocks), latents[blocks]
        cells = tuple(cell[index] for cell in self.cells)
        read = None if self.read is None else self.read.select(index)
        return replace(self, memory=memory, latents=latents, cells=cells, read=read)

    @torch.no_grad()
    def drawn(
        self, *, keys: Sequence[int | str], draws: range, temperature: float, seed: int
    ) -> LatentState:
        """Return the state with sampled latents, see `AbstractLatentState`.

        Raises:
            ValueError: words were read before, a number out of range, or too few keys.
        """
        if self.step or len(keys) != len(self.cells[0]) or len(keys) != len(self.latents):
            raise ValueError(
                "latents must be sampled before the first word, for one hypothesis per image: got "
                f"{len(keys)} keys for {len(self.cells[0])} hypotheses after {self.step} words"
            )
        if temperature < 0 or min([seed, *draws]) < 0:
            raise ValueError(
                "temperature, seed and the numbers of draws must be at least 0: got "
                f"{temperature}, {seed} and {draws}"
            )
        numbers = [(seed, key_of(key), draw) for key in keys for draw in draws]
        _, steps, size = self.latents.shape
        noise = keyed_noise(numbers, [steps] * len(numbers), size).to(self.latents)
        images = torch.arange(len(keys), device=noise.device).repeat_interleave(len(draws))
        memory = self.memory.select(images)
        cells = tuple(cell[images] for cell in self.cells)
        drawn = replace(self, memory=memory, cells=cells, temperature=temperature)
        if self.read is not None:
            return replace(drawn, latents=noise, read=self.read.select(images))
        return replace(drawn, latents=self.prior.draw(memory.mean, noise, temperature))


class LatentDecoder(nn.Module, AbstractGraphedPart):
    """Two LSTMs with attention over regions; the first also reads the word's latents.

    As in UpDown, see `captioning.models.layers.updown_cell`, with ``z_t`` beside the word and the
    mean feature, two LSTM sizes, and ``softmax(E tanh(W h2_t))`` for the next word.
    """

    def __init__(
        self,
        *,
        vocabulary: int,
        feature_size: int,
        attention_lstm_size: int,
        language_lstm_size: int,
        attention_size: int,
        embedding_size: int,
        latent_size: int,
        dropout: float,
        form: LatentForm,
    ) -> None:
        """Create the layers.

        Args:
            vocabulary: V.
            feature_size: D.
            attention_lstm_size: H of the LSTM that attends.
            language_lstm_size: L of the language LSTM.
            attention_size: A.
            embedding_size: embedding size of input and output words.
            latent_size: size of both latents together.
            dropout: dropout of the language LSTM's output.
            form: which biases are used, and how weights are initialised.
        """
        super().__init__()
        size, language_size = attention_lstm_size, language_lstm_size
        self.sizes = (size, language_size)
        self.recurrence: Recurrence = recurrence
        self.embed = nn.Embedding(vocabulary, embedding_size)
        self.key = nn.Linear(feature_size, attention_size, bias=form.attention_bias)
        self.query = nn.Linear(size, attention_size, bias=False)
        # The query's bias is added to the keys, which are projected once per image.
        bias = torch.zeros(attention_size) if form.attention_bias else None
        self.query_bias = None if bias is None else nn.Parameter(bias)
        self.score = nn.Parameter(torch.empty(attention_size))
        self.words_to_gates = nn.Linear(embedding_size, 4 * size)
        self.mean_to_gates = nn.Linear(feature_size, 4 * size, bias=False)
        self.latents_to_gates = nn.Linear(latent_size, 4 * size, bias=False)
        self.hidden_to_gates = nn.Linear(language_size + size, 4 * size, bias=False)
        self.language = nn.Linear(feature_size + size + language_size, 4 * language_size)
        self.dropout = nn.Dropout(dropout)
        self.squeeze = nn.Linear(language_size, embedding_size)
        self.output = nn.Linear(embedding_size, vocabulary, bias=form.output_bias)
        self._initialise(form.plain_start)

    def _initialise(self, plain: bool) -> None:
        """Initialise LSTM weights as ``torch.nn.LSTMCell``; open forget gates unless ``plain``."""
        size, language_size = self.sizes
        nn.init.uniform_(self.score, -(size**-0.5), size**-0.5)
        if self.query_bias is not None:
            nn.init.uniform_(self.query_bias, -(size**-0.5), size**-0.5)
        for layer, width in (
            (self.words_to_gates, size),
            (self.mean_to_gates, size),
            (self.latents_to_gates, size),
            (self.hidden_to_gates, size),
            (self.language, language_size),
        ):
            nn.init.uniform_(layer.weight, -(width**-0.5), width**-0.5)
            if layer.bias is None:
                continue
            nn.init.zeros_(layer.bias)
            if plain:
                nn.init.uniform_(layer.bias, -(width**-0.5), width**-0.5)
            else:
                layer.bias.data[width : 2 * width] = 1.0
        if plain:
            self._add_twins()

    def _add_twins(self) -> None:
        """Add torch's second bias parameters; the language LSTM reads its own state twice."""
        size, language_size = self.sizes
        add_twin(self.words_to_gates, "bias", bound=size**-0.5)
        start = self.language.in_features - language_size
        bound = language_size**-0.5
        add_twin(self.language, "weight", bound=bound, start=start)
        add_twin(self.language, "bias", bound=bound)

    def use_cuda_graphs(self) -> None:
        """Use CUDA graphs in training, see `GraphedRecurrence`."""
        self.recurrence = GraphedRecurrence()

    def project_images(self, regions: Tensor, mask: Tensor | None) -> RegionMemory:
        """Project regions ``(I, R, D)`` to keys and mean; ``mask (I, R)`` is False in padding."""
        if mask is None:
            mean = regions.mean(1)
        else:
            weight = mask.to(regions.dtype).unsqueeze(2)
            mean = (regions * weight).sum(1) / weight.sum(1)
        keys = self.key(regions)
        keys = keys if self.query_bias is None else keys + self.query_bias
        return RegionMemory(keys=keys, values=regions, mean=mean, mask=mask)

    def logits(
        self, words: Tensor, latents: Tensor, memory: RegionMemory, images: Tensor, packing: Packing
    ) -> Tensor:
        """Return scores of the next words with teacher forcing, in packed order.

        Args:
            words: ``(B, T) int64`` input words, in the batch's order.
            latents: ``(B, T, Z)``.
            memory: projected regions of I images.
            images: ``(B,) int64`` image of each caption.
            packing: packing of the captions' lengths.

        Returns:
            Logits ``(N, V)``.
        """
        order = packing.order
        index = images[order]
        gates = self.words_to_gates(self.embed(packing.pack(words[order])))
        gates = gates + self.latents_to_gates(packing.pack(latents[order]))
        gates = gates + self.mean_to_gates(memory.mean)[packing.pack_rows(index)]
        weights = CellWeights(
            hidden=self.hidden_to_gates.weight,
            query=self.query.weight,
            score=self.score,
            language=self.language.weight,
            bias=self.language.bias,
        )
        hidden = self.recurrence(
            gates, memory.keys, memory.values, memory.mask, index, packing.sizes, weights
        )
        with by_token(packing.sequences, packing.steps):
            hidden = self.dropout(hidden)
        return self._predict(hidden)

    def _predict(self, hidden: Tensor) -> Tensor:
        return self.output(torch.tanh(self.squeeze(hidden)))

    def start(self, memory: RegionMemory, latents: Tensor, prior: LatentPrior) -> LatentState:
        """Return the memory before the first word, for ``latents (I, T, Z)``."""
        attention, language = ((len(memory.mean), size) for size in self.sizes[:2])
        zeros = memory.mean.new_zeros
        cells = (zeros(attention), zeros(attention), zeros(language), zeros(language))
        return LatentState(memory=memory, latents=latents, cells=cells, step=0, prior=prior)

    def attend_step(self, tokens: Tensor, state: LatentState) -> tuple[Tensor, LatentState, Tensor]:
        """Read one word per hypothesis.

        Returns:
            ``(G, V)`` log-probabilities of the next word, the memory after the word, and the
            attention ``(G, R)`` that predicts the next word.

        Raises:
            ValueError: more words than latents were drawn for.
        """
        steps = state.latents.shape[1]
        if state.step >= steps:
            raise ValueError(
                f"latents were sampled for {steps} words, but the search continues: lower "
                "search.max_length, or raise model.module.max_steps"
            )
        language_states, alpha, state = self._advanced(tokens, state)
        log_probs = functional.log_softmax(
            self._predict(language_states).to(self.score.dtype), dim=-1
        )
        return log_probs, state, alpha

    @torch.no_grad()
    def attention(
        self, words: Tensor, memory: RegionMemory, latents: Tensor, prior: LatentPrior
    ) -> Tensor:
        """Return the attention to regions before each next word, with teacher forcing.

        Args:
            words: ``(B, T) int64`` input words.
            memory: projected regions of each caption's image.
            latents: ``(B, T, Z)``.
            prior: see `LatentState`.

        Returns:
            ``(B, T, R)``, which sums to 1 over the regions.
        """
        state, weights = self.start(memory, latents, prior), []
        for column in words.unbind(1):
            _, alpha, state = self._advanced(column, state)
            weights.append(alpha)
        return torch.stack(weights, 1)

    def _advanced(self, tokens: Tensor, state: LatentState) -> tuple[Tensor, Tensor, LatentState]:
        """Return language states ``(G, L)``, attention ``(G, R)`` and memory after a word."""
        num_blocks = len(state.latents)
        memory, (h1, c1, h2, c2) = state.memory, state.cells
        shared = self.mean_to_gates(memory.mean)
        gates = self.words_to_gates(self.embed(tokens))
        gates = gates + self.hidden_to_gates(torch.cat([h2, h1], 1))
        latents, state = self._latents(tokens, state)
        if state.read is None:
            shared = shared + self.latents_to_gates(latents)
        else:
            gates = gates + self.latents_to_gates(latents)
        gates = (gates.view(num_blocks, -1, gates.shape[1]) + shared[:, None]).flatten(0, 1)
        h1, c1, _ = lstm_gates(gates, c1)
        alpha = self._alpha(h1, memory)
        context = torch.bmm(alpha.to(memory.values.dtype), memory.values).flatten(0, 1)
        h2, c2, _ = lstm_gates(self.language(torch.cat([context, h1, h2], 1)), c2)
        state = replace(state, cells=(h1, c1, h2, c2), step=state.step + 1)
        return h2, alpha.flatten(0, 1), state

    @staticmethod
    def _latents(tokens: Tensor, state: LatentState) -> tuple[Tensor, LatentState]:
        """Return the next latents, ``(blocks, Z)``, or ``(G, Z)`` if the prior reads words."""
        latents, memory = state.latents[:, state.step], state.memory
        if state.read is None:
            return latents, state
        per_block = len(tokens) // len(latents)
        mean, noise = (x.repeat_interleave(per_block, 0) for x in (memory.mean, latents))
        read = state.prior.read(tokens, mean, noise, state.temperature, state.read)
        return read.latents, replace(state, read=read)

    def _alpha(self, h1: Tensor, memory: RegionMemory) -> Tensor:
        """Return attention of ``h1 (G, H)`` to regions: ``(blocks, G / blocks, R)``."""
        query = self.query(h1).view(len(memory.keys), -1, memory.keys.shape[2])
        hidden = None if memory.mask is None else ~memory.mask.unsqueeze(1)
        return attend(squashed(2 * memory.keys.unsqueeze(1), query), self.score, hidden)
