"""Convert UpDown checkpoints of ruotianluo/ImageCaptioning.pytorch (``caption_model: updown``).

``model-best.pth`` holds only tensors. The vocabulary comes from the JSON of the authors' data
(``cocotalk.json``) or ``{"1": "a", ...}``, as their ``infos`` pickle is not loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioning.convert.converted import Converted, KeyUse, Options
from captioning.convert.lstm import cell_keys, cell_names, cell_weights, renamed, twin
from captioning.convert.published_tensors import require
from captioning.runtime.files import read_json
from captioning.text.tokenizers.published_words import PublishedWords

ATTENTION, LANGUAGE = "core.att_lstm.", "core.lang_lstm."
KEY_BIAS = twin("key", "bias")
PLAIN = {
    "embed.0.weight": "embed.weight",
    "fc_embed.0.weight": "project_mean.0.weight",
    "fc_embed.0.bias": "project_mean.0.bias",
    "att_embed.0.weight": "project.0.weight",
    "att_embed.0.bias": "project.0.bias",
    "logit.weight": "output.weight",
    "logit.bias": "output.bias",
    "ctx2att.weight": "key.weight",
    "ctx2att.bias": KEY_BIAS[0],
    "core.attention.h2att.weight": "query.weight",
    "core.attention.h2att.bias": KEY_BIAS[1],
}
SCORE, SCORE_BIAS = "core.attention.alpha_net.weight", "core.attention.alpha_net.bias"


def convert(state: Mapping[str, Tensor], options: Options) -> Converted:
    """See `captioning.convert.converted.convert`.

    Raises:
        FileNotFoundError: the vocabulary does not exist.
        ValueError: keys are missing, the variant is not supported (batch normalisation, several
            layers of logits), or the vocabulary has another size.
    """
    if any(".running_mean" in key for key in state) or "logit.0.weight" in state:
        raise ValueError(
            "checkpoints with use_bn or logit_layers above 1 have no counterpart here: "
            "batch normalisation and further layers are not part of UpDown"
        )
    require(
        state, [*PLAIN, *cell_names(ATTENTION, LANGUAGE), SCORE, SCORE_BIAS], "ruotianluo's UpDown"
    )
    weights, keys = renamed(state, PLAIN)
    weights["score"] = state[SCORE][0]
    keys.append(KeyUse(key=SCORE, into=("score",)))
    keys.append(KeyUse(key=SCORE_BIAS, note="cancels in the attention's softmax"))
    cells, keys_of_cells = _cells(state)
    num_words, embedding_size = weights["embed.weight"].shape
    projection_size, feature_size = weights["project.0.weight"].shape
    attention_size, hidden_size = weights["query.weight"].shape
    sizes = {
        "hidden_size": hidden_size,
        "attention_size": attention_size,
        "embedding_size": embedding_size,
        "projection_size": projection_size,
    }
    return Converted(
        overrides=(
            "model=updown_published",
            *(f"model.module.{name}={size}" for name, size in sizes.items()),
            "tokenizer=words_ruotianluo",
            "search=beam_ruotianluo",
        ),
        tokenizer=_tokenizer(options.vocabulary, num_words),
        weights=weights | cells,
        feature_size=feature_size,
        keys=(*keys, *keys_of_cells),
    )


def _cells(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[KeyUse]]:
    """Weights of both LSTMs, each of which reads its own last output once."""
    attention, language = (cell_weights(state, cell) for cell in (ATTENTION, LANGUAGE))
    hidden = attention["weight_hh"].shape[1]
    values = state["att_embed.0.weight"].shape[0]
    words = state["embed.0.weight"].shape[1]
    h2, mean, word = attention["weight_ih"].split([hidden, values, words], dim=1)
    bias, language_bias = twin("words_to_gates", "bias"), twin("language", "bias")
    weights = {
        "words_to_gates.weight": word,
        "mean_to_gates.weight": mean,
        "hidden_to_gates.weight": torch.cat([h2, attention["weight_hh"]], dim=1),
        bias[0]: attention["bias_ih"],
        bias[1]: attention["bias_hh"],
        "language.weight": torch.cat([language["weight_ih"], language["weight_hh"]], dim=1),
        language_bias[0]: language["bias_ih"],
        language_bias[1]: language["bias_hh"],
    }
    inputs = ("words_to_gates.weight", "mean_to_gates.weight", "hidden_to_gates.weight")
    language_weight = ("language.weight",)
    into = {
        ATTENTION: (inputs, inputs[2:], bias[:1], bias[1:]),
        LANGUAGE: (language_weight, language_weight, language_bias[:1], language_bias[1:]),
    }
    return weights, cell_keys(into)


def _tokenizer(path: Path | None, size: int) -> PublishedWords:
    if path is None:
        raise ValueError(
            "updown_ruotianluo needs the authors' words: give --vocabulary FILE, the JSON of their "
            "data (cocotalk.json); their infos file is a pickle, which is not loaded"
        )
    words = _words(read_json(path), path)
    if sorted(words) != list(range(1, size)):
        raise ValueError(f"{path}: has {len(words)} words, the checkpoint {size - 1}")
    texts = ["<end>", *(words[index] for index in range(1, size))]
    return PublishedWords(words=texts, layout="ruotianluo", max_words=16)


def _words(content: Any, path: Path) -> dict[int, str]:
    if isinstance(content, dict):
        content = content.get("ix_to_word", content)
    try:
        return {int(index): str(word) for index, word in content.items()}
    except (AttributeError, ValueError) as error:
        raise ValueError(f'{path}: must be {{"1": WORD, ...}}, or have it as ix_to_word') from error
