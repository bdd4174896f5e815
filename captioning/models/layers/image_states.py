"""Cache of a frozen image encoder's outputs for photos, computed once for all epochs."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from captioning.models.layers.image_text_parts import GIVEN, OF_PHOTOS, ImageTextParts
from captioning.vision.prompt_tensors import (
    AS_LISTS,
    CAPTION,
    COUNTS,
    IN_LAST,
    INDICES,
    OF_TILES,
    PREFIX,
    is_of_pixels,
    left_padding,
    unpadded,
)

# Parts of the image encoder's outputs that networks of transformers read if passed as input.
READ = ("pooler_output", "deepstack_features")
# Networks whose pixels are not concatenated row by row.
NOT_BY_ROW = {*AS_LISTS, *IN_LAST, *INDICES, *OF_TILES}
# Networks that read other parts of these outputs, or do not accept them as documented.
NOT_TAKEN = ("chameleon", "emu3", "fast_vlm", "fuyu", "gemma3n", "granite4_vision")
NOT_TAKEN += ("inkling_mm_model", "minimax_m3_vl", "ovis2")
State = dict[str, Any]  # of one photo, by the names of `READ`
log = logging.getLogger(__name__)


class ImageStates:
    """Cache of an image encoder's outputs by photo, passed to the network instead of pixels.

    Each photo is encoded alone, so that its states are bit-identical in any batch and in a
    resumed run. The states are stored in CPU memory.

    Args:
        network: network for which `unfit` is empty.
        num_photos: number of training photos, for the log.
        room: maximum bytes of the cache; further photos are encoded in each epoch.
        says: whether to log the memory.

    Attributes:
        prompts: tensors of each cached photo except its pixels, by key; a reader of batches
            need not read these photos again.
    """

    def __init__(self, network: Any, *, num_photos: int, room: float, says: bool = True) -> None:
        self._network, self._says = network, says
        self._encode = network.base_model.get_image_features
        self._arguments = frozenset(inspect.signature(self._encode).parameters)
        self._num_photos, self._room = num_photos, room
        self._outputs: Any = dict  # of transformers
        self._kept: dict[int, State] = {}
        self._bytes = 0
        self.prompts: dict[int, dict[str, Tensor]] = {}

    def empty(self) -> ImageStates:
        """Return an empty cache for the same network."""
        given = {"num_photos": self._num_photos, "room": self._room}
        return ImageStates(self._network, **given, says=False)

    def expected_bytes(self) -> int:
        """Expected bytes for all training photos, extrapolated from the cached ones."""
        mean = self._bytes / max(len(self._kept), 1)
        return int(min(self._room, mean * self._num_photos))

    def read(
        self, tensors: Mapping[str, Tensor], host: Mapping[str, Tensor], keys: Sequence[int]
    ) -> list[State]:
        """Return the states of I photos.

        Args:
            tensors: see `captioning.vision.prompt_tensors.PromptedProcessor.joined`; without the
                pixels of cached photos.
            host: the same tensors on the CPU.
            keys: key of each photo; empty: do not cache.

        Raises:
            ValueError: a photo is neither cached nor has pixels.
        """
        numbers = range(len(tensors[f"{PREFIX}input_ids"]))
        if not keys:
            return [self._encoded(_of_photo(tensors, host, number)) for number in numbers]
        states = []
        for number, key in zip(numbers, keys, strict=True):
            if key not in self._kept:
                photo = _of_photo(tensors, host, number)
                state = self._encoded(photo)
                self._keep(key, photo, state)
            else:
                state = self._kept[key]
            states.append(state)
        return states

    @torch.no_grad()
    def _encoded(self, photo: Mapping[str, Tensor]) -> State:
        named = {name.removeprefix(PREFIX): value for name, value in photo.items()}
        inputs = {name: value for name, value in named.items() if name in self._arguments}
        if not any(is_of_pixels(name) for name in inputs):
            raise ValueError("a batch lacks the pixels of a photo whose states are not cached")
        outputs = self._encode(**inputs, return_dict=True)
        self._outputs = type(outputs)
        return {name: outputs[name] for name in READ if outputs.get(name) is not None}

    def _keep(self, key: int, photo: Mapping[str, Tensor], state: State) -> None:
        size = sum(value.numel() * value.element_size() for value in _tensors(state))
        if not self._bytes and self._says:
            self._say(size)
        if self._bytes + size > self._room:
            return
        self._bytes += size
        self._kept[key] = _moved(state, torch.device("cpu"))
        self.prompts[key] = _without_pixels(photo)

    def joined(self, states: Sequence[State], device: torch.device) -> dict[str, Any]:
        """Concatenate states of photos to the network's input `GIVEN`.

        Args:
            states: states of each photo, in the order of the prompts.
            device: device of the network.
        """
        parts = [_moved(state, device) for state in states]
        both = {name: _side_by_side([part[name] for part in parts]) for name in parts[0]}
        if "deepstack_features" in both:
            layers = zip(*(part["deepstack_features"] for part in parts), strict=True)
            both["deepstack_features"] = [_side_by_side(layer) for layer in layers]
        return {"image": self._outputs(**both)}

    def _say(self, size: int) -> None:
        whole = size * self._num_photos
        share = min(1.0, self._room / max(whole, 1))
        part = "" if share == 1 else f", of which {share:.0%} fit: others are recomputed"
        log.info(
            "model.keep_image_states: the image encoder is frozen, so its states of "
            f"{self._num_photos} photos are cached for all epochs: about {whole / 2**20:,.0f} MiB"
            f"{part} (model.keep_image_states=false recomputes them in each epoch)"
        )


def unfit(parts: ImageTextParts) -> str:
    """Return why photo states cannot be cached in this training; empty if they can."""
    network = parts.network
    encode = getattr(network.base_model, "get_image_features", None)
    takes = GIVEN in inspect.signature(network.forward).parameters
    if encode is None or not takes or parts.reads_photos or parts.kind in (*NOT_BY_ROW, *NOT_TAKEN):
        return f"{type(network).__name__} accepts no outputs of its image encoder"
    decoder = network.get_decoder()
    of_text = {id(v) for n, v in decoder.named_parameters() if not any(w in n for w in OF_PHOTOS)}
    if (head := network.get_output_embeddings()) is not None:
        of_text |= {id(value) for value in head.parameters()}
    trained = [value for value in network.parameters() if value.requires_grad]
    if any(id(value) not in of_text for value in trained):
        return "parts outside of the language model are trained"
    if any(value.requires_grad for value in network.get_input_embeddings().parameters()):
        return "the word vectors are trained"
    inner = {id(module) for module in decoder.modules()}
    others = (module for module in network.modules() if id(module) not in inner)
    return "the image encoder has dropout" if any(map(drops, others)) else ""


def drops(module: nn.Module) -> bool:
    """Whether a layer applies dropout itself."""
    shares = (v for name, v in vars(module).items() if name == "p" or "dropout" in name)
    return any(isinstance(share, float) and share > 0 for share in shares)


def _side_by_side(values: Sequence[Any]) -> Any:
    """Concatenate photos' tensors, or sequences of tensors."""
    if isinstance(values[0], Tensor):
        return torch.cat(list(values))
    return [item for value in values for item in value]


def _of_photo(
    tensors: Mapping[str, Tensor], host: Mapping[str, Tensor], number: int
) -> dict[str, Tensor]:
    """Return the tensors of one photo of a batch."""
    photo = {}
    for name, value in tensors.items():
        counts = host.get(f"{name}{COUNTS}")
        if counts is None:
            photo[name] = value[number : number + 1]
        else:
            begin = int(counts[:number].sum())
            photo[name] = value[begin : begin + int(counts[number])]
    return {name: value for name, value in photo.items() if len(value)}


def _without_pixels(photo: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a photo's tensors from its processor on the CPU, without pixels."""
    padding = left_padding(photo.get(f"{PREFIX}attention_mask"))
    return {
        name: value.cpu()
        for name, value in unpadded(photo, padding).items()
        if not (is_of_pixels(name.removeprefix(PREFIX)) or name.endswith((COUNTS, CAPTION)))
    }


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    values = value.values() if isinstance(value, dict) else value
    return [tensor for item in values for tensor in _tensors(item)]


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=device.type == "cuda")
    if isinstance(value, dict):
        return {name: _moved(item, device) for name, item in value.items()}
    return [_moved(item, device) for item in value]
