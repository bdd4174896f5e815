"""The page on adding a search is followed to the letter."""

from __future__ import annotations

from pathlib import Path

import hydra
import pytest
import torch

from captioning.config.compose import compose_config
from captioning.config.plugins import import_plugins
from captioning.decoding.beam import BeamSearch
from captioning.decoding.search import AbstractSearch
from tests.pages import write_files
from tests.tiny import build, make_batch


@pytest.fixture
def longest(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that builds the page's search, as ``search=longest`` and overrides do."""
    assert len(write_files(repository / "docs" / "extend" / "add_a_search.md", tmp_path)) == 2
    monkeypatch.syspath_prepend(tmp_path)
    import_plugins(["my_package"])

    def built(*overrides: str) -> AbstractSearch:
        searchpath = f"hydra.searchpath=[file://{tmp_path / 'configs'}]"
        composed = compose_config("train", [searchpath, "search=longest", *overrides])
        return hydra.utils.instantiate(composed.search)

    return built


def test_the_search_of_the_page_gives_the_longest_captions_of_a_beam(longest) -> None:
    model, batch = build("updown"), make_batch()
    with torch.no_grad():
        model.output.bias[model.tokenizer.eos_id] += 1.5  # captions of this model seldom end
    overrides = ("search.beam_size=6", "search.max_length=8", "search.num_captions=2")
    search = longest(*overrides, "search.enough=6")
    beam = BeamSearch(settings=search.settings).changed(num_captions=6)
    expected = []
    for captions in model.candidates(batch, search=beam):
        # a caption and its end; those of 6 tokens or more are in the beam's order
        by_length = sorted(captions, key=lambda caption: -min(len(caption.caption.split()) + 1, 6))
        expected.append(by_length[:2])
    assert model.candidates(batch, search=search) == expected
    assert [first for first, _ in expected] != model.generate(batch, search=beam)


def test_wrong_settings_of_the_pages_search_are_refused(longest) -> None:
    for overrides, message in (
        (["search.enough=0"], "enough must be at least 1: got 0"),
        (["+search.seed=3"], "LongestOfBeam does not use seed: got 3"),
        (["search.beam_size=0"], "beam_size must be a whole number of at least 1: got 0"),
    ):
        with pytest.raises(hydra.errors.InstantiationException, match=message):
            longest(*overrides)
