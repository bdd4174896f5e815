"""Convert checkpoints of nocaps-org/updown-baseline, with GloVe or learned word embeddings.

The vocabulary is the folder that the authors' ``build_vocabulary.py`` writes (``tokens.txt``). A
model trained for constrained search also has the words of the authors'
``constraint_wordforms.tsv``: put this file into the same folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from captioning.convert.converted import Converted, KeyUse, Options
from captioning.convert.lstm import cell_keys, cell_names, cell_weights, renamed, twin
from captioning.convert.published_tensors import require
from captioning.text.tokenizers.published_words import PublishedWords

CELL = "_updown_cell."
ATTENTION, LANGUAGE = f"{CELL}_attention_lstm_cell.", f"{CELL}_language_lstm_cell."
PLAIN = {
    "_embedding_layer.weight": "embed.weight",
    f"{CELL}_butd_attention._query_vector_projection_layer.weight": "query.weight",
    f"{CELL}_butd_attention._image_features_projection_layer.weight": "key.weight",
}
SCORE = f"{CELL}_butd_attention._attention_layer.weight"
TIED = {
    "_output_projection.0.weight": "to_embedding.0.weight",
    "_output_projection.0.bias": "to_embedding.0.bias",
}
UNTIED = {"_output_layer.weight": "output.weight", "_output_layer.bias": "output.bias"}


def convert(state: Mapping[str, Tensor], options: Options) -> Converted:
    """See `captioning.convert.converted.convert`.

    Raises:
        FileNotFoundError: the vocabulary does not exist.
        ValueError: keys are missing, or the vocabulary has another size.
    """
    tied = "_output_projection.0.weight" in state
    outputs = TIED if tied else UNTIED
    require(state, [*PLAIN, *outputs, *cell_names(ATTENTION, LANGUAGE), SCORE], "updown-baseline")
    weights, keys = renamed(state, PLAIN | outputs)
    weights["score"] = state[SCORE][0]
    keys.append(KeyUse(key=SCORE, into=("score",)))
    num_words, embedding_size = state["_embedding_layer.weight"].shape
    attention_size, feature_size = weights["key.weight"].shape
    hidden_size = weights["query.weight"].shape[1]
    cells, keys_of_cells = _cells(state, (embedding_size, feature_size, hidden_size))
    if tied:
        keys.append(KeyUse(key="_output_layer.weight", note="the embedding's own"))
    sizes = {
        "hidden_size": hidden_size,
        "attention_size": attention_size,
        "embedding_size": embedding_size,
    }
    return Converted(
        overrides=(
            *(_tied_overrides() if tied else ("model=updown_nocaps_untied",)),
            *(f"model.module.{name}={size}" for name, size in sizes.items()),
            "tokenizer=words_updown_baseline",
            "search=beam_allennlp",
        ),
        tokenizer=_tokenizer(options.vocabulary, num_words),
        weights=weights | cells,
        feature_size=feature_size,
        keys=(*keys, *keys_of_cells),
    )


def _tied_overrides() -> tuple[str, ...]:
    return "model=updown_nocaps", "model.word_vectors=null", "model.module.frozen_words=true"


def _cells(
    state: Mapping[str, Tensor], sizes: tuple[int, int, int]
) -> tuple[dict[str, Tensor], list[KeyUse]]:
    """Weights of both LSTMs, each of which reads its own last output twice."""
    words, features, hidden = sizes
    attention, language = (cell_weights(state, cell) for cell in (ATTENTION, LANGUAGE))
    word, mean, h1, h2 = attention["weight_ih"].split([words, features, hidden, hidden], dim=1)
    bias, hidden_weight = twin("words_to_gates", "bias"), twin("hidden_to_gates", "weight")
    language_weight, language_bias = twin("language", "weight"), twin("language", "bias")
    weights = {
        "words_to_gates.weight": word,
        "mean_to_gates.weight": mean,
        hidden_weight[0]: torch.cat([h2, h1], dim=1),
        hidden_weight[1]: attention["weight_hh"],
        bias[0]: attention["bias_ih"],
        bias[1]: attention["bias_hh"],
        language_weight[0]: language["weight_ih"],
        language_weight[1]: language["weight_hh"],
        language_bias[0]: language["bias_ih"],
        language_bias[1]: language["bias_hh"],
    }
    inputs = ("words_to_gates.weight", "mean_to_gates.weight", hidden_weight[0])
    into = {
        ATTENTION: (inputs, hidden_weight[1:], bias[:1], bias[1:]),
        LANGUAGE: (
            language_weight[:1], language_weight[1:], language_bias[:1], language_bias[1:],
        ),
    }  # fmt: skip
    return weights, cell_keys(into)


def _tokenizer(folder: Path | None, size: int) -> PublishedWords:
    if folder is None:
        raise ValueError("updown_baseline needs the authors' words: give --vocabulary FOLDER")
    path = folder / "tokens.txt"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; --vocabulary is the authors' folder")
    words = [line for line in path.read_text(encoding="utf-8").split("\n") if line]
    forms = folder / "constraint_wordforms.tsv"
    if len(words) < size and forms.is_file():
        words = list(dict.fromkeys([*words, *_constraint_words(forms)]))
    if len(words) != size:
        raise ValueError(
            f"{folder}: has {len(words)} words, the checkpoint {size}; if it was trained for "
            f"constrained search, put the authors' {forms.name} into this folder"
        )
    return PublishedWords(words=words, layout="updown_baseline")


def _constraint_words(path: Path) -> list[str]:
    """Words of the file's second column, in the order in which the authors add them."""
    columns = (line.partition("\t")[2] for line in path.read_text(encoding="utf-8").splitlines())
    return [word for forms in columns for word in forms.replace(",", " ").split()]
