"""A model of transformers, with a small BLIP of random weights."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor, pipeline

from captioning import Captioner
from captioning.config.compose import compose_config
from captioning.evaluation.photo_captioners import RunCaptioner
from captioning.export.export import export
from tests.captioning.models.test_blip import folder  # noqa: F401  # a fixture
from tests.captioning.training.test_vlm_run import LORA, vlm  # noqa: F401  # a fixture
from tests.run_calls import train


def texts(captioner: Captioner, photos: list[Path]) -> list[str]:
    return [result.caption for result in captioner.caption(photos)]


@pytest.mark.long
@pytest.mark.parametrize("side", [16, 24])  # of the pretrained weights, and another
def test_blip_is_exported_for_transformers(
    small_settings,
    cache,
    folder: Path,  # noqa: F811
    tmp_path: Path,
    side: int,
) -> None:
    kept = [entry for entry in small_settings if not entry.startswith(("features", "tokenizer"))]
    chosen = ("model=blip", "features=blip", "tokenizer=blip", f"model.pretrained={folder}")
    more = (f"features.backbone.image_size={side}", "model.module.prompt=a dog", "num_epochs=1")
    places = (f"paths.cache={cache}", f"run_dir={tmp_path / 'run'}")
    config = compose_config("train", [*kept, *chosen, *more, *places, "optimizer.lr=0.0001"])
    OmegaConf.resolve(config)
    train(config)
    source = Captioner.load(tmp_path / "run", device="cpu")
    target = export(tmp_path / "run", tmp_path / "export")
    named(target, tmp_path, folder)
    moved = target.rename(tmp_path / "moved")  # nothing points to where it was
    again = Captioner.load(moved, device="cpu")
    weights, expected = again.model.state_dict(), source.model.state_dict()
    same = {name for name in expected if torch.equal(weights[name], expected[name])}
    resized = set() if side == 16 else {n for n in expected if n.endswith("position_embedding")}
    assert expected.keys() - same == resized  # positions are written for the photos' size
    card = (moved / "README.md").read_text()
    assert f'base_model: "{folder.name}"' in card
    assert "- prompt: `a dog`" in card
    theirs = AutoModelForImageTextToText.from_pretrained(moved).eval()
    processor = AutoProcessor.from_pretrained(moved)
    photo = Image.effect_noise((40, 30), 90).convert("RGB")
    inputs = processor(images=photo, text="a dog", return_tensors="pt")
    assert inputs["pixel_values"].shape == (1, 3, side, side)
    prompt = source.model.tokenizer.encode("a dog")[1:-1]
    assert inputs["input_ids"][0, 1:-1].tolist() == prompt
    states = theirs.vision_model(inputs["pixel_values"]).last_hidden_state
    torch.testing.assert_close(states, source.model.backbone.grid(inputs["pixel_values"]))
    # with what the card says, transformers finds the same captions
    assert card_arguments(card)["suppress_tokens"] == [0, 1, 28]  # padding, unknown, begin
    photos = noise(tmp_path, 8)
    found = []
    for path in photos:
        image = Image.open(path)
        inputs = processor(images=image, text="a dog", return_tensors="pt")
        ids = theirs.generate(**inputs, **card_arguments(card))
        found.append(processor.decode(ids[0], skip_special_tokens=True).removeprefix("a dog"))
    expected = texts(source, photos)
    assert [text.strip() for text in found] == expected
    piped = pipeline("image-text-to-text", str(moved), device="cpu")
    call = {"text": "a dog", "generate_kwargs": card_arguments(card)}
    said = piped(images=str(photos[0]), **call)[0]["generated_text"]
    assert said.removeprefix("a dog").strip() == expected[0]
    assert len(set(found)) > 1
    older_layout(moved)
    assert texts(Captioner.load(moved, device="cpu"), photos) == texts(source, photos)


def older_layout(export_folder: Path) -> None:
    """Move the model of transformers to where older exports have it."""
    below = export_folder / "transformers"
    below.mkdir()
    own = {"captioner.json", "config.yaml", "README.md", "transformers"}
    for path in [path for path in export_folder.iterdir() if path.name not in own]:
        path.rename(below / path.name)
    config = export_folder / "config.yaml"
    text = config.read_text()
    assert text.count("pretrained: .\n") >= 2
    config.write_text(text.replace("pretrained: .\n", "pretrained: transformers\n"))


def noise(place: Path, count: int) -> list[Path]:
    paths = [place / f"noise{number}.png" for number in range(count)]
    for number, path in enumerate(paths):
        values = torch.randint(256, (24, 24, 3), generator=torch.Generator().manual_seed(number))
        Image.fromarray(values.byte().numpy()).resize((32, 32)).save(path)
    return paths


def card_arguments(card: str) -> dict[str, object]:
    """The arguments of ``generate`` that a card names."""
    call = ast.parse(re.search(r"`(generate\(\*\*inputs, .*\))`", card)[1], mode="eval").body
    return {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}


def named(export_folder: Path, *places: Path) -> None:
    """Check that no file of text names a folder of the export's owner."""
    for path in export_folder.rglob("*"):
        if path.suffix in (".json", ".yaml", ".md", ".jinja", ".txt"):
            text = path.read_text()
            assert not any(str(place) in text for place in places), path


def check_adapter(base: Path, adapter: Path, merged: torch.nn.Module) -> None:
    """The pretrained model with the adapter computes as the exported one, and not as without."""
    peft = pytest.importorskip("peft", reason="needs peft")
    plain = AutoModelForImageTextToText.from_pretrained(base).eval()
    inputs = {"input_ids": torch.tensor([[2, 5, 6, 7]])}
    with torch.no_grad():
        expected, before = merged(**inputs).logits, plain(**inputs).logits
        found = peft.PeftModel.from_pretrained(plain, adapter).eval()(**inputs).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(found, before, atol=1e-5)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("lora", [False, True])
def test_an_image_to_text_model_is_exported_for_transformers(vlm, tmp_path, lora: bool) -> None:  # noqa: F811
    if lora:
        pytest.importorskip("peft", reason="needs peft")
    greedy = ("search.beam_size=1", "search.length_penalty=0")  # random weights end no caption
    tuning = [f"+model.lora={LORA}"] * lora
    train(vlm("num_epochs=1", "model.prompt=a photo of", *greedy, *tuning))
    source = Captioner.load(tmp_path / "run", device="cpu")
    files = sorted((Path(source.config.paths.cache) / "miniworld").rglob("*"))
    photos = [file for file in files if file.suffix in (".png", ".jpg")][:3]
    moved = export(tmp_path / "run", tmp_path / "export").rename(tmp_path / "moved")
    base = Path(source.config.model.pretrained)
    named(moved, tmp_path, base)
    card = (moved / "README.md").read_text()
    front = 'library_name: "transformers"\npipeline_tag: "image-text-to-text"\n'
    assert front + f'base_model: "{base.name}"' in card
    assert f"- begun with: the pretrained model {base.name}\n- fine-tuned: yes" in card
    assert "- prompt: `a photo of`" in card
    theirs = AutoModelForImageTextToText.from_pretrained(moved).eval()
    assert AutoProcessor.from_pretrained(moved).tokenizer is not None
    assert (moved / "adapter").is_dir() is lora
    if lora:
        check_adapter(base, moved / "adapter", theirs)
    again = Captioner.load(moved, device="cpu")
    assert len(photos) == 3
    assert texts(again, photos) == texts(source, photos)
    processor, found = AutoProcessor.from_pretrained(moved), []
    for path in photos:
        inputs = processor(images=Image.open(path), text="a photo of", return_tensors="pt")
        inputs = {name: inputs[name] for name in ("pixel_values", "input_ids")}
        inputs["input_ids"] = inputs["input_ids"][:, :-1]  # no end behind the prompt
        ids = theirs.generate(**inputs, **card_arguments(card))
        ids = ids[0, inputs["input_ids"].shape[1] :]
        found.append(processor.decode(ids, skip_special_tokens=True))
    assert found == texts(source, photos)
    for place in (tmp_path / "run", moved):  # weights that have a type of their own
        half = Captioner.load(place, device="cpu", precision="float16")
        assert torch.float16 in {weight.dtype for weight in half.model.parameters()}
        assert half.dtype == torch.float32
        assert all(texts(half, photos))
    settings = {"run": str(tmp_path / "run"), "search": source.model.search, "device": "cpu"}
    plain, half, single = (
        RunCaptioner(**settings, precision=precision) for precision in (None, "float16", "float32")
    )
    assert len({plain.identity, half.identity, single.identity}) == 3
    assert all(half.write_captions(photos, keys=["a", "b", "c"]))
