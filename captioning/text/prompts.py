"""Format the prompt before a caption, and find the tokens that end the caption."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from captioning.runtime.files import read_json
from captioning.runtime.processors import PHOTOS_ALONE, model_kind

CAPTION_MARK = "§caption§"
# These models end captions with their separator token, not with their config's end token.
ENDS_WITH_SEPARATOR = ("blip", "git")
_BEGIN = "add_generation_prompt"
# A template that expects strings would print a content list as Python or JSON would.
_PRINTED = re.compile(r"""\{\s*['"]type['"]\s*:""")
# Variables that every template may use; they are not options.
_GIVEN = frozenset(
    (
        *("messages", "conversations", _BEGIN, "tools", "documents"),
        *("raise_exception", "strftime_now", "bos_token", "eos_token", "pad_token", "unk_token"),
        *("sep_token", "cls_token", "mask_token", "image_token"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatQuestion:
    """A user message with a photo and the prompt, ready for the model's answer.

    Attributes:
        text: text as the chat template formats it.
        has_start: whether the text begins with the start token, so none is added.
        messages: the conversation, without the photo itself.
        options: options of the processor's ``apply_chat_template``.
    """

    text: str
    has_start: bool
    messages: Sequence[Mapping[str, Any]]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFormat:
    """Prompt text before a caption, and end tokens after it.

    Attributes:
        text: the processor's text argument, given with a photo.
        before: blanks between prompt and caption, which belong to the caption's tokens.
        end_ids: tokens that end a caption in a search; training uses only the first.
        question: the chat message as the template formats it; None: the model has no chat
            template.
    """

    text: str
    before: str
    end_ids: tuple[int, ...]
    question: ChatQuestion | None = None

    @property
    def end_id(self) -> int:
        """The end token of captions in training."""
        return self.end_ids[0]


def prompt_format(
    processor: Any, folder: Path, prompt: str, template: Mapping[str, Any] | None = None
) -> PromptFormat:
    """Return the prompt format of a processor's model.

    Models with a chat template get a user message with the photo and the prompt. The model's
    prompt then holds all text that the template puts before an answer, such as ``</think>``. Other
    models read the prompt unchanged.

    Args:
        processor: see `captioning.runtime.processors.load_processor`.
        folder: the model's folder.
        prompt: prompt, such as ``"Describe the image."`` or ``"a photo of"``; may be empty.
        template: options of the chat template, such as ``{"enable_thinking": False}``.

    Raises:
        ValueError: the model defines no end token; the template lacks the option, or a place for
            photo or answer; or the model accepts no prompt.
    """
    options = dict(template or {})
    chat = chat_template(processor)
    if chat is not None:
        _check_options(chat, options, folder)
        return _of_chat(processor, folder, prompt, chat, options)
    if options:
        raise ValueError(f"template={options}: {folder} has no chat template; leave template out")
    kind = model_kind(folder)
    if prompt and kind in PHOTOS_ALONE:
        raise ValueError(f"prompt={prompt!r}: {kind} models accept no prompt; leave prompt empty")
    gap = " " if prompt and not prompt[-1].isspace() and _continues(folder) else ""
    mark = "<image>" if kind == "paligemma" else ""  # others add the photo's place
    ends = _ends(processor, folder)
    return PromptFormat(text=f"{mark}{prompt}", before=gap, end_ids=ends)


def chat_template(processor: Any) -> str | None:
    """Return the chat template; the tokenizer's own counts only if it has a place for photos."""
    own = getattr(processor, "chat_template", None)
    if isinstance(own, dict):
        own = own.get("default") or next(iter(own.values()), None)
    if own:
        return own
    other = getattr(processor.tokenizer, "chat_template", None)
    return other if isinstance(other, str) and "image" in other else None


def _check_options(chat: str, options: Mapping[str, Any], folder: Path) -> None:
    """Raise an error for options that the template would ignore.

    Raises:
        ValueError: an unknown option; the message lists the known options.
    """
    jinja: Any = importlib.import_module("jinja2")
    meta: Any = importlib.import_module("jinja2.meta")
    environment = jinja.Environment(extensions=["jinja2.ext.loopcontrols"])
    # transformers' own block, which jinja does not know
    source = re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", chat)
    try:
        names = meta.find_undeclared_variables(environment.parse(source))
    except jinja.TemplateError as error:
        raise ValueError(
            f"{folder}: the chat template cannot be parsed ({error}); "
            "save the model's processor again"
        ) from error
    known = sorted(name for name in names if name not in _GIVEN)
    for name in options:
        if name not in known:
            raise ValueError(
                f"template.{name}: the chat template of {folder} has no such option; choose from "
                f"{', '.join(known) or 'none'}"
            )


def _of_chat(
    processor: Any, folder: Path, prompt: str, chat: str, options: dict[str, Any]
) -> PromptFormat:
    """Return the prompt format given by a chat template."""
    problems: list[str] = []
    for style in _styles(processor, prompt):
        try:
            return _in_style(processor, folder, chat, options, style)
        except _Unfit as problem:
            problems += [str(problem)] if str(problem) not in problems else []
    raise ValueError(
        f"{folder}: the chat template ({type(processor).__name__}) cannot hold photo, prompt "
        f"and a caption ({'; '.join(problems)}); save the model's own chat template with its "
        "processor"
    )


class _Unfit(Exception):
    """A template does not accept a style of messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Style:
    """The form in which a template expects message contents.

    Attributes:
        question: content of the user message with the photo's place.
        blind: content of the user message without the photo.
        answer: content of the answer.
    """

    question: Any
    blind: Any
    answer: Any


def _styles(processor: Any, prompt: str) -> list[_Style]:
    """Return message contents as lists of parts, and as strings."""
    words = {"type": "text", "text": prompt}
    in_parts = _Style(
        question=[{"type": "image"}, words],
        blind=[words],
        answer=[{"type": "text", "text": CAPTION_MARK}],
    )
    styles = [in_parts, replace(in_parts, answer=CAPTION_MARK)]
    place = getattr(processor, "image_token", None)
    if isinstance(place, str):
        text = _Style(question=f"{place}\n{prompt}", blind=prompt, answer=CAPTION_MARK)
        styles.append(text)
    return styles


def _in_style(
    processor: Any, folder: Path, chat: str, options: dict[str, Any], style: _Style
) -> PromptFormat:
    asked = {"role": "user", "content": style.question}
    answered = {"role": "assistant", "content": style.answer}
    whole = _rendered(processor, [asked, answered], chat, options)
    blind = _rendered(processor, [{**asked, "content": style.blind}, answered], chat, options)
    if whole.count(CAPTION_MARK) != 1:
        raise _Unfit(f"the template writes the answer {whole.count(CAPTION_MARK)} times, not once")
    if _PRINTED.search(whole):
        raise _Unfit("the template prints the list of message parts as text")
    if whole == blind:
        raise _Unfit("the template has no place for a photo")
    head, _, after = whole.partition(CAPTION_MARK)
    waiting = {**options, _BEGIN: True}
    question = _rendered(processor, [asked], chat, waiting)
    head = _begun(head, question)
    ends = _ends(processor, folder, after)
    if not _first_added(processor.tokenizer, after):
        # Some templates end an answer only with the start of the next message.
        try:
            longer = _rendered(processor, [asked, answered, asked], chat, options)
        except _Unfit:
            longer = whole
        ends = _ends(processor, folder, longer.partition(CAPTION_MARK)[2])
    text = head.rstrip(" ")
    first = processor.tokenizer.bos_token
    return PromptFormat(
        text=text,
        before=head[len(text) :],
        end_ids=ends,
        question=ChatQuestion(
            text=question,
            # apply_chat_template's own rule: a template may write the start token, or leave it to
            # tokenizer, whose settings the processor may change.
            has_start=first is not None and question.startswith(first),
            messages=[asked],
            options={"chat_template": chat, **waiting},
        ),
    )


def _begun(head: str, asked: str) -> str:
    """Return the prompt from a finished conversation and an open question.

    Some templates write more before an open answer than before a finished one, such
    as an empty thought. Text left open there, such as ``<think>``, would expect
    more than a caption.
    """
    if head.split() == asked.split():  # other blanks around a role's name
        return asked.rstrip(" ") + head[len(head.rstrip(" ")) :]
    more = asked.removeprefix(head) if asked.startswith(head) else ""
    closings = [f"</{name}>" for name in re.findall(r"<(\w+)>", more)]
    closings += [f"<{name}|>" for name in re.findall(r"<\|(\w+)>", more)]  # Gemma 4's
    is_open = any(closing not in more for closing in closings)
    return head if is_open else head + more


def _rendered(
    processor: Any, messages: Sequence[Mapping[str, Any]], chat: str, options: Mapping[str, Any]
) -> str:
    try:
        return processor.apply_chat_template(
            list(messages), chat_template=chat, tokenize=False, **options
        )
    except Exception as error:  # jinja's own types, and whatever Python makes of the template
        raise _Unfit(" ".join(str(error).split())[:150]) from error


def _first_added(tokenizer: Any, text: str) -> int | None:
    """Return a text's first token if it is a special token, otherwise None."""
    ids = tokenizer(text.lstrip(), add_special_tokens=False).input_ids[:1] if text.strip() else []
    return ids[0] if ids and ids[0] in tokenizer.added_tokens_decoder else None


def _continues(folder: Path) -> bool:
    """Whether a caption continues the prompt's text; otherwise it is a separate text."""
    config = read_json(folder / "config.json")
    text = config.get("text_config") or {}
    is_own = config.get("is_encoder_decoder") or text.get("is_encoder_decoder")
    return not (is_own or text.get("model_type") == "t5" or config.get("model_type") == "paligemma")


def _ends(processor: Any, folder: Path, after: str = "") -> tuple[int, ...]:
    """Return the end tokens of captions: the template's first, then the generation config's."""
    tokenizer = processor.tokenizer
    if model_kind(folder) in ENDS_WITH_SEPARATOR:
        return (tokenizer.sep_token_id,)
    settings = folder / "generation_config.json"
    configured = read_json(settings).get("eos_token_id") if settings.is_file() else None
    listed = configured if isinstance(configured, list) else [configured]
    named = [number for number in listed if isinstance(number, int)] or [tokenizer.eos_token_id]
    ends = [_first_added(tokenizer, after), *named]
    known = tuple(dict.fromkeys(number for number in ends if isinstance(number, int)))
    if not known:
        raise ValueError(
            f"{folder}: neither generation_config.json nor the tokenizer defines the end token of "
            "captions; add eos_token_id to generation_config.json"
        )
    return known
