"""Contexts of similar photos as further training data of COS-CVAE.

A context is a caption with a placeholder for each of its objects. Two photos of similar scenes have
similar contexts with different objects. So the context of one, filled with the objects of the
other, is nearly a caption of the other (Mahajan and Roth, 2020, section 3.3).
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioning.config.ranges import PositiveInt
from captioning.data.batches.base import AbstractBatchReader, Epoch, Read, Tensors, of_captions
from captioning.data.batches.controls import NUM_TRIED, boxes_of, region_overlaps
from captioning.data.roster import Roster
from captioning.data.steps.add_pairs import is_added, photo_ids
from captioning.interfaces import AbstractTokenizer
from captioning.runtime.tensor_files import read_tensors, write_tensors
from captioning.text.object_words import NONE, PLURAL, SINGULAR, ObjectWords, build_object_words
from captioning.text.sentences import SentenceEncoder, build_sentence_encoder
from captioning.text.tokenizers.treebank import split_words
from captioning.types import Sample

log = logging.getLogger(__name__)

# Stands for a missing neighbour.
NOTHING = -1
# Intersection over union of a region of imported features and the detector's box that it is; both
# are of one detector, so it is near 1, but rounded and from another run.
SAME_BOX = 0.5
LABELLED = 0.5  # share of regions that must have a label
_BLOCK = 256


def find_nearest(
    contexts: Sequence[str | None],
    images: Sequence[str],
    embed: Callable[[Sequence[str]], Tensor],
    num_nearest: int,
    *,
    lend: Sequence[bool] | None = None,
) -> Tensor:
    """Return the rows of the nearest contexts.

    Nearest by cosine, the earliest among equals. They are of other images, and differ from the
    text's own context and from each other.

    Args:
        contexts: N texts; None for those without an object, which have no neighbours and are
            neighbours of none.
        images: the image of each.
        embed: gives unit vectors ``(U, D)`` of U texts.
        num_nearest: M.
        lend: mask of the N texts that may be neighbours; None: all.

    Returns:
        ``(N, M) int64``.
    """
    rows_of = _rows_by_text(contexts)
    lenders = rows_of if lend is None else _rows_by_text(contexts, lend)
    neighbours = torch.full((len(contexts), num_nearest), NOTHING, dtype=torch.long)
    if not lenders:
        return neighbours
    # Lenders come first, so that a text has one place among all texts and among lenders.
    texts = [*lenders, *(text for text in rows_of if text not in lenders)]
    # A row of the first image and a row of another image are enough for every image.
    sources = [_two_images(rows, images) for rows in lenders.values()]
    max_captions = max(Counter(images).values())
    vectors = embed(texts)
    number = len(lenders)
    count = min(number, 1 + num_nearest + max_captions)
    for start in range(0, len(texts), _BLOCK):
        likeness = vectors[start : start + _BLOCK] @ vectors[:number].t()
        # Integers, so that rounding errors decide no order; equals are ordered by place.
        likeness = (likeness.double() * 1e6).round().long() * number
        likeness -= torch.arange(number)
        nearest = likeness.topk(count, dim=1).indices.tolist()
        for place, candidates in enumerate(nearest, start):
            for row in rows_of[texts[place]]:
                rows = _other_rows(place, candidates, sources, images, images[row])[:num_nearest]
                neighbours[row, : len(rows)] = torch.tensor(rows, dtype=torch.long)
    return neighbours


def _rows_by_text(
    contexts: Sequence[str | None], lend: Sequence[bool] | None = None
) -> dict[str, list[int]]:
    """Return the rows of each text, in order: all rows, or those that may lend contexts."""
    rows_of: dict[str, list[int]] = {}
    for row, context in enumerate(contexts):
        if context is not None and (lend is None or lend[row]):
            rows_of.setdefault(context, []).append(row)
    return rows_of


def _two_images(rows: Sequence[int], images: Sequence[str]) -> list[int]:
    other_row = next((row for row in rows if images[row] != images[rows[0]]), None)
    return [rows[0]] if other_row is None else [rows[0], other_row]


def _other_rows(
    own_text: int, texts: list[int], sources: list[list[int]], images: Sequence[str], image: str
) -> list[int]:
    """Return, for each text, a row of another image with another text, if there is one."""
    rows = []
    for text in texts:
        row = next((row for row in sources[text] if images[row] != image), None)
        if text != own_text and row is not None:
            rows.append(row)
    return rows


_NUMBERS = (SINGULAR, PLURAL)


class ContextIndex(AbstractBatchReader):
    """Batch reader that finds the nearest contexts of a training set once and adds them.

    Args:
        objects: words that name objects, see `build_object_words`; the model's.
        encoder: name of the sentence encoder, see `build_sentence_encoder`, or one that is built.
        num_nearest: contexts of each caption.
        num_words: object words of a photo that can fill slots, in the singular and in the plural.
        slots: ``"captions"``: the model fills them with the words of the photo's captions alone;
            ``"regions"``: with the labels of the regions that it attends to, as the authors do.
            It needs features of the annotated boxes, or imported ones with boxes and a detector's
            labels of them (``steps=[take_detections]``).
        all_photos: whether photos that `captioning.data.steps.add_pairs` leaves out lend
            contexts too.
        added_lend: whether pairs that `captioning.data.steps.add_pairs` adds lend contexts. They
            resemble their own source captions more than any other photo's.
        cache_folder: caches neighbours by content; None: no cache.

    Raises:
        ValueError: ``num_nearest`` or ``num_words`` below 1, or other ``slots``.
    """

    fixes_captions: ClassVar[bool] = True

    def __init__(
        self,
        *,
        objects: str = "coco",
        encoder: str | SentenceEncoder = "minilm",
        num_nearest: PositiveInt = 4,
        num_words: PositiveInt = 5,
        slots: Literal["captions", "regions"] = "captions",
        all_photos: bool = False,
        added_lend: bool = True,
        cache_folder: str | Path | None = None,
    ) -> None:
        if num_nearest < 1 or num_words < 1:
            raise ValueError(
                f"num_nearest and num_words must be at least 1: got {num_nearest} and {num_words}"
            )
        if slots not in ("captions", "regions"):
            raise ValueError(f"slots must be captions or regions: got {slots!r}")
        self.slots, self.all_photos, self.added_lend = slots, all_photos, added_lend
        self.words = build_object_words(objects)
        self.num_nearest, self.num_words = num_nearest, num_words
        self._encoder = encoder
        self._folder = None if cache_folder is None else Path(cache_folder)
        self._cached: tuple[Roster, Sequence[Sample], Tensor] | None = None

    def open(self, epoch: Epoch) -> Read | None:
        """Return a function that adds contexts, in training only.

        Raises:
            ValueError: slots of regions without features of regions.
        """
        if epoch.stage != "train" or epoch.roster is None:
            return None
        sources = epoch.left_out if self.all_photos else ()
        if self.slots == "captions" or epoch.pictures == "regions":
            return of_captions(self.of_epoch(epoch.roster, epoch.samples, epoch.tokenizer, sources))
        if not epoch.pictures.startswith("imported"):
            raise ValueError(
                "model.readers.contexts.slots=regions needs features of the annotated boxes: "
                "choose features=efficientnet_lite0_regions, or "
                "model.readers.contexts.slots=captions"
            )
        names = {region.label for sample in epoch.samples for region in sample.regions}
        labels = ImportedLabels(_label_forms(names, self.words, epoch.tokenizer))
        labels.check(epoch)
        contexts = self.of_epoch(
            epoch.roster, epoch.samples, epoch.tokenizer, sources, labels=False
        )
        return lambda captions, photos, batch: {
            **contexts(captions),
            **labels(captions, photos, batch),
        }

    def neighbours(self, roster: Roster, sources: Sequence[Sample] = ()) -> Tensor:
        """Return rows ``(N, num_nearest) int64`` of the nearest contexts of each caption.

        Nearest by cosine of the sentence embeddings, the earliest among equals. They are of other
        photos, differ from the caption's own context and from each other, and have an object. An
        added picture is the photo that it was pasted onto. `NOTHING` where there are no more.

        Args:
            roster: roster of N captions.
            sources: further captions, in rows behind the roster's.
        """
        if not (self._cached and self._cached[0] is roster and self._cached[1] is sources):
            rows = self._read_or_find([*roster.samples, *sources])[: len(roster)]
            self._cached = (roster, sources, rows)
        return self._cached[2]

    def of_epoch(
        self,
        roster: Roster,
        samples: Sequence[Sample],
        tokenizer: AbstractTokenizer,
        sources: Sequence[Sample] = (),
        *,
        labels: bool = True,
    ) -> Callable[[Sequence[Sample]], dict[str, Tensor]]:
        """Return the function that computes a batch's context tensors, see `EpochContexts.tensors`.

        Args:
            roster: roster to search for contexts.
            samples: those of the epoch. Contexts of captions that curation has removed or changed
                are not used, and a changed caption gets none.
            tokenizer: turns words into ids.
            sources: captions of other images that lend contexts and are not trained on.
            labels: whether the tensors have the labels of regions, where slots take these.
        """
        by_label = labels and self.slots == "regions"
        unchanged = {s.row: s for s in samples if s.caption == roster.samples[s.row].caption}
        return EpochContexts(
            neighbours=self.neighbours(roster, sources),
            unchanged=unchanged | dict(enumerate(sources, len(roster))),
            words=self.words,
            photo_words=_photo_words(samples, self.words, tokenizer, self.num_words),
            tokenizer=tokenizer,
            labels=self._labels(samples, tokenizer) if by_label else None,
        ).tensors

    def _labels(
        self, samples: Sequence[Sample], tokenizer: AbstractTokenizer
    ) -> dict[Path, np.ndarray]:
        """Return token ids ``(2, 1 + n)`` of the labels of a photo's regions, by path."""
        forms = _label_forms({r.label for s in samples for r in s.regions}, self.words, tokenizer)
        return {
            sample.image_path: np.array(
                [(NOTHING, NOTHING), *(forms[region.label] for region in sample.regions)]
            ).T
            for sample in samples
        }

    def _read_or_find(self, samples: Sequence[Sample]) -> Tensor:
        contexts = [_context(sample.caption, self.words) for sample in samples]
        images = photo_ids(samples)
        lend = [self.added_lend or not is_added(sample) for sample in samples]
        if isinstance(self._encoder, str):
            folder = None if self._folder is None else self._folder / "sentences"
            self._encoder = build_sentence_encoder(name=self._encoder, cache_folder=folder)
        embed = self._encoder.embed_texts
        find = partial(find_nearest, contexts, images, embed, self.num_nearest, lend=lend)
        if self._folder is None:
            return find()
        digest = hashlib.sha256(f"{self._encoder.identity} {self.num_nearest}".encode())
        for pair in zip(images, contexts, strict=True):
            digest.update(repr(pair).encode())
        if not all(lend):
            digest.update(bytes(lend))
        path = self._folder / "nearest_contexts" / f"{digest.hexdigest()[:16]}.safetensors"
        if path.is_file():
            return _read(path, (len(contexts), self.num_nearest))
        log.info(f"searching the nearest contexts of {len(contexts)} captions")
        neighbours = find()
        write_tensors(path, {"neighbours": neighbours})
        return neighbours


class EpochContexts:
    """Contexts for an epoch's captions.

    Args:
        neighbours: ``(N, M) int64`` rows.
        unchanged: samples by row whose captions are those that the neighbours were computed for.
        words: words that name objects.
        photo_words: ids of each photo's object words, ``(2, O)``, by its path.
        tokenizer: tokenizer of captions.
        labels: ids of the labels of each photo's regions, the full photo first, ``(2, R)`` by its
            path; None where slots are filled without them.
    """

    def __init__(
        self,
        *,
        neighbours: Tensor,
        unchanged: dict[int, Sample],
        words: ObjectWords,
        photo_words: dict[Path, np.ndarray],
        tokenizer: AbstractTokenizer,
        labels: dict[Path, np.ndarray] | None = None,
    ) -> None:
        self._labels = labels
        self._neighbours = neighbours.numpy()
        self._unchanged, self._words, self._photo_words = unchanged, words, photo_words
        self._tokenizer = tokenizer
        self._ids: dict[int, list[int]] = {}

    def tensors(self, samples: Sequence[Sample]) -> dict[str, Tensor]:
        """Return the context tensors of a batch's captions.

        Args:
            samples: B captions.

        Returns:
            ``context_tokens (B, M, T) int64`` in [0, V + 2): the vocabulary's tokens with begin and
            end, V for an object in the singular and V + 1 in the plural, padded; ``context_lengths
            (B, M) int64`` their numbers of tokens, 0 for a missing context (missing ones come
            last); ``object_words (B, 2, O) int64`` tokens of the photo's objects in the singular
            and in the plural, the most frequent first, then `NOTHING`. With labels also
            ``region_words (B, 2, R) int64``, the words of the photo's regions, `NOTHING` where the
            vocabulary lacks the word.
        """
        rows = [self._usable(sample) for sample in samples]
        shape = (len(samples), self._neighbours.shape[1])
        lengths = np.zeros(shape, dtype=np.int64)
        contexts = [[self._context_ids(row) for row in caption_rows] for caption_rows in rows]
        longest = max((len(ids) for caption_rows in contexts for ids in caption_rows), default=2)
        tokens = np.full((*shape, longest), self._tokenizer.pad_id, dtype=np.int64)
        for place, caption_rows in enumerate(contexts):
            for number, ids in enumerate(caption_rows):
                tokens[place, number, : len(ids)] = ids
                lengths[place, number] = len(ids)
        words = np.stack([self._photo_words[sample.image_path] for sample in samples])
        batch = {
            "context_tokens": torch.from_numpy(tokens),
            "context_lengths": torch.from_numpy(lengths),
            "object_words": torch.from_numpy(words),
        }
        if self._labels is not None:
            batch["region_words"] = _padded([self._labels[s.image_path] for s in samples])
        return batch

    def _usable(self, sample: Sample) -> list[int]:
        if self._unchanged.get(sample.row) is None:
            return []
        return [row for row in self._neighbours[sample.row].tolist() if row in self._unchanged]

    def _context_ids(self, row: int) -> list[int]:
        if row not in self._ids:
            self._ids[row] = _placed(
                self._tokenizer, self._unchanged[row].caption, self._words, len(self._tokenizer)
            )
        return self._ids[row]


class ImportedLabels:
    """Batch reader of ``region_words (B, 2, R) int64``: labels of imported regions.

    An imported region has the label of the annotated one that overlaps it most, if by `SAME_BOX`;
    annotations come from a file of detections by the features' detector.

    Args:
        forms: ids of each label in the singular and in the plural.
    """

    def __init__(self, forms: Mapping[str, tuple[int, int]]) -> None:
        self._forms = forms
        self._labels: dict[str, np.ndarray] = {}

    def __call__(
        self, captions: Sequence[Sample], photos: Sequence[Sample], batch: Tensors
    ) -> Tensors:
        """Return the labels for a batch with ``boxes (I, R, 4)``."""
        for number, photo in enumerate(photos):
            if photo.image_id not in self._labels:
                self._labels[photo.image_id] = self._of(photo, boxes_of(batch, number))
        return {"region_words": _padded([self._labels[s.image_id] for s in captions])}

    def check(self, epoch: Epoch) -> None:
        """Raise an error for features without boxes, or annotations of other boxes.

        Raises:
            ValueError: fewer than half of the first photos' regions have a label.
        """
        photos = list({sample.image_id: sample for sample in epoch.samples}.values())[:NUM_TRIED]
        num_matched, num_regions, read = 0, 0, epoch.read_pictures
        for photo in photos if read is not None else ():
            batch = read([photo], [photo], {})
            if "boxes" not in batch:
                raise ValueError(
                    "model.readers.contexts.slots=regions: the imported features have no boxes; "
                    "import them again with boxes, or choose slots=captions"
                )
            labelled = self._matches(photo, boxes_of(batch, 0))
            num_matched, num_regions = num_matched + sum(labelled >= 0), num_regions + len(labelled)
        if num_matched < LABELLED * num_regions:
            raise ValueError(
                f"model.readers.contexts.slots=regions: of {num_regions} imported regions of the "
                f"first {len(photos)} photos {num_matched} have an annotated box with a label; add "
                "steps=[take_detections] with the boxes of the detector that made the features, or "
                "choose slots=captions"
            )

    def _matches(self, photo: Sample, boxes: np.ndarray) -> np.ndarray:
        """Return the annotated region ``(m,)`` of each box, or `NOTHING`."""
        if not photo.regions:
            return np.full(len(boxes), NOTHING)
        overlaps = region_overlaps(photo, boxes)
        return np.where(overlaps.max(0) >= SAME_BOX, overlaps.argmax(0), NOTHING)

    def _of(self, photo: Sample, boxes: np.ndarray) -> np.ndarray:
        """Return token ids ``(2, m)`` of the boxes' labels."""
        forms = [self._forms[region.label] for region in photo.regions] + [(NOTHING, NOTHING)]
        return np.array([forms[match] for match in self._matches(photo, boxes)]).T


def _padded(labels: Sequence[np.ndarray]) -> Tensor:
    """Pad ids of several photos' labels, each ``(2, m)``, to ``(B, 2, R)`` with `NOTHING`."""
    rows = [torch.from_numpy(of_photo).T for of_photo in labels]
    return pad_sequence(rows, batch_first=True, padding_value=NOTHING).transpose(1, 2)


def _context(caption: str, words: ObjectWords) -> str | None:
    """Return a caption's context as text; None if it names no object."""
    split = split_words(caption)
    return words.context(split) if any(words.numbers(split)) else None


def _placed(tokenizer: AbstractTokenizer, caption: str, words: ObjectWords, size: int) -> list[int]:
    """Return a caption's ids with a placeholder (``size`` or ``size + 1``) for each object."""
    ids = tokenizer.encode(caption)
    split = split_words(caption)[: len(ids) - 2]
    if len(split) != len(ids) - 2:
        raise ValueError(
            "contexts need a word tokenizer (tokenizer=words) with one token per word: got "
            f"{len(ids) - 2} tokens for {len(split)} words"
        )
    context, done = [ids[0]], 0
    for start, end, number in words.spans(split):
        context += [*ids[1 + done : 1 + start], size + _NUMBERS.index(number)]
        done = end
    return [*context, *ids[1 + done :]]


def _photo_words(
    samples: Sequence[Sample], words: ObjectWords, tokenizer: AbstractTokenizer, max_words: int
) -> dict[Path, np.ndarray]:
    """Return ids of one-word objects in each photo's captions, singular and plural."""
    counts: dict[Path, tuple[Counter[int], Counter[int]]] = {}
    for sample in samples:
        of_photo = counts.setdefault(sample.image_path, (Counter(), Counter()))
        split, ids = split_words(sample.caption), tokenizer.encode(sample.caption)[1:-1]
        for start, end, number in words.spans(split[: len(ids)]):
            if end == start + 1 and number != NONE and ids[start] != tokenizer.unk_id:
                of_photo[_NUMBERS.index(number)][ids[start]] += 1
    words_by_photo = {}
    for path, of_photo in counts.items():
        words_by_photo[path] = np.full((len(_NUMBERS), max_words), NOTHING, dtype=np.int64)
        for number, counter in enumerate(of_photo):
            best = sorted(counter, key=lambda token: (-counter[token], token))[:max_words]
            words_by_photo[path][number, : len(best)] = best
    return words_by_photo


def _label_forms(
    labels: Iterable[str], words: ObjectWords, tokenizer: AbstractTokenizer
) -> dict[str, tuple[int, int]]:
    """Return ids of labels in singular and plural; `NOTHING` if a form is not one token."""
    plurals: dict[str, str] = {}
    for word in getattr(tokenizer, "words", ()):
        if words.lemma(word) != word:
            plurals.setdefault(words.lemma(word), word)
    return {
        label: (_single(label, tokenizer), _single(plurals.get(label, ""), tokenizer))
        for label in labels
    }


def _single(word: str, tokenizer: AbstractTokenizer) -> int:
    spellings = tokenizer.spellings(word) if word else []
    return spellings[0][0] if spellings and len(spellings[0]) == 1 else NOTHING


def _read(path: Path, shape: tuple[int, int]) -> Tensor:
    try:
        neighbours = read_tensors(path)[0]["neighbours"]
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} is damaged ({error}); delete it") from error
    if tuple(neighbours.shape) != shape:
        raise ValueError(
            f"{path} must hold neighbours {shape}: got {tuple(neighbours.shape)}; delete it"
        )
    return neighbours
