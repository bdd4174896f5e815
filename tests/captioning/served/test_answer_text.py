"""Answers of chat models as they come, and the texts in them."""

from __future__ import annotations

import pytest

from captioning.served.answer_text import EMPTY, REFUSED, cleaned, is_data, language_of, problem_of

DOG = "A dog runs."


@pytest.mark.parametrize(
    "answer",
    [
        DOG,
        f"<think>Is it a cat?\n\nNo.</think>\n\n{DOG}",
        f"Is it a cat? No.</think>{DOG}",
        f"<thinking>one</thinking><thinking>two</thinking>{DOG}</s>",
        f"[THINK]a cat[/THINK]{DOG}",
        "<|channel|>analysis<|message|>A cat?<|end|>"
        f"<|start|>assistant<|channel|>final<|message|>{DOG}",
        f"<|channel>thought\nA cat?<channel|>{DOG}",
        f"<|im_start|>assistant\n{DOG}<|im_end|>",
        f"<start_of_turn>model\n{DOG}<end_of_turn><eos>",
        f"<s>[INST] {DOG} [/INST]</s>",
        f"{DOG}<|endoftext|>",
        f"{DOG}<｜end▁of▁sentence｜>",  # noqa: RUF001
        f"**{DOG}**",
        "A **dog** _runs_.",
        f"# {DOG}",
        f"- {DOG}",
        f"```text\n{DOG}\n```",
        f"Caption: {DOG}",
        f"**Caption:** {DOG}",
        f"Here is a caption for the image:\n\n{DOG}",
        f'Sure! Here\'s a short caption:\n"{DOG}"',
        f"Certainly!\n{DOG}",
        f'"{DOG}"',
        f"“{DOG}”",
        f"Answer: '{DOG}'",
        "A [dog](https://example.org/dog) runs.",
        "<answer>A dog runs.</answer>",
    ],
)
def test_what_is_not_the_answer_is_taken_off(answer: str) -> None:
    assert cleaned(answer) == DOG
    assert not problem_of(cleaned(answer))


@pytest.mark.parametrize(
    "caption",
    [
        "A sign says 'no photos': a man ignores it.",
        "A man at 5:30 holds a 3 * 4 * 5 box.",
        '"Stop" and "go" signs hang above snake_case_names.',
        "Sorry signs hang on a closed shop.",
        "There is no image on the wall, only a clock.",
        "I <3 New York is printed on a shirt.",
        "No picture hangs on the wall.",
        "Here a man sits.",
        "A child thinks.\nA dog barks.",
    ],
)
def test_captions_stay_as_they_are(caption: str) -> None:
    assert cleaned(caption) == caption
    assert not problem_of(caption)


@pytest.mark.parametrize(
    "answer",
    [
        "I'm sorry, but I can't help with that.",
        "I’m unable to view images.",  # noqa: RUF001
        "I cannot identify people in photos.",
        "Sorry, I can't.",
        "Unfortunately, I am not able to see it.",
        "As an AI language model, I see nothing.",
        "Please provide the image.",
        "I don't see any image attached.",
        "It looks like there's no image attached.",
        "No image was provided.",
    ],
)
def test_refusals_are_found(answer: str) -> None:
    assert problem_of(cleaned(answer)) == REFUSED


@pytest.mark.parametrize("answer", ["", " \n", "<think>I wonder", "</s>", "...", '""', "```\n```"])
def test_nothing_is_no_answer(answer: str) -> None:
    assert problem_of(cleaned(answer)) == EMPTY


LANGUAGES = {
    "de": "Ein Hund läuft über eine Wiese. Zwei Kinder spielen am Strand. Eine Frau sitzt auf "
    "einer Bank und liest ein Buch. Der Junge springt in das Wasser.",
    "en": "A dog runs through the grass. Two children play on a beach. A man in a blue shirt "
    "rides. A woman sits on a bench and reads.",
    "fr": "Un chien court dans l'herbe. Deux enfants jouent sur la plage. Une femme est assise sur "
    "un banc et lit un livre. Le garçon saute dans une rivière.",
    "ja": "犬が芝生の上を走っている。二人の子供が浜辺で遊んでいる。",
    "ru": "Собака бежит по траве.",
    "zh": "一只狗在草地上奔跑。两个孩子在海滩上玩耍。",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_languages_are_told(language: str) -> None:
    assert language_of([LANGUAGES[language]]) == language


@pytest.mark.parametrize(
    "texts", [[], ["Yes."], ["A dog."], ["Paris, Champs-Élysées"], ["STOP 12:30"], ["7 of 9"]]
)
def test_a_few_words_tell_no_language(texts: list[str]) -> None:
    assert not language_of(texts)


def test_a_language_need_be_told_from_one_alone() -> None:
    alike = [
        "Un gatto con una sciarpa su un divano.",
        "Un uomo con una camicia con su hermano.",
    ] * 2
    assert not language_of(alike)
    assert language_of(alike, beside="en") in ("it", "es")


@pytest.mark.parametrize(
    "answer",
    [
        f'```json\n{{"caption": "{DOG}"}}\n```',
        f'<think>JSON?</think>{{"Description": "{DOG}", "confidence": 0.9}}',
        f'["{DOG}"]',
        f'[{{"captions": ["{DOG}"]}}]',
        f"\ufeff{DOG}",
        f'\ufeff```json\n[\u200b"{DOG}"]\n```',
    ],
)
def test_a_caption_is_taken_out_of_json(answer: str) -> None:
    assert cleaned(answer) == DOG


@pytest.mark.parametrize("answer", ['{"score": 80, "text": "a dog"}', '{"answer": 4}', "[1, 2]"])
def test_other_json_stays_as_it_is(answer: str) -> None:
    assert cleaned(f"```json\n{answer}\n```") == answer
    assert is_data(answer)


def test_brackets_are_no_json() -> None:
    assert not is_data("[sic] A dog runs.")
    assert not is_data("[" * 100_000)
