"""Base class of captioners: torch networks that any search can decode.

`captioning.models.training_steps` trains them with Lightning, whose import takes seconds.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from captioning.config.loadable import loadable
from captioning.decoding.machine import Machine
from captioning.decoding.search import AbstractSearch
from captioning.decoding.words_to_tokens import beginning_tokens, bind_search, find_captions
from captioning.interfaces import AbstractStepper, AbstractTokenizer, StateT
from captioning.runtime.sample_dropout import by_image
from captioning.types import Batch, CaptionLosses, Prediction

if TYPE_CHECKING:  # what `captioning.models.training_steps.trainable` makes of a captioner
    from captioning.models.layers.onnx_form import OnnxForm
    from captioning.models.training_steps import TrainingSteps as Network
else:
    from torch.nn import Module as Network

OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]
ScheduleFactory = Callable[..., LRScheduler]
Objective = Callable[["AbstractCaptioner[Any]", Batch, int], CaptionLosses]
"""Function that returns the losses of a batch; its last argument is the batch's number in the
epoch. See `captioning.training.objectives`."""


@loadable
class AbstractCaptioner(Network, AbstractStepper[StateT]):
    """Base class of captioners; a model adds `losses`, `start` and `step`.

    Args:
        tokenizer: tokenizer shared with the data.
        search: default search, such as `captioning.decoding.beam.BeamSearch`; its forbidden and
            end words are converted to token ids.
        optimizer: function that builds the optimizer for the trainable parameters.
        schedule: function that builds a scheduler from the optimizer and ``horizon``; None: a
            constant rate. It is stepped once per update, or per epoch if ``interval="epoch"``.
        horizon: number of updates of the whole run. It is explicit because Lightning's estimate
            is wrong if curation shrinks the training set.
        backbone: a `captioning.vision.backbones.Backbone` that computes regions from pixels if
            features are not cached; it is trained, too.

    Attributes:
        loss_is_bound: whether a caption's loss is an upper bound of its negative log-likelihood
            (as in a variational autoencoder) instead of the likelihood itself.
        objective: training objective; None: `losses`, the likelihood.
        compiled: whether the networks are compiled; dropout is then torch's own, not by sample.
        half_weights: whether the model can be trained with half-precision weights.
        attends: whether `attend_step` returns attention weights.
        begins_with: pretrained captioner whose weights the model starts with; empty if it
            cannot caption before training.
        several_means: whether the loss may be a sum of several means (`CaptionLosses.means`).
        extra_rows: number of word-vector rows after the vocabulary's rows.
    """

    loss_is_bound: bool = False
    compiled: bool = False
    half_weights: bool = True
    attends: bool = False
    begins_with: str = ""
    several_means: bool = False
    extra_rows: int = 0
    objective: Objective | None = None
    _trainer: Any = None  # Lightning's, while it trains

    def __init__(
        self,
        *,
        tokenizer: AbstractTokenizer,
        search: AbstractSearch,
        optimizer: OptimizerFactory = torch.optim.Adam,
        schedule: ScheduleFactory | None = None,
        horizon: int = 1,
        backbone: Any = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.search = bind_search(search, tokenizer)
        self._optimizer = optimizer
        self._schedule = schedule
        self.horizon = horizon

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    @property
    def current_epoch(self) -> int:
        """Current epoch of the training; 0 outside of training."""
        return self._trainer.current_epoch if self._trainer else 0

    @property
    def global_step(self) -> int:
        """Number of updates so far in the training; 0 outside of training."""
        return self._trainer.global_step if self._trainer else 0

    @abstractmethod
    def losses(self, batch: Batch) -> CaptionLosses:
        """Compute the losses of the batch's captions with teacher forcing."""

    @abstractmethod
    def start(self, batch: Batch) -> StateT:
        """Return the decoder memory before the first token, one hypothesis per image."""

    def attend_step(self, tokens: Tensor, state: StateT) -> tuple[Tensor, StateT, Tensor | None]:
        """Make a `step`, and return the attention to the photo before the next token.

        Returns:
            Log-probabilities, the memory, and attention weights ``(G, C)``: at
            least 0, each row sums to 1. Columns are regions, or grid cells row by row from the
            top left, possibly after a column for the whole photo. None: the model does not attend
            to parts of a photo.
        """
        return (*self.step(tokens, state), None)

    def _regions(self, batch: Batch) -> Tensor:
        """Return image features ``(I, R, D)``, cached or from the backbone.

        Raises:
            ValueError: the batch has no features and the model no backbone.
        """
        if batch.regions is not None:
            return batch.regions
        if self.backbone is None:
            name = type(self).__name__
            raise ValueError(f"{name} needs cached features or a backbone: set features= or it")
        with nullcontext() if self.compiled else by_image(batch):
            return self.backbone.grid(batch.images)

    def in_parts(
        self, batch: Batch, losses: Callable[[Batch, Tensor], CaptionLosses]
    ) -> CaptionLosses:
        """Compute a batch's losses by a function, for which a model may split the batch.

        Args:
            batch: batch of captions.
            losses: function from a part and ``(B',) int64`` indices of its captions to
                losses, with one mean (`CaptionLosses.means`) if they have a gradient.
        """
        return losses(batch, torch.arange(len(batch)))

    def low_rank_layers(self) -> list[str] | None:
        """Return the layers that ``model.lora`` adapts by default; None: they must be named."""
        return None

    @contextmanager
    def rehearsing(self) -> Iterator[Callable[[], int]]:
        """Within this context, computing losses leaves no state in the model.

        Yields:
            Function that returns the bytes of CPU memory that the model will use for all photos,
            after it has seen a batch.
        """
        yield lambda: 0

    def prepare_evaluation(self, changes: Mapping[str, Any]) -> None:
        """Apply settings that an evaluation changes, before captions are generated.

        Args:
            changes: new values by argument name; components are instances, not configs.

        Raises:
            ValueError: the model has no such setting (this class has none).
        """
        if changes:
            raise ValueError(
                f"an evaluation cannot change settings of {type(self).__name__}: leave out "
                f"{', '.join(changes)}, or implement prepare_evaluation in the model"
            )

    def encoded(self, batch: Batch) -> Batch:
        """Replace the batch's pixels by the backbone's features, with gradient."""
        if batch.regions is not None or batch.images is None or self.backbone is None:
            return batch
        encoded = replace(batch, regions=self._regions(batch), images=None)
        return encoded.with_host(batch.host)

    def compile_networks(self) -> bool:
        """Compile networks with torch; return whether there are any to compile."""
        if self.backbone is None:
            return False
        self.backbone.compile_network()
        self.compiled = True
        return True

    def onnx_form(self) -> OnnxForm | None:
        """Return the decoder as networks for ONNX, which `captioning export onnx=true` writes.

        None if the model has no ONNX form.
        """
        return None

    def use_cuda_graphs(self) -> None:
        """Use CUDA graphs in training where possible: many GPU operations start as one."""
        from captioning.models.layers.cuda_graphs import AbstractGraphedPart

        for part in self.modules():
            if isinstance(part, AbstractGraphedPart):
                part.use_cuda_graphs()

    def _start_from_word_frequencies(self, bias: Tensor) -> None:
        """Set an output bias to the words' log-frequencies, if known.

        Without this the first few hundred updates only learn how common each word is.
        """
        frequencies = self.tokenizer.log_frequencies()
        if frequencies is not None:
            bias.data.copy_(torch.tensor(frequencies))

    @torch.inference_mode()
    def candidates(
        self,
        batch: Batch,
        *,
        search: AbstractSearch | None = None,
        machines: Sequence[Machine] | None = None,
        beginning: str = "",
    ) -> list[list[Prediction]]:
        """Return all captions that a search finds for each image of the batch, best first.

        Args:
            batch: batch with the images.
            search: search to use instead of the model's own.
            machines: machines of constrained search, one per image, which enforce words in its
                captions.
            beginning: whole sentences that all captions continue; the results omit them.

        Raises:
            ValueError: a search that does not support the model, machines for an unconstrained
                search, or a beginning that the search cannot continue.
        """
        return find_captions(
            self.search if search is None else bind_search(search, self.tokenizer),
            self.start(batch),
            stepper=self,
            tokenizer=self.tokenizer,
            image_ids=batch.image_ids,
            machines=machines,
            beginning=beginning_tokens(beginning, self.tokenizer) if beginning else (),
            device=batch.rows.device,
        )

    def generate(
        self,
        batch: Batch,
        *,
        search: AbstractSearch | None = None,
        machines: Sequence[Machine] | None = None,
    ) -> list[Prediction]:
        """Return the best of the `candidates` of each image."""
        candidates = self.candidates(batch, search=search, machines=machines)
        return [captions[0] for captions in candidates]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store class and vocabulary in a checkpoint, for a check when it is loaded."""
        checkpoint["captioner"] = {
            "class": type(self).__name__,
            "tokenizer": self.tokenizer.state(),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Raise an error for weights of another model or vocabulary.

        Raises:
            ValueError: the checkpoint belongs to another captioner, or its vocabulary differs.
        """
        saved = checkpoint.get("captioner")
        if saved is None:
            raise ValueError("checkpoint holds no captioner; use a checkpoint of this framework")
        if saved["class"] != type(self).__name__:
            raise ValueError(
                f"checkpoint belongs to model {saved['class']}, this run's model is "
                f"{type(self).__name__}; choose the same model= as the run that wrote it"
            )
        if _vocabulary(saved["tokenizer"]) != _vocabulary(self.tokenizer.state()):
            raise ValueError(
                "checkpoint and run have different vocabularies; evaluate the checkpoint with "
                "`captioning evaluate run=FOLDER`, which uses its vocabulary, or train from scratch"
            )


def _vocabulary(state: dict[str, Any]) -> dict[str, Any]:
    """Return a tokenizer's state without keys that differ in older checkpoints: ends, padding."""
    known = {name: value for name, value in state.items() if name != "further_ends"}
    if "definition" in known:
        definition = json.loads(known["definition"])
        known["definition"] = definition | {"padding": None, "truncation": None}
    return known
