"""The base class of captioners: a network of torch that decodes by any search.

Lightning, which takes seconds to import, trains one: see `captioning.models.training_steps`.
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
"""Losses of a model's batch, the number of which in its epoch comes last; see
`captioning.training.objectives`."""


@loadable
class AbstractCaptioner(Network, AbstractStepper[StateT]):
    """A model adds `losses`, `start` and `step`; everything else is here.

    Args:
        tokenizer: shared with the data.
        search: such as `captioning.decoding.beam.BeamSearch`; its forbidden and end words become
            ids of the tokenizer.
        optimizer: builds the optimiser from the trainable parameters.
        schedule: builds a scheduler from the optimiser and ``horizon``; None: constant. It is
            stepped once an update, or an epoch where its ``interval`` is ``"epoch"``.
        horizon: number of updates of the whole run. It is explicit because Lightning's own estimate
            is wrong once curation shrinks the training set.
        backbone: a `captioning.vision.backbones.Backbone` that makes regions from pixels when
            features are not cached; trained along.

    Attributes:
        loss_is_bound: whether a caption's loss is an upper bound of its negative log-likelihood
            (as in a variational auto-encoder), not the likelihood itself.
        objective: objective of training; None: `losses`, the likelihood.
        compiled: whether its networks are; then dropout is torch's own, not by sample.
        half_weights: whether it can be trained with weights in half precision.
        attends: whether `attend_step` gives weights.
        begins_with: the pretrained captioner whose weights it has before any training; empty where
            it cannot caption yet.
        several_means: whether its loss may be a sum of several means (`CaptionLosses.means`).
        extra_rows: rows that its word vectors have after the vocabulary's rows.
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
        """The device of its weights."""
        return next(self.parameters()).device

    @property
    def current_epoch(self) -> int:
        """Of its training; 0 outside of one."""
        return self._trainer.current_epoch if self._trainer else 0

    @property
    def global_step(self) -> int:
        """Updates so far in its training; 0 outside of one."""
        return self._trainer.global_step if self._trainer else 0

    @abstractmethod
    def losses(self, batch: Batch) -> CaptionLosses:
        """Losses of the batch's captions under teacher forcing."""

    @abstractmethod
    def start(self, batch: Batch) -> StateT:
        """The memory before the first token: one hypothesis per image of the batch."""

    def attend_step(self, tokens: Tensor, state: StateT) -> tuple[Tensor, StateT, Tensor | None]:
        """As `step`, with where the model looks in the photo before the next token.

        Returns:
            Log-probabilities, the memory, and weights ``(G, C)`` of the parts of the photo: at
            least 0, each row sums to 1. The parts are the regions, or a grid row by row from the
            top left; one of the whole photo may stand before these. None: it does not attend to
            parts of a photo.
        """
        return (*self.step(tokens, state), None)

    def _regions(self, batch: Batch) -> Tensor:
        """Features of the images, ``(I, R, D)``: cached ones, or those of the backbone.

        Raises:
            ValueError: there are neither.
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
        """Losses of a batch by a formula, for which a model may take parts of it one by one.

        Args:
            batch: batch of captions.
            losses: losses of a part and ``(B',) int64`` which of the batch's captions it has; with
                one mean (`CaptionLosses.means`) where they have a gradient.
        """
        return losses(batch, torch.arange(len(batch)))

    def low_rank_layers(self) -> list[str] | None:
        """Names of the layers that ``model.lora`` adapts by default; None: they must be named."""
        return None

    @contextmanager
    def rehearsing(self) -> Iterator[Callable[[], int]]:
        """Within it, losses of a batch leave nothing behind in the model.

        Yields:
            Gives the bytes that the model will keep of all photos on the host, once it has seen a
            batch.
        """
        yield lambda: 0

    def prepare_evaluation(self, changes: Mapping[str, Any]) -> None:
        """Take settings that an evaluation changes, before captions are generated.

        Args:
            changes: new values by name of this model's argument; parts are instances, not configs.

        Raises:
            ValueError: the model has no such setting. This class has none.
        """
        if changes:
            raise ValueError(
                f"{type(self).__name__} has no setting that an evaluation may change: leave out "
                f"{', '.join(changes)}, or let the model take it in prepare_evaluation"
            )

    def encoded(self, batch: Batch) -> Batch:
        """The batch with the backbone's features, with gradient, in the place of pixels."""
        if batch.regions is not None or batch.images is None or self.backbone is None:
            return batch
        encoded = replace(batch, regions=self._regions(batch), images=None)
        return encoded.with_host(batch.host)

    def compile_networks(self) -> bool:
        """Let torch compile the networks that are run as one; whether there are any."""
        if self.backbone is None:
            return False
        self.backbone.compile_network()
        self.compiled = True
        return True

    def onnx_form(self) -> OnnxForm | None:
        """The decoder as networks for ONNX, from which `captioning export onnx=true` writes it.

        None if there is no such form.
        """
        return None

    def use_cuda_graphs(self) -> None:
        """Train on a GPU by CUDA graphs where parts can: many operations are started as one."""
        from captioning.models.layers.cuda_graphs import AbstractGraphedPart

        for part in self.modules():
            if isinstance(part, AbstractGraphedPart):
                part.use_cuda_graphs()

    def _start_from_word_frequencies(self, bias: Tensor) -> None:
        """Set an output's bias to the words' log-frequencies, if these are known.

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
        """All captions that a search returns for each of the batch's images, best first.

        Args:
            batch: the images.
            search: search to use in place of the model's own.
            machines: machines of constrained search, one an image, with the words that its captions
                must hold.
            beginning: whole sentences that all captions continue; the result lacks them.

        Raises:
            ValueError: a search that does not fit the model, machines for one that takes none, or
                a beginning that it cannot continue.
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
        """The first of the `candidates` of each image."""
        candidates = self.candidates(batch, search=search, machines=machines)
        return [captions[0] for captions in candidates]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Name the model and its vocabulary, so that another one is refused on loading."""
        checkpoint["captioner"] = {
            "class": type(self).__name__,
            "tokenizer": self.tokenizer.state(),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse weights of another model or vocabulary.

        Raises:
            ValueError: the checkpoint is another captioner's, or its vocabulary differs.
        """
        saved = checkpoint.get("captioner")
        if saved is None:
            raise ValueError("checkpoint holds no captioner; was it written by this framework?")
        if saved["class"] != type(self).__name__:
            raise ValueError(
                f"checkpoint belongs to model {saved['class']}, this run's model is "
                f"{type(self).__name__}; choose the same model= as the run that wrote it"
            )
        if _vocabulary(saved["tokenizer"]) != _vocabulary(self.tokenizer.state()):
            raise ValueError(
                "checkpoint and run have different vocabularies; evaluate it with "
                "`captioning evaluate run=FOLDER`, which uses its own, or train from scratch"
            )


def _vocabulary(state: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer's state without what some older checkpoints lack or have set: ends, padding."""
    known = {name: value for name, value in state.items() if name != "further_ends"}
    if "definition" in known:
        definition = json.loads(known["definition"])
        known["definition"] = definition | {"padding": None, "truncation": None}
    return known
