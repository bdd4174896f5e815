"""Answers of chat models as plain text, and why some are none."""

from __future__ import annotations

import re

REFUSED = "the model declined"
FILTERED = "the server's filter took the answer"
EMPTY = "the answer is empty"
CUT = "the answer is cut off"

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
_NOT = "cannot|can't|can not|am unable|am not able|'m unable|'m not able|won't"
_PHOTO = r"(?:images?|photos?|pictures?)"
_SENT = "(?:provided|attached|uploaded|included|visible)"
# Of a text with straight apostrophes. A model without eyes asks for the photo.
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


def cleaned(text: str) -> str:
    """An answer without thinking, special tokens, markdown, labels and quotes around it.

    Lines stay lines. What cannot be told from the answer, such as a remark after it, stays.
    """
    text = _TURN.sub("", _without_thinking(text))
    text = _SPECIAL.sub("", text)
    text = _RULE.sub("", _FENCE.sub("", text))
    text = _LINK.sub(r"\1", _LINE_MARK.sub("", text))
    text = _CODE.sub(r"\1", _ITALIC.sub(r"\2", _BOLD.sub(r"\2", text)))
    return _unwrapped(text)


def _without_thinking(text: str) -> str:
    """What follows the last thought; nothing of one that does not end."""
    text = _OTHER_CHANNEL.sub("", _CHANNELS.sub("", text))
    text = _BEFORE_CLOSING.sub("", _THOUGHTS.sub("", text))
    return _UNCLOSED.sub("", text)


def _unwrapped(text: str) -> str:
    """The text without what introduces it and quotes around all of it."""
    before = None
    while text != before:
        before = text
        text = _LABEL.sub("", _PREFACE.sub("", text.strip())).strip()
        is_quoted = len(text) > 1 and _QUOTES.get(text[0]) == text[-1]
        if is_quoted and text[0] not in text[1:-1]:
            text = text[1:-1].strip()
    return text


def problem_of(text: str) -> str:
    """Why a clean text is no answer: it is empty, or the model declines; else empty."""
    if not any(character.isalnum() for character in text):
        return EMPTY
    plain = " ".join(text.replace("\u2019", "'").split())
    return REFUSED if _REFUSALS.match(plain) else ""
