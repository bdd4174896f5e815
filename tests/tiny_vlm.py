"""Image-to-text models as captioners at the sizes of a test, with photos for them."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from captioning.decoding.beam import BeamSearch
from captioning.models.vlm import Vlm
from captioning.text.tokenizers.image_text import ImageTextTokenizer
from captioning.types import Batch
from captioning.vision.prompt_tensors import PromptedProcessor
from tests.image_text_folders import save_image_text
from tests.tiny import CAPTIONS

PROMPT = "Describe it."
INDEX = (0, 0, 1, 2, 2)
SIZES = ((60, 40), (40, 60), (48, 48))


@functools.cache
def model_folder(family: str) -> Path:
    """The folder of a family's model, made when it is first wanted."""
    folder = Path(tempfile.mkdtemp(prefix="image_text_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return save_image_text(folder, family)


def photos() -> list[Image.Image]:
    """Noise of three sizes."""
    rng = np.random.default_rng(0)
    shapes = [(height, width, 3) for width, height in SIZES]
    return [Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8)) for shape in shapes]


def captioner(folder: Path, *, beam_size: int = 3, seed: int = 0, **settings) -> Vlm:
    """With weights that tell photos and words apart."""
    tokenizer = ImageTextTokenizer.of_model(name=str(folder), prompt=PROMPT)
    search = BeamSearch.with_settings(beam_size=beam_size, max_length=8)
    model = Vlm(pretrained=str(folder), tokenizer=tokenizer, search=search, **settings)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3, generator=generator)
    return model.eval()


def batch_of(
    folder: Path,
    tokenizer: ImageTextTokenizer,
    pictures: Sequence[Image.Image] | None = None,
    *,
    extra_padding: int = 0,
) -> Batch:
    """Five captions of three photos, or of ``pictures``."""
    processor = PromptedProcessor(pretrained=str(folder), prompt=PROMPT)
    pictures = photos() if pictures is None else pictures
    rows = [torch.tensor(tokenizer.encode(caption)) for caption in CAPTIONS[: len(INDEX)]]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
    padded = torch.nn.functional.pad(padded, (0, extra_padding), value=-1)
    return Batch(
        rows=torch.arange(len(rows)),
        sample_ids=tuple(f"s{number}" for number in range(len(rows))),
        image_ids=tuple(f"i{number}" for number in range(len(pictures))),
        image_index=torch.tensor(INDEX),
        tokens=padded.clamp(min=0).masked_fill(padded < 0, tokenizer.pad_id),
        token_mask=padded >= 0,
        extras=processor.joined([processor.read_photo(picture) for picture in pictures]),
    )
