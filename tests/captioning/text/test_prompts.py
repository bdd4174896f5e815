"""Prompts by chat templates: what a template writes around an answer, and what it cannot hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from captioning.runtime.processors import load_processor
from captioning.text.prompts import PromptFormat, chat_template, prompt_format
from tests.families.registry import family_folder

PROMPT = "Describe it."
HEAD = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Describe it.<|im_end|>\n"
PHOTO = "<|vision_start|><|image_pad|><|vision_end|>"
PARTS = (
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}" + PHOTO + "{% else %}{{ c['text'] }}{% endif %}{% endfor %}"
    "{% endif %}"
)


def turns(content: str, *, answer: str = "", begun: str = "") -> str:
    """A template.

    Args:
        content: of each message.
        answer: what stands before an answer that is given.
        begun: what stands before an answer that is awaited.
    """
    return (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
        "{% if m['role'] == 'assistant' %}" + answer + "{% endif %}" + content + "<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n" + begun + "{% endif %}"
    )


@pytest.fixture
def read(tmp_path: Path):
    """The format by another chat template than a family's own."""

    def build(template: str, *, family: str = "qwen2_5_vl", **options: Any) -> PromptFormat:
        folder = tmp_path / f"model{len(list(tmp_path.iterdir()))}"
        shutil.copytree(family_folder(family), folder)
        (folder / "chat_template.jinja").write_text(template)
        processor = load_processor(folder)
        assert chat_template(processor) == template
        return prompt_format(processor, folder, PROMPT, options or None)

    return build


def ends_of(family: str) -> tuple[list[str], PromptFormat]:
    folder = family_folder(family)
    processor = load_processor(folder)
    form = prompt_format(processor, folder, PROMPT)
    return processor.tokenizer.convert_ids_to_tokens(list(form.end_ids)), form


def test_an_empty_thought_before_an_answer_is_part_of_the_prompt(read) -> None:
    form = read(turns(PARTS, answer="<think>\n\n</think>\n\n", begun="<think>\n"))
    assert form.text == f"{HEAD}<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert form.before == ""


def test_a_mark_before_an_answer_is_part_of_the_prompt(read) -> None:
    form = read(turns(PARTS, answer="<answer>"))
    assert form.text == f"{HEAD}<|im_start|>assistant\n<answer>"
    assert form.before == ""


def test_a_blank_before_an_answer_belongs_to_the_caption(read) -> None:
    form = read(turns(PARTS, answer="A: ", begun="A:"))
    assert form.text == f"{HEAD}<|im_start|>assistant\nA:"
    assert form.before == " "


def test_a_closed_thought_before_an_awaited_answer_is_kept(read) -> None:
    thought = "<|channel>thought\n<channel|>"
    form = read(turns(PARTS, begun=thought))
    assert form.text == f"{HEAD}<|im_start|>assistant\n{thought}"


def test_a_closed_thought_of_tags_before_an_awaited_answer_is_kept(read) -> None:
    thought = "<think>\n\n</think>\n\n"
    form = read(turns(PARTS, begun=thought))
    assert form.text == f"{HEAD}<|im_start|>assistant\n{thought}"


def test_an_open_thought_before_an_awaited_answer_is_left_out(read) -> None:
    form = read(turns(PARTS, begun="<think>\n"))
    assert form.text == f"{HEAD}<|im_start|>assistant\n"


def test_an_open_channel_before_an_awaited_answer_is_left_out(read) -> None:
    form = read(turns(PARTS, begun="<|channel>thought\n"))
    assert form.text == f"{HEAD}<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ("{{ m['content'] }}", f"<|image_pad|>\n{PROMPT}"),
        ("{{ m['content'] | tojson }}", f'"<|image_pad|>\\n{PROMPT}"'),
    ],
)
def test_templates_that_print_lists_get_text(read, content: str, written: str) -> None:
    form = read(turns(content))
    opening = '"' if written.startswith('"') else ""
    begun = f"<|im_start|>assistant\n{opening}"
    assert form.text == f"<|im_start|>user\n{written}<|im_end|>\n{begun}"


def test_templates_that_add_to_texts_get_text(read) -> None:
    form = read(turns("{{ 'x' + m['content'] }}"))
    assert form.text == (
        f"<|im_start|>user\nx<|image_pad|>\n{PROMPT}<|im_end|>\n<|im_start|>assistant\nx"
    )


def test_templates_that_want_the_answer_alone_as_text_get_it(read) -> None:
    content = (
        "{% if m['role'] == 'assistant' %}{{ '' + m['content'] }}{% else %}" + PARTS + "{% endif %}"
    )
    assert read(turns(content)).text == f"{HEAD}<|im_start|>assistant\n"


def test_a_template_that_holds_no_conversation_is_refused_with_the_reason(read, tmp_path) -> None:
    refusal = "{{ raise_exception('only systems speak') }}"
    with pytest.raises(ValueError, match="only systems speak") as refused:
        read(turns(refusal))
    assert str(refused.value).startswith(f"{tmp_path / 'model0'}: ")
    assert "Qwen2_5_VLProcessor" in str(refused.value)
    assert str(refused.value).count("only systems speak") == 1
    assert "\n" not in str(refused.value)


def test_a_template_that_leaves_the_answer_out_is_refused(read) -> None:
    content = "{% if m['role'] == 'user' %}" + PARTS + "{% endif %}"
    with pytest.raises(ValueError, match="the template writes the answer 0 times"):
        read(turns(content))


def test_a_template_without_a_place_for_a_photo_is_refused(read) -> None:
    # Texts keep the photo's mark, so the template drops it from them.
    words = "{% for c in m['content'] if c['type'] == 'text' %}{{ c['text'] }}{% endfor %}"
    content = "{% if m['content'] is string %}{{ m['content'] | replace('<|image_pad|>\\n', '') }}"
    with pytest.raises(ValueError, match="the template has no place for a photo"):
        read(turns(content + "{% else %}" + words + "{% endif %}"))


def test_a_template_that_cannot_be_parsed_is_refused(read) -> None:
    with pytest.raises(ValueError, match="save the model's processor again"):
        read("{% for m in messages %}", option=1)


def test_options_change_the_prompt(read) -> None:
    begun = "{% if enable_thinking is defined and not enable_thinking %}<no_think/>{% endif %}"
    template = turns(PARTS, answer=begun, begun=begun)
    assert read(template).text == f"{HEAD}<|im_start|>assistant\n"
    form = read(template, enable_thinking=False)
    assert form.text == f"{HEAD}<|im_start|>assistant\n<no_think/>"
    assert read(template, enable_thinking=True).text == read(template).text


def test_an_unknown_option_is_refused_with_the_known_ones(read) -> None:
    template = turns(PARTS, begun="{% if enable_thinking %}x{% endif %}{{ style }}")
    with pytest.raises(
        ValueError, match=r"template\.thinking: .*choose from enable_thinking, style"
    ):
        read(template, thinking=False)


def test_what_every_template_reads_is_no_option(read) -> None:
    with pytest.raises(ValueError, match=r"template\.messages: .*choose from none"):
        read(turns(PARTS), messages=[])


def test_options_without_a_template_are_refused() -> None:
    folder = family_folder("git")
    with pytest.raises(ValueError, match="has no chat template; leave template out"):
        prompt_format(load_processor(folder), folder, "a photo of", {"enable_thinking": False})


def test_a_prompt_for_models_that_read_photos_alone_is_refused() -> None:
    folder = family_folder("vision_encoder_decoder")
    with pytest.raises(ValueError, match="accept no prompt; leave prompt empty"):
        prompt_format(load_processor(folder), folder, PROMPT)
    assert prompt_format(load_processor(folder), folder, "").text == ""


def test_gemma_3_ends_turns_with_a_token_that_no_name_tells() -> None:
    tokens, form = ends_of("gemma3")
    tokenizer = load_processor(family_folder("gemma3")).tokenizer
    assert tokens == ["<end_of_turn>", "<eos>"]
    assert form.end_id != tokenizer.eos_token_id


def test_all_ends_of_the_generations_settings_count(tmp_path: Path) -> None:
    folder = shutil.copytree(family_folder("gemma3"), tmp_path / "model")
    processor = load_processor(folder)
    turn, eos = processor.tokenizer.convert_tokens_to_ids(["<end_of_turn>", "<eos>"])
    settings = folder / "generation_config.json"
    settings.write_text(json.dumps({"eos_token_id": [7, turn]}))
    assert prompt_format(processor, folder, PROMPT).end_ids == (turn, 7)
    settings.unlink()
    assert prompt_format(processor, folder, PROMPT).end_ids == (turn, eos)


def test_glm_ends_with_the_next_question() -> None:
    tokens, _ = ends_of("glm4v")
    assert tokens == ["<|user|>", "<|endoftext|>", "<|observation|>"]


def test_blanks_after_a_role_are_those_of_an_awaited_answer() -> None:
    _, form = ends_of("llava_onevision")
    # The conversation has "assistant \n" there.
    assert form.text.endswith("<|im_start|>assistant\n")
    assert form.before == ""
