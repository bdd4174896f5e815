"""Convert checkpoints of visinf/cos-cvae (Mahajan and Roth, 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from captioning.convert.converted import Converted, KeyUse, Options
from captioning.convert.lstm import our_gates, twin
from captioning.convert.published_tensors import require
from captioning.runtime.files import read_json
from captioning.text.tokenizers.words import SPECIAL, WordTokenizer

DECODER, PRIOR = "txtDecoder_sd.", "g_prior_sd."
CONTEXT, OBJECTS = "texEncoder_Mask_sd.", "texEncoder_Obj_sd."
NOT_IN_SOFTMAX = "added to the scores of all regions, so the attention is the same without it"
GATES = "gates in our order"
NOT_LOADED = "state of the optimiser; training begins with a new one"
# Ids of the authors' vocabulary; the placeholders take those of <unk> and <temp>.
PLURAL_ID, SINGULAR_ID = 3, 4
RESERVED = ("<pad>", "<start>", "<end>")
MAX_WORDS = 18  # the authors' 20 tokens hold begin and end

# Names of theirs that become one tensor of ours as they are.
EQUAL = {
    f"{DECODER}embedding.weight": "decoder.embed.weight",
    f"{DECODER}attention.obj_enc_attn.weight": "decoder.key.weight",
    f"{DECODER}attention.obj_enc_attn.bias": "decoder.key.bias",
    f"{DECODER}attention.attn_out_fc.weight": "decoder.query.weight",
    f"{DECODER}attention.attn_out_fc.bias": "decoder.query_bias",
    f"{DECODER}output_projection.0.weight": "decoder.squeeze.weight",
    f"{DECODER}output_projection.0.bias": "decoder.squeeze.bias",
    f"{DECODER}output_layer.weight": "decoder.output.weight",
    f"{PRIOR}emd.weight": "latents.prior.embed.weight",
    f"{PRIOR}fc_m_out.weight": "latents.prior.to_context.weight",
    f"{PRIOR}fc_m_out.bias": "latents.prior.to_context.bias",
    f"{PRIOR}fc_o_out.weight": "latents.prior.to_objects.weight",
    f"{PRIOR}fc_o_out.bias": "latents.prior.to_objects.bias",
    f"{CONTEXT}fc1_out.bias": "latents.context.statistics.bias",
    f"{OBJECTS}fc1_out.bias": "latents.objects.statistics.bias",
}
GRU = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
EQUAL |= {f"{OBJECTS}gru.{name}": f"latents.objects.gru.{name}" for name in GRU}
EQUAL |= {
    f"{CONTEXT}gru.{name}{end}": f"latents.context.gru.{name}{end}"
    for name in GRU
    for end in ("", "_reverse")
}
CELL = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
CELLS = (f"{DECODER}attention.attn_lstm", f"{DECODER}decode_step")
PRIOR_CELLS = (f"{PRIOR}lstm_mask", f"{PRIOR}lstm_obj")
SCORE = f"{DECODER}attention.final_attn_fc"
NEEDED = (
    *EQUAL,
    *(f"{cell}.{name}" for cell in (*CELLS, *PRIOR_CELLS) for name in CELL),
    *(f"{SCORE}.{name}" for name in ("weight", "bias")),
    f"{CONTEXT}emd.weight",
    f"{OBJECTS}emd.weight",
    f"{CONTEXT}fc1_out.weight",
    f"{OBJECTS}fc1_out.weight",
)


def convert(state: Mapping[str, Tensor], options: Options) -> Converted:
    """Convert a checkpoint to ``model=cos_cvae_published`` of the same sizes.

    Raises:
        ValueError: keys differ, or the vocabulary has another size or lacks the authors' special
            words.
    """
    require(state, NEEDED, "COS-CVAE")
    words = _words(options.vocabulary, len(state[f"{DECODER}embedding.weight"]))
    weights, uses = _Weights(state).all()
    uses |= {
        name: KeyUse(key=name, note=NOT_LOADED)
        for name in state
        if name.startswith("optimizer.") and name not in uses
    }
    return Converted(
        overrides=("model=cos_cvae_published", "tokenizer=words", *_sizes(state)),
        tokenizer=WordTokenizer(words=words[len(SPECIAL) :], max_words=MAX_WORDS),
        weights=weights,
        feature_size=state[f"{DECODER}attention.obj_enc_attn.weight"].shape[1],
        keys=tuple(uses[name] for name in state if name in uses),
    )


def _words(path: Path | None, size: int) -> list[str]:
    """Read the authors' words in the order of their ids."""
    if path is None:
        raise ValueError(
            "the checkpoint does not hold the words: give --vocabulary FILE, the word2idx of the "
            "authors' vocab_coco_full.pkl as JSON"
        )
    content = read_json(path)
    words = list(content)
    if isinstance(content, dict):
        words = sorted(content, key=lambda word: content[word])
        if [content[word] for word in words] != list(range(len(words))):
            raise ValueError(f"{path}: ids of words must be 0, 1, 2, ... without gaps")
    if len(words) != size or tuple(words[: len(RESERVED)]) != RESERVED:
        raise ValueError(
            f"{path}: the checkpoint has {size} words, of which {' '.join(RESERVED)} come first; "
            f"this file has {len(words)}, and begins with {' '.join(words[: len(RESERVED)])}"
        )
    return words


def _sizes(state: Mapping[str, Tensor]) -> list[str]:
    sizes = {
        "attention_lstm_size": state[f"{CELLS[0]}.weight_hh"].shape[1],
        "language_lstm_size": state[f"{CELLS[1]}.weight_hh"].shape[1],
        "attention_size": state[f"{SCORE}.weight"].shape[1],
        "embedding_size": state[f"{DECODER}embedding.weight"].shape[1],
        "posterior_embedding_size": state[f"{CONTEXT}emd.weight"].shape[1],
        "context_hidden": state[f"{PRIOR_CELLS[0]}.weight_hh"].shape[1],
        "object_hidden": state[f"{PRIOR_CELLS[1]}.weight_hh"].shape[1],
        "context_size": len(state[f"{PRIOR}fc_m_out.bias"]) // 2,
        "object_size": len(state[f"{PRIOR}fc_o_out.bias"]) // 2,
    }
    return [f"model.module.{name}={size}" for name, size in sizes.items()]


class _Weights:
    """Tensors by this project's names, and the result for each of the authors' keys."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        self._state = state
        self._weights: dict[str, Tensor] = {}
        self._uses: dict[str, KeyUse] = {}

    def all(self) -> tuple[dict[str, Tensor], dict[str, KeyUse]]:
        """Convert all tensors; return them and the result for each key."""
        for theirs, ours in EQUAL.items():
            self._put(theirs, {ours: self._state[theirs]})
        self._score()
        self._attention_lstm()
        self._language_lstm()
        self._posteriors()
        self._prior_lstms()
        return self._weights, self._uses

    def _put(self, theirs: str, ours: Mapping[str, Tensor], note: str = "") -> None:
        self._weights |= ours
        self._uses[theirs] = KeyUse(key=theirs, into=tuple(ours), note=note)

    def _score(self) -> None:
        self._put(f"{SCORE}.weight", {"decoder.score": self._state[f"{SCORE}.weight"][0]})
        self._uses[f"{SCORE}.bias"] = KeyUse(key=f"{SCORE}.bias", note=NOT_IN_SOFTMAX)

    def _attention_lstm(self) -> None:
        """Reorder inputs: the authors' LSTM reads mean feature, latents, word, language state."""
        state, cell = self._state, CELLS[0]
        weight, hidden = state[f"{cell}.weight_ih"], state[f"{cell}.weight_hh"]
        features = state[f"{DECODER}attention.obj_enc_attn.weight"].shape[1]
        embedding = state[f"{DECODER}embedding.weight"].shape[1]
        language = state[f"{CELLS[1]}.weight_hh"].shape[1]
        latents = weight.shape[1] - features - embedding - language
        mean, latent, word, state_before = weight.split((features, latents, embedding, language), 1)
        parts = {
            "decoder.mean_to_gates.weight": mean,
            "decoder.latents_to_gates.weight": latent,
            "decoder.words_to_gates.weight": word,
        }
        parts = {name: our_gates(part) for name, part in parts.items()}
        both = our_gates(torch.cat([state_before, hidden], 1))
        self._put(
            f"{cell}.weight_ih", {**parts, "decoder.hidden_to_gates.weight": both}, "by input"
        )
        self._uses[f"{cell}.weight_hh"] = KeyUse(
            key=f"{cell}.weight_hh", into=("decoder.hidden_to_gates.weight",), note="beside h2's"
        )
        self._biases(cell, "decoder.words_to_gates")

    def _language_lstm(self) -> None:
        """Convert the language LSTM, which reads its own state as an input, too."""
        cell = CELLS[1]
        names = zip(("weight_ih", "weight_hh"), twin("decoder.language", "weight"), strict=True)
        for theirs, ours in names:
            self._put(f"{cell}.{theirs}", {ours: our_gates(self._state[f"{cell}.{theirs}"])}, GATES)
        self._biases(cell, "decoder.language")

    def _biases(self, cell: str, layer: str) -> None:
        for theirs, ours in zip(("bias_ih", "bias_hh"), twin(layer, "bias"), strict=True):
            self._put(f"{cell}.{theirs}", {ours: our_gates(self._state[f"{cell}.{theirs}"])}, GATES)

    def _posteriors(self) -> None:
        """Convert the posteriors and add rows for this project's placeholders."""
        embed = self._state[f"{CONTEXT}emd.weight"]
        embed = torch.cat([embed, embed[[SINGULAR_ID, PLURAL_ID]]])
        note = f"rows {SINGULAR_ID} and {PLURAL_ID}, the placeholders, once more at the end"
        self._put(f"{CONTEXT}emd.weight", {"latents.context.embed.weight": embed}, note)
        embed = self._state[f"{OBJECTS}emd.weight"]
        embed = torch.cat([embed, torch.zeros_like(embed[:2])])
        note = "and zeros for the placeholders, which are not read here"
        self._put(f"{OBJECTS}emd.weight", {"latents.objects.embed.weight": embed}, note)
        for part, ours in ((CONTEXT, "context"), (OBJECTS, "objects")):
            weight = self._state[f"{part}fc1_out.weight"]
            before = len(weight) // 2
            statistics, previous = weight[:, :-before], weight[:, -before:]
            tensors = {
                f"latents.{ours}.statistics.weight": statistics,
                f"latents.{ours}.previous.weight": previous,
            }
            self._put(f"{part}fc1_out.weight", tensors, "the latent before apart")

    def _prior_lstms(self) -> None:
        """Reorder inputs from latents, word, mean feature to an order with latents last."""
        word = self._state[f"{PRIOR}emd.weight"].shape[1]
        features = self._state[f"{DECODER}attention.obj_enc_attn.weight"].shape[1]
        for cell, ours in zip(PRIOR_CELLS, ("context", "objects"), strict=True):
            for name in CELL:
                tensor, note = self._state[f"{cell}.{name}"], ""
                if name == "weight_ih":
                    latents = tensor.shape[1] - word - features
                    drawn, read, mean = tensor.split((latents, word, features), 1)
                    tensor, note = torch.cat([mean, read, drawn], 1), "columns in our order"
                self._put(f"{cell}.{name}", {f"latents.prior.{ours}.{name}_l0": tensor}, note)
