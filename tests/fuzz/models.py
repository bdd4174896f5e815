"""Folders of models in the hub's layout: small ones, saved to disk and damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from captioning.runtime.processors import load_image_text, load_processor
from captioning.text.causal import load_causal, load_causal_tokens
from captioning.text.sentences import build_sentence_encoder
from captioning.vision.blip import load_blip
from captioning.vision.blip_matching import build_blip_matching
from tests.causal_folder import save_causal
from tests.fuzz.harness import Subject, Target
from tests.image_text_folders import save_image_text
from tests.matching_folders import save_blip_captioner, save_blip_matching

Save = Callable[[Path], Path]
Load = Callable[[Path], object]


def causal(folder: Path) -> None:
    load_causal(str(folder))
    load_causal_tokens(str(folder))


def matching(folder: Path) -> None:
    build_blip_matching.cache_clear()
    build_blip_matching(name=str(folder))


def image_text(folder: Path) -> None:
    load_processor.cache_clear()
    load_processor(folder)
    load_image_text(str(folder))


def model(save: Save, load: Load) -> Callable[[Path], Subject]:
    """A model's folder, and what reads it; errors may name the folder instead of its file."""

    def make(folder: Path) -> Subject:
        hub = save(folder / "hub")
        files = [path for path in sorted(hub.rglob("*")) if path.is_file()]
        return Subject(call=lambda: load(hub), files=files, names=("hub",))

    return make


TARGETS = [
    Target(name="model folder: causal", make=model(save_causal, causal), share=0.5),
    Target(
        name="model folder: BLIP",
        make=model(save_blip_captioner, lambda folder: load_blip(str(folder))),
        share=0.5,
    ),
    Target(
        name="model folder: matching",
        make=model(save_blip_matching, matching),
        share=0.5,
    ),
    Target(
        name="model folder: image to text",
        make=model(lambda folder: save_image_text(folder, "git"), image_text),
        share=0.5,
    ),
    Target(
        name="model folder: sentences",
        make=model(save_causal, lambda folder: build_sentence_encoder(name=str(folder))),
        share=0.5,
    ),
]
