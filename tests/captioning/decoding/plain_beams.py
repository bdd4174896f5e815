"""Published beam searches in lists, for one image at a time."""

from __future__ import annotations

import numpy as np
import torch


def penalised(values: np.ndarray, held: tuple[int, ...], penalty: float) -> np.ndarray:
    values = values.copy()
    for token in {*held}:
        values[token] *= penalty if values[token] < 0 else 1 / penalty
    return values


def repeats(tokens: tuple[int, ...], size: int) -> bool:
    grams = [tokens[start : start + size] for start in range(len(tokens) - size + 1)]
    return bool(size) and len(grams) > 1 and grams[-1] in grams[:-1]


def transformers_search(
    predict, prefix, *, end, max_length, min_length, beams, power, early, penalty, ngram
):
    """Captions of one image as `generate` of transformers 4 finds them; lengths count the prefix.

    Args:
        predict: log-probabilities ``(V,)`` of what follows some tokens, the prefix included.

    Returns:
        Score and tokens after the prefix, without end token, of the ended and cut-off captions.
    """

    running = [(np.float32(0), prefix)]
    ended: list[tuple[float, tuple[int, ...]]] = []

    def keep(total, tokens):
        score = float(torch.tensor(total) / len(tokens) ** power)
        if len(ended) < beams or score > min(ended)[0]:
            ended.append((score, tokens))
            ended.sort(key=lambda item: -item[0])
            del ended[beams:]

    while len(running[0][1]) < max_length:
        ranked = []
        for total, tokens in running:
            values = penalised(predict(tokens), tokens, penalty)
            for token, value in enumerate(values):
                is_early = token == end and len(tokens) < min_length
                if not is_early and not repeats((*tokens, token), ngram):
                    ranked.append((np.float32(total + value), tokens, token))
        ranked.sort(key=lambda item: -item[0])
        ranked = ranked[: 2 * beams]
        length = len(running[0][1])
        for total, tokens, token in ranked[:beams]:
            if token == end:
                keep(total, tokens)
        running = [(s, (*t, token)) for s, t, token in ranked if token != end][:beams]
        best = float(torch.tensor(ranked[0][0]) / length**power)
        if len(ended) == beams and (early or min(ended)[0] >= best):
            break
    else:
        for total, tokens in running:
            keep(total, tokens)
    return [(score, tokens[len(prefix) :]) for score, tokens in ended]


def averaged_search(predict, *, ends, beams, max_length):
    """Means and tokens of ViECap's beam: ended captions stay in it, all are ranked by means.

    Args:
        predict: log-probabilities ``(V,)`` of what follows some tokens.
    """
    beam = [(np.float32(0), ())]
    for _ in range(max_length):
        ranked = []
        for total, tokens in beam:
            if tokens and tokens[-1] in ends:
                ranked.append((np.float32(total / len(tokens)), tokens))
                continue
            for token, value in enumerate(predict(tokens)):
                mean = np.float32(np.float32(total + value) / (len(tokens) + 1))
                ranked.append((mean, (*tokens, token)))
        ranked.sort(key=lambda item: -item[0])
        beam = [(np.float32(mean * len(tokens)), tokens) for mean, tokens in ranked[:beams]]
        if all(tokens[-1] in ends for _, tokens in beam):
            break
    beam.sort(key=lambda item: -item[0] / len(item[1]))
    return [(total / len(tokens), tokens) for total, tokens in beam]
