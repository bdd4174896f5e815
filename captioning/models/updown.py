"""UpDown: bottom-up and top-down attention (Anderson et al., 2018).

One model covers both common variants: nocaps-org/updown-baseline (no feature embedding, tied GloVe
output) and ruotianluo/ImageCaptioning.pytorch (embedded features, ReLU, dropout). Their
configs are ``configs/model/updown_nocaps.yaml`` and ``updown_published.yaml``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioning.config.ranges import DropRate, PositiveInt
from captioning.interfaces import AbstractDecoderState
from captioning.models.base import AbstractCaptioner
from captioning.models.layers.updown_cell import (
    CellWeights,
    attend,
    lstm_gates,
    recurrence,
    squashed,
)
from captioning.models.layers.wide_linear import wide_linear
from captioning.runtime.sample_dropout import by_caption, by_image, by_token
from captioning.types import Batch, CaptionLosses

if TYPE_CHECKING:
    from captioning.models.layers.graphed_recurrence import Recurrence
    from captioning.models.layers.onnx_form import OnnxForm
    from captioning.models.layers.packing import Packing

# Assumed steps of a search, to decide which products are worth computing once per image.
LIKELY_STEPS = 10
# Values that attention squashes at a time: as many as a CPU cache holds.
ATTENDED = 1 << 21


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageMemory:
    """Projections of image features, computed once per image.

    Attributes:
        keys: ``(I, R, A)`` doubled.
        values: ``(I, R, D)``.
        gates: ``(I, 4H)`` contribution of the mean feature to the attention LSTM's gates.
        hidden_regions: ``(I, R) bool``, True in padding, or None.
        language_gates: ``(I, R, 4H)`` contribution of the values to the language LSTM's gates; None
            until there are enough hypotheses per image to make the computation worthwhile.
    """

    keys: Tensor
    values: Tensor
    gates: Tensor
    hidden_regions: Tensor | None
    language_gates: Tensor | None = None

    def select(self, images: Tensor) -> ImageMemory:
        """Select some of the images."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        selected: dict[str, Any] = {k: None if v is None else v[images] for k, v in tensors.items()}
        return ImageMemory(**selected)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpDownState(AbstractDecoderState):
    """Decoder memory of G hypotheses in blocks of equal size, one block per image.

    Hypotheses with the same parent share its cell states until their next words are read, so
    products that depend only on the past are computed once for them.

    Attributes:
        images: one copy per image, whatever the beam size.
        cells: h1, c1, h2 and c2, ``(P, H)`` each, of P distinct pasts.
        pasts: ``(G,) int64`` past of each hypothesis, in [0, P).
    """

    images: ImageMemory
    cells: tuple[Tensor, Tensor, Tensor, Tensor]
    pasts: Tensor

    def select(self, index: Tensor) -> UpDownState:
        """Select hypotheses by index."""
        num_images = self.images.keys.shape[0]
        block = len(self.pasts) // num_images
        selected = torch.unique_consecutive(index // block)
        images = self.images if len(selected) == num_images else self.images.select(selected)
        past, pasts = torch.unique(self.pasts[index], return_inverse=True)
        h1, c1, h2, c2 = self.cells
        cells = (h1[past], c1[past], h2[past], c2[past])
        return UpDownState(images=images, cells=cells, pasts=pasts)


class UpDown(AbstractCaptioner[UpDownState]):
    """Two-LSTM captioner with attention over regions or grid cells.

    Args:
        feature_size: feature size D of the regions.
        hidden_size: H of both LSTMs.
        attention_size: A of the attention.
        embedding_size: size of word embeddings.
        projection_size: regions are projected to this size with ReLU and dropout; None: no
            projection.
        dropout: dropout on embedded words, embedded features and the language LSTM's output.
        tied: predict words as ``tanh(W h) . E^T`` with the word embedding's own matrix E.
        word_vectors: ``(V, embedding_size)`` pretrained vectors; the embedding is then frozen.
        label_smoothing: label smoothing of the training loss; per-sample losses never have
            any.
        reduction: ``"token_mean"`` over the batch's tokens, or ``"caption_sum"``: summed over a
            caption's tokens and averaged over captions (updown-baseline).
        form: ``"plain"``, or ``"ruotianluo"``: words also pass a ReLU, the mean feature has its own
            projection, and keys have a bias.
        cells: ``"merged"``: LSTMs with initially open forget gates, and an output bias initialised
            with word frequencies; ``"torch"``: two `torch.nn.LSTMCell` with torch's initial values
            and both parameters wherever only the sum of two matters.
        frozen_words: freeze the embedding; always with ``word_vectors``.
        **captioner: see `AbstractCaptioner`.
    """

    half_weights = False
    attends = True

    def __init__(
        self,
        *,
        feature_size: int,
        hidden_size: PositiveInt = 512,
        attention_size: PositiveInt = 256,
        embedding_size: PositiveInt = 300,
        projection_size: PositiveInt | None = None,
        dropout: DropRate = 0.0,
        tied: bool = False,
        word_vectors: Tensor | None = None,
        label_smoothing: DropRate = 0.0,
        reduction: Literal["token_mean", "caption_sum"] = "token_mean",
        form: Literal["plain", "ruotianluo"] = "plain",
        cells: Literal["merged", "torch"] = "merged",
        frozen_words: bool = False,
        **captioner: Any,
    ) -> None:
        super().__init__(**captioner)
        if reduction not in ("token_mean", "caption_sum"):
            raise ValueError(f"reduction must be token_mean or caption_sum: got {reduction!r}")
        hidden, self.form = hidden_size, form
        self.recurrence: Recurrence = recurrence
        self.dropout = nn.Dropout(dropout)
        self.label_smoothing, self.reduction = label_smoothing, reduction
        self.project = self.project_mean = None
        if projection_size is not None:
            self.project = _projection(feature_size, projection_size, dropout)
        if form == "ruotianluo":
            if projection_size is None:
                raise ValueError("form=ruotianluo needs projection_size: got None")
            self.project_mean = _projection(feature_size, projection_size, dropout)
        values = projection_size or feature_size
        self.embed = self._embedding(embedding_size, word_vectors, frozen_words)
        self.key = nn.Linear(values, attention_size, bias=form == "ruotianluo")
        self.query = nn.Linear(hidden, attention_size, bias=False)
        self.score = nn.Parameter(torch.empty(attention_size))
        self.words_to_gates = nn.Linear(embedding_size, 4 * hidden)
        self.mean_to_gates = nn.Linear(values, 4 * hidden, bias=False)
        self.hidden_to_gates = nn.Linear(2 * hidden, 4 * hidden, bias=False)
        self.language = nn.Linear(values + 2 * hidden, 4 * hidden)
        self.to_embedding: nn.Module | None = None
        self.output: nn.Linear | None = None
        if tied:
            self.to_embedding = nn.Sequential(nn.Linear(hidden, embedding_size), nn.Tanh())
        else:
            self.output = nn.Linear(hidden, len(self.tokenizer))
        if cells == "torch":
            self._begin_as_torch(hidden)
        else:
            self._initialise(hidden)

    def _embedding(self, size: int, vectors: Tensor | None, frozen: bool) -> nn.Embedding:
        """Create the word embedding; padding gets no gradient unless it is also the begin token."""
        words, shape = self.tokenizer, (len(self.tokenizer), size)
        embed = nn.Embedding(
            *shape, padding_idx=None if words.pad_id == words.bos_id else words.pad_id
        )
        if vectors is not None:
            embed.weight = _frozen(vectors, shape)
        elif frozen:
            embed.weight.requires_grad_(False)
        return embed

    def _initialise(self, hidden: int) -> None:
        """Initialise LSTMs as ``torch.nn.LSTMCell`` with open forget gates, and the output bias."""
        bound = hidden**-0.5
        for layer in self._gate_layers():
            nn.init.uniform_(layer.weight, -bound, bound)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
                layer.bias.data[hidden : 2 * hidden] = 1.0
        nn.init.uniform_(self.score, -bound, bound)
        if self.output is not None:
            self._start_from_word_frequencies(self.output.bias)

    def _begin_as_torch(self, hidden: int) -> None:
        """Initialise as ``torch.nn.LSTMCell`` and ``Linear``, with their doubled parameters."""
        from captioning.models.layers.twins import add_twin

        bound = hidden**-0.5
        for layer in self._gate_layers():
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -bound, bound)
        attention_bound = len(self.score) ** -0.5
        nn.init.uniform_(self.score, -attention_bound, attention_bound)
        add_twin(self.words_to_gates, "bias", bound=bound)
        add_twin(self.language, "bias", bound=bound)
        if self.form == "ruotianluo":
            add_twin(self.key, "bias", bound=bound)
        else:
            # In torch each LSTM also reads its own last output among its inputs.
            add_twin(self.hidden_to_gates, "weight", bound=bound, start=hidden)
            start = self.language.in_features - hidden
            add_twin(self.language, "weight", bound=bound, start=start)

    def _gate_layers(self) -> tuple[nn.Linear, ...]:
        return self.words_to_gates, self.mean_to_gates, self.hidden_to_gates, self.language

    def read_words(self, tokens: Tensor) -> Tensor:
        """Return the vectors ``(..., E)`` of ``tokens``, before dropout."""
        words = self.embed(tokens)
        return words.relu() if self.form == "ruotianluo" else words

    def _memory(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return keys ``(I, R, A)``, values ``(I, R, D)`` and the mean's gates ``(I, 4H)``."""
        regions = self._regions(batch).to(self.score.dtype)
        with by_image(batch):
            return self.read_regions(regions, batch.region_mask)

    def read_regions(self, regions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Project ``regions (I, R, D)``; ``mask (I, R) bool`` is False in padding."""
        values = regions if self.project is None else self.project(regions)
        if self.project_mean is None:
            mean = _mean(values, mask)
        else:
            mean = self.project_mean(_mean(regions, mask))
        return self.key(values), values, self.mean_to_gates(mean)

    def onnx_form(self) -> OnnxForm:
        """Return the ONNX form, see `AbstractCaptioner.onnx_form`."""
        from captioning.models.layers.onnx_form import updown_form

        return updown_form(self)

    def use_cuda_graphs(self) -> None:
        """Use CUDA graphs in training, see `GraphedRecurrence`."""
        from captioning.models.layers.graphed_recurrence import GraphedRecurrence

        super().use_cuda_graphs()
        self.recurrence = GraphedRecurrence()

    def _weights(self) -> CellWeights:
        return CellWeights(
            hidden=self.hidden_to_gates.weight,
            query=self.query.weight,
            score=self.score,
            language=self.language.weight,
            bias=self.language.bias,
        )

    def _logits(self, hidden: Tensor) -> Tensor:
        if self.output is not None:
            return self.output(hidden)
        if self.to_embedding is None:
            raise ValueError("UpDown needs an output layer, or a layer to the word vectors")
        return functional.linear(self.to_embedding(hidden), self.embed.weight)

    def losses(self, batch: Batch) -> CaptionLosses:
        """Compute the cross-entropy of each next word, given the true previous words."""
        from captioning.models.layers.packing import Packing

        tokens, _ = batch.caption_tokens()
        _, exist = batch.host.caption_tokens()
        packing = Packing.of(exist[:, 1:].sum(1), tokens.device)
        keys, values, mean_gates = self._memory(batch)
        tokens = tokens[packing.order]
        index = batch.image_index[packing.order]
        inputs, targets = packing.pack(tokens[:, :-1]), packing.pack(tokens[:, 1:])
        with by_caption(batch), by_token(packing.sequences, packing.steps):
            words = self.dropout(self.read_words(inputs))
        gates = self.words_to_gates(words)
        gates = gates + mean_gates[packing.pack_rows(index)]
        hidden = self.recurrence(
            gates, keys, values, batch.region_mask, index, packing.sizes, self._weights()
        )
        with by_caption(batch), by_token(packing.sequences, packing.steps):
            hidden = self.dropout(hidden)
        logits = self._logits(hidden)
        return self._cross_entropy(logits, targets, packing, batch)

    def _cross_entropy(
        self, logits: Tensor, targets: Tensor, packing: Packing, batch: Batch
    ) -> CaptionLosses:
        from captioning.models.layers.cross_entropy import token_losses
        from captioning.models.layers.weighted_mean import mean_of, product

        logits = logits.to(self.score.dtype)
        loss, nll = token_losses(logits, targets, self.label_smoothing)
        counted, lengths = None, packing.lengths
        if self.tokenizer.unk_id == self.tokenizer.pad_id != self.tokenizer.eos_id:
            # Unknown words carry no loss, like padding.
            counted = (targets != self.tokenizer.pad_id).to(loss.dtype)
            loss, nll, lengths = loss * counted, nll * counted, packing.sum_by_caption(counted)
        summed = packing.sum_by_caption(nll)
        smoothed = (
            packing.sum_by_caption(loss.detach()) if self.label_smoothing else summed.detach()
        )
        weights, masks = batch.weights, batch.token_weights
        masks = None if masks is None else packing.pack(masks[packing.order, 1:]).to(loss.dtype)
        if self.reduction == "token_mean":
            weights = None if weights is None else packing.pack_rows(weights[packing.order])
            mean = mean_of(loss, product(weights, masks, counted))
        else:
            loss = loss if masks is None else loss * masks
            mean = mean_of(packing.sum_by_caption(loss), weights)
        wanted = batch.token_sentences
        return CaptionLosses(
            total=mean.value,
            per_sample=summed.detach() / lengths,
            nll=summed,
            smoothed=smoothed,
            token_nll=None if wanted is None else packing.unpack(nll, wanted[:, 1:]),
            means=(mean,),
        )

    def start(self, batch: Batch) -> UpDownState:
        """Project the images, and return the memory with zero cells."""
        keys, values, gates = self._memory(batch)
        gates = gates + self.words_to_gates.bias
        mask = batch.region_mask
        images = ImageMemory(
            keys=2 * keys,
            values=values,
            gates=gates,
            hidden_regions=None if mask is None else ~mask,
        )
        zero = gates.new_zeros((keys.shape[0], gates.shape[1] // 4))
        pasts = torch.arange(len(zero), device=zero.device)
        return UpDownState(images=images, cells=(zero, zero, zero, zero), pasts=pasts)

    def step(self, tokens: Tensor, state: UpDownState) -> tuple[Tensor, UpDownState]:
        """Return log-probabilities of the next word."""
        log_probs, state, _ = self.attend_step(tokens, state)
        return log_probs, state

    def attend_step(self, tokens: Tensor, state: UpDownState) -> tuple[Tensor, UpDownState, Tensor]:
        """Make a `step`, and return the attention ``(G, R)`` that predicts the next word."""
        (h1, c1, h2, c2), pasts = state.cells, state.pasts
        images = self._with_language_gates(state.images, len(tokens))
        size, hidden = images.values.shape[2], h1.shape[1]
        context, h1_part, h2_part = self.language.weight.split((size, hidden, hidden), 1)
        # Products with values that hypotheses share are computed once for all of them.
        words, places = torch.unique(tokens, return_inverse=True)
        words = functional.linear(self.read_words(words), self.words_to_gates.weight)
        past = wide_linear(torch.cat([h2, h1], 1), self.hidden_to_gates.weight)
        gates = past[pasts].add_(words[places])
        gates.view(len(images.gates), -1, 4 * hidden).add_(images.gates.unsqueeze(1))
        h1, c1, _ = lstm_gates(gates, c1[pasts])
        gates = wide_linear(h2, h2_part, self.language.bias)[pasts]
        gates = gates.add_(wide_linear(h1, h1_part))
        alpha = self._attention(h1, images).to(images.values.dtype)
        if images.language_gates is None:
            attended = torch.bmm(alpha, images.values).flatten(0, 1)
            gates = torch.addmm(gates, attended, context.t())
        else:
            per_image = gates.view(len(alpha), -1, 4 * hidden)
            gates = torch.baddbmm(per_image, alpha, images.language_gates).flatten(0, 1)
        h2, c2, _ = lstm_gates(gates, c2[pasts])
        log_probs = functional.log_softmax(self._logits(h2).to(self.score.dtype), dim=-1)
        pasts = torch.arange(len(tokens), device=tokens.device)
        state = UpDownState(images=images, cells=(h1, c1, h2, c2), pasts=pasts)
        return log_probs, state, alpha.flatten(0, 1)

    def _with_language_gates(self, images: ImageMemory, num_rows: int) -> ImageMemory:
        """Add the language LSTM's products with all regions, if enough rows will use them.

        The product with a weighted mean of values equals the weighted mean of the products, so it
        is computed once per region if regions are fewer than the expected rows.
        """
        num_images, regions, size = images.values.shape
        if images.language_gates is not None or num_rows * LIKELY_STEPS <= num_images * regions:
            return images
        language_gates = functional.linear(images.values, self.language.weight[:, :size])
        return replace(images, language_gates=language_gates)

    def _attention(self, h1: Tensor, images: ImageMemory) -> Tensor:
        """Return attention weights ``(I, K, R)`` over regions for the hypotheses ``h1 (G, H)``."""
        query = self.query(h1).view(len(images.keys), -1, images.keys.shape[2])
        hidden, parts = images.hidden_regions, []
        num_images = max(1, ATTENDED // (query.shape[1] * images.keys[0].numel()))
        for start in range(0, len(query), num_images):
            part = slice(start, start + num_images)
            squash = squashed(images.keys[part].unsqueeze(1), query[part])
            mask = None if hidden is None else hidden[part].unsqueeze(1).expand(squash.shape[:3])
            parts.append(attend(squash, self.score, mask))
        return torch.cat(parts)


def _frozen(vectors: Tensor, shape: tuple[int, int]) -> nn.Parameter:
    if tuple(vectors.shape) != shape:
        raise ValueError(f"word_vectors must be {shape}: got {tuple(vectors.shape)}")
    return nn.Parameter(vectors, requires_grad=False)


def _projection(feature_size: int, size: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Linear(feature_size, size), nn.ReLU(), nn.Dropout(dropout))


def _mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean ``(I, D)`` over regions that are not padding."""
    if mask is None:
        return values.mean(1)
    weight = mask.to(values.dtype).unsqueeze(2)
    return (values * weight).sum(1) / weight.sum(1)
