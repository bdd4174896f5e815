"""UpDown's steps: what hypotheses share is computed once, and changes nothing."""

from __future__ import annotations

import pytest
import torch

from captioning.models import updown
from tests.tiny import MODELS, NUM_IMAGES, build, make_batch

# Rows repeat and change places, blocks grow and shrink, and images are dropped.
CHOICES = [
    [0, 0, 1, 1, 2, 2, 3, 3],
    [1, 1, 2, 3, 5, 4, 6, 6],
    [0, 1, 0, 2, 3, 2, 6, 7, 6],
    [0, 2, 1, 5, 4, 3, 6, 6, 8],
    [0, 3],
]


def walk(model: updown.UpDown) -> tuple[list[torch.Tensor], list[list[int]], list[torch.Tensor]]:
    """Log-probabilities of steps; images and words of their rows."""
    state = model.start(make_batch())
    image, words = list(range(NUM_IMAGES)), [[model.tokenizer.bos_id] for _ in range(NUM_IMAGES)]
    outputs, images, histories = [], [], []
    for number, rows in enumerate(CHOICES):
        log_probs, state = model.step(torch.tensor([row[-1] for row in words]), state)
        outputs.append(log_probs)
        images.append(image)
        histories.append(words)
        state = state.select(torch.tensor(rows))
        image = [image[row] for row in rows]
        words = [
            [*words[row], 4 + (3 * row + place + number) % 9] for place, row in enumerate(rows)
        ]
    return outputs, images, histories


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("updown")])
@pytest.mark.parametrize("likely_steps", [0, 10, 1000])
@torch.no_grad()
def test_each_row_continues_its_own_words(name, likely_steps, monkeypatch):
    # 0: nothing is made once an image; 1000: from the first step on.
    monkeypatch.setattr(updown, "LIKELY_STEPS", likely_steps)
    monkeypatch.setattr(updown, "ATTENDED", 60)
    model = build(name)
    for log_probs, images, histories in zip(*walk(model), strict=True):
        for row, (image, history) in enumerate(zip(images, histories, strict=True)):
            state = model.start(make_batch()).select(torch.tensor([image]))
            for token in history:
                expected, state = model.step(torch.tensor([token]), state)
            torch.testing.assert_close(log_probs[row], expected[0])


@torch.no_grad()
def test_hypotheses_of_one_past_share_it():
    model = build("updown")
    _, state = model.step(
        torch.full((NUM_IMAGES,), model.tokenizer.bos_id), model.start(make_batch())
    )
    wide = state.select(torch.arange(NUM_IMAGES).repeat_interleave(5))
    assert {len(cell) for cell in wide.cells} == {NUM_IMAGES}
    assert len(wide.pasts) == 5 * NUM_IMAGES
    _, after = model.step(torch.arange(5 * NUM_IMAGES) % 9 + 4, wide)
    assert {len(cell) for cell in after.cells} == {5 * NUM_IMAGES}
    assert after.images.language_gates is not None
