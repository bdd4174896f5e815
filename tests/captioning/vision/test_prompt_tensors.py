"""Prompts begin as a model knows them, and refused photos are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from captioning.data.batches.image_text import ImageTextReader
from captioning.decoding.greedy import GreedySearch
from captioning.evaluation.photo_captioners import ImageTextCaptioner
from captioning.inference.captioner import Captioner
from captioning.models.yes_no import build_yes_no
from captioning.vision import prompt_tensors
from captioning.vision.pair_scores import PairScores
from captioning.vision.prompt_tensors import PromptedProcessor
from tests.families.registry import family_folder

PROMPT = "Describe it."


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A photo whose sides Qwen's processors find too unequal."""
    path = tmp_path / "photos" / "odd.png"
    path.parent.mkdir()
    Image.new("RGB", (1, 2000)).save(path)
    return path


@pytest.fixture
def good(odd: Path) -> Path:
    path = odd.with_name("good.png")
    Image.new("RGB", (60, 40), "red").save(path)
    return path


# The first has a processor that turns its tokenizer's start token off, the second one that adds it.
@pytest.mark.parametrize("family", ["lfm2_vl", "mllama", "gemma3", "llava"])
def test_a_prompt_has_one_start_token(family: str) -> None:
    processor = PromptedProcessor(pretrained=str(family_folder(family)), prompt=PROMPT)
    ids = processor.read_photo(Image.new("RGB", (64, 48)))["prompt.input_ids"][0].tolist()
    start = processor.processor.tokenizer.bos_token_id
    assert ids[0] == start
    assert ids.count(start) == 1


def test_other_tokens_than_those_of_the_processors_own_chat_are_refused(monkeypatch) -> None:
    honest = prompt_tensors.prompt_format

    def forgetful(*arguments: Any) -> Any:
        form = honest(*arguments)
        assert form.question is not None
        return replace(form, question=replace(form.question, has_start=False))

    monkeypatch.setattr(prompt_tensors, "prompt_format", forgetful)
    with pytest.raises(ValueError, match="apply_chat_template gives .* save the model's own"):
        PromptedProcessor(pretrained=str(family_folder("gemma3")), prompt=PROMPT)


def test_refused_photos_are_named_before_training(odd: Path, good: Path) -> None:
    reader = ImageTextReader(pretrained=str(family_folder("qwen2_vl")), prompt=PROMPT)
    reader.check_photos([good])
    with pytest.raises(ValueError, match=r"odd\.png.* 1x2000 .*crop or remove this photo"):
        reader.check_photos([good, odd])
    other = odd.with_name("other.png")
    other.write_bytes(odd.read_bytes())
    with pytest.raises(ValueError, match=r"so are 1 more: '.*other.png'"):
        reader.check_photos([good, odd, other])


def test_captions_leave_a_refused_photo_out_by_name(odd: Path, good: Path) -> None:
    captioner = Captioner.load(str(family_folder("qwen2_vl")), device="cpu", prompt=PROMPT)
    search = {"beam_size": 1, "max_words": 3}
    results = {
        Path(result.photo).name: result
        for result in captioner.stream([good, odd], skips_broken=True, **search)
    }
    assert results["good.png"].captions
    assert "odd.png: " in results["odd.png"].problem
    with pytest.raises(ValueError, match=r"odd\.png: "):
        captioner.caption([good, odd], **search)


def test_curations_captioner_and_score_name_a_refused_photo(odd: Path, good: Path) -> None:
    name = str(family_folder("qwen2_vl"))
    search = GreedySearch.with_settings(max_length=3)
    captioner = ImageTextCaptioner(name=name, search=search, prompt=PROMPT, device="cpu")
    with pytest.raises(ValueError, match=r"odd\.png: "):
        captioner.write_captions([good, odd], keys=["a", "b"])
    scores = PairScores(scorer=build_yes_no(name=name, device="cpu"))
    with pytest.raises(ValueError, match=r"odd\.png: "):
        scores.scores([(good, "a dog"), (odd, "a dog")])
