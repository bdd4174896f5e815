from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.rouge.rouge import Rouge

from captioning.metrics.bleu import prepare_bleu, score_bleu
from captioning.metrics.rouge import prepare_rouge, score_rouge

caption = st.lists(st.sampled_from("abcd"), max_size=9).map(" ".join)
images = st.lists(st.tuples(caption, st.lists(caption, min_size=1, max_size=4)), min_size=1)


@given(images)
def test_bleu_has_pycocoevalcaps_digits(images):
    candidates, references = zip(*images, strict=True)
    gts = dict(enumerate(map(list, references)))
    res = {row: [text] for row, text in enumerate(candidates)}
    corpus, per_image = Bleu(4).compute_score(gts, res, verbose=0)
    assert score_bleu(candidates, prepare_bleu(references)) == (corpus, per_image)


@pytest.mark.long
@given(images)
def test_rouge_has_pycocoevalcaps_digits(images):
    candidates, references = zip(*images, strict=True)
    gts = dict(enumerate(map(list, references)))
    res = {row: [text] for row, text in enumerate(candidates)}
    mean, per_image = Rouge().compute_score(gts, res)
    scores = score_rouge(candidates, prepare_rouge(references))
    assert scores[1] == per_image.tolist()
    assert scores[0] == pytest.approx(float(mean), rel=1e-14)


def test_bleu_by_hand():
    # 3 of 4 words, 1 of 3 pairs, and a caption one word shorter than its reference
    (bleu_1, bleu_2, *_), _ = score_bleu(
        ["a dog runs fast"], prepare_bleu([["a dog walks fast now"]])
    )
    penalty = 2.718281828459045 ** (1 - 5 / 4)
    assert bleu_1 == pytest.approx(3 / 4 * penalty)
    assert bleu_2 == pytest.approx((3 / 4 * 1 / 3) ** 0.5 * penalty)


def test_rouge_by_hand():
    # "a ... dog ... fast" is common: 3 words of 4, and of 3 in the shorter reference
    references = prepare_rouge([["a black dog runs fast now", "a dog fast"]])
    _, (score,) = score_rouge(["a dog goes fast"], references)
    precision, recall = 3 / 4, 1.0
    assert score == pytest.approx((1 + 1.44) * precision * recall / (recall + 1.44 * precision))
