"""The central records, and the legend of shape letters used in every docstring.

B captions in a batch, I images in a batch, T tokens, R regions (or grid cells), D feature size,
V vocabulary, K beams, S machine states, G flattened search group (images times beams),
N roster size.

All records are frozen: records in the framework are replaced, never changed in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # commands that caption by a server need no torch
    import torch
    from torch import Tensor

UNPAIRED = "unpaired"
"""Origin of samples whose photo has no caption; the names of its held-out
classes, with commas between, stand in until one is written."""

REWARD, CAPTION_REWARD = "reward", "caption_reward"
"""What objectives that draw captions record of each sample: the mean reward of its photo's
draws, and the reward of its own caption."""

EditAction = Literal[
    "remove", "replace_caption", "replace_image", "down_weight", "mask_words", "set_bucket"
]


Box = tuple[float, float, float, float]
"""``(x1, y1, x2, y2)`` in pixels, ``x1 < x2`` and ``y1 < y2``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A labelled box of an image.

    Attributes:
        box: ``(x1, y1, x2, y2)`` in pixels of the image file, ``x1 < x2`` and ``y1 < y2``.
        label: class name, lower case.
        score: detector confidence in [0, 1]; 1 for human annotations.
    """

    box: Box
    label: str
    score: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    """A span of a caption and the regions that it mentions.

    Attributes:
        start: index of the first character in ``Sample.caption``.
        text: the span; ``caption[start:start + len(text)] == text``.
        chain_id: the same object of an image has the same id in all of its captions.
        kinds: coarse types, such as ``("people",)``.
        regions: positions in ``Sample.regions``; empty when the phrase has no box.
    """

    start: int
    text: str
    chain_id: str
    kinds: tuple[str, ...] = ()
    regions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedSpan:
    """Characters of a caption whose tokens count less in training, or not at all.

    Attributes:
        start, stop: ``caption[start:stop]`` is the span; ``0 <= start < stop``.
        weight: weight of the loss of each token that has a character in the span, in [0, 1).

    Raises:
        ValueError: an empty span, one that begins before the caption, or another weight.
    """

    start: int
    stop: int
    weight: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise ValueError(
                f"a masked span must have 0 <= start < stop: got {self.start}-{self.stop}"
            )
        if not 0 <= self.weight < 1:
            raise ValueError(f"the weight of a masked span must be in [0, 1): got {self.weight}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A word of a parsed caption.

    Attributes:
        text: text as written.
        lemma: dictionary form, lower case: ``"men"`` has ``"man"``.
        pos: universal part of speech, such as ``"NOUN"``.
        tag: Penn Treebank tag, such as ``"NNS"``.
        dep: relation to the head, in spaCy's English (ClearNLP) labels, such as ``"nsubj"``.
        head: position of the head in the caption; a root is its own head.
    """

    text: str
    lemma: str
    pos: str
    tag: str
    dep: str
    head: int


Parse = tuple[Token, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One caption of one image: the unit of training, tracking and curation.

    Attributes:
        row: position in the roster, the key of every ``(N,)`` tensor.
        sample_id: unique and stable, usually ``image_id#k`` for the k-th caption.
        image_id: shared by the captions of one image.
        image_path: the image file.
        caption: raw text, never empty.
        regions: boxes of the image, shared by its captions.
        phrases: groundings of this caption.
        origin: ``"human"`` or the name of whatever made the sample.
        weight: weight of its loss in training, in [0, 1].
        masks: spans of the caption that count less in training, by start and without overlap.
        size: width and height of the photo that ``regions`` are in pixels of; None: those of the
            file. It is there where the file need not be.
        bucket: trust in the caption, 0 the highest, see `curation.amend.condition`.
        file_name: the photo's name in the annotations; empty: they do not name it.

    Examples:
        >>> from pathlib import Path
        >>> from captioning import Sample
        >>> own = {"sample_id": "a#0", "image_id": "a", "image_path": Path("a.jpg")}
        >>> Sample(row=0, caption="A dog runs.", **own).origin
        'human'
    """

    row: int
    sample_id: str
    image_id: str
    image_path: Path
    caption: str
    regions: tuple[Region, ...] = ()
    phrases: tuple[Phrase, ...] = ()
    origin: str = "human"
    weight: float = 1.0
    masks: tuple[MaskedSpan, ...] = ()
    size: tuple[float, float] | None = None
    bucket: int = 0
    file_name: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One decision of a curation policy, as written to ``curation.jsonl``.

    Attributes:
        sample_id: the sample that is changed.
        action: action on the sample.
        value: the new caption, the new image's path, the new weight or bucket as text, the masked
            spans (`captioning.data.roster.parse_masks`), or None for a removal.
        origin: source of the value, such as ``"sibling:IMAGE#3"``; becomes the sample's.
        reason: why it was selected, for people, such as ``"loss 5.1 in the top 1%"``.
        policy: name of the policy.
        epoch: epoch (from 0) at whose end it was decided; -1 for before training.

    Examples:
        >>> from captioning import Edit
        >>> Edit(sample_id="a#0", action="replace_caption", value="A cat sleeps.").epoch
        -1
    """

    sample_id: str
    action: EditAction
    value: str | None = None
    origin: str = "human"
    reason: str = ""
    policy: str = ""
    epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A request for the content and length of a caption.

    Attributes:
        regions: positions in ``Sample.regions``, in the order in which the caption should mention
            them; ``()`` for the photo as a whole; None: no request, all regions are shown.
        ordered: whether the order of ``regions`` is requested; if not, they are a set.
        num_words: exact number of words, or None.
        level: level of the length, 1 (below 10 words) to 5 (from 40), see
            `captioning.text.lengths`; None: that of ``num_words``.
        verbs: words for the action, in order.

    Raises:
        ValueError: a region twice or below 0, or a length that no caption has.
    """

    regions: tuple[int, ...] | None = None
    ordered: bool = True
    num_words: int | None = None
    level: int | None = None
    verbs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        regions = self.regions or ()
        if len(set(regions)) != len(regions) or min(regions, default=0) < 0:
            raise ValueError(f"regions must be different positions from 0: got {regions}")
        if self.num_words is not None and self.num_words < 1:
            raise ValueError(f"num_words must be at least 1: got {self.num_words}")
        if self.level is not None and not 1 <= self.level <= 5:
            raise ValueError(f"level must be 1 to 5: got {self.level}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Input of a model. Captions of one image share its pixels or features.

    Attributes:
        rows: ``(B,) int64`` roster rows of the captions.
        sample_ids: B ids, for people and for error messages.
        image_ids: I ids.
        image_index: ``(B,) int64`` in [0, I): the image of each caption.
        images: ``(I, 3, H, W)`` pixels, or None when features are cached: ``uint8`` as in the
            photo, which the backbone normalises on the device, or normalised ``float32``.
        regions: ``(I, R, D)`` float features of regions or grid cells, or None.
        region_mask: ``(I, R) bool``, True where a region exists; None when all do.
        tokens: ``(B, T) int64`` with begin and end tokens, padded; None when there are only images.
        token_mask: ``(B, T) bool``, True on real tokens.
        weights: ``(B,) float32`` in [0, 1], of each caption's loss; None when all are 1.
        token_weights: ``(B, T) float32`` in [0, 1], of each token's loss, beside that of its
            caption; None when all are 1.
        token_sentences: ``(B, T) int64`` number of the sentence of each token, from 0; -1 for
            begin, end and padding. None where losses by sentence are not wanted.
        controls: B controls, one for each caption; None without a request.
        draw: key of random numbers: seed, epoch and number of the batch; None outside of training.
        filler: whether it repeats a caption of another process, for a process without its own
            caption in a small batch; then all weights are 0, and its losses are not recorded.
        photo_rows: I rows, of each picture's first caption in the batch of all processes, which may
            have captions of one picture each; None: this process has all of them.
        extras: further tensors of a model, by name. ``boxes``: ``(I, R, 4) float32``, x1, y1, x2
            and y2 of the regions in shares of the photo's sides, the whole photo first.
    """

    rows: Tensor
    sample_ids: tuple[str, ...]
    image_ids: tuple[str, ...]
    image_index: Tensor
    images: Tensor | None = None
    regions: Tensor | None = None
    region_mask: Tensor | None = None
    tokens: Tensor | None = None
    token_mask: Tensor | None = None
    weights: Tensor | None = None
    token_weights: Tensor | None = None
    token_sentences: Tensor | None = None
    controls: tuple[Control, ...] | None = None
    draw: tuple[int, ...] | None = None
    filler: bool = False
    photo_rows: tuple[int, ...] | None = None
    extras: dict[str, Tensor] = field(default_factory=dict)
    # Not taken over by `dataclasses.replace`: it would not be of the replaced tensors.
    _host: Batch | None = field(default=None, init=False, repr=False, compare=False)

    def _map(self, function: Any) -> Batch:
        from torch import Tensor

        def apply(value: Any) -> Any:
            if isinstance(value, Tensor):
                return function(value)
            if isinstance(value, dict):
                return {key: apply(item) for key, item in value.items()}
            return value

        mapped = {f.name: apply(getattr(self, f.name)) for f in fields(self) if f.init}
        return replace(self, **mapped)

    @property
    def host(self) -> Batch:
        """The batch in the processor's memory, where it was made.

        Models read lengths and positions there. Asking the device for them would stop the program
        in every step until the device has done all of its work.
        """
        if self._host is not None:
            return self._host
        return self if self.rows.device.type == "cpu" else self.to("cpu")

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on ``device`` (Lightning moves a batch only if it has this method).

        Copies to a GPU do not wait for the device; they run beside its work from pinned memory.
        """
        import torch

        non_blocking = torch.device(device).type == "cuda"
        moved = self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))
        if non_blocking:
            object.__setattr__(moved, "_host", self.host)
        return moved

    def with_host(self, host: Batch) -> Batch:
        """This batch, made of another on a device; ``host`` has its small tensors at hand."""
        if self.rows.device.type != "cpu":
            object.__setattr__(self, "_host", host)
        return self

    def pin_memory(self) -> Batch:
        """The same batch in page-locked memory, for fast copies to a GPU."""
        return self._map(lambda tensor: tensor.pin_memory())

    def caption_tokens(self) -> tuple[Tensor, Tensor]:
        """``tokens`` and ``token_mask``, ``(B, T)`` each.

        Raises:
            ValueError: the batch holds images alone.
        """
        if self.tokens is None or self.token_mask is None:
            raise ValueError("the batch holds images alone: losses need the tokens of captions")
        return self.tokens, self.token_mask

    def __len__(self) -> int:
        """Number of captions B."""
        return len(self.sample_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A weighted mean of losses that remembers its denominator.

    Attributes:
        value: scalar with gradient.
        number: number of the losses.
        weights: ``(number,)`` of them; None where all are 1.
    """

    value: Tensor
    number: int
    weights: Tensor | None = None

    @property
    def denominator(self) -> Tensor:
        """The sum of the weights, a scalar ``float32`` on the device of the value."""
        import torch

        if self.weights is None:
            return torch.full((), float(self.number), device=self.value.device)
        return self.weights.detach().sum(dtype=torch.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionLosses:
    """Result of ``AbstractCaptioner.losses``.

    A token-weighted mean is not the mean of the samples' losses, so both are kept.

    Attributes:
        total: scalar that is back-propagated, as the model's paper defines it.
        per_sample: ``(B,)`` detached loss of each caption: mean negative log-likelihood a token,
            in nats, without label smoothing, or its bound (`AbstractCaptioner.loss_is_bound`).
            Masked tokens count in it as any others: it judges the caption as it is written.
        parts: named scalars for the log.
        nll: ``(B,)`` negative log-likelihood of each caption, summed over its tokens, in nats, or
            its bound; with gradient, without label smoothing and without weights of captions and
            tokens. None: the model does not give it, and objectives that need it are refused.
        smoothed: ``(B,)`` the same with the model's label smoothing, detached. None: the model does
            not give it, and curation that ranks by it is refused.
        token_nll: ``(B, T - 1)`` negative log-likelihood of each token but the first, in nats, with
            gradient; 0 on padding. None: the model does not give it, and ledgers by sentence are
            refused; or `Batch.token_sentences` is None, so that they are not needed.
        means: the means that add up to ``total``, by which it is taken over several processes
            (`captioning.models.training_steps`) and over accumulated batches
            (`captioning.models.training_steps`), in each in the same order; empty: it is one mean
            of the batch's captions.
        recorded: ``(B,)`` detached numbers of each caption by name that curation may go by, such as
            `REWARD`.
    """

    total: Tensor
    per_sample: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    nll: Tensor | None = None
    smoothed: Tensor | None = None
    token_nll: Tensor | None = None
    means: tuple[Mean, ...] = ()
    recorded: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A caption produced for an image.

    Attributes:
        image_id: the image.
        caption: decoded text.
        score: log-probability under the search's normalisation.
        satisfied: whether it ends and meets the constraints that it was searched with; None where
            there were none to meet.

    Examples:
        >>> from captioning import Prediction
        >>> Prediction(image_id="a", caption="a dog runs", score=-4.5).score
        -4.5
    """

    image_id: str
    caption: str
    score: float = 0.0
    satisfied: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionedPhoto:
    """The captions of one photo, as `captioning.Captioner.caption` returns them.

    Attributes:
        photo: the file, or the number of a picture in memory, as text.
        captions: captions with their scores, the best first; empty for a broken photo.
        problem: the error of a broken photo; empty for a good photo.
        boxes: boxes in pixels that the captioner read beside the whole photo.

    Examples:
        >>> from captioning import CaptionedPhoto, Prediction
        >>> best = Prediction(image_id="a.jpg", caption="a dog runs", score=-4.5)
        >>> CaptionedPhoto(photo="a.jpg", captions=(best,)).caption
        'a dog runs'
    """

    photo: str
    captions: tuple[Prediction, ...] = ()
    problem: str = ""
    boxes: tuple[Box, ...] = ()

    @property
    def caption(self) -> str:
        """The best caption; empty for a broken photo."""
        return self.captions[0].caption if self.captions else ""

    @property
    def score(self) -> float:
        """Log-probability of the best caption, in nats, as the search compares captions."""
        return self.captions[0].score if self.captions else -inf
