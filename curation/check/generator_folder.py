"""Properties of a folder for fine-tuning image generators (LoRA, DreamBooth)."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from captioning.data.line_files import read_text
from captioning.data.photo_folder import MASK_ENDS, PHOTO_SUFFIXES
from captioning.data.readers.generator_folders import DEFAULT, Repeats, repeated_folders
from captioning.data.readers.imagefolder import LINES, TABLE
from captioning.data.readers.split_words import split_of
from captioning.data.readers.text_files import TEXTS, pairs_below
from captioning.data.roster import Dropped, Roster
from captioning.runtime.extras import package_folder
from captioning.text.sentences import MINILM_PACKAGE
from curation.check.languages import FUNCTION_WORDS

BUCKET = 512
FEWEST = 3  # captions of which shares say something
MANY = 0.35  # share of captions from which a piece tells no photo from others
NO_PHOTO, EMPTY = "text without photo", "text is empty"
# Letters of scripts without spaces stand for themselves.
_WORD = re.compile(r"(?:(?![\u0e00-\u0eff\u2e80-\uffff])\w)+|\w")
_OWNER = re.compile("['\u2019]s\\b")
_JUNK = re.compile(r"\.ds_store|thumbs\.db|desktop\.ini|icon\r|\.localized|\._.*", re.IGNORECASE)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LIST = re.compile(r"(?:train|val|valid|validation|test)(?:[_-].*)?", re.IGNORECASE)
_OTHER_TEXTS = re.compile(r"read_?me|licen[cs]e|notes?|triggers?|(?:sample_|test_)?prompts?", re.I)
_MARKS = {
    b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"BM": "bmp", b"RIFF": "webp",
    b"II*\0": "tiff", b"MM\0*": "tiff",
}  # fmt: skip
_NAMES = {"jpg": "jpeg", "tif": "tiff"}
# Beside articles and the like: words that name nothing in a picture by themselves.
_RELATIONS = """
this these those he she they i you we who which not no each very so if then than when where can will
do does may but or be was were have had out off down about against around between wearing wears
holding holds carrying showing shows featuring features containing including depicting depicts
"""
EMPTY_WORDS = FUNCTION_WORDS["English"] | set(_RELATIONS.split())
_IN_CLAUSES = frozenset(["a", "an", "the", "is", "are", "was", "were", "his", "her", "their"])


@dataclass(frozen=True, kw_only=True)
class Purpose:
    """User's settings for checking a folder for fine-tuning an image generator.

    Attributes:
        trigger: word or words that stand for the new concept; empty: they are looked for.
        class_words: words of the concept's class, such as ``dog``, which every caption should have.
        bucket: side of the training's resolution in pixels.
    """

    trigger: str = ""
    class_words: tuple[str, ...] = ()
    bucket: int = BUCKET


@dataclass(frozen=True, slots=True)
class Note:
    """A finding about a folder as a whole.

    Attributes:
        name: kind, such as ``"fused_words"``.
        said: the finding as a sentence.
        items: files or words, each with its finding.
    """

    name: str
    said: str
    items: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Concept:
    """Captions that share a trigger: those of one kohya folder, or of the whole dataset.

    Attributes:
        rows: rows of the captions.
        trigger: the trigger as spelt; empty if unknown.
        class_words: class words that the captions should have.
        is_given: whether a user named the trigger.
        folder_words: words in the name of kohya's folder.
    """

    rows: tuple[int, ...]
    trigger: str = ""
    class_words: tuple[str, ...] = ()
    is_given: bool = False
    folder_words: str = ""

    @property
    def expected(self) -> frozenset[str]:
        """Words that every caption may contain."""
        return frozenset(words_in(" ".join((self.trigger, self.folder_words, *self.class_words))))


@dataclass(frozen=True, kw_only=True)
class GeneratorFolder:
    """Facts about a folder that are known before its captions are checked.

    Attributes:
        concepts: concepts with disjoint captions.
        bucket: see `Purpose`.
        shared: rows whose caption comes from the photo's folder, not from its own text.
        stray: files outside of the set.
        notes: notes on its files.
        empty: names of photos below the folder whose text is empty.
    """

    concepts: tuple[Concept, ...]
    bucket: int = BUCKET
    shared: frozenset[int] = frozenset()
    stray: tuple[Dropped, ...] = ()
    notes: tuple[Note, ...] = ()
    empty: frozenset[str] = frozenset()

    def without_triggers(self, roster: Roster) -> list[str]:
        """Captions by row without the trigger, if other words remain."""
        captions = [sample.caption for sample in roster.samples]
        for concept in self.concepts:
            if (pattern := pattern_of(concept.trigger)) is None:
                continue
            for row in concept.rows:
                rest = pattern.sub(" ", captions[row]).strip(" ,.;:-")
                captions[row] = " ".join(rest.split()) or captions[row]
        return captions

    def plain_captions(self, roster: Roster) -> list[str]:
        """Captions without trigger and common pieces, so that only words about the photo remain."""
        captions = self.without_triggers(roster)
        pieces = [[p for p in map(str.strip, c.split(",")) if p] for c in captions]
        counts = Counter(piece.lower() for own in pieces for piece in set(own))
        most = max(FEWEST, MANY * len(captions))
        return [
            ", ".join(p for p in own if counts[p.lower()] < most) or caption
            for own, caption in zip(pieces, captions, strict=True)
        ]


def pattern_of(trigger: str) -> re.Pattern[str] | None:
    """Build a regular expression for a trigger in any case and spacing; None without a trigger."""
    words = words_in(trigger)
    if not words:
        return None
    joined = r"[\W_]+".join(map(re.escape, words))
    return re.compile(rf"(?<![^\W\u2e80-\uffff]){joined}(?![^\W\u2e80-\uffff])", re.IGNORECASE)


def words_in(text: str) -> list[str]:
    """Split a text into lower-case words, for comparing triggers and terms."""
    return _WORD.findall(_OWNER.sub("", unicodedata.normalize("NFKC", text).lower()))


def place_of(trigger: str, caption: str) -> int | None:
    """Number of words before a trigger, which may have several words; None if it is missing."""
    wanted, words = words_in(trigger), words_in(caption)
    places = range(len(words) - len(wanted) + 1)
    return next((n for n in places if words[n : n + len(wanted)] == wanted), None)


def style_of(caption: str) -> str:
    """Style of captions: booru ``"tags"``, ``"sentences"``, ``"both"``, or empty if unclear."""
    raw = [piece.strip() for piece in re.split(r"[,;\n]+", caption) if piece.strip()]
    pieces = [words_in(piece) for piece in raw]
    words = [word for piece in pieces for word in piece]
    joined = sum("_" in word.strip("_") for word in words)
    if len(words) >= 2 and 3 * joined >= len(words):
        return "tags"
    tags = [p for p in pieces if 0 < len(p) <= 3 and not _IN_CLAUSES.intersection(p)]
    ended = [
        piece
        for text, piece in zip(raw, pieces, strict=True)
        if len(piece) >= 6 and text[-1] in ".!?" and _IN_CLAUSES.intersection(piece)
    ]
    if len(tags) >= 4 and ended and "and" not in {piece[0] for piece in tags}:
        return "both"
    articles = ("a", "an", "the")
    clauses = [
        p
        for p in pieces
        if (len(p) >= 5 and EMPTY_WORDS.intersection(p)) or (len(p) >= 3 and p[0] in articles)
    ]
    if len(tags) >= 3 and 4 * len(tags) >= 3 * len(pieces) and not clauses:
        return "tags"
    empty = sum(word in EMPTY_WORDS for word in words)
    is_clause = max(map(len, pieces), default=0) >= 4
    return "sentences" if is_clause and (empty >= 2 or caption.rstrip()[-1:] == ".") else ""


def is_for_generators(roster: Roster, root: Path) -> bool:
    """Return whether a folder looks like a dataset for fine-tuning image generators.

    Signs are kohya's folders with repeats, default captions, photo masks, a column ``prompt``, or
    one text a photo that is a list of tags or begins with a trigger.
    """
    folders = dict.fromkeys(sample.image_path.parent for sample in roster.samples)
    if repeated_folders(folders):
        return True
    if any((above / f"{DEFAULT}.txt").is_file() for above in _above(folders, root)):
        return True
    if len(roster.rows_by_image) < len(roster):
        return False
    if _has_prompts(root):
        return True
    first = roster.samples[0].image_path
    if not any(first.with_suffix(end).is_file() for end in TEXTS):
        return False
    captions = [sample.caption for sample in roster.samples]
    kinds = Counter(map(style_of, captions))
    if len(captions) >= FEWEST and 2 * (kinds["tags"] + kinds["both"]) > len(captions):
        return True
    return bool(found_trigger(captions)) or _has_masks(folders)


def _above(folders: Iterable[Path], root: Path) -> set[Path]:
    """The folders and all their parent folders, up to the root."""
    inside = [f for f in folders if f.is_relative_to(root)]
    return {p for f in inside for p in (f, *f.parents) if p.is_relative_to(root)}


def _has_prompts(root: Path) -> bool:
    for name in (LINES, TABLE):
        with suppress(OSError, UnicodeDecodeError), (root / name).open(encoding="utf-8") as file:
            if re.search(r"(?:^|[\"',;\t])prompt(?:[\"',;\t]|$)", file.readline(65536).strip()):
                return True
    return False


def _has_masks(folders: Iterable[Path]) -> bool:
    stems = {path.stem for folder in folders for path in folder.iterdir()}
    return any(f"{stem}{end}" in stems for stem in stems for end in MASK_ENDS)


def look_at_folder(roster: Roster, root: Path | None, purpose: Purpose) -> GeneratorFolder:
    """Collect the facts about a folder.

    Args:
        roster: its captions.
        root: the folder; None: there is none to look at.
        purpose: the user's settings.
    """
    by_folder: dict[Path, list[int]] = defaultdict(list)
    for sample in roster.samples:
        by_folder[sample.image_path.parent].append(sample.row)
    repeated = repeated_folders(by_folder)
    shared, stray, empty, notes = _files(roster, root, repeated) if root else ((), (), (), [])
    concepts = tuple(_concepts(roster, by_folder, repeated, purpose, frozenset(shared)))
    return GeneratorFolder(
        concepts=concepts,
        bucket=purpose.bucket,
        shared=frozenset(shared),
        stray=tuple(stray),
        notes=(*_repeats_note(by_folder, repeated, root), *notes),
        empty=frozenset(empty),
    )


def _repeats_note(
    by_folder: Mapping[Path, Sequence[int]], repeated: Mapping[Path, Repeats], root: Path | None
) -> Iterator[Note]:
    if repeated:
        items = [(p.name, f"{len(by_folder[p])} x {repeated[p].number}") for p in sorted(repeated)]
        total = sum(len(by_folder[p]) * said.number for p, said in repeated.items())
        said = ", ".join(f"{name}: {number}" for name, number in items[:6])
        yield Note("repeats", f"an epoch has {total:,} captions ({said})", tuple(items))
    elif root and len(by_folder) > 1:
        items = [(_below(path, root), f"{len(rows)} captions") for path, rows in by_folder.items()]
        said = ", ".join(f"{name}: {number}" for name, number in items[:6])
        yield Note("folders", f"{len(items)} folders ({said})", tuple(items))


def _below(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _concepts(
    roster: Roster,
    by_folder: Mapping[Path, Sequence[int]],
    repeated: Mapping[Path, Repeats],
    purpose: Purpose,
    shared: frozenset[int],
) -> Iterator[Concept]:
    """One concept for each kohya folder if the folders have triggers; else one for all captions."""
    captions = [sample.caption for sample in roster.samples]
    all_rows = range(len(captions))
    if purpose.trigger:
        with_it = {row for row in all_rows if place_of(purpose.trigger, captions[row]) is not None}
        plain = _regularisation(by_folder, repeated, with_it)
        rows = tuple(row for row in all_rows if row not in plain)
        yield Concept(
            rows=rows, trigger=purpose.trigger, class_words=purpose.class_words, is_given=True
        )
        return
    left = set(all_rows)
    for path, said in repeated.items():
        rows = by_folder[path]
        trigger = _trigger_of_folder([captions[row] for row in rows], said)
        left -= set(rows)
        yield Concept(
            rows=tuple(rows),
            trigger=trigger,
            class_words=purpose.class_words,
            folder_words=said.words,
        )
    if left:
        rows = tuple(sorted(left))
        own = [captions[row] for row in rows if row not in shared] or [captions[r] for r in rows]
        trigger = found_trigger(own, anywhere=True)
        yield Concept(rows=rows, trigger=trigger, class_words=purpose.class_words)


def _regularisation(
    by_folder: Mapping[Path, Sequence[int]], repeated: Mapping[Path, Repeats], with_it: set[int]
) -> set[int]:
    """Rows of kohya's regularisation folders: images of the class, without the trigger."""
    without = [path for path in repeated if not with_it.intersection(by_folder[path])]
    if not with_it or len(without) == len(repeated):
        return set()
    return {row for path in without for row in by_folder[path]}


def _trigger_of_folder(captions: Sequence[str], said: Repeats) -> str:
    """Trigger of a folder: the first word of its name if captions have it, or a found trigger."""
    words = words_in(said.words)
    if len(words) > 1:
        count = sum(place_of(words[0], caption) is not None for caption in captions)
        if 2 * count >= len(captions):
            return _usual_spelling(words[0], captions)
    return found_trigger(captions, anywhere=True)


def found_trigger(captions: Sequence[str], *, anywhere: bool = False) -> str:
    """Find the word that most captions begin with, if it looks like a trigger; else return empty.

    A trigger is not an English word, or a comma follows it.

    Args:
        captions: captions of a concept.
        anywhere: whether a word that is not English counts at any position.
    """
    if len(captions) < FEWEST:
        return ""
    first = Counter(words[0] for caption in captions if (words := words_in(caption)))
    odd = Counter(w for c in captions for w in set(words_in(c)) if is_odd(w))
    for word, count in (*first.most_common(1), *(odd.most_common(1) if anywhere else ())):
        is_first = first[word] == count
        if word in EMPTY_WORDS or count < (0.6 if is_first else 0.8) * len(captions):
            continue
        spelt = _usual_spelling(word, captions)
        commas = sum(
            re.match(rf"\W*{re.escape(word)}\s*,", c.lower()) is not None for c in captions
        )
        if is_odd(word) or (2 * commas > len(captions) and not _is_tag(word)):
            return spelt
    return ""


def _is_tag(word: str) -> bool:
    """Return whether a word commonly begins a list of tags, and so is no trigger."""
    return bool(re.fullmatch(r"(?:\d\+?)?(?:girls?|boys?|others?)|solo|masterpiece|photo|man|woman"
                             r"|realistic|score_\d.*|no_humans|original", word))  # fmt: skip


def is_odd(word: str) -> bool:
    """Return whether a word is in no language: outside MiniLM's vocabulary, or with digits."""
    if len(word) < 3 or _is_tag(word) or not re.search("[^\\W\\d_]", word):
        return False
    if "_" in word:  # as many tags have it
        return any(is_odd(part) for part in word.split("_"))
    if re.search(r"[^\W\d_]\d|\d[^\W\d_]", word):
        return not re.fullmatch(r"\d+(?:[snrt][tdh]|k|d|px|mm|cm|s)?", word)
    known = known_words()
    return bool(known) and word.isascii() and word.isalpha() and word not in known


@cache
def known_words() -> frozenset[str]:
    """Words of MiniLM's vocabulary; empty if its package is not installed."""
    with suppress(ModuleNotFoundError, OSError, ValueError, KeyError):
        folder = package_folder(MINILM_PACKAGE, extra="offline", purpose="known words")
        vocabulary = json.loads((folder / "model" / "tokenizer.json").read_text("utf-8"))
        return frozenset(w for w in vocabulary["model"]["vocab"] if not w.startswith(("#", "[")))
    return frozenset()


def _usual_spelling(word: str, captions: Sequence[str]) -> str:
    pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
    spelt = Counter(match[0] for caption in captions for match in pattern.finditer(caption))
    return spelt.most_common(1)[0][0] if spelt else word


def _files(
    roster: Roster, root: Path, repeated: Mapping[Path, Repeats]
) -> tuple[list[int], list[Dropped], list[str], list[Note]]:
    """Collect rows with shared captions, unmatched files, photos with empty text, and notes."""
    pairs = [(photo, texts) for photo, texts in pairs_below(root) if _end(photo) in PHOTO_SUFFIXES]
    walked = [Path(place) / n for place, _, names in sorted(os.walk(root)) for n in sorted(names)]
    has_own = {photo for photo, texts in pairs if any(t.stem != DEFAULT for t in texts)}
    has_default = {photo for photo, texts in pairs if texts} - has_own
    folders = {photo.parent for photo in has_own}
    of_folder = {p for p, texts in pairs if not texts and p.parent in repeated.keys() - folders}
    shared = [s.row for s in roster.samples if s.image_path in has_default | of_folder]
    blank = [p for p, texts in pairs if p in has_own and all(map(_is_blank, texts))]
    used = {text for _, texts in pairs for text in texts}
    texts = [path for path in walked if _end(path) in TEXTS and path not in used]
    stray, notes = _of_no_photo(texts, [photo for photo, _ in pairs], root) if used else ([], [])
    notes += [*_list_notes(texts, [photo for photo, _ in pairs], root)]
    notes += [*_name_notes(walked, [photo for photo, _ in pairs], sorted(used), root)]
    return shared, stray, [_below(path, root) for path in blank], notes


def _end(path: Path) -> str:
    return path.suffix.lower()


def _is_blank(path: Path) -> bool:
    with suppress(OSError, ValueError):
        return not read_text(path).strip()
    return False


def _of_no_photo(
    texts: Sequence[Path], photos: Sequence[Path], root: Path
) -> tuple[list[Dropped], list[Note]]:
    """Texts without a photo; a second set of captions becomes one note."""
    stems = {photo.stem for photo in photos} | {photo.name for photo in photos}
    stray: list[Dropped] = []
    second: dict[str, list[Path]] = defaultdict(list)
    for path in texts:
        inside = path.relative_to(root)
        if path.stem == DEFAULT or _LIST.fullmatch(path.stem) or _OTHER_TEXTS.fullmatch(path.stem):
            continue
        if path.stem in stems and len(inside.parts) > 1:
            second[inside.parts[0]].append(path)
        else:
            stray.append(Dropped(item=inside.as_posix(), rule=NO_PHOTO))
    notes = [
        Note(
            "second_captions",
            f"{name}/ has a second caption of {len(paths)} photos, which is not read",
            tuple((_below(path, root), "not read") for path in paths),
        )
        for name, paths in second.items()
    ]
    return stray, notes


def _list_notes(texts: Sequence[Path], photos: Sequence[Path], root: Path) -> Iterator[Note]:
    """Notes on photo lists such as ``val.txt``: missing photos, and lists of only some folders."""
    by_name = {name: photo for photo in photos for name in (photo.name, _below(photo, root))}
    for path in texts:
        if not _LIST.fullmatch(path.stem):
            continue
        with suppress(ValueError):
            lines = [line.strip().replace("\\", "/") for line in read_text(path).splitlines()]
            lines = [line.removeprefix("./") for line in lines if line and line[0] != "#"]
            gone = [x for x in lines if x not in by_name and x.rpartition("/")[2] not in by_name]
            if gone:
                said = f"{path.name} names {len(gone)} missing photos, such as {gone[0]}"
                yield Note("lists", said, tuple((name, "not there") for name in gone))
            known = [by_name.get(x) or by_name.get(x.rpartition("/")[2]) for x in lines]
            held = {photo.parent for photo in known if photo is not None}
            number = len({photo.parent for photo in photos})
            if len(held) == 1 < number and split_of(path.stem) == "val":
                said = f"all photos in {path.name} are from one of {number} folders"
                yield Note("lists", said, ((path.name, _below(held.pop(), root)),))


def _name_notes(
    walked: Sequence[Path], photos: Sequence[Path], texts: Sequence[Path], root: Path
) -> Iterator[Note]:
    """Notes on file names: system files, unsafe names, wrong suffixes, byte-order marks, masks."""
    masks = [p for p in walked if p.stem.endswith(MASK_ENDS) and p not in set(photos)]
    for name, said, paths in (
        ("system_files", "files of an operating system", [p for p in walked if _is_junk(p)]),
        ("names", "names with spaces or signs", [p for p in photos if _is_odd_name(p)]),
        ("wrong_endings", "photos of another format than their ending says",
         [p for p in photos if _format(p) not in (None, _said_format(p))]),
        ("byte_order_marks", "texts that begin with a byte order mark, which some trainers read",
         [p for p in texts if _starts(p, 3) == b"\xef\xbb\xbf"]),
        ("masks", "masks of photos", [p for p in masks if _end(p) in PHOTO_SUFFIXES]),
    ):  # fmt: skip
        if paths:
            names = [_below(path, root) for path in paths]
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            items = tuple((own, said) for own in names)
            yield Note(name, f"{len(names)} {said} ({', '.join(names[:3])}{more})", items)


def _is_junk(path: Path) -> bool:
    return _JUNK.fullmatch(path.name) is not None


def _is_odd_name(path: Path) -> bool:
    return _PLAIN_NAME.fullmatch(path.name) is None


def _said_format(path: Path) -> str:
    end = _end(path)[1:]
    return _NAMES.get(end, end)


def _format(path: Path) -> str | None:
    """Image format according to a photo's first bytes; None if unknown."""
    start = _starts(path, 12)
    name = next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
    return None if name == "webp" and start[8:] != b"WEBP" else name


def _starts(path: Path, size: int) -> bytes:
    with suppress(OSError), path.open("rb") as file:
        return file.read(size)
    return b""
