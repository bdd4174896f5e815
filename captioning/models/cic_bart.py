"""CIC-BART: captions of chosen regions at a chosen length (Basioti et al., ECCV 2024).

A BART whose encoder reads the control's words and then the regions that it asks for; based on
VL-BART (Cho et al., ICML 2021). It has published weights, by name or file, or any other size.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioning.config.ranges import DropRate, PositiveInt
from captioning.models.base import AbstractCaptioner
from captioning.models.layers.bart_reader import (
    Rows,
    check_length,
    encode,
    logits,
    positions,
    read,
)
from captioning.models.layers.bart_stepper import BartStepper
from captioning.models.layers.caption_places import CaptionPlaces
from captioning.models.layers.control_text import ControlText
from captioning.models.layers.cross_entropy import caption_losses
from captioning.models.layers.graphed_bart import GraphedBart
from captioning.models.layers.hypothesis_tree import HypothesisTree
from captioning.models.layers.on_device import on_device
from captioning.models.layers.visual_embedding import VisualEmbedding
from captioning.models.layers.vl_bart import build_bart, load_bart, load_vl_bart
from captioning.runtime.sample_dropout import by_caption, by_name
from captioning.text.control_tokens import CONTROL_TOKENS, NUM_PLACES
from captioning.types import Batch, CaptionLosses, Control

# The bias of control tokens in search: they are input tokens and never produced.
BANNED_BIAS = -1e4
# An image's position in the batch, and the control of its caption.
Request = tuple[int, Control]


class CicBart(AbstractCaptioner[HypothesisTree]):
    """A BART that reads a control signal and regions.

    It needs features of regions, the full photo first, and their boxes (``control=``). Captions of
    an image with the same control share one encoding. For generation, an image gets the control of
    its first caption in the batch.

    Args:
        feature_size: of the regions' features.
        hidden_size, num_layers, num_heads, intermediate_size: of BART's encoder and decoder.
        max_positions: longest input of encoder and decoder, in tokens.
        dropout: of states, of attention and inside feed-forward layers.
        label_smoothing: of the loss that is back-propagated; none in the authors' code.
        prompt: first words of the control.
        controlled: False: captions have no control, and the encoder reads all regions.
        published_area: see `VisualEmbedding`.
        blank_before_verbs: see `ControlText`.
        control_tokens_said: control tokens have a share of the probability, in the loss as in
            search, as in the authors' code; else none. They are left out of the caption's text.
        attend_padding: the regions that fill up a batch are attended to, as in the authors' code:
            what is said of a photo then depends on the others of its batch.
        forced_begin: in search the first token of each caption is ``<s>``, at no cost, as bart-base
            generates; else it is searched for like any other.
        pretrained: hub name or folder of a BART; None: random weights of the sizes above.
        weights: file of VL-BART or CIC-BART in the authors' layout to load, or None.
        **captioner: see `AbstractCaptioner`.

    Raises:
        ValueError: a tokenizer without control tokens, or weights that do not fit.
    """

    attends = True

    def __init__(
        self,
        *,
        feature_size: int,
        hidden_size: PositiveInt = 768,
        num_layers: PositiveInt = 6,
        num_heads: PositiveInt = 12,
        intermediate_size: PositiveInt = 3072,
        max_positions: PositiveInt = 1024,
        dropout: DropRate = 0.1,
        label_smoothing: DropRate = 0.0,
        prompt: str = "caption region:",
        controlled: bool = True,
        published_area: bool = False,
        blank_before_verbs: bool = False,
        control_tokens_said: bool = False,
        attend_padding: bool = False,
        forced_begin: bool = False,
        pretrained: str | None = None,
        weights: str | Path | None = None,
        **captioner: Any,
    ) -> None:
        super().__init__(**captioner)
        self.text = ControlText(
            self.tokenizer, prompt=prompt, blank_before_verbs=blank_before_verbs
        )
        size = len(self.tokenizer)
        if pretrained is None:
            bart = build_bart(
                hidden_size=hidden_size,
                num_layers=num_layers,
                num_heads=num_heads,
                intermediate_size=intermediate_size,
                max_positions=max_positions,
                dropout=dropout,
                tokenizer=self.tokenizer,
            )
            self._start_from_word_frequencies(bart.final_logits_bias[0])
        else:
            bart = load_bart(pretrained, vocabulary=size, dropout=dropout)
        self.bart: Any = bart
        self.graphed: GraphedBart | None = None
        self.visual = VisualEmbedding(
            feature_size=feature_size,
            hidden_size=self.bart.config.d_model,
            published_area=published_area,
        )
        if weights is not None:
            load_vl_bart(weights, bart=self.bart, visual=self.visual)
        self.num_words = size - (0 if control_tokens_said else len(CONTROL_TOKENS))
        self.bart.final_logits_bias[0, self.num_words :] = BANNED_BIAS
        self.label_smoothing, self.controlled = label_smoothing, controlled
        self.attend_padding = attend_padding
        self.begin_id = self.tokenizer.begin_id if forced_begin else None
        if forced_begin and self.begin_id is None:
            raise ValueError(
                "forced_begin needs a vocabulary whose captions begin with <s>: choose "
                "tokenizer=bart, or model.module.forced_begin=false"
            )

    def losses(self, batch: Batch) -> CaptionLosses:
        """Cross-entropy of each next token given the true previous ones and the control."""
        requests = list(zip(batch.host.image_index.tolist(), self._controls(batch), strict=True))
        memories = {request: number for number, request in enumerate(dict.fromkeys(requests))}
        tokens, _ = batch.caption_tokens()
        _, real = batch.host.caption_tokens()
        index = None
        if len(memories) < len(requests):
            index = torch.tensor([memories[request] for request in requests])
            index = on_device(index, tokens.device)
        with by_name([self._named(batch, request) for request in memories], tokens.device):
            states, exist = self._encoded(batch, list(memories))
        with by_caption(batch):
            states = self._read(tokens[:, :-1], real[:, 1:], states, exist, index)
        scores = logits(self.bart, states, self.num_words)
        return caption_losses(scores, batch, CaptionPlaces.of(batch), self.label_smoothing)

    def _read(
        self, tokens: Tensor, real: Tensor, memory: Tensor, exist: Tensor, index: Tensor | None
    ) -> Tensor:
        """The decoder's states at the real places of captions; ``real`` is on the host."""
        if self.graphed is not None and self.graphed.can_run(memory, real.numel()):
            return self.graphed.read(tokens, real, memory, exist, index)
        return read(self.bart, tokens, Rows.of(real, tokens.device), memory, exist, index)

    def use_cuda_graphs(self) -> None:
        """See `GraphedBart`."""
        super().use_cuda_graphs()
        self.graphed = GraphedBart(self.bart)

    @staticmethod
    def _named(batch: Batch, request: Request) -> tuple[str, Control]:
        """A request by what it is of, whatever the image's place in the batch."""
        image, control = request
        return batch.image_ids[image], control

    def start(self, batch: Batch) -> HypothesisTree:
        """Encode each image with the control of its first caption."""
        first_controls: dict[int, Control] = {}
        images = batch.host.image_index.tolist()
        for image, control in zip(images, self._controls(batch), strict=True):
            first_controls.setdefault(image, control)
        requests = [
            (image, first_controls.get(image, Control())) for image in range(len(batch.image_ids))
        ]
        num_words = max(len(self.text.ids(control)) for _, control in requests)
        memory = BartStepper(self.bart).start(*self._encoded(batch, requests))
        return replace(memory, num_words=num_words)

    def step(self, tokens: Tensor, state: HypothesisTree) -> tuple[Tensor, HypothesisTree]:
        """Log-probabilities of the next token."""
        logits, state = self.next_logits(tokens, state)
        return logits.log_softmax(dim=-1), state

    def next_logits(self, tokens: Tensor, state: HypothesisTree) -> tuple[Tensor, HypothesisTree]:
        """As `step`, before the softmax."""
        return self._read_on(tokens, state, None)

    def attend_step(
        self, tokens: Tensor, state: HypothesisTree
    ) -> tuple[Tensor, HypothesisTree, Tensor]:
        """As `step`, with the cross-attention to the regions that the encoder read.

        It is a mean over layers and heads; what goes to words of the control is left out. The full
        photo comes first, then the regions ``(G, C)`` in the order in which they were read.
        """
        looks: list[Tensor] = []
        logits, after = self._read_on(tokens, state, looks)
        weights = torch.stack(looks).mean(0)[:, state.num_words :]
        return logits.log_softmax(dim=-1), after, weights / weights.sum(1, keepdim=True)

    def _read_on(
        self, tokens: Tensor, state: HypothesisTree, looks: list[Tensor] | None
    ) -> tuple[Tensor, HypothesisTree]:
        decoder = self.bart.model.decoder
        check_length(decoder, state.length + 1, "a caption", "search.max_length")
        logits, after = BartStepper(self.bart).next_logits(tokens, state, looks)
        if self.begin_id is not None and state.length == 0:
            logits = torch.full_like(logits, -torch.inf)
            logits[:, self.begin_id] = 0
        return logits, after

    def _controls(self, batch: Batch) -> tuple[Control, ...]:
        if batch.controls is None or not self.controlled:
            return (Control(),) * len(batch)
        return batch.controls

    def _encoded(self, batch: Batch, requests: list[Request]) -> tuple[Tensor, Tensor]:
        """The encoder's states ``(N, S, D)`` and their mask ``(N, S)``."""
        words, words_exist = self._embedded_controls([control for _, control in requests])
        regions, regions_exist = self._embedded_regions(batch, requests)
        inputs = torch.cat([words, regions], dim=1)
        exist = torch.cat([words_exist, regions_exist], dim=1)
        if self.graphed is not None and self.graphed.can_run(inputs, exist.numel()):
            return self.graphed.encode(inputs, exist)
        rows = Rows.of(exist, inputs.device)
        return encode(self.bart, inputs, rows), rows.exist

    def _embedded_controls(self, controls: list[Control]) -> tuple[Tensor, Tensor]:
        """Embedded control texts ``(N, L, D)`` and their mask, on the host."""
        encoder = self.bart.model.encoder
        ids, exist = _padded([self.text.ids(control) for control in controls])
        check_length(encoder, ids.shape[1], "a control", "the number of its verbs or regions")
        embedded = encoder.embed_tokens(on_device(ids, self.device))
        embedded = embedded + positions(encoder, ids.shape[1])
        return encoder.layernorm_embedding(embedded), exist

    def _embedded_regions(self, batch: Batch, requests: list[Request]) -> tuple[Tensor, Tensor]:
        """Embedded regions ``(N, C, D)`` and their mask, on the host."""
        if "boxes" not in batch.extras:
            raise ValueError(
                "CicBart needs the boxes of regions: choose features=efficientnet_lite0_regions "
                "(or bottom_up, imported with boxes) and control=ordered (or set)"
            )
        features = self._regions(batch).to(self.visual.features.weight.dtype)
        counts = [features.shape[1]] * len(features)
        if (mask := batch.host.region_mask) is not None:
            counts = mask.sum(1).tolist()
        rows, exist = _padded([_rows(batch, request, counts) for request in requests])
        rows = on_device(rows, features.device)
        images = on_device(torch.tensor([[image] for image, _ in requests]), features.device)
        boxes = batch.extras["boxes"].to(features.dtype)
        features, boxes = features[images, rows], boxes[images, rows]
        if self.attend_padding:  # it has neither features nor a box
            real = on_device(exist, features.device).unsqueeze(-1)
            features, boxes, exist = features * real, boxes * real, torch.ones_like(exist)
        # The n-th token from the end of the vocabulary stands for the n-th region of the input.
        place_embeddings = self.bart.model.shared.weight[-rows.shape[1] :].flip(0)
        return self.visual(features, boxes, place_embeddings), exist


def _rows(batch: Batch, request: Request, counts: list[int]) -> list[int]:
    """Rows of an image's features that the encoder reads, the full photo first."""
    image, control = request
    if control.regions is None:
        return list(range(min(counts[image], NUM_PLACES)))
    regions = control.regions if control.ordered else sorted(control.regions)
    rows = [0, *(region + 1 for region in regions)]
    if max(rows) >= counts[image]:
        raise ValueError(
            f"image {batch.image_ids[image]!r}: a control asks for region {max(regions)}, and the "
            f"image has {counts[image] - 1} with features: ask for positions among these"
        )
    return rows


def _padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Lists as ``(N, W) int64``, padded with 0 at the end, and their mask."""
    width = max(map(len, rows))
    padded = [row + [0] * (width - len(row)) for row in rows]
    lengths = torch.tensor([len(row) for row in rows])
    return torch.tensor(padded), torch.arange(width) < lengths[:, None]
