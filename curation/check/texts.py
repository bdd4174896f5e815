"""Checks of the captions' texts alone."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

import numpy as np

from curation.check.evidence import Evidence, Scores, shortened
from curation.check.languages import FUNCTION_WORDS

_ADDRESS = re.compile(
    r"https?://\S+|\bwww\.\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|\b[\w-]{2,}\.(?:com|org|net|edu|gov|info|biz|co\.uk|de|fr|io|ru|cn|jp)\b(?:/\S*)?",
    re.IGNORECASE,
)
_FILE_NAME = re.compile(
    r"\b[\w()-]+\.(?:jpe?g|png|gif|tiff?|bmp|webp|heic|cr2|nef|mp4|mov|pdf)\b"
    r"|^\W*(?:img|dsc[nf]?|pict|mvi|gopr|pxl|vid|scan|dji|imag)[\s_-]?\d{3,}\w*\W*$"
    r"|^\W*(?:p\d{6,}|\d{5,}(?:_\w+)*|[0-9a-f]{16,})\W*$"
    r"|^\W*(?:screen ?shot|untitled|image|photo|picture|unnamed)[\s_#-]*\(?\d*\)?\W*$",
    re.IGNORECASE,
)
_CAMERA = re.compile(
    r"\bolympus digital camera\b|\bsony dsc\b|\bminolta digital camera\b|\bexif[_ ]jpeg"
    r"|\bkodak\b.*\bcamera\b|\bcanon (?:eos|powershot)\b|\bnikon (?:coolpix|d\d+)\b"
    r"|\bsamsung (?:csc|camera pictures)\b|\bdcim\b|^\W*digital camera\W*$",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"</?[a-zA-Z][\w:-]*(?:\s[^<>]*)?/?>|<\|\w+\|>|&(?:#x?\w+|[a-zA-Z]{2,8});|\[/?(?:CLS|SEP|UNK|"
    r"PAD|MASK|INST)\]|[{}]|\\[nrtu]\w*|\"\w+\"\s*:|=>|[!=]==?|\*\*\w|^#{1,4} |```"
    r"|\b(?:function|return|const|import|print)\b\s*[\w.]*\s*[({=;]"
    r"|(?<![\w.$€£])0?\.\d{2,}\b|(?<![\w.$€£])1\.00+\b|\b\w+\s*[:=]\s*\d+(?:\.\d+)?\s?%"
)
_REFUSAL = re.compile(
    r"\bas an ai\b|\bas a (?:large )?(?:language|ai) model\b|\bi(?:'m| am) sorry,? (?:but )?i\b"
    r"|\bi (?:cannot|can't|can not|am unable to|am not able to|do not have the ability to|"
    r"don't have the ability to) (?:\w+ )?(?:see|view|access|assist|help|provide|describe|"
    r"identify|process|generate|analy[sz]e|determine|fulfil+|comply)\b"
    r"|\bi'm unable to\b|\bi apologi[sz]e\b"
    r"|\bunable to (?:view|see|process|open|load) the (?:image|photo|picture)\b"
    r"|\bno (?:image|photo|picture) (?:was |is |has been )?(?:provided|attached|uploaded)\b"
    r"|\bplease (?:provide|upload|share|attach) (?:the|an|a|your) (?:image|photo|picture)\b"
    r"|\b(?:sure|certainly|of course)[,!] here(?:'s| is)\b|\bhere(?:'s| is) (?:a|the|your) "
    r"(?:\w+ )?(?:caption|description)\b|\bthe (?:image|photo) you(?:'ve)? (?:provided|uploaded)\b",
    re.IGNORECASE,
)


def addresses(evidence: Evidence) -> Scores:
    """Number of web and e-mail addresses in a caption."""
    return _matches(evidence, (_ADDRESS,), "holds an address")


def file_names(evidence: Evidence) -> Scores:
    """Names of files and cameras that stand for a caption, such as ``DSC_0012``."""
    scores = _matches(evidence, (_FILE_NAME, _CAMERA), "names a file or a camera")
    found = {row: (float(scores.values[row]), reason) for row, reason in scores.reasons.items()}
    for sample in evidence.roster.samples:
        stem = sample.image_path.stem
        if re.search(r"[\d_]", stem) and sample.caption.strip(" .") == stem:
            found[sample.row] = (1.0, "is the name of its file")
    return Scores.of(len(evidence.roster), found)


def code(evidence: Evidence) -> Scores:
    """Number of bits of code, HTML, special tokens and probabilities in a caption."""
    return _matches(evidence, (_CODE,), "holds code, HTML or a probability")


def refusals(evidence: Evidence) -> Scores:
    """Phrases of a language model that speaks to its user instead of describing the photo."""
    return _matches(evidence, (_REFUSAL,), "speaks as a language model")


def _matches(evidence: Evidence, patterns: Iterable[re.Pattern[str]], reason: str) -> Scores:
    found = {}
    for row, caption in enumerate(evidence.captions):
        plain = caption.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
        matches = [match[0] for pattern in patterns for match in pattern.finditer(plain)]
        if matches:
            found[row] = (float(len(matches)), f"{reason}: {shortened(matches)}")
    return Scores.of(len(evidence.roster), found)


def mojibake(evidence: Evidence) -> Scores:
    """Number of places where bytes of one encoding were read as another, such as ``CafÃ©``."""
    found = {}
    for row, caption in enumerate(evidence.captions):
        if not caption.isascii() and (places := list(_misread(caption))):
            found[row] = (float(len(places)), f"was read in a wrong encoding: {shortened(places)}")
    return Scores.of(len(evidence.roster), found)


def _misread(caption: str) -> Iterator[str]:
    """Control characters and signs of lost ones, and letters that as bytes are UTF-8."""
    yield from re.findall("\\w*[\x80-\x84\x86-\x9f\ufffd]+\\w*", caption)
    for piece in re.findall(r"[^\0-\x7f]{2,}", caption):
        for codec in ("cp1252", "cp1251", "latin-1"):
            with suppress(UnicodeError):
                piece.encode(codec).decode()
                yield piece
                break


def too_long(evidence: Evidence) -> Scores:
    """Words of a caption over those that half of the set's captions have."""
    counts = _lengths(evidence)
    middle = max(1.0, float(np.median(counts)))
    return Scores(
        values=(counts / middle).astype(np.float32),
        reasons={r: f"{n:.0f} words; half have {middle:.0f}" for r, n in enumerate(counts)},
    )


def too_short(evidence: Evidence) -> Scores:
    """Words of a caption."""
    counts = _lengths(evidence)
    reasons = {row: "one word" if n <= 1 else f"{n:.0f} words" for row, n in enumerate(counts)}
    return Scores(values=counts.astype(np.float32), reasons=reasons)


def _lengths(evidence: Evidence) -> np.ndarray:
    """Words; where a script has no spaces, two characters count as one."""
    counts = []
    for words in evidence.words:
        spaceless = sum(_script(c) == "CJK" for word in words for c in word if ord(c) > 0x2E7F)
        is_mixed = spaceless > len(words)
        counts.append(spaceless / 2 if is_mixed else len(words))
    return np.array(counts)


def other_language(evidence: Evidence) -> Scores:
    """How much speaks for another language or script than the set's, in [0, 1].

    Of a script the share of letters; of a language in the same script the share of function words
    (articles, prepositions, forms of "to be") that are not the majority's, of at least two.
    """
    scripts = [_scripts(caption) for caption in evidence.captions]
    usual_script = _most(script for counts in scripts for script in counts.elements())
    languages = [_languages(words) for words in evidence.words]
    usual = _most(max(hits, key=lambda name: len(hits[name])) for hits in languages if hits)
    found: dict[int, tuple[float, str]] = {}
    for row, (counts, hits) in enumerate(zip(scripts, languages, strict=True)):
        others = {name: n for name, n in counts.items() if name != usual_script}
        if others:
            share = sum(others.values()) / sum(counts.values())
            name = max(others, key=lambda script: others[script])
            found[row] = (share, f"is written in {name.capitalize()} letters")
        elif usual and (speaks := _other(hits, usual)):
            found[row] = speaks
    return Scores.of(len(evidence.roster), found)


def _other(hits: dict[str, set[str]], usual: str) -> tuple[float, str] | None:
    own = hits.get(usual, set())
    best: tuple[float, str] | None = None
    for name, words in hits.items():
        foreign = words - FUNCTION_WORDS[usual]
        if name == usual or len(foreign) < 2:
            continue
        share = len(foreign) / (len(foreign) + len(own - FUNCTION_WORDS[name]))
        if best is None or share > best[0]:
            best = (share, f"seems to be {name}: {shortened(sorted(foreign))}")
    return best


def _languages(words: list[str]) -> dict[str, set[str]]:
    """Function words of each language in a caption."""
    present = set(words)
    return {name: hits for name, known in FUNCTION_WORDS.items() if (hits := present & known)}


def _scripts(caption: str) -> Counter[str]:
    if caption.isascii():
        return Counter({"LATIN": sum(map(str.isalpha, caption))})
    return Counter(_script(character) for character in caption if character.isalpha())


@lru_cache(maxsize=65_536)
def _script(character: str) -> str:
    name = unicodedata.name(character, "UNKNOWN").split()[0]
    return "CJK" if name in ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HALFWIDTH") else name


def _most(values: Iterable[str]) -> str:
    counts = Counter(values).most_common(1)
    return counts[0][0] if counts else ""
