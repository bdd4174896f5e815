"""Wrong words of captions: none in captions of their own scene, most in those of another."""

from __future__ import annotations

import pytest

from captioning.miniworld.build import make_captions
from captioning.miniworld.truth import cut_at_wrong_words, scene_of

NUMBER = 300


def test_true_captions_have_no_wrong_word_and_those_of_other_scenes_do() -> None:
    scenes = [scene_of(f"test_in_0_{number:06d}") for number in range(NUMBER)]
    texts = [
        [caption.text for caption in make_captions(scene, seed=0, split="test_in", index=number)]
        for number, scene in enumerate(scenes)
    ]
    for scene, own, other in zip(scenes, texts, texts[1:] + texts[:1], strict=True):
        assert [cut_at_wrong_words(text, scene) for text in own] == [[text] for text in own]
        assert all("".join(cut_at_wrong_words(text, scene)) == text for text in other)
    marked = [
        len(cut_at_wrong_words(text, scene)) > 1
        for scene, other in zip(scenes, texts[1:] + texts[:1], strict=True)
        for text in other
    ]
    assert sum(marked) / len(marked) > 0.9


def test_every_second_piece_is_a_wrong_word() -> None:
    scene = scene_of("test_in_0_000299")
    pieces = cut_at_wrong_words("There is a red van on the beach", scene)
    assert pieces[1::2] == ["van", "beach"]
    assert "".join(pieces) == "There is a red van on the beach"


def test_ids_of_other_data_are_refused() -> None:
    with pytest.raises(ValueError, match="not enough values|invalid literal"):
        scene_of("a.jpg")
