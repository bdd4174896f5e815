"""One family of each kind outside training: the command, yes or no, captions of any photo."""

from __future__ import annotations

import functools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.commands.main import main
from captioning.decoding.beam import BeamSearch
from captioning.evaluation.photo_captioners import ImageTextCaptioner
from captioning.inference import loading
from captioning.models.yes_no import build_yes_no
from captioning.runtime.processors import load_processor
from captioning.vision.photo_captions import PhotoCaptions
from captioning.vision.photos import load_rgb
from captioning.vision.prompt_tensors import PromptedProcessor
from tests.families.registry import PROMPTS, family_folder

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
KINDS = {
    "gemma3": "by token types",
    "qwen3_5": "states of linear attention",
    "lfm2_vl": "states of convolutions",
    "florence2": "an encoder and a decoder",
    "kosmos_2": "a text network of its own",
    "vision_encoder_decoder": "no prompt",
    "internvl": "tiles",
    "molmo2": "an index of patches",
}
every_family = pytest.mark.parametrize("family", KINDS, scope="module")
WITH_QUESTION = [family for family in KINDS if family != "vision_encoder_decoder"]
SIZES = ((60, 40), (48, 48), (200, 120))
TEXTS = ("a dog runs on the grass", "a cat sleeps", "two dogs run", "a dog runs on the grass")
PHOTO_OF = (0, 1, 2, 1)
OF_NAMED: tuple[dict[str, bool], ...] = ({}, {"named": False}, {"named": True})
OPTIONS = {"qwen3_5": "enable_thinking=false"}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Noise of three sizes."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    paths = [folder / f"{number}.png" for number in range(len(SIZES))]
    for path, (width, height) in zip(paths, SIZES, strict=True):
        Image.fromarray(rng.integers(0, 255, (height, width, 3), dtype=np.uint8)).save(path)
    return paths


def prompt_of(family: str) -> str:
    return PROMPTS.get(family, "Describe it.")


def marks_in(family: str, caption: str) -> list[str]:
    """Tokens of no words that a caption holds."""
    tokenizer = load_processor(family_folder(family)).tokenizer
    marks = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
    marks += ["<think>", "</think>", "assistant\n", prompt_of(family) or "<s>"]
    return [mark for mark in marks if mark in caption]


@pytest.mark.long
@every_family
def test_the_command_captions_alike_alone_and_in_a_batch(family, photos, capsys) -> None:
    asked = ["--model", str(family_folder(family)), "--max-length", "5", "--device", "cpu"]
    if prompt_of(family):
        asked += ["--prompt", prompt_of(family)]
    if family in OPTIONS:
        asked += ["--template", OPTIONS[family]]
    asked += ["--format", "json"]
    assert main(["caption", *map(str, photos), *asked, "--batch-size", "3"]) == 0
    together = json.loads(capsys.readouterr().out)
    assert [entry["file"] for entry in together] == [str(path) for path in photos]
    captions = [entry["caption"] for entry in together]
    assert main(["caption", *map(str, photos), *asked, "--batch-size", "1"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert [entry["caption"] for entry in alone] == captions
    scores = [entry["score"] for entry in together]
    assert [entry["score"] for entry in alone] == pytest.approx(scores, abs=1e-4)
    assert not [mark for caption in captions for mark in marks_in(family, caption)]


@every_family
def test_an_unknown_option_of_the_template_ends_in_a_line(family, photos, capsys) -> None:
    asked = ["--model", str(family_folder(family)), "--template", "thoughtful=false"]
    if prompt_of(family):
        asked += ["--prompt", prompt_of(family)]
    capsys.readouterr()  # of a folder that is made here
    assert main(["caption", str(photos[0]), *asked]) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert re.search(r"has no chat template|has no such option", message)


def test_an_option_reaches_prompt_and_tokenizer_of_the_command(photos, tmp_path, capsys) -> None:
    folder = shutil.copytree(family_folder("qwen3_5"), tmp_path / "model")
    template = folder / "chat_template.jinja"
    ending = "</think>\n\n"
    assert ending in template.read_text()
    named = ending + "{% if named %}A: {% endif %}"
    template.write_text(template.read_text().replace(ending, named))
    load = functools.partial(loading.load_captioner, folder, device="cpu", prompt="Describe it.")
    heads = [load(template=chosen).model.tokenizer.state()["before"] for chosen in OF_NAMED]
    assert heads == ["", "", " "]
    asked = ["caption", str(photos[0]), "--model", str(folder), "--max-length", "4"]
    scores = []
    for chosen in ("false", "true"):
        options = ("--template", f"named={chosen}", "--format", "json", "--device", "cpu")
        assert main([*asked, *options]) == 0
        scores.append(json.loads(capsys.readouterr().out)[0]["score"])
    assert scores[0] != scores[1]


@pytest.mark.long
@every_family
def test_a_caption_writer_writes_alike_alone_and_in_a_batch(family, photos) -> None:
    search = BeamSearch.with_settings(max_length=6, beam_size=2, num_captions=2)
    settings = {
        "name": str(family_folder(family)),
        "search": search,
        "prompt": prompt_of(family),
        "device": "cpu",
    }
    together = PhotoCaptions(captioner=ImageTextCaptioner(**settings, batch_size=3))
    captions = together.captions(photos)
    assert len(captions) == len(photos)
    for texts in captions:
        assert 1 <= len(texts) <= 2
        assert not [mark for text in texts for mark in marks_in(family, text)]
    apart = PhotoCaptions(captioner=ImageTextCaptioner(**settings, batch_size=1))
    assert apart.captions(photos[::-1]) == captions[::-1]


def asked_yes_or_no(family: str, size: int):
    name = str(family_folder(family))
    template = {"enable_thinking": False} if family in OPTIONS else None
    return build_yes_no.__wrapped__(name=name, template=template, batch_size=size, device="cpu")


@pytest.mark.long
@pytest.mark.parametrize("family", WITH_QUESTION, scope="module")
def test_yes_or_no_is_alike_alone_and_in_a_batch(family, photos) -> None:
    opened = [load_rgb(path) for path in photos]
    one, four = (asked_yes_or_no(family, size) for size in (1, 4))
    alone = one.score_pairs(opened, TEXTS, PHOTO_OF)
    together = four.score_pairs(opened, TEXTS, PHOTO_OF)
    torch.testing.assert_close(alone, together, atol=1e-5, rtol=0)
    assert bool(((alone >= 0) & (alone <= 1)).all())
    assert len({*alone.tolist()}) == len(TEXTS)  # photo and caption both count


def test_a_model_without_prompts_is_asked_nothing() -> None:
    with pytest.raises(ValueError, match="accept no text, so they cannot be asked") as refused:
        asked_yes_or_no("vision_encoder_decoder", 1)
    assert "\n" not in str(refused.value)


def test_a_chat_model_without_its_template_says_what_is_missing(tmp_path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(family_folder("qwen2_vl"), folder)
    for path in folder.rglob("*"):
        if path.name == "chat_template.jinja":
            path.unlink()
    for path in folder.glob("*.json"):
        content = json.loads(path.read_text())
        if isinstance(content, dict) and content.pop("chat_template", None):
            path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"without a chat template.*chat_template\.jinja"):
        PromptedProcessor(pretrained=str(folder), prompt="Describe it.")
