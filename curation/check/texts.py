"""Checks of caption texts that need no photo."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise

import numpy as np

from captioning.text.spaceless import is_spaceless
from captioning.text.word_forms import words_of
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

_UNCAPTIONED = re.compile(  # what people write of photos that they cannot make out, as in VizWiz
    r"\bquality issues? (?:is|are) too severe\b"
    r"|\btoo (?:\w+,? (?:and|or) )?(?:blurry|blurred|dark|bright|overexposed|small|low|poor|bad|"
    r"unclear|severe|fuzzy|grainy|pixelated|distorted|far away|out of focus|close)"
    r"(?: (?:in )?(?:quality|resolution))? (?:for me )?to (?:\w+ly )?(?:recogni[sz]e|identify|"
    r"describe|determine|make (?:it |anything )?out|tell|caption|discern|read|understand|provide|"
    r"give|see(?=\W*$)|see (?:anything|what|any|clearly|the (?:content|image|photo|picture)))"
    r"|\b(?:image|photo|picture|visual) (?:content )?(?:(?:is|was|could) not (?:be )?|cannot be |"
    r"can't be |is un|was un)(?:recogni[sz](?:ed|able)|identifi(?:ed|able)|described|loaded|"
    r"displayed|seen clearly)\b"
    r"|\b(?:cannot|can not|can't|could not|couldn't|unable to|not possible to|impossible to) "
    r"(?:\w+ )?(?:recogni[sz]e|identify|describe|determine|make out|discern) "
    r"(?:\w+ ){0,5}(?:image|photo|picture|content)s?\b"
    r"|\bcan(?:not|'t) be (?:recogni[sz]ed|identified|described|determined|made out)\b"
    r"|^\W*(?:the |this )?(?:image|photo|picture) (?:is|was) (?:(?:very|too|really|quite|"
    r"completely|"
    r"entirely|all) )?(?:unclear|not clear|blurred|blurry|dark|black|white|blank|empty|"
    r"corrupt(?:ed)?|"
    r"broken)\W*$"
    r"|^\W*(?:unrecogni[sz]able|unsuitable|unidentifiable|unclear|invalid|corrupt(?:ed)?) (?:image|"
    r"photo|picture)\W*$"
    r"|\b(?:images?|photos?|pictures?) (?:is|are) missing\b",
    re.IGNORECASE,
)
_EMPTY_MESSAGE = re.compile(  # answers of a language model that was given nothing
    r"\b(?:your|the) (?:message|prompt|input|query|request|question) (?:\w+ ){0,2}(?:is|was|"
    r"appears?|"
    r"seems?|came through)(?: to (?:be|have been))? (?:\w+ )?(?:empty|blank|incomplete|cut off)\b"
    r"|\bhow (?:can|may) i (?:help|assist) you\b"
    r"|\b(?:looks|seems|appears) (?:like |that |as (?:if|though) )?(?:you(?: have|'ve)? (?:not|"
    r"sent|only|did|forg)|your (?:message|prompt|image|photo)|there(?:'s| is| was) no |"
    r"no (?:image|photo|picture|text|message)\b)"
    r"|\byou (?:did not|didn't|haven't|have not|forgot to) (?:\w+ )?(?:provide|upload|attach|share|"
    r"include|send|enter|type|ask)\w*\b"
    r"|\bi (?:do not|do n't|don't|can't|cannot|didn't|did not) (?:actually )?(?:see|have|find|"
    r"receive|get) (?:access to )?(?:an?|any|the|your) (?:\w+ )?(?:image|photo|picture|attachment|"
    r"message|text|question)s?\b"
    r"|\b(?:let me know if|feel free to (?:ask|share|provide|upload)|(?:happy|glad|here) to "
    r"(?:help|"
    r"assist|describe)|would you like me to|is there anything (?:else )?i can)\b"
    r"|\bthere(?: is|'s| was) no (?:image|photo|picture) (?:to |attached|provided|uploaded|"
    r"available)"
    r"|\bthere (?:does not|doesn't) (?:seem|appear) to be an? (?:\w+ )?(?:image|photo|picture)\b"
    r"|\bthe user (?:has not|hasn't|did not|didn't)\b"
    r"|\bbased on the (?:image|photo|picture) (?:provided|you)\b"
    r"|\bplease (?:provide|upload|share|attach|clarify|specify|try again|let me know)\b",
    re.IGNORECASE,
)
_MARKER = re.compile(
    r"<\|[\w ]{1,40}\|>|<<?/?SYS>>?|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|CLS|SEP|PAD|UNK|MASK|"
    r"BOS|EOS|SOS)\]"
    r"|</?(?:start|end|unk|pad|bos|eos|sos|s|cls|sep|mask|image|img_?\d*|video|im_patch|im_start|"
    r"im_end|start_of_turn|end_of_turn|start_of_image|end_of_utterance|think|grounding|ref|box|"
    r"image_placeholder|__dj__\w+|extra_id_\d+)>"
    r"|\b(?:startseq|endseq|startofseq|endofseq|startoftext|endoftext|im_start|im_end)\b"
    r"|^\W*(?:user|assistant|human|system|gpt|chatgpt|bot|ai|model)\s?:\s"
    r"|(?-i:(?:^|\s)(?:USER|ASSISTANT|HUMAN|SYSTEM|GPT)\s?:|(?:^|\s)(?:Human|Assistant)\s?:"
    r"|(?:^|\s)UNK(?=\W|$))"
    r"|#{2,} ?(?:instruction|response|human|assistant|user|input|output|system)s?\b ?:?"
    r"|^\W*(?:(?:image |photo |alt )?(?:caption|description|text)|answer|response|output|question|"
    r"prompt)\s?:\s"
    r"|\byou are a helpful\b"
    r"|^\W*(?:please )?(?:describe (?:this|the)|(?:write|generate|provide|create|give)(?: me)? "
    r"(?:an?|"
    r"one|the) (?:\w+ )?(?:caption|description) (?:for|of)) (?:\w+ ){0,2}(?:image|photo|picture)\b"
    r"|^\W*what(?:'s| is| can you see| do you see)(?: shown| happening)? in (?:this|the) "
    r"(?:image|photo|"
    r"picture)\W*$"
    r"|(?:^|\s)##[a-z]+|[\u2581\u0120]|\w@@(?=\s)",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(
    r"\$?\{\{?\s*[A-Za-z_][\w .-]{0,40}\}?\}|\{\}|%\(\w+\)s|(?:^|\s)%s(?=\W|$)"
    r"|[\[(<](?i:insert|fill in|describe|specify|enter|replace|your)\b[^\])>]{0,80}[\])>]"
    r"|\[(?i:the |a |an )?(?i:subject|object|person|animal|colou?r|place|location|action|adjective|"
    r"noun|verb|number|style|scene|background|description|caption|text|placeholder|item|brand|"
    r"class|"
    r"label|attribute|setting|activity)s?(?: (?:here|name|\d+))?\]"
    r"|\b(?:TO[D]O|TBD|FIX[M]E|X{3,})\b|__+[A-Za-z]\w*__|(?:^|\s)_{3,}(?=\W|$)|%[A-Za-z_]{3,}%"
    r"|(?:^|\s)\$[A-Za-z_]{3,}\b"
    r"|<(?i:subject|object|person|animal|colou?r|place|location|action|style|scene|description|"
    r"caption|"
    r"class|name)>"
    r"|(?i:\blorem ipsum\b|\b(?:insert|add|write|enter|describe) (?:a |the |your )?(?:caption|"
    r"description|text|image|photo) here\b|\byour (?:caption|description|text) here\b)"
)
_NOTHING = re.compile(  # a whole caption
    r"\W*(?:n\.?\s?/?\s?a\.?|none|null|nan|nil|nothing|undefined|unknown|empty|blank|missing|"
    r"unavailable|tbd|todo|test|untitled|unlabell?ed|unanswerable|error|not sure|i don't know|idk|"
    r"no idea|can't tell"
    r"|(?:there is |has )?(?:no|without|missing|empty) (?:image |photo |alt )?(?:caption|"
    r"description|text|label|title|annotation|data|image|photo|picture|content|answer|response|"
    r"name)s?(?: (?:is |was |here )?(?:available|provided|given|found|yet|needed|possible|set|"
    r"generated|written))?(?: for this (?:image|photo|picture))?"
    r"|(?:image|photo|picture)s? (?:is |was )?(?:not (?:available|found|loaded)|unavailable|here)"
    r"|(?:(?:image|photo|alt) )?(?:caption|description|text|title|label|answer)s?(?: (?:is )?"
    r"(?:here|not (?:available|provided|found|given)|unavailable|missing|goes here|pending|"
    r"placeholder|to come))?"
    r"|not (?:available|applicable|provided|specified|found|given|known|set)|pending|coming soon"
    r"|to be (?:done|added|written|determined)|404(?: not found)?|could not be (?:loaded|generated)"
    r"|keine (?:beschreibung|angabe)|sin (?:descripci[oó]n|t[ií]tulo)|sans titre"
    r"|(?:aucune|pas de) description|senza (?:titolo|descrizione)|sem (?:descri[cç][aã]o|t[ií]tulo)"
    r"|нет(?: описания)?|без (?:названия|описания)|无|暂无(?:描述|说明)?|なし|説明なし|없음)\W*",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile("[.!?;\u3002\uff01\uff1f\uff1b]+")
_SPACELESS_LOOP = re.compile(r"([^\x00-\x7f\s]{2,20}?)\1{2,}")
_COORDINATES = frozenset(("and", "or"))
_LOOP, _STRETCH = 3, 5  # words


def addresses(evidence: Evidence) -> Scores:
    """Number of web and e-mail addresses in a caption."""
    return _matches(evidence, (_ADDRESS,), "holds an address")


def file_names(evidence: Evidence) -> Scores:
    """Number of file names, such as camera names like ``DSC_0012``, that stand for a caption."""
    scores = _matches(evidence, (_FILE_NAME, _CAMERA), "names a file or a camera")
    found = {row: (float(scores.values[row]), reason) for row, reason in scores.reasons.items()}
    for sample in evidence.roster.samples:
        stem = sample.image_path.stem
        if re.search(r"[\d_]", stem) and sample.caption.strip(" .") == stem:
            found[sample.row] = (1.0, "is the name of its file")
    return Scores.of(len(evidence.roster), found)


def code(evidence: Evidence) -> Scores:
    """Number of pieces of code, HTML, special tokens and probabilities in a caption."""
    return _matches(evidence, (_CODE,), "holds code, HTML or a probability")


def refusals(evidence: Evidence) -> Scores:
    """Number of phrases that refuse to describe the photo or address a chat user."""
    spoken = _matches(evidence, (_REFUSAL, _EMPTY_MESSAGE), "speaks as a language model")
    unseen = _matches(evidence, (_UNCAPTIONED,), "says that the photo cannot be described")
    return Scores(
        values=spoken.values + unseen.values, reasons={**unseen.reasons, **spoken.reasons}
    )


def markers(evidence: Evidence) -> Scores:
    """Number of chat and tokenizer markers in a caption: roles, special tokens, subwords."""
    return _matches(evidence, (_MARKER,), "holds marks of a chat or tokenizer")


def templates(evidence: Evidence) -> Scores:
    """Number of unfilled template slots in a caption."""
    return _matches(evidence, (_TEMPLATE,), "holds an unfilled template")


def no_captions(evidence: Evidence) -> Scores:
    """1 for a caption that only states that a caption is missing, such as ``N/A``."""
    found = {
        row: (1.0, f"stands for no caption: {shortened([caption])}")
        for row, caption in enumerate(evidence.captions)
        if _NOTHING.fullmatch(caption)
    }
    return Scores.of(len(evidence.roster), found)


def repetitions(evidence: Evidence) -> Scores:
    """Number of words in a caption that repeat earlier words or an earlier sentence."""
    found = {}
    for row, (caption, words) in enumerate(zip(evidence.captions, evidence.words, strict=True)):
        count, text = max(_loop(words), _said_twice(caption), _spaceless_loop(caption))
        if count:
            found[row] = (float(count), f"says again: {shortened([text])}")
    return Scores.of(len(evidence.roster), found)


def _loop(words: list[str]) -> tuple[int, str]:
    """Largest number of consecutive words that repeat the words before them, and these words.

    Counted are whole turns of a loop, as in "on the beach on the beach", and a stretch that makes
    up most of the caption, as in "a dog runs on grass and a dog runs on grass".
    """
    places: dict[tuple[str, ...], list[int]] = {}
    for start in range(len(words) - _LOOP + 1):
        places.setdefault(tuple(words[start : start + _LOOP]), []).append(start)
    steps = {b - a for starts in places.values() for a, b in pairwise(starts)}
    best = (0, "")
    for step in steps:
        run = 0
        for place in range(step, len(words)):
            run = run + 1 if words[place] == words[place - step] else 0
            again = words[place + 1 - run : place + 1]
            turns = run // step * step
            is_list = turns < 2 * _LOOP and not _COORDINATES.isdisjoint(again)
            is_most = run >= _STRETCH and 2 * run >= 0.8 * len(words)
            count = run if is_most else 0 if is_list or turns < _LOOP else turns
            best = max(best, (count, " ".join(again[:step])))
    return best


def _said_twice(caption: str) -> tuple[int, str]:
    """Words of the longest repeated sentence with at least three words."""
    counts = Counter(tuple(words_of(part)) for part in _SENTENCE_END.split(caption))
    twice = [words for words, count in counts.items() if count > 1 and len(words) >= _LOOP]
    return max(((len(words), " ".join(words)) for words in twice), default=(0, ""))


def _spaceless_loop(caption: str) -> tuple[int, str]:
    """Longest repetition in a script without spaces; two characters count as one word."""
    loop = None if caption.isascii() else _SPACELESS_LOOP.search(caption)
    return (0, "") if loop is None else (max(_LOOP, len(loop[0]) // 2), loop[1])


def _matches(evidence: Evidence, patterns: Iterable[re.Pattern[str]], reason: str) -> Scores:
    found = {}
    for row, caption in enumerate(evidence.captions):
        plain = caption.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
        matches = [match[0] for pattern in patterns for match in pattern.finditer(plain)]
        if matches:
            found[row] = (float(len(matches)), f"{reason}: {shortened(matches)}")
    return Scores.of(len(evidence.roster), found)


def mojibake(evidence: Evidence) -> Scores:
    """Number of places with wrongly decoded bytes, such as ``CafÃ©``."""
    found = {}
    for row, caption in enumerate(evidence.captions):
        if not caption.isascii() and (places := list(_misread(caption))):
            found[row] = (float(len(places)), f"was read in a wrong encoding: {shortened(places)}")
    return Scores.of(len(evidence.roster), found)


def _misread(caption: str) -> Iterator[str]:
    """Yield control characters, replacement characters, and letters that are misread UTF-8."""
    yield from re.findall("\\w*[\x80-\x84\x86-\x9f\ufffd]+\\w*", caption)
    for piece in re.findall(r"[^\0-\x7f]{2,}", caption):
        for codec in ("cp1252", "cp1251", "latin-1"):
            with suppress(UnicodeError):
                piece.encode(codec).decode()
                yield piece
                break


def too_long(evidence: Evidence) -> Scores:
    """Words of a caption beyond the median length of the dataset's captions."""
    counts = _lengths(evidence)
    middle = max(1.0, float(np.median(counts)))
    return Scores(
        values=(counts / middle).astype(np.float32),
        reasons={r: f"{n:.0f} words; half have {middle:.0f}" for r, n in enumerate(counts)},
    )


def too_short(evidence: Evidence) -> Scores:
    """Number of words of a caption; few words are suspicious."""
    counts = _lengths(evidence)
    reasons = {row: "one word" if n <= 1 else f"{n:.0f} words" for row, n in enumerate(counts)}
    return Scores(values=counts.astype(np.float32), reasons=reasons)


def _lengths(evidence: Evidence) -> np.ndarray:
    """Number of words; in scripts without spaces, two characters count as one word."""
    return np.array([sum(0.5 if is_spaceless(w) else 1 for w in row) for row in evidence.words])


def other_language(evidence: Evidence) -> Scores:
    """Evidence in [0, 1] that a caption is in another language or script than the dataset.

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
    """Count the function words of each language in a caption."""
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
