"""A trained captioner in Python: photos in, captions out."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from omegaconf import DictConfig
from PIL import Image
from torch import nn

from captioning.data.batches.base import AbstractBatchReader
from captioning.data.batches.dataset import photos_alone
from captioning.decoding.beam import BeamSearch
from captioning.decoding.machine import Machine
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import NormalisationName, SearchSettings, check_integer
from captioning.inference.loading import LoadedCaptioner, load_captioner
from captioning.inference.photo_batches import (
    Photo,
    PhotoBatch,
    photo_name,
    photo_samples,
    read_batches,
)
from captioning.interfaces import AbstractTokenizer
from captioning.models.base import AbstractCaptioner
from captioning.runtime.cores import num_cores
from captioning.runtime.devices import Precision, by_device, computing, full_precision
from captioning.types import Box, CaptionedPhoto, Prediction, Sample

if TYPE_CHECKING:
    from captioning.inference.attention import AttendedWord

NUCLEUS = 0.9  # Holtzman et al., 2020


def chosen_search(
    own: AbstractSearch,
    *,
    diverse: bool = False,
    constrained: bool = False,
    min_words: int | None = None,
    max_words: int | None = None,
    **settings: Any,
) -> AbstractSearch:
    """A captioner's search with other settings, or another search with its settings.

    Args:
        own: the captioner's own settings.
        diverse: draw captions at random, from the most probable words that hold .9 of the
            probability.
        constrained: the one that finds captions with given words.
        min_words: fewest words of a caption; tokens of a captioner whose tokens are parts of words.
        max_words: most of them.
        **settings: fields of `SearchSettings`. A beam smaller than ``num_captions`` is widened to
            it.

    Raises:
        TypeError: no such setting.
        ValueError: a setting out of its range, or two that exclude each other.
    """
    known = [field.name for field in fields(SearchSettings)]
    if unknown := sorted(settings.keys() - {*known}):
        raise TypeError(f"search has no setting {unknown[0]}; choose from {', '.join(known)}")
    if diverse and constrained:
        raise ValueError(
            "required words need beam search, but diverse=True samples: leave out must_include "
            "or diverse"
        )
    settings |= _lengths(own.settings, min_words, max_words)
    if diverse:
        from captioning.decoding.sampling import Sampling

        return _other(Sampling, own, settings, top_p=NUCLEUS)
    settings |= _wide_beam(own.settings, settings)
    if constrained and not own.takes_machines:
        from captioning.decoding.constrained import ConstrainedBeamSearch

        return _other(ConstrainedBeamSearch, own, settings)
    defaults = SearchSettings()
    changed = {name for name, value in settings.items() if value != getattr(defaults, name)}
    if changed & {*own.unused}:
        return _other(BeamSearch, own, settings)
    return own.changed(**{n: v for n, v in settings.items() if n not in own.unused})


def _lengths(own: SearchSettings, least: int | None, most: int | None) -> dict[str, Any]:
    """Convert lengths in words to lengths in tokens with the end token."""
    if least is None and most is None:
        return {}
    if least is not None:
        check_integer("min_words", least, minimum=0)
    if most is not None:
        check_integer("max_words", most, minimum=1)
    if least is not None and most is not None and least > most:
        raise ValueError(f"min_words must be at most max_words, got {least} > {most}")
    min_length = own.min_length if least is None else least + 1
    max_length = max(own.max_length, min_length + 1) if most is None else most + 1
    return {
        "min_length": min(min_length, max_length),
        "max_length": max_length,
        "must_end": own.must_end if most is None else True,
        "count_prompt": False,
    }


def _wide_beam(own: SearchSettings, settings: dict[str, Any]) -> dict[str, int]:
    """Return a beam size of at least the number of captions."""
    number = settings.get("num_captions", own.num_captions)
    beam = settings.get("beam_size", own.beam_size)
    if not isinstance(number, int) or not isinstance(beam, int) or beam >= number or beam < 1:
        return {}
    return {"beam_size": number}


def _other(
    search: type[AbstractSearch], own: AbstractSearch, settings: dict[str, Any], **arguments: Any
) -> AbstractSearch:
    """Return another search with the relevant settings of ``own`` and the given settings."""
    defaults = SearchSettings()
    unused = {name: getattr(defaults, name) for name in search.unused}
    return search(settings=replace(own.settings, **(unused | settings)), **arguments)


def words_machine(
    wanted: Sequence[str | Sequence[str]], tokenizer: AbstractTokenizer
) -> Machine | None:
    """The machine of words that a caption must hold; None for none.

    Args:
        wanted: each a word or phrase, or a list of alternatives, one of which suffices.
        tokenizer: the captioner's tokenizer.

    Raises:
        ValueError: a word that the captioner does not know, or too many of them.
    """
    if isinstance(wanted, str):
        raise ValueError(f"must_include must be a list of words, got {wanted!r}; write [{wanted}]")
    if not wanted:
        return None
    texts = [[words] if isinstance(words, str) else words for words in wanted]
    if not all(isinstance(t, Sequence) and t and all(isinstance(w, str) for w in t) for t in texts):
        raise ValueError(f"must_include must hold words or tuples of words, got {wanted!r}")
    alternatives = [(words,) if isinstance(words, str) else tuple(words) for words in wanted]
    from captioning.decoding.constraints import constrain

    constraints = constrain(
        alternatives,
        tokenizer.spellings,
        required=len(alternatives),
        continues=tokenizer.continuing(),
        begin_id=tokenizer.begin_id,
    )
    if constraints.dropped:
        words = ", ".join(" or ".join(map(repr, words)) for words in constraints.dropped)
        raise ValueError(f"this captioner does not know the word {words}; choose another word")
    return constraints.machine


class Captioner:
    """A trained model that captions photos; `Captioner.load` returns a captioner.

    Attributes:
        model, config, readers, device, backbone, dtype: see `LoadedCaptioner`.
        takes_boxes: whether the captioner reads boxes, which `caption` then needs for each photo.

    Examples:
        >>> from pathlib import Path
        >>> from captioning import Captioner
        >>> photos = sorted(Path("my_photos").glob("*.jpg"))[:2]
        >>> results = Captioner.load().caption(photos, beam_size=2, max_words=12)
        >>> [result.photo for result in results] == [str(photo) for photo in photos]
        True
    """

    def __init__(self, loaded: LoadedCaptioner) -> None:
        self.model: AbstractCaptioner[Any] = loaded.model
        self.config: DictConfig = loaded.config
        self.readers: Mapping[str, AbstractBatchReader] = loaded.readers
        self.device: torch.device = loaded.device
        self.backbone: nn.Module | None = loaded.backbone
        self.dtype: torch.dtype = loaded.dtype
        self.takes_boxes: bool = loaded.config.features.get("kind") == "regions"

    @classmethod
    def load(
        cls,
        model: str | Path | None = None,
        *,
        device: str | torch.device = "auto",
        plugins: Sequence[str] = (),
        prompt: str | None = None,
        template: Mapping[str, Any] | None = None,
        precision: Precision | None = None,
    ) -> Self:
        """Load the captioner of this package, or a captioner from a folder or the hub.

        The contents of a folder tell its kind. A folder may come from strangers: its settings name
        only code of this project and its libraries, its weights are plain tensors, and `load`
        checks their sizes.

        Args:
            model: folder of a run with a finished epoch, of ``captioning export``, or of an
                image-to-text model of transformers; or ``OWNER/NAME@COMMIT`` of the hub. None:
                the shipped captioner.
            device: ``"auto"`` takes a GPU if there is one.
            plugins: packages of your own that its settings name.
            prompt: the prompt of a transformers model; None: no prompt, or one that asks for a
                sentence.
            template: options of its chat template, such as ``{"enable_thinking": False}``.
            precision: ``"float32"``, ``"bfloat16"``, ``"float16"``, or ``"auto"``: half precision
                on a GPU. None: single; for a model of transformers, ``"auto"``.

        Raises:
            FileNotFoundError: no such folder, a file is missing, or no captioner is shipped.
            ValueError: no captioner in the folder, damaged files, parts that settings may not
                name, or a run on imported features.
            ConnectionError: the hub cannot be reached.
        """
        return cls(
            load_captioner(
                model,
                device=device,
                plugins=plugins,
                prompt=prompt,
                template=template,
                precision=precision,
            )
        )

    def caption(
        self,
        photos: Sequence[Photo],
        *,
        batch_size: int | None = None,
        boxes: Sequence[Sequence[Box]] | None = None,
        must_include: Sequence[str | Sequence[str]] = (),
        skips_broken: bool = False,
        num_captions: int | None = None,
        beam_size: int | None = None,
        diverse: bool = False,
        seed: int | None = None,
        temperature: float | None = None,
        min_words: int | None = None,
        max_words: int | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        must_end: bool | None = None,
        count_prompt: bool | None = None,
        length_penalty: float | None = None,
        normalisation: NormalisationName | None = None,
        no_repeat_ngram_size: int | None = None,
        repetition_penalty: float | None = None,
        forbidden_words: Sequence[str] | None = None,
        forbidden_ids: Sequence[int] | None = None,
        end_words: Sequence[str] | None = None,
        end_ids: Sequence[int] | None = None,
        special_tokens: bool | None = None,
        per_node_beam: int | None = None,
        exact: bool | None = None,
    ) -> list[CaptionedPhoto]:
        """Caption photos; the results are in the order of the photos.

        A search option that is None keeps the captioner's own setting. `SearchSettings` documents
        the options of experts.

        Args:
            photos: files or pictures of Pillow; a photo may occur several times.
            batch_size: photos computed at a time, at least 1; None: 16, on a GPU 64, for a model of
                transformers 16.
            boxes: boxes of each photo, ``(x1, y1, x2, y2)`` in its pixels, for captioners on
                regions.
            must_include: words or phrases that each caption must hold; a tuple lists alternatives,
                of which one suffices. `Prediction.satisfied` says whether a caption holds them.
            skips_broken: a broken photo has a result with `CaptionedPhoto.problem`; False: it
                raises an error.
            num_captions: captions a photo, at least 1.
            beam_size: hypotheses that beam search keeps, at least 1.
            diverse: draw captions at random from the most probable words.
            seed: seed of random draws, at least 0.
            temperature: temperature of random draws, at least 0; below 1 draws probable words more
                often.
            min_words: fewest words of a caption, at least 0.
            max_words: most words of a caption, at least 1 and at least ``min_words``.
            min_length, max_length: bounds in tokens, the end token counted.
            must_end, count_prompt: whether a caption of ``max_length`` must end by itself; whether
                the prompt counts in the lengths.
            length_penalty: exponent of the length that divides log-probabilities, at least 0.
            normalisation: ``"none"``, ``"power"`` or ``"gnmt"``.
            no_repeat_ngram_size: no so many tokens in a row occur twice, at least 0; 0: no rule.
            repetition_penalty: penalty of tokens that the caption already holds, above 0; 1: none.
            forbidden_words, forbidden_ids: words, or tokens, that no caption holds.
            end_words, end_ids: words, or tokens, that end a caption.
            special_tokens, per_node_beam, exact: see `SearchSettings`.

        Raises:
            FileNotFoundError: a photo does not exist.
            ValueError: a photo that cannot be read, or an option out of its range.
            TypeError: ``photos`` is not a list.
        """
        options = {
            name: value
            for name, value in locals().items()
            if value is not None and name not in ("self", "photos")
        }
        return list(self.stream(photos, **options))

    def stream(
        self,
        photos: Sequence[Photo],
        *,
        batch_size: int | None = None,
        boxes: Sequence[Sequence[Box]] | None = None,
        must_include: Sequence[str | Sequence[str]] = (),
        skips_broken: bool = False,
        **search: Any,
    ) -> Iterator[CaptionedPhoto]:
        """Yield the captions of each photo while later photos are read; see `caption`.

        Args:
            photos, batch_size, boxes, must_include, skips_broken: see `caption`.
            **search: the other options of `caption`.

        Raises:
            FileNotFoundError, ValueError, TypeError: see `caption`.
        """
        if isinstance(photos, str | Path | Image.Image):
            raise TypeError(f"photos must be a list: got {photos!r}; put it into [...]")
        if not hasattr(photos, "__getitem__"):
            raise TypeError(f"photos must be a list: got {photos!r}; write list(...)")
        batch_size = self._photos_at_once if batch_size is None else batch_size
        check_integer("batch_size", batch_size, minimum=1)
        self._check_boxes(photos, boxes)
        machine = words_machine(must_include, self.model.tokenizer)
        chosen = chosen_search(self.model.search, constrained=machine is not None, **search)
        with tempfile.TemporaryDirectory() as folder:
            samples, names = photo_samples(photos, boxes, Path(folder))
            done: dict[str, CaptionedPhoto] = {}
            position = 0
            for part in self._read(samples, batch_size, skips=skips_broken):
                done |= self._captioned(part, chosen, machine)
                while position < len(names) and names[position] in done:
                    photo = photo_name(photos[position], position)
                    yield replace(done[names[position]], photo=photo)
                    position += 1

    def attention(
        self, photo: Photo, captions: Sequence[str], *, boxes: Sequence[Box] | None = None
    ) -> list[list[AttendedWord]]:
        """The attention to parts of a photo at each word of captions.

        Args:
            photo: the file, or a picture of Pillow.
            captions: the captions that `caption` returned.
            boxes: boxes of the photo, for captioners on regions.

        Returns:
            The words of each caption, with weights of `grid_size` cells, row by row from the top
            left, maybe with one of the whole photo before them; or of the whole photo, then of the
            boxes. Words have no weights where its model attends to no parts of a photo.

        Raises:
            FileNotFoundError, ValueError: see `caption`.
        """
        from captioning.inference.attention import attended_words

        given = None if boxes is None else [boxes]
        self._check_boxes([photo], given)
        with tempfile.TemporaryDirectory() as folder:
            samples, _ = photo_samples([photo], given, Path(folder))
            (part,) = self._read(samples, 1, skips=False)
        if part.batch is None:
            raise ValueError(f"{photo} cannot be read as a photo")
        with full_precision():
            return attended_words(self.model, part.batch.to(self.device), captions)

    @property
    def _photos_at_once(self) -> int:
        """Default batch size: 64 photos of large models with their hypotheses would fill a GPU."""
        return 16 if self._is_of_transformers else by_device(self.device, processor=16, gpu=64)

    @property
    def _is_of_transformers(self) -> bool:
        return self.model.tokenizer.of_processor

    @property
    def grid_size(self) -> tuple[int, int] | None:
        """Rows and columns of the grid that the model reads; None for regions, or if unknown."""
        backbone = self.backbone or self.model.backbone
        return None if self.takes_boxes else getattr(backbone, "grid_size", None)

    def _check_boxes(self, photos: Sequence[Photo], boxes: Sequence[Sequence[Box]] | None) -> None:
        if not self.takes_boxes and boxes is not None:
            raise ValueError("this captioner reads whole photos: leave boxes out")
        if self.takes_boxes and (boxes is None or len(boxes) != len(photos)):
            got = "none" if boxes is None else str(len(boxes))
            raise ValueError(
                f"this captioner reads regions: boxes must hold one list for each of {len(photos)} "
                f"photos, got {got}"
            )

    def _read(
        self, samples: Sequence[Sample], batch_size: int, *, skips: bool
    ) -> Iterator[PhotoBatch]:
        if not samples:
            return
        # threads that read one batch each; a single thread would be slower than a GPU
        ahead = min(by_device(self.device, processor=1, gpu=8), num_cores())
        if self._is_of_transformers:
            ahead = 1  # a processor of transformers is none for two threads
        dataset = photos_alone(samples, self.readers.values(), self.model.tokenizer)
        yield from read_batches(dataset, batch_size, ahead=ahead, skips=skips)

    @torch.inference_mode()
    def _captioned(
        self, part: PhotoBatch, search: AbstractSearch, machine: Machine | None
    ) -> dict[str, CaptionedPhoto]:
        """Return results by image id."""
        groups: dict[str, list[Prediction]] = {}
        if part.batch is not None:
            batch = part.batch.to(self.device)
            machines = None if machine is None else [machine] * len(batch.image_ids)
            with computing(self.dtype, self.device):  # whatever is read meanwhile
                found = self.model.candidates(batch, search=search, machines=machines)
            groups = dict(zip(batch.image_ids, found, strict=True))
        return {
            sample.image_id: CaptionedPhoto(
                photo=sample.image_id,
                captions=_different(groups.get(sample.image_id, ()), search),
                problem=part.problems.get(sample.image_id, ""),
                boxes=tuple(region.box for region in sample.regions),
            )
            for sample in part.samples
        }


def _different(captions: Sequence[Prediction], search: AbstractSearch) -> tuple[Prediction, ...]:
    """Remove repeated captions; best first."""
    different: dict[str, Prediction] = {}
    for prediction in captions:
        different.setdefault(prediction.caption, prediction)
    if not search.best_first:
        return tuple(sorted(different.values(), key=lambda prediction: -prediction.score))
    return tuple(different.values())
