"""CIC-BART: captions of selected regions with a selected length (Basioti et al., ECCV 2024).

A BART whose encoder reads the words of a control signal and then the requested regions; based on
VL-BART (Cho et al., ICML 2021). It uses published weights by name or file, or any other size.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioning.config.ranges import DropRate, PositiveInt
from captioning.interfaces import AbstractTokenizer
from captioning.models.base import AbstractCaptioner
from captioning.models.layers.bart_reader import (
    Rows,
    check_length,
    encode,
    keeps_padding,
    logits,
    positions,
    read,
)
from captioning.models.layers.bart_stepper import BartStepper
from captioning.models.layers.cross_entropy import caption_losses
from captioning.models.layers.cuda_graphs import GraphedPart, Room, trains_on_gpu
from captioning.models.layers.hypothesis_tree import HypothesisTree
from captioning.models.layers.on_device import on_device
from captioning.models.layers.packing import CaptionPlaces
from captioning.models.layers.vl_bart import build_bart, load_bart, load_vl_bart
from captioning.runtime.sample_dropout import by_caption, by_name, drops_by_sample
from captioning.text.control_tokens import CONTROL_TOKENS, NUM_PLACES, level_id, place_id
from captioning.text.lengths import length_level
from captioning.types import Batch, CaptionLosses, Control

NUM_IMAGES = 2  # VL-BART can read two images at once; here all regions are of the first


class VisualEmbedding(nn.Module):
    """Layer norm over the sum of a region's features, box and position embeddings.

    Args:
        feature_size: size F of the regions' features.
        hidden_size: embedding size D.
        published_area: compute box areas as the authors' code, which reads (x1, y1, x2, y2)
            as (x1, x2, y1, y2), so its "area" is (y1 - x1) * (y2 - x2). Needed for
            weights trained with that code.
    """

    def __init__(
        self, *, feature_size: int, hidden_size: int, published_area: bool = False
    ) -> None:
        super().__init__()
        self.features = nn.Linear(feature_size, hidden_size)
        self.places = nn.Linear(5, hidden_size)
        self.image = nn.Embedding(NUM_IMAGES, hidden_size)
        self.norm = nn.LayerNorm(hidden_size)
        self.published_area = published_area

    def forward(self, features: Tensor, boxes: Tensor, place_embeddings: Tensor) -> Tensor:
        """Embed regions with features, boxes and positions.

        Args:
            features: ``(N, C, F)``.
            boxes: ``(N, C, 4)`` x1, y1, x2, y2 as fractions of the photo's sides.
            place_embeddings: ``(C, D)`` embedding of each input position.

        Returns:
            Embeddings ``(N, C, D)``.
        """
        x1, y1, x2, y2 = boxes.unbind(-1)
        area = (y2 - x2) * (y1 - x1) if self.published_area else (x2 - x1) * (y2 - y1)
        places = self.places(torch.cat([boxes, area.unsqueeze(-1)], dim=-1))
        return self.norm(self.features(features) + places + self.image.weight[0] + place_embeddings)


class GraphedBart:
    """CUDA graphs of `encode` and `read` for small batches, padded to the largest batch seen.

    Args:
        bart: a ``BartForConditionalGeneration``.
    """

    def __init__(self, bart: Any) -> None:
        self._bart = bart
        self._encoder = GraphedPart(bart.model.encoder, self._encode)
        self._decoder = GraphedPart(bart.model.decoder, self._read)
        self._inputs, self._captions = Room(), Room()

    def can_run(self, tensor: Tensor, num_places: int) -> bool:
        """Whether a batch with this number of positions runs by graphs on ``tensor``'s device."""
        return (
            trains_on_gpu(tensor)
            and keeps_padding(num_places, tensor.device)
            and not drops_by_sample()
        )

    def encode(self, inputs: Tensor, exist: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoder's states and their mask.

        Args:
            inputs: ``(N, S, D)`` embedded and normalised.
            exist: ``(N, S) bool`` on the CPU, False on padding.

        Returns:
            ``(N, S, D)`` and ``(N, S) bool``, with padding at the end.
        """
        number, length = exist.shape
        limit = self._bart.config.max_position_embeddings
        missing = self._inputs.missing(number, length, limit)
        rows = Rows.of(_padded_mask(exist, missing), inputs.device, whole=True)
        index = rows.places if rows.index is None else rows.index
        inputs = functional.pad(inputs, (0, 0, *missing))
        (states,) = self._encoder(inputs, index, rows.exist)
        return states[:number, :length], rows.exist[:number, :length]

    def read(
        self,
        tokens: Tensor,
        exist: Tensor,
        memory: Tensor,
        memory_exist: Tensor,
        index: Tensor | None,
    ) -> Tensor:
        """Return the decoder's states of captions.

        Args:
            tokens: ``(B, T) int64``.
            exist: ``(B, T) bool`` on the CPU, False on padding at the end.
            memory: ``(N, S, D)`` encoder states.
            memory_exist: ``(N, S) bool``, False on padding.
            index: ``(B,)`` encoder state of each caption; None: one per caption, in order.

        Returns:
            ``(R, D)`` at the non-padding positions, caption by caption.

        Raises:
            ValueError: captions longer than the decoder's maximum.
        """
        decoder = self._bart.model.decoder
        number, length = tokens.shape
        check_length(decoder, length, "a caption", "the tokenizer's or the search's limit")
        if index is not None:
            memory, memory_exist = memory.index_select(0, index), memory_exist[index]
        limit = decoder.embed_positions.num_embeddings - decoder.embed_positions.offset
        missing = self._captions.missing(number, length, limit)
        # The encoder's padding room, so that batches of other lengths have the same shape.
        (_, all_places), places = self._inputs.for_sizes(0, 0), memory.shape[1]
        more = (0, max(0, all_places - places), 0, missing[3])
        (states,) = self._decoder(
            functional.pad(tokens, missing),
            functional.pad(memory, (0, 0, *more)),
            _padded_mask(memory_exist, more),
        )
        all_length = length + missing[1]
        captions, steps = exist.nonzero().unbind(1)
        real = on_device(captions * all_length + steps, tokens.device)
        return states.index_select(0, real)

    def _encode(self, inputs: Tensor, index: Tensor, exist: Tensor) -> tuple[Tensor]:
        return (encode(self._bart, inputs, _all(exist, index)),)

    def _read(self, tokens: Tensor, memory: Tensor, exist: Tensor) -> tuple[Tensor]:
        every = torch.ones_like(tokens, dtype=torch.bool)
        return (read(self._bart, tokens, _all(every, None), memory, exist, None),)


def _padded_mask(exist: Tensor, missing: tuple[int, ...]) -> Tensor:
    """Pad a mask; added sequences get one position, as attention to nothing would give NaN."""
    padded = functional.pad(exist, missing)
    padded[len(exist) :, :1] = True
    return padded


def _all(exist: Tensor, index: Tensor | None) -> Rows:
    """Return rows for all positions of sequences, in the order of ``index``."""
    places = torch.arange(exist.numel(), device=exist.device)
    number, length = exist.shape
    return Rows(shape=(number, length), index=index, places=places, real=None, exist=exist)


class ControlText:
    """Control text ``caption region: VERBS <cap_len_level_2> 12 <vis_extra_id_1> ...``.

    Args:
        tokenizer: tokenizer that ends with the tokens of `captioning.text.control_tokens`.
        prompt: start of the text.
        blank_before_verbs: add a blank before the first verb, which is a separate token in
            BART's vocabulary, as in the authors' code.

    Raises:
        ValueError: the tokenizer lacks the control tokens, or has them elsewhere.
    """

    def __init__(
        self, tokenizer: AbstractTokenizer, *, prompt: str, blank_before_verbs: bool = False
    ) -> None:
        self.tokenizer, self.prompt = tokenizer, prompt
        self.blank_before_verbs = blank_before_verbs
        first_id = len(tokenizer) - len(CONTROL_TOKENS)
        for number, token in enumerate(CONTROL_TOKENS, start=first_id):
            if (actual := tokenizer.token_id(token)) != number:
                problem = "lacks it" if actual is None else f"has it as {actual}"
                raise ValueError(
                    f"token {token} must have id {number} in the vocabulary, but the tokenizer "
                    f"{problem}: choose tokenizer=bart or tokenizer=words_control"
                )
        self._prompt_ids: dict[str, list[int]] = {}

    def ids(self, control: Control) -> list[int]:
        """Return the tokens of a control signal.

        Raises:
            ValueError: too many regions.
        """
        size, regions = len(self.tokenizer), control.regions or ()
        if len(regions) >= NUM_PLACES:
            raise ValueError(
                f"a control signal has at most {NUM_PLACES - 1} regions: got {len(regions)}; leave "
                "out the least important ones"
            )
        places = [place_id(size, place) for place in range(1, len(regions) + 1)]
        return [*self._words(control), *self._length(control), *places, self.tokenizer.eos_id]

    def _words(self, control: Control) -> list[int]:
        """Return the tokens up to the last verb."""
        blank = [""] if self.blank_before_verbs and control.verbs else []
        text = " ".join([self.prompt, *blank, *control.verbs])
        if text not in self._prompt_ids:
            ids = self.tokenizer.encode(text)[:-1]
            # BART's decoder begins with its end token, which the encoder does not read.
            begins_with_end = self.tokenizer.bos_id == self.tokenizer.eos_id
            self._prompt_ids[text] = ids[1:] if begins_with_end else ids
        return self._prompt_ids[text]

    def _length(self, control: Control) -> list[int]:
        level = control.level or length_level(control.num_words or 0)
        if not level:
            return []
        ids = [level_id(len(self.tokenizer), level)]
        if control.num_words is not None:
            number = self.tokenizer.spellings(str(control.num_words))
            ids += number[0] if number else [self.tokenizer.unk_id]
        return ids


# Bias of control tokens in search: they are inputs and never generated.
BANNED_BIAS = -1e4
# An image's position in the batch, and the control signal of its caption.
Request = tuple[int, Control]


class CicBart(AbstractCaptioner[HypothesisTree]):
    """BART captioner that reads a control signal and regions.

    It needs region features, the full photo first, and their boxes (``control=``). Captions of
    an image with the same control signal share one encoding. In generation, an image uses the
    control signal of its first caption in the batch.

    Args:
        feature_size: size of the region features.
        hidden_size, num_layers, num_heads, intermediate_size: sizes of BART's encoder and decoder.
        max_positions: maximum input length of encoder and decoder, in tokens.
        dropout: dropout of states, of attention and inside feed-forward layers.
        label_smoothing: label smoothing of the training loss; none in the authors' code.
        prompt: first words of the control text.
        controlled: False: captions have no control signal, and the encoder reads all regions.
        published_area: see `VisualEmbedding`.
        blank_before_verbs: see `ControlText`.
        control_tokens_said: include control tokens in the output distribution, in loss and
            search, as in the authors' code. Captions' texts omit them.
        attend_padding: attend to the regions that pad a batch, as in the authors' code; a
            photo's caption then depends on the other photos of its batch.
        forced_begin: search starts each caption with ``<s>`` at no cost, as bart-base does;
            otherwise ``<s>`` is searched like any other token.
        pretrained: hub name or folder of a BART; None: random weights.
        weights: file of VL-BART or CIC-BART in the authors' layout to load, or None.
        **captioner: see `AbstractCaptioner`.

    Raises:
        ValueError: a tokenizer without control tokens, or weights that do not match.
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
        """Compute the cross-entropy of each next token, given the control signal."""
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
        """Return the decoder's states at non-padding positions; ``real`` is on the CPU."""
        if self.graphed is not None and self.graphed.can_run(memory, real.numel()):
            return self.graphed.read(tokens, real, memory, exist, index)
        return read(self.bart, tokens, Rows.of(real, tokens.device), memory, exist, index)

    def use_cuda_graphs(self) -> None:
        """Use CUDA graphs in training, see `GraphedBart`."""
        super().use_cuda_graphs()
        self.graphed = GraphedBart(self.bart)

    @staticmethod
    def _named(batch: Batch, request: Request) -> tuple[str, Control]:
        """Return image id and control signal of a request, independent of the batch order."""
        image, control = request
        return batch.image_ids[image], control

    def start(self, batch: Batch) -> HypothesisTree:
        """Encode each image with the control signal of its first caption."""
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
        """Return log-probabilities of the next token."""
        logits, state = self.next_logits(tokens, state)
        return logits.log_softmax(dim=-1), state

    def next_logits(self, tokens: Tensor, state: HypothesisTree) -> tuple[Tensor, HypothesisTree]:
        """Return logits instead of log-probabilities; otherwise as `step`."""
        return self._read_on(tokens, state, None)

    def attend_step(
        self, tokens: Tensor, state: HypothesisTree
    ) -> tuple[Tensor, HypothesisTree, Tensor]:
        """Make a `step`, and return the cross-attention to the encoded regions.

        Weights are averaged over layers and heads, without the mass on control words.
        The full photo comes first, then the regions ``(G, C)`` in input order.
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
        """Return the encoder's states ``(N, S, D)`` and their mask ``(N, S)``."""
        words, words_exist = self._embedded_controls([control for _, control in requests])
        regions, regions_exist = self._embedded_regions(batch, requests)
        inputs = torch.cat([words, regions], dim=1)
        exist = torch.cat([words_exist, regions_exist], dim=1)
        if self.graphed is not None and self.graphed.can_run(inputs, exist.numel()):
            return self.graphed.encode(inputs, exist)
        rows = Rows.of(exist, inputs.device)
        return encode(self.bart, inputs, rows), rows.exist

    def _embedded_controls(self, controls: list[Control]) -> tuple[Tensor, Tensor]:
        """Return embedded control texts ``(N, L, D)`` and their mask on the CPU."""
        encoder = self.bart.model.encoder
        ids, exist = _padded([self.text.ids(control) for control in controls])
        check_length(encoder, ids.shape[1], "a control", "the number of its verbs or regions")
        embedded = encoder.embed_tokens(on_device(ids, self.device))
        embedded = embedded + positions(encoder, ids.shape[1])
        return encoder.layernorm_embedding(embedded), exist

    def _embedded_regions(self, batch: Batch, requests: list[Request]) -> tuple[Tensor, Tensor]:
        """Return embedded regions ``(N, C, D)`` and their mask on the CPU."""
        if "boxes" not in batch.extras:
            raise ValueError(
                "CicBart needs regions with boxes: choose features=efficientnet_lite0_regions "
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
        # The n-th token from the end of the vocabulary represents the n-th input region.
        place_embeddings = self.bart.model.shared.weight[-rows.shape[1] :].flip(0)
        return self.visual(features, boxes, place_embeddings), exist


def _rows(batch: Batch, request: Request, counts: list[int]) -> list[int]:
    """Return the feature rows of an image that the encoder reads, the full photo first."""
    image, control = request
    if control.regions is None:
        return list(range(min(counts[image], NUM_PLACES)))
    regions = control.regions if control.ordered else sorted(control.regions)
    rows = [0, *(region + 1 for region in regions)]
    if max(rows) >= counts[image]:
        raise ValueError(
            f"image {batch.image_ids[image]!r}: the control signal requests region {max(regions)}, "
            f"but the image has {counts[image] - 1} regions with features: lower the position"
        )
    return rows


def _padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Pad lists to ``(N, W) int64`` with 0 at the end, and return their mask, too."""
    width = max(map(len, rows))
    padded = [row + [0] * (width - len(row)) for row in rows]
    lengths = torch.tensor([len(row) for row in rows])
    return torch.tensor(padded), torch.arange(width) < lengths[:, None]
