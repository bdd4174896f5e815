"""Clean the answers of chat models to plain text, and detect answers that hold no caption."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

REFUSED = "the model declined"
FILTERED = "the server's content filter removed the answer"
EMPTY = "the answer is empty"
CUT = "the answer is cut off"
NO_CAPTION = "the answer is JSON without a caption"

_THINKING = r"(?:[a-z]+:)?(?:think(?:ing)?|thought|reason(?:ing)?|reflection|analysis)"
_THOUGHTS = re.compile(rf"<({_THINKING})>.*?</\1>|\[THINK\].*?\[/THINK\]", re.I | re.S)
# Servers put the opening tag into the prompt, so an answer may hold the closing one alone.
_BEFORE_CLOSING = re.compile(rf"^.*(?:</{_THINKING}>|\[/THINK\])", re.I | re.S)
_UNCLOSED = re.compile(rf"(?:<{_THINKING}>|\[THINK\]).*$", re.I | re.S)
# gpt-oss and Gemma write into named channels, the answer into the last one.
_CHANNELS = re.compile(r"^.*<\|channel\|>\s*final\s*(?:<\|[^|>]*\|>[^<]*)?<\|message\|>", re.S)
_OTHER_CHANNEL = re.compile(
    r"<\|channel\|>\s*(?:analysis|commentary).*?(?:<\|end\|>|$)"
    r"|<\|channel>\s*thought.*?(?:<channel\|>|$)",
    re.S,
)
_TURN = re.compile(
    r"<\|im_start\|>\w*|<\|start_header_id\|>\w*<\|end_header_id\|>|<start_of_turn>\w*"
)
_SPECIAL = re.compile(
    r"<[|｜][^<>\n]{0,40}[|｜]>"  # noqa: RUF001 (DeepSeek's tokens have wide bars)
    r"|</?(?:s|pad|bos|eos|unk|image|img|end_of_turn|start_of_turn|end_of_utterance|answer"
    r"|fake_token_around_image|row_\d+_col_\d+|global-img)>"
    r"|\[/?INST\]|\[(?:PAD|EOS|BOS|CLS|SEP|UNK)\]",
    re.I,
)
_FENCE = re.compile(r"^\s*```[\w-]*\s*$", re.M)
_BOLD = re.compile(r"(\*\*\*|\*\*|__)(?=\S)(.+?)(?<=\S)\1", re.S)
_ITALIC = re.compile(r"(?<![\w*])([*_])(?=[^\s*_])([^*_\n]+?)(?<=\S)\1(?![\w*])")
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"!?\[([^\]\n]*)\]\((?:https?:)?[^)\s]*\)")
_LINE_MARK = re.compile(r"^[ \t]*(?:#{1,6}|[-*•]|>)[ \t]+", re.M)
_RULE = re.compile(r"^\s*(?:[-*_]\s*){3,}$", re.M)
_PREFACE = re.compile(
    r"^(?:(?:sure|certainly|of course|okay|ok|absolutely)[^\n:]{0,80}:"
    r"|here(?: is|['\u2019]s)[^\n:]{0,80}:"
    r"|(?:sure|certainly|of course|absolutely)[!.,]?\s*\n)\s*",
    re.I,
)
_LABEL = re.compile(
    r"^(?:(?:image|photo|final|short|detailed|the)\s+)?"
    r"(?:caption|answer|description|output|response|sentence|paraphrase|assistant)\s*(?:\d+\s*)?:\s*",
    re.I,
)
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“"}  # noqa: RUF001
# JSON keys under which models put a caption; a judge's score and reason stay as they are.
_CAPTION_KEYS = ("caption", "captions", "description", "answer", "text", "sentence", "output")
_UNSEEN = str.maketrans("", "", "\ufeff\u200b\u2060")  # byte order marks, spaces without a width
_NOT = "cannot|can't|can not|am unable|am not able|'m unable|'m not able|won't"
_PHOTO = r"(?:images?|photos?|pictures?)"
_SENT = "(?:provided|attached|uploaded|included|visible)"
# Applied to text with straight apostrophes. A model without vision asks for the photo.
_REFUSALS = re.compile(
    rf"^(?:i ?(?:{_NOT}|'m sorry|am sorry|apologi[sz]e)\b"
    r"|i (?:do not see|don't see|do not have|don't have|must decline)\b"
    r"|sorry[,.!]? (?:but|i|as|for|no|there|this|the|that|we)\b"
    r"|(?:unfortunately|my apologies|apologies)[,.]? (?:but )?(?:i\b|as an\b|no\b)"
    r"|as an? (?:ai|artificial|language|text)\b"
    r"|(?:please|could you|can you) (?:please )?(?:provide|upload|share|attach|send)\b"
    rf"|(?:there (?:is|was|seems to be|appears to be) |it (?:looks|seems) like there's )?"
    rf"no {_PHOTO} (?:(?:was|were|is|has been|have been) )?{_SENT})",
    re.I,
)

# Frequent words of each language that are rare in the other languages.
_COMMON: Mapping[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "de": "der das und ein eine einen einem einer eines mit auf im dem den von zwei sitzt "
        "steht sich wird sind neben ihr sein nicht durch über auch zu",
        "en": "the a is are and of with on at while his her their by from two through to it "
        "there near over next wearing",
        "es": "el los las y con una uno del está están por se su al dos hay sobre que mientras "
        "junto en un",
        "fr": "le les un une et est sont avec sur dans des du aux deux il elle qui par devant au "
        "près sa son assis",
        "it": "il gli una uno è sono con su della nel nella di che e un due sulla alla da mentre "
        "sul si",
        "nl": "het een en van op met zijn er aan door bij naar die voor hun twee over zit staat "
        "is loopt",
        "pt": "o os as um uma e com em no na do da de está estão por que dois duas ao enquanto "
        "seu sua",
    }.items()
}
_SCRIPTS: Mapping[str, re.Pattern[str]] = {
    "ar": re.compile(r"[\u0600-\u06ff]"),
    "el": re.compile(r"[\u0370-\u03ff]"),
    "he": re.compile(r"[\u0590-\u05ff]"),
    "hi": re.compile(r"[\u0900-\u097f]"),
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "ko": re.compile(r"[\uac00-\ud7af]"),
    "ru": re.compile(r"[\u0400-\u04ff]"),
    "th": re.compile(r"[\u0e00-\u0e7f]"),
    "zh": re.compile(r"[\u4e00-\u9fff]"),
}
LANGUAGES = tuple(sorted({*_COMMON, *_SCRIPTS}))
FEWEST_WORDS = 20  # texts of fewer tell no language of Latin letters apart


def language_of(texts: Iterable[str], *, beside: str = "", fewest_words: int = FEWEST_WORDS) -> str:
    """Return the language of most of the texts, one of `LANGUAGES`; empty where it is unclear.

    Non-Latin scripts are detected by their letters (Cyrillic counts as Russian). Languages in
    Latin script need twice as many common words as any other language, and 10% of all words.

    Args:
        texts: texts to look at together.
        beside: the expected language: only differences from this language matter.
        fewest_words: fewest words of Latin script that allow a decision.
    """
    text = " ".join(texts).lower()
    num_letters = sum(map(str.isalpha, text))
    scripts = Counter({name: len(script.findall(text)) for name, script in _SCRIPTS.items()})
    if scripts["ja"]:  # which has Chinese letters beside its own
        scripts["ja"] += scripts.pop("zh")
    name, count = scripts.most_common(1)[0]
    if 2 * count > num_letters:
        return name
    words = Counter(re.findall(r"[^\W\d_]+", text))
    total = words.total()
    if total < fewest_words or 4 * count > num_letters:
        return ""
    common = Counter({n: sum(words[one] for one in known) for n, known in _COMMON.items()})
    (best, most), (_, second) = common.most_common(2)
    second = common[beside] if beside in common and best != beside else second
    return best if most >= 2 * second and 10 * most >= total else ""


def cleaned(text: str) -> str:
    """Remove thinking, special tokens, Markdown, labels and quotes around an answer.

    JSON with one caption becomes that caption; other JSON stays unchanged, see `is_data`. Line
    breaks stay. Text that looks like part of the answer, such as a closing remark, stays too.
    """
    text = _TURN.sub("", _without_thinking(text.translate(_UNSEEN)))
    text = _SPECIAL.sub("", text)
    text = _RULE.sub("", _FENCE.sub("", text))
    if (data := _data(text)) is not None:
        found = _caption_in(data)
        if found is None:
            return text.strip()
        text = found
    text = _LINK.sub(r"\1", _LINE_MARK.sub("", text))
    text = _CODE.sub(r"\1", _ITALIC.sub(r"\2", _BOLD.sub(r"\2", text)))
    return _unwrapped(text)


def is_data(text: str) -> bool:
    """Whether a text is a JSON object or a JSON list."""
    return _data(text) is not None


def _data(text: str) -> Any:
    """Parse a text as a JSON object or list; return None for other texts."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _caption_in(data: Any) -> str | None:
    """Return the caption in parsed JSON: under a caption key, or the only item of a list."""
    if isinstance(data, str):
        return data
    if isinstance(data, list):
        return _caption_in(data[0]) if len(data) == 1 else None
    if not isinstance(data, dict):
        return None
    named = {str(key).lower(): value for key, value in data.items()}
    if "score" in named:  # a judge's
        return None
    return next((_caption_in(named[key]) for key in _CAPTION_KEYS if key in named), None)


def _without_thinking(text: str) -> str:
    """Return the text after the last thought; empty if the thought does not end."""
    text = _OTHER_CHANNEL.sub("", _CHANNELS.sub("", text))
    text = _BEFORE_CLOSING.sub("", _THOUGHTS.sub("", text))
    return _UNCLOSED.sub("", text)


def _unwrapped(text: str) -> str:
    """Remove introductory phrases and enclosing quotes from a text."""
    before = None
    while text != before:
        before = text
        text = _LABEL.sub("", _PREFACE.sub("", text.strip())).strip()
        is_quoted = len(text) > 1 and _QUOTES.get(text[0]) == text[-1]
        if is_quoted and text[0] not in text[1:-1]:
            text = text[1:-1].strip()
    return text


def problem_of(text: str) -> str:
    """Return why a cleaned text is no answer (empty or declined); empty text if it is an answer."""
    if not any(character.isalnum() for character in text):
        return EMPTY
    plain = " ".join(text.replace("\u2019", "'").split())
    return REFUSED if _REFUSALS.match(plain) else ""
