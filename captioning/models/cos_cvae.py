"""COS-CVAE: diverse captions from latents for context and objects (Mahajan and Roth, 2020).

Every word has one latent for the caption's context and one for its objects
(`captioning.models.layers.latents`); an UpDown decoder reads both. The loss is the negative
evidence lower bound, ``-log p(x | z, v) + KL(q || p)``, in two phases with different weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from captioning.config.ranges import (
    ArgumentsOf,
    DropRate,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Seed,
)
from captioning.models.base import AbstractCaptioner
from captioning.models.layers.cross_entropy import token_losses
from captioning.models.layers.gaussian import keyed_noise
from captioning.models.layers.latent_decoder import (
    LatentDecoder,
    LatentState,
    LossWeights,
    RegionMemory,
    Terms,
)
from captioning.models.layers.latent_form import InputWords, LatentForm, clip_by_part
from captioning.models.layers.latents import Chain, Latents
from captioning.models.layers.object_split import NUM_PLACEHOLDERS, ObjectSplit
from captioning.models.layers.on_device import on_device
from captioning.models.layers.packing import Packing
from captioning.models.layers.weighted_mean import mean_of
from captioning.runtime.sample_dropout import by_caption, by_image
from captioning.text.object_words import build_object_words
from captioning.types import Batch, CaptionLosses, Mean


@dataclass(frozen=True, slots=True, kw_only=True)
class PseudoCaptions:
    """Pseudo captions for B' of B captions, as further training data.

    Attributes:
        captions: ``(B',) int64`` positions in the batch. Other captions have no context, or their
            photo lacks a singular or plural word for a slot.
        contexts: ``(B', T) int64`` tokens with placeholders, begin and end, padded.
        words: ``(B', T) int64`` the tokens with objects filled in.
        lengths: ``(B',) int64`` lengths of both.
    """

    captions: Tensor
    contexts: Tensor
    words: Tensor
    lengths: Tensor

    def on(self, device: torch.device) -> PseudoCaptions:
        """Move the tensors to a device."""
        tensors = (self.captions, self.contexts, self.words, self.lengths)
        captions, contexts, words, lengths = (on_device(tensor, device) for tensor in tensors)
        return PseudoCaptions(captions=captions, contexts=contexts, words=words, lengths=lengths)


def fill_contexts(
    extras: dict[str, Tensor], keys: Sequence[tuple[int, ...]], size: int
) -> PseudoCaptions:
    """Choose a context for each caption, and fill its slots with the photo's objects.

    Singular (plural) slots are filled with the photo's singular (plural) words in turn, starting
    at a random word.

    Args:
        extras: extras of a batch on the CPU, where contexts are filled and counted, see
            `captioning.data.batches.nearest_contexts.EpochContexts.tensors`.
        keys: keys of the captions; a choice depends only on its caption's key.
        size: V; the placeholder ids are V (singular) and V + 1 (plural).
    """
    tokens, lengths = extras["context_tokens"], extras["context_lengths"]
    chances = np.stack([np.random.default_rng(key).integers(1 << 31, size=2) for key in keys])
    chosen, first_word = torch.from_numpy(chances).to(tokens.device).unbind(1)
    num_contexts = (lengths > 0).sum(1)
    chosen = chosen % num_contexts.clamp(min=1)
    captions = torch.arange(len(tokens), device=tokens.device)
    contexts, lengths = tokens[captions, chosen], lengths[captions, chosen]
    words, filled = contexts, num_contexts > 0
    for number, objects in enumerate(extras["object_words"].unbind(1)):
        slots = contexts == size + number
        num_words = (objects >= 0).sum(1)
        positions = (first_word[:, None] + slots.cumsum(1)) % num_words.clamp(min=1)[:, None]
        words = torch.where(slots, objects.gather(1, positions), words)
        filled = filled & ((num_words > 0) | ~slots.any(1))
    captions = filled.nonzero().squeeze(1)
    lengths = lengths[captions]
    longest = int(lengths.max()) if len(lengths) else 0
    return PseudoCaptions(
        captions=captions,
        contexts=contexts[captions, :longest],
        words=words[captions, :longest],
        lengths=lengths,
    )


def fill_by_attention(
    pseudo: PseudoCaptions, attention: Tensor, labels: Tensor, size: int
) -> PseudoCaptions:
    """Fill the same contexts with the label of the most attended region in each slot.

    Only regions whose label has a word of the slot's number (singular or plural) count; without
    such a region the photo's word stays.

    Args:
        pseudo: B' filled contexts of T tokens.
        attention: ``(B', T - 1, R)`` attention when each token but the first is predicted.
        labels: ``(B', 2, R') int64`` singular and plural tokens of the regions' labels, negative
            if missing; regions beyond R' have none.
        size: see `fill_contexts`.
    """
    words, slots = pseudo.words.clone(), pseudo.contexts[:, 1:]
    attention = attention[:, :, : labels.shape[2]]
    for number, label_words in enumerate(labels[:, :, : attention.shape[2]].unbind(1)):
        has_word = (label_words >= 0)[:, None]
        best = attention.masked_fill(~has_word, -1).argmax(2)
        filled = (slots == size + number) & has_word.any(2)
        words[:, 1:] = torch.where(filled, label_words.gather(1, best), words[:, 1:])
    return replace(pseudo, words=words)


class CosCvae(AbstractCaptioner[LatentState]):
    """Conditional variational autoencoder of captions with sequential latents.

    Args:
        feature_size: feature size D of the regions.
        objects: words that name objects: ``"coco"`` or a file, see
            `captioning.text.object_words.build_object_words`.
        attention_lstm_size, language_lstm_size, attention_size: sizes of the decoder.
        embedding_size: size of the decoder's word embeddings.
        posterior_embedding_size: size of the posteriors' word embeddings.
        projection_size: regions are projected to this size with ReLU and dropout; None: no
            projection.
        context_hidden, object_hidden: hidden sizes of the posteriors' GRUs and of the priors'
            LSTMs.
        context_size, object_size: sizes of the latents.
        num_objects: maximum number of object tokens that the posterior reads.
        max_steps: number of words for which latents are sampled in generation.
        dropout: dropout on embedded features and on the language LSTM's output.
        word_dropout: share of the decoder's input words replaced by the unknown word in
            training, so that the decoder uses the latents.
        pseudo_temperature: temperature of object latents for pseudo captions; .6 in the
            authors' code.
        first, later: loss weights of the two phases, see `LossWeights`.
        first_epochs: number of epochs in the first phase.
        form: choices where the authors' code differs from the paper, see `LatentForm`.
        clip_by_part: clip gradients of the decoder, both posteriors and the prior
            separately at ``trainer.gradient_clip_val``, as the authors do.
        free_nats: free divergence of each latent, in nats per word (Kingma et
            al., 2016), which prevents posterior collapse. 0 in the authors' code.
        reduction: ``"token_mean"`` over the batch's words, or ``"caption_sum"``: summed over a
            caption's words and averaged over captions, as the authors do.
        seed: seed of the latents' noise, combined with caption row and number of updates.
        **captioner: see `AbstractCaptioner`.
    """

    loss_is_bound = True
    draws_latents = True
    extra_rows = NUM_PLACEHOLDERS
    half_weights = False
    attends = True

    def __init__(
        self,
        *,
        feature_size: int,
        objects: str = "coco",
        attention_lstm_size: PositiveInt = 2048,
        language_lstm_size: PositiveInt = 1024,
        attention_size: PositiveInt = 2048,
        embedding_size: PositiveInt = 1000,
        posterior_embedding_size: PositiveInt = 300,
        projection_size: PositiveInt | None = None,
        context_hidden: PositiveInt = 1024,
        object_hidden: PositiveInt = 256,
        context_size: PositiveInt = 64,
        object_size: PositiveInt = 64,
        num_objects: PositiveInt = 5,
        max_steps: PositiveInt = 24,
        dropout: DropRate = 0.0,
        word_dropout: DropRate = 0.5,
        first: Annotated[Mapping[str, float], ArgumentsOf(LossWeights)] | None = None,
        later: Annotated[Mapping[str, float], ArgumentsOf(LossWeights)] | None = None,
        first_epochs: NonNegativeInt = 1,
        free_nats: NonNegativeFloat = 0.0,
        pseudo_temperature: NonNegativeFloat = 0.6,
        reduction: Literal["token_mean", "caption_sum"] = "token_mean",
        form: Annotated[Mapping[str, bool], ArgumentsOf(LatentForm)] | None = None,
        clip_by_part: bool = False,
        seed: Seed = 0,
        **captioner: Any,
    ) -> None:
        super().__init__(**captioner)
        if reduction not in ("token_mean", "caption_sum"):
            raise ValueError(f"reduction must be token_mean or caption_sum: got {reduction!r}")
        self.reduction, self.num_objects, self.max_steps = reduction, num_objects, max_steps
        self.seed, self.first_epochs, self.free_nats = seed, first_epochs, free_nats
        self.pseudo_temperature, self.clip_by_part = pseudo_temperature, clip_by_part
        latent_form = LatentForm(**(form or {}))
        self.words = InputWords(latent_form, self.tokenizer, dropout=word_dropout)
        self.phases = (LossWeights(**(first or {})), LossWeights(**(later or {})))
        self.several_means = any(phase.nll_nn or phase.kl_nn for phase in self.phases)
        self.split = ObjectSplit(tokenizer=self.tokenizer, words=build_object_words(objects))
        self.project = None
        if projection_size is not None:
            self.project = nn.Sequential(
                nn.Linear(feature_size, projection_size), nn.ReLU(), nn.Dropout(dropout)
            )
        features = projection_size or feature_size
        self.decoder = LatentDecoder(
            vocabulary=len(self.tokenizer),
            feature_size=features,
            attention_lstm_size=attention_lstm_size,
            language_lstm_size=language_lstm_size,
            attention_size=attention_size,
            embedding_size=embedding_size,
            latent_size=context_size + object_size,
            dropout=dropout,
            form=latent_form,
        )
        if latent_form.output_bias and not latent_form.plain_start:
            self._start_from_word_frequencies(self.decoder.output.bias)
        self.latents = Latents(
            size=self.split.size,
            embedding_size=posterior_embedding_size,
            feature_size=features,
            hidden_sizes=(context_hidden, object_hidden),
            sizes=(context_size, object_size),
            form=latent_form,
        )

    @property
    def weights(self) -> LossWeights:
        """Loss weights of the current phase."""
        return self.phases[int(self.current_epoch >= self.first_epochs)]

    def _memory(self, batch: Batch) -> RegionMemory:
        regions = self._regions(batch).to(self.decoder.score.dtype)
        if self.project is not None:
            with by_image(batch):
                regions = self.project(regions)
        return self.decoder.project_images(regions, batch.region_mask)

    def losses(self, batch: Batch) -> CaptionLosses:
        """Return the negative bound of each caption, and the loss with the phase's weights.

        A caption's own loss is the complete bound, not only its words' likelihood: posteriors
        read the caption, so given their latents a wrong caption is as likely as a right one. The
        divergence from the prior, the other term of the bound, is larger for a wrong caption.
        """
        number, weights = self.global_step, self.weights
        memory = self._memory(batch)
        terms = self.terms(batch, number, memory)
        learnt = terms.masked or terms
        free = self.free_nats * learnt.lengths
        kl_above_free = sum(
            kl.sum(1).clamp(min=free) for kl in (learnt.kl_context, learnt.kl_objects)
        )
        loss = weights.nll * learnt.nll + weights.kl * kl_above_free
        means, parts = (self._reduced(loss, learnt.lengths, batch.weights),), terms.parts()
        if "context_tokens" in batch.extras and (weights.nll_nn or weights.kl_nn):
            pseudo, pseudo_parts = self._pseudo_loss(batch, number, memory)
            means, parts = (*means, pseudo), {**parts, **pseudo_parts}
        bound = terms.nll + terms.kl
        per_sample = bound.detach() / terms.lengths
        total = means[0].value if len(means) == 1 else means[0].value + means[1].value
        return CaptionLosses(
            total=total, per_sample=per_sample, parts=parts, nll=bound, means=means
        )

    def _pseudo_loss(
        self, batch: Batch, number: int, memory: RegionMemory
    ) -> tuple[Mean, dict[str, Tensor]]:
        """Return the loss of pseudo captions, and its logged terms.

        The contexts come from other photos with other objects, so object latents are sampled from
        the prior.
        """
        # The fourth number separates these keys from the keys of the captions' own noise.
        keys = [(self.seed, row, number, 1) for row in batch.host.rows.tolist()]
        pseudo = fill_contexts(batch.host.extras, keys, len(self.tokenizer))
        skipped_share = 1 - len(pseudo.captions) / len(batch)
        skipped = {"pseudo_skipped": torch.full((), skipped_share, device=self.device)}
        if not len(pseudo.captions):
            return Mean(value=memory.mean.new_zeros(()), number=0), skipped
        captions = on_device(pseudo.captions, batch.rows.device)
        labels = batch.extras.get("region_words")
        labels = None if labels is None else labels[captions]
        images = batch.image_index[captions]
        with by_caption(batch, pseudo.captions):
            nll, kl = self._pseudo_terms(pseudo, keys, memory, images, labels)
        lengths = on_device(pseudo.lengths - 1, nll.device)
        loss = self.weights.nll_nn * nll
        loss = loss + self.weights.kl_nn * kl.clamp(min=self.free_nats * lengths)
        weights = None if batch.weights is None else batch.weights[captions]
        logged = {"nll_nn": nll.detach().sum(), "kl_nn": kl.detach().sum()}
        logged = {name: value / lengths.sum() for name, value in logged.items()}
        return self._reduced(loss, lengths, weights), {**logged, **skipped}

    def _pseudo_terms(
        self,
        pseudo: PseudoCaptions,
        keys: list[tuple[int, ...]],
        memory: RegionMemory,
        images: Tensor,
        labels: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Return negative log-likelihoods and divergences ``(B',)`` of pseudo captions.

        With region ``labels``, slots are filled with the labels of the most attended regions. The
        pseudo captions are on the CPU.
        """
        lengths = pseudo.lengths - 1
        keys = [(*keys[place], 1) for place in pseudo.captions.tolist()]
        noise = self._noise(keys, lengths)
        pseudo = pseudo.on(noise.device)
        context_noise, object_noise, chances = noise.split((*self.latents.prior.sizes, 1), dim=2)
        with torch.autocast(self.device.type, enabled=False):
            mean = memory.mean.to(noise.dtype)[images]
            placed = self.words.read(pseudo.contexts[:, 1:])
            context, _ = self.latents.context(placed, lengths, context_noise)
            before = self.words.read(pseudo.words[:, :-1])
            conditions = self.latents.prior.conditions(mean, before)
            priors = self.latents.prior.context_distributions(conditions, context.values)
            objects = self.latents.prior.draw_objects(
                conditions, context.values, object_noise, self.pseudo_temperature
            )
        latents = [context.values, objects]
        if labels is not None:
            attention = self._attention(pseudo, torch.cat(latents, 2), memory.select(images))
            pseudo = fill_by_attention(pseudo, attention, labels, len(self.tokenizer))
        packing = Packing.of(lengths, noise.device)
        nll = self._word_losses(pseudo.words, latents, chances, memory, images, packing)
        real = torch.arange(noise.shape[1], device=noise.device) < packing.lengths[:, None]
        real = real & self.words.counted(pseudo.words[:, :-1])
        kl = (context.distribution.divergence(priors).sum(2) * real).sum(1)
        return packing.sum_by_caption(nll), kl

    def _attention(self, pseudo: PseudoCaptions, latents: Tensor, memory: RegionMemory) -> Tensor:
        """Return the decoder's attention ``(B', T - 1, R)`` in contexts, slots as unknown words."""
        slots = pseudo.contexts >= len(self.tokenizer)
        words = pseudo.contexts.masked_fill(slots, self.tokenizer.unk_id)[:, :-1]
        words = self.words.read(words)
        return self.decoder.attention(words, memory, latents.detach(), self.latents.prior)

    def _reduced(self, losses: Tensor, lengths: Tensor, weights: Tensor | None) -> Mean:
        """Reduce captions' sums ``(B,)`` to a scalar."""
        if self.reduction == "caption_sum":
            return mean_of(losses, weights)
        counted = lengths if weights is None else weights * lengths
        return mean_of(losses / lengths, counted)

    def terms(self, batch: Batch, number: int, memory: RegionMemory) -> Terms:
        """Return the terms of the bound, with latents sampled from the posteriors.

        Args:
            batch: batch of images and captions.
            number: index of the sample, at least 0.
            memory: projected regions of the images.
        """
        tokens, exist = batch.caption_tokens()
        host_tokens, host_exist = batch.host.caption_tokens()
        packing = Packing.of(host_exist[:, 1:].sum(1), tokens.device)
        # Cut to the longest caption of the batch.
        end = len(packing.sizes) + 1
        tokens = tokens[:, :end]
        real = (exist[:, 1:end] & self.words.counted(tokens[:, :-1]))[:, :, None]
        keys = [(self.seed, row, number) for row in batch.host.rows.tolist()]
        noise = self._noise(keys, packing.host_lengths)
        # Densities and divergences contain exponentials, so they never use half precision.
        with torch.autocast(self.device.type, enabled=False):
            mean = memory.mean.to(noise.dtype)[batch.image_index]
            context, objects = self._posteriors(
                host_tokens[:, 1:end], packing.host_lengths, mean, noise
            )
            before = self.words.read(tokens[:, :-1])
            priors = self.latents.prior.distributions(mean, before, context.values, objects.values)
        latents, chances = [context.values, objects.values], noise[:, :, -1:]
        with by_caption(batch):
            nll = self._word_losses(tokens, latents, chances, memory, batch.image_index, packing)
        kls = [
            chain.distribution.divergence(prior).masked_fill(~real, 0)
            for chain, prior in zip((context, objects), priors, strict=True)
        ]
        terms = Terms(
            nll=packing.sum_by_caption(nll),
            kl_context=kls[0].sum(1),
            kl_objects=kls[1].sum(1),
            lengths=packing.lengths,
            context=context,
            objects=objects,
            priors=priors,
        )
        if batch.token_weights is None:
            return terms
        return terms.with_weights(batch.token_weights[:, 1:end], nll=nll, kls=kls, packing=packing)

    def _word_losses(
        self,
        tokens: Tensor,
        latents: list[Tensor],
        chances: Tensor,
        memory: RegionMemory,
        images: Tensor,
        packing: Packing,
    ) -> Tensor:
        """Return packed negative log-likelihoods ``(N,)`` of ``tokens (B, T + 1)``."""
        words = self.words.read(tokens[:, :-1])
        words = self.words.dropped(words, chances[:, :, 0]) if self.training else words
        logits = self.decoder.logits(words, torch.cat(latents, 2), memory, images, packing)
        next_words = packing.pack(tokens[packing.order, 1:])
        nll, _ = token_losses(logits.to(self.decoder.score.dtype), next_words)
        return nll * self.words.counted(next_words)

    def _noise(self, keys: list[tuple[int, ...]], lengths: Tensor) -> Tensor:
        """Return noise ``(B, T, Zm + Zo + 1)`` for both latents and word dropout, on the device."""
        noise = keyed_noise(keys, lengths.tolist(), sum(self.latents.prior.sizes) + 1)
        score = self.decoder.score
        return on_device(noise.to(score.dtype), score.device)

    def _posteriors(
        self, targets: Tensor, lengths: Tensor, mean: Tensor, noise: Tensor
    ) -> tuple[Chain, Chain]:
        """Sample latents of context and objects for ``targets (B, T)``, given on the CPU."""
        context_noise, object_noise, _ = noise.split((*self.latents.prior.sizes, 1), dim=2)
        numbers = self.split.numbers(targets)
        placed = on_device(self.words.read(self.split.context(targets, numbers)), noise.device)
        context, summary = self.latents.context(placed, lengths, context_noise)
        words, counts = self.split.objects(targets, numbers, self.num_objects)
        words = on_device(words, noise.device)
        return context, self.latents.objects(
            words, counts, mean, summary, context.values, object_noise
        )

    @torch.no_grad()
    def log_likelihood(self, batch: Batch, *, num_draws: int) -> Tensor:
        """Estimate ``log p(caption | image)``, ``(B,)`` in nats, by importance sampling.

        ``log mean_k p(x | z_k) p(z_k) / q(z_k | x)`` over samples from the posteriors (Burda et
        al., 2016): on average at least the bound, and closer with more samples.

        Args:
            batch: batch of images and captions.
            num_draws: number of samples per caption.
        """
        memory, exist = self._memory(batch), batch.caption_tokens()[1][:, 1:]
        terms = (self.terms(batch, number, memory) for number in range(num_draws))
        ratios = torch.stack([t.log_ratios(exist[:, : t.context.values.shape[1]]) for t in terms])
        return ratios.logsumexp(0) - torch.log(ratios.new_tensor(num_draws))

    def start(self, batch: Batch) -> LatentState:
        """Return the memory with latents at their means; `LatentState.drawn` samples others."""
        memory = self._memory(batch)
        prior, mean = self.latents.prior, memory.mean.to(self.decoder.score.dtype)
        noise, read = mean.new_zeros(len(mean), self.max_steps, sum(prior.sizes)), prior.start(mean)
        latents = prior.draw(mean, noise, 0.0) if read is None else noise
        return replace(self.decoder.start(replace(memory, mean=mean), latents, prior), read=read)

    def step(self, tokens: Tensor, state: LatentState) -> tuple[Tensor, LatentState]:
        """Return log-probabilities of the next word."""
        return self.attend_step(tokens, state)[:2]

    def attend_step(self, tokens: Tensor, state: LatentState) -> tuple[Tensor, LatentState, Tensor]:
        """Make a `step`, and return the attention ``(G, R)`` to the regions."""
        return self.decoder.attend_step(tokens, state)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the norm of all gradients together, or of each part separately."""
        if self.clip_by_part and gradient_clip_val and gradient_clip_algorithm != "value":
            latents = self.latents
            decoder = nn.ModuleList(filter(None, (self.backbone, self.project, self.decoder)))
            clip_by_part((decoder, *latents.children()), gradient_clip_val)
            return
        super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)
