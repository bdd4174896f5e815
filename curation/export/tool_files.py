"""Write captions for other tools: chats, CSV, Karpathy's JSON, or a text file for each photo."""

from __future__ import annotations

import csv
import io
import json
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

from captioning.data.readers.generator_folders import repeated_folders
from captioning.data.readers.split_words import COLUMN, SPLIT_WORDS, Split
from captioning.runtime.files import write_json, write_lines
from captioning.types import Sample
from curation.export.curated_set import (
    HUB_NAMES,
    Picture,
    caption_fields,
    of_splits,
    place_photos,
    told_fields,
)

Form = Literal["sharegpt", "llava", "kohya"]
FORMS: tuple[Form, ...] = get_args(Form)
QUESTION = "Describe the image in one sentence."
_FORMAT_OF: dict[Form, str] = {"sharegpt": "messages", "llava": "messages", "kohya": "text_files"}
_PLACE = "<image>"  # placeholder of the photo in a chat
_FOLDER_WORDS = "|".join(word for words in SPLIT_WORDS.values() for word in words)
_SPLIT_FOLDER = re.compile(rf"(?<![a-z])(?=(?:{_FOLDER_WORDS})(?![a-z]))(?=[^/]*/)", re.IGNORECASE)
_BREAK = re.compile(r"\s*[\r\n]\s*")
_HIDDEN = re.compile(r"(?<![^/])(?=\.)")


@dataclass(frozen=True, kw_only=True)
class Style:
    """Options of export formats that have several forms.

    Attributes:
        form: ``"sharegpt"`` (LLaMA-Factory) or ``"llava"``, of messages; ``"kohya"``, of text
            files: folders that say how often an epoch has their photos. None: the plain form.
        question: question of messages about a photo, if the set has none; None: `QUESTION`.
        repeats: repeats of training photos, in kohya's form.
        questions: questions of the set, by sample id.
        beside: the same for splits that were not curated, whose ids may equal others.
    """

    form: Form | None = None
    question: str | None = None
    repeats: int = 1
    questions: Mapping[str, str] = field(default_factory=dict)
    beside: Mapping[Split, Mapping[str, str]] = field(default_factory=dict)

    @property
    def pattern(self) -> str:
        """File name of messages with a placeholder for the split."""
        return "messages{_split}.jsonl" if self.form is None else "conversations{_split}.json"

    def check(self, format: str) -> None:
        """Raise ValueError for options that the format does not support.

        Raises:
            ValueError: the format lacks an option; the message names the option.
        """
        if self.form is not None and _FORMAT_OF.get(self.form) != format:
            known = ", ".join(f"{form} (of {_FORMAT_OF[form]})" for form in FORMS)
            raise ValueError(f"{format} does not support --form {self.form}: choose one of {known}")
        if self.question is not None and format != "messages":
            raise ValueError(
                f"{format} does not support --question: remove --question, or choose messages"
            )
        if self.question is not None and (not self.question.strip() or _PLACE in self.question):
            raise ValueError(f"--question must be a text without {_PLACE}: got {self.question!r}")
        if self.repeats < 1 or (self.repeats > 1 and self.form != "kohya"):
            raise ValueError(
                f"--repeats must be at least 1 and works only with --form kohya: got {self.repeats}"
            )

    def asking(self, questions: Mapping[Split, Mapping[str, str]]) -> Style:
        """Return this style with the questions of a run's splits; only train was curated."""
        beside = {split: asked for split, asked in questions.items() if split != "train"}
        return replace(self, questions=questions.get("train", {}), beside=beside)

    def asked(self, sample: Sample, split: Split | None) -> str:
        """Return the question that a caption answers."""
        questions = self.questions if split is None else self.beside.get(split, self.questions)
        own = questions.get(sample.sample_id, "").replace(_PLACE, " ").strip()
        return own or self.question or QUESTION


def write_messages(curated: Sequence[Picture], path: Path, *, style: Style, photos: str) -> None:
    """Write each caption as a chat with one question and one answer.

    Plain: JSON Lines of ``messages`` and ``images``, as TRL and ms-swift read them. Otherwise a
    JSON list of ``conversations``. Photos below the file's folder have relative names.

    Raises:
        ValueError: a text contains the placeholder of a photo; the message names the caption.
    """
    head = "" if photos == "none" else "images/"
    chats = (
        json.dumps(_chat(picture, sample, f"{head}{picture.file_name}", style), ensure_ascii=False)
        for picture in curated
        for sample in picture.samples
    )
    write_lines(path, chats if style.form is None else _listed(chats))


def write_messages_index(path: Path, files: Mapping[Split | None, str]) -> None:
    """Write ``dataset_info.json``, which describes the files to LLaMA-Factory."""
    columns = {"messages": "conversations", "images": "images"}
    about = {"formatting": "sharegpt", "columns": columns}
    sets = {
        HUB_NAMES[split] if split else "captions": {"file_name": name, **about}
        for split, name in files.items()
    }
    write_json(path, sets)


def _chat(picture: Picture, sample: Sample, photo: str, style: Style) -> dict[str, Any]:
    question, answer = style.asked(sample, picture.split), sample.caption
    whole = replace(picture, samples=(sample,))
    about = {"image_id": picture.image_id, **caption_fields(whole, told_fields([whole]))}
    del about["captions"]
    if style.form is None:
        turns = [("user", question), ("assistant", answer)]
        messages = [{"role": role, "content": text} for role, text in turns]
        return {"messages": messages, "images": [photo], **about}
    if _PLACE in answer:
        raise ValueError(
            f"{sample.sample_id}: the caption has {_PLACE} in it, which is the photo's place in "
            "conversations; change the caption, or write messages without --form"
        )
    gap = "\n" if style.form == "llava" else ""
    turns = [("human", f"{_PLACE}{gap}{question}"), ("gpt", answer)]
    chat = {"conversations": [{"from": role, "value": text} for role, text in turns]}
    if style.form == "llava":
        return {"id": sample.sample_id, "image": photo, **chat, **about}
    return {**chat, "images": [photo], **about}


def _listed(values: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a JSON list, with one value per line."""
    before = "["
    for value in values:
        yield before + value
        before = ","
    yield "]"


def write_csv(curated: Sequence[Picture], path: Path) -> None:
    """Write CSV with one row per caption: file, caption, ids, split, and optional fields."""
    told = told_fields(curated)
    names = [("captions", "caption"), ("sample_ids", "sample_id"), ("origins", "origin")]
    names += [(name, name if name == "masked_words" else name.removesuffix("s")) for name in told]
    has_splits = any(picture.split for picture in curated)
    head = [
        "file_name",
        *(name for _, name in names),
        "image_id",
        *([COLUMN] if has_splits else []),
    ]

    def rows() -> Iterator[Sequence[Any]]:
        yield head
        for picture in curated:
            fields = caption_fields(picture, told)
            last = [picture.image_id, *([picture.split] if has_splits else [])]
            for values in zip(*(fields[name] for name, _ in names), strict=True):
                yield [picture.file_name, *values, *last]

    write_lines(path, map(_row, rows()))


def _row(cells: Sequence[Any]) -> str:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\r\n").writerow(cells)  # quotes cells with these characters
    return file.getvalue().removesuffix("\r\n")


def write_karpathy(curated: Sequence[Picture], path: Path, *, name: str) -> None:
    """Write Karpathy's JSON; a dataset without splits gets the split ``train``."""
    sentence_id = 0
    images = []
    numeric = all(_is_number(picture.image_id) for picture in curated)
    for number, picture in enumerate(curated):
        folder, _, file_name = picture.file_name.rpartition("/")
        ids = range(sentence_id, sentence_id + len(picture.samples))
        sentence_id = ids.stop
        fields = caption_fields(picture, told_fields([picture]))
        sentences = [
            {"raw": text, "tokens": _tokens(text), "imgid": number, "sentid": one}
            for text, one in zip(fields.pop("captions"), ids, strict=True)
        ]
        images.append(
            {
                **({"filepath": folder} if folder else {}),
                "filename": file_name,
                "imgid": number,
                **({"cocoid": int(picture.image_id)} if numeric else {}),
                "image_id": picture.image_id,
                "split": picture.split or "train",
                "sentids": list(ids),
                "sentences": sentences,
                **fields,
            }
        )
    write_json(path, {"dataset": name, "images": images}, indent=None)


def _is_number(image_id: str) -> bool:
    return image_id.isascii() and image_id.isdecimal() and str(int(image_id)) == image_id


def _tokens(caption: str) -> list[str]:
    """Split a caption into lower-case words without punctuation."""
    return caption.lower().translate(str.maketrans("", "", string.punctuation)).split()


def write_text_files(
    curated: Sequence[Picture], folder: Path, *, style: Style, copy: bool
) -> dict[str, str]:
    """Write each photo with a ``.txt`` file of its captions; return a description of the files.

    Splits are folders; in kohya's form these have a folder ``N_photos``, without folders below.

    Raises:
        ValueError: two photos would have one text file; names both.
    """
    parts = of_splits(curated)
    all_names = [_text_names(group, split, style) for split, group in parts]
    for (split, group), names in zip(parts, all_names, strict=True):
        place = folder if split is None else folder / HUB_NAMES[split]
        placed = {p.file_name: replace(p, file_name=names[p.file_name]) for p in group}
        place_photos(list(placed.values()), place, copy=copy, is_needed=True)
        for picture in placed.values():
            captions = (_BREAK.sub(" ", sample.caption) for sample in picture.samples)
            text = (place / picture.file_name).with_suffix(".txt")
            text.write_text("".join(f"{c}\n" for c in captions), encoding="utf-8", newline="\n")
    renamed = sum(own != name for names in all_names for own, name in names.items())
    more = f"; {renamed} photos have other names than in the set" if renamed else ""
    return {"*.txt": f"the captions of the photo of the same name, one a line{more}"}


def _text_names(curated: Sequence[Picture], split: Split | None, style: Style) -> dict[str, str]:
    """Map image names to names of photos that have a text file beside them.

    Readers take folders for splits by their names, and leave hidden files alone: there an ``x``
    goes before the word or the dot. Folders with repeats of their own keep these in kohya's form.
    """
    names = {}
    parents = {Path(picture.file_name).parent for picture in curated}
    is_kept = style.repeats == 1 and split in ("train", None)
    repeated = repeated_folders(parents) if is_kept else {}
    for name in (picture.file_name for picture in curated):
        safe = _HIDDEN.sub("x", name if split else _SPLIT_FOLDER.sub("x", name))
        if style.form == "kohya":
            repeats = style.repeats if split in ("train", None) else 1
            parent = Path(name).parent
            place = parent.name if parent in repeated else f"{repeats}_photos"
            rest = (parent.parent / Path(name).name).as_posix() if parent in repeated else name
            safe = f"{place}/{_HIDDEN.sub('x', rest).replace('/', '_')}"
        names[name] = safe
    first: dict[PurePosixPath, str] = {}
    for name, safe in names.items():
        text = PurePosixPath(safe).with_suffix(".txt")
        other = first.setdefault(text, name)
        if other != name:
            raise ValueError(
                f"{other} and {name} would share the text file {text}; rename one of the two, or "
                "choose another format"
            )
    return names
