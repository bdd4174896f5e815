"""Captions and boxes that are not as they should be; the rest of the photo is not lost to them."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from augmentation.captions.new_captions import PhotoCaptions
from augmentation.ssa.amr_parser import MAX_DEPTH
from augmentation.ssa.filters import UNGROUNDED, Rules
from augmentation.ssa.method import UNREADABLE, Ssa
from captioning.data.roster import build_roster
from captioning.text.parser import build_caption_parser
from captioning.text.word_tables import build_token_table
from captioning.types import Phrase, Region, Sample

BOXES = {"dog": (0, 0, 20, 40), "cat": (5, 0, 10, 5), "boy": (10, 20, 60, 60)}
SOUND = "A dog chases a cat."
WORDS = "a man in a red hat and a woman with a dog walk down the street while holding a bag and "


def captions_of(tmp_path: Path, *captions: str, boxes: bool = True) -> PhotoCaptions:
    """What is made of a photo of some captions; each thing of `BOXES` is a phrase of its own."""
    path = tmp_path / "photo.png"
    Image.new("RGB", (100, 100)).save(path)
    regions = tuple(Region(box=box, label=word) for word, box in BOXES.items())
    samples = [
        Sample(
            row=0, sample_id=f"p#{key}", image_id="p", image_path=path, caption=caption,
            regions=regions,
            phrases=tuple(
                Phrase(start=caption.index(word), text=word, chain_id=word,
                       regions=(number,) if boxes or caption == SOUND else ())
                for number, word in enumerate(BOXES) if word in caption
            ),
        )
        for key, caption in enumerate(captions)
    ]  # fmt: skip
    method = Ssa(
        parser=build_caption_parser(num_processes=1),
        vectors=build_token_table(),
        rules=Rules(min_well_formedness=0.0),
        max_small=20,
    )
    (result,) = method.captions(build_roster("bad", samples))
    return result


@pytest.mark.long
@pytest.mark.parametrize(
    ("caption", "unreadable"),
    [
        ("...", 1),  # does not parse
        ("☺ #", 1),
        ("Dog", 0),  # one word
        ("A dog and a cat.", 0),  # no predicate
        ("The boy.", 0),
        ((WORDS * 20)[:900].strip(), 0),  # 190 words
        ("a dog and " * 66 + "a cat", 0),
        ("sees " * (MAX_DEPTH - 1), 0),
        ("sees " * 300, 1),  # nested too deep to be read
        ("a man who sees " * 700, 1),
    ],
)
def test_a_caption_that_says_nothing_leaves_the_others(
    tmp_path: Path, caption: str, unreadable: int
):
    result = captions_of(tmp_path, caption.strip(), SOUND, SOUND)
    texts = {caption.text for caption in result.captions}
    assert texts & {"A dog is chasing a cat.", "A dog chasing a cat."}
    assert result.refused[UNREADABLE] == unreadable


def test_phrases_without_boxes_are_not_said(tmp_path: Path):
    result = captions_of(
        tmp_path, "A boy holds a dog.", "A boy holds a dog.", SOUND, SOUND, boxes=False
    )
    assert {"boy"}.isdisjoint(word for caption in result.captions for word in caption.text.split())
    assert result.refused[UNGROUNDED] > 0


def test_boxes_without_phrases_are_not_asked_for(tmp_path: Path):
    result = captions_of(tmp_path, SOUND, SOUND)  # nobody speaks of the boy, who has a box
    regions = {
        region for caption in result.captions for p in caption.phrases for region in p.regions
    }
    assert regions == {0, 1}
