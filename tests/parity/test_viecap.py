"""ViECap's checkpoints after conversion, beside plain torch and its published search.

The plain search was held against the authors' code on random weights.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import GPT2LMHeadModel

from captioning.convert.converted import Options
from captioning.convert.viecap import NUM_HEADS, convert
from captioning.decoding.beam_averaged import AveragedBeamSearch
from captioning.models.viecap import ViECap
from captioning.text.entities import hard_prompt
from captioning.text.entity_index import EntityIndex
from captioning.text.tokenizers.sentences import SentenceTokenizer
from captioning.types import Batch
from tests.captioning.decoding.plain_beams import averaged_search
from tests.causal_folder import save_causal

SIZE, EMBEDDING, PROJECTED, LEARNED, LAYERS = 32, 12, 2, 3, 2
NAMES = ("dog", "bird", "tree", "cat")
MAX_LENGTH, NUM_IMAGES = 8, 5
BIAS = 4.0


def random_state(folder: Path, stop: int) -> dict[str, Tensor]:
    """A checkpoint in the authors' names, the language model of ``folder`` trained further."""
    generator = torch.Generator().manual_seed(2)

    def draw(*shape: int, scale: float = 0.3) -> Tensor:
        return torch.randn(shape, generator=generator) * scale

    network = GPT2LMHeadModel.from_pretrained(folder)
    state = {
        f"gpt.{key}": value + draw(*value.shape) for key, value in network.state_dict().items()
    }
    # Full stops become likelier by the same in all places: captions end.
    state["gpt.transformer.ln_f.bias"] = torch.ones(SIZE)
    state["gpt.lm_head.weight"] -= state["gpt.lm_head.weight"].mean(1, keepdim=True)
    state["gpt.lm_head.weight"][stop] += BIAS / SIZE
    state["gpt.transformer.h.0.attn.bias"] = torch.ones(1, 1, 48, 48).tril().bool()
    name = "mapping_network"
    state[f"{name}.linear.weight"] = draw(PROJECTED * SIZE, EMBEDDING, scale=1.0)
    state[f"{name}.linear.bias"] = draw(PROJECTED * SIZE)
    state[f"{name}.prefix_const"] = draw(LEARNED, SIZE)
    for number in range(LAYERS):
        layer = f"{name}.transformer.layers.{number}"
        for norm in ("norm1", "norm2"):
            state[f"{layer}.{norm}.weight"] = 1 + draw(SIZE)
            state[f"{layer}.{norm}.bias"] = draw(SIZE)
        state[f"{layer}.attn.to_queries.weight"] = draw(SIZE, SIZE)
        state[f"{layer}.attn.to_keys_values.weight"] = draw(2 * SIZE, SIZE)
        for part, shape in {"attn.project": (SIZE, SIZE), "mlp.fc1": (2 * SIZE, SIZE)}.items():
            state[f"{layer}.{part}.weight"] = draw(*shape)
            state[f"{layer}.{part}.bias"] = draw(shape[0])
        state[f"{layer}.mlp.fc2.weight"] = draw(SIZE, 2 * SIZE)
        state[f"{layer}.mlp.fc2.bias"] = draw(SIZE)
    return state


def soft_prompt(state, embedding: Tensor) -> Tensor:
    """``(LEARNED, D)`` of a unit embedding ``(E,)``, head by head and row by row."""
    name, width = "mapping_network", SIZE // NUM_HEADS
    projected = state[f"{name}.linear.weight"] @ embedding + state[f"{name}.linear.bias"]
    rows = torch.cat([projected.view(PROJECTED, SIZE), state[f"{name}.prefix_const"]])
    for number in range(LAYERS):
        layer = f"{name}.transformer.layers.{number}"

        def normed(rows: Tensor, norm: str, layer: str = layer) -> Tensor:
            weights = state[f"{layer}.{norm}.weight"], state[f"{layer}.{norm}.bias"]
            return functional.layer_norm(rows, (SIZE,), *weights)

        first = normed(rows, "norm1")
        queries = first @ state[f"{layer}.attn.to_queries.weight"].T
        both = first @ state[f"{layer}.attn.to_keys_values.weight"].T
        keys, values = both[:, :SIZE], both[:, SIZE:]
        heads = []
        for head in range(NUM_HEADS):
            part = slice(head * width, (head + 1) * width)
            products = queries[:, part] @ keys[:, part].T / width**0.5
            heads.append(products.softmax(-1) @ values[:, part])
        project = f"{layer}.attn.project"
        attended = torch.cat(heads, dim=1) @ state[f"{project}.weight"].T
        rows = rows + attended + state[f"{project}.bias"]
        inner = normed(rows, "norm2") @ state[f"{layer}.mlp.fc1.weight"].T
        inner = (inner + state[f"{layer}.mlp.fc1.bias"]).relu()
        rows = rows + inner @ state[f"{layer}.mlp.fc2.weight"].T + state[f"{layer}.mlp.fc2.bias"]
    return rows[PROJECTED:]


class Plain:
    """What the authors' model predicts, with the hard prompt of an image's entities."""

    def __init__(self, folder: Path, state, model: ViECap) -> None:
        self.state, self.model = state, model
        self.network = GPT2LMHeadModel.from_pretrained(folder).eval()
        own = {key.removeprefix("gpt."): value for key, value in state.items() if "gpt." in key}
        self.network.load_state_dict(own, strict=False)

    @torch.no_grad()
    def log_probs(self, embedding: Tensor, tokens) -> Tensor:
        """``(1 + T, V)`` of what follows the prompts and each of a caption's tokens."""
        unit = embedding / embedding.norm()
        shares = (self.model.entities @ unit / self.model.temperature).softmax(0)
        best = sorted(range(len(NAMES)), key=lambda name: -shares[name])[:3]
        names = [NAMES[name] for name in best if shares[name] > self.model.threshold]
        hard = self.model.tokenizer._ids(hard_prompt(names))
        words = self.network.transformer.wte(torch.tensor([*hard, *tokens]))
        vectors = torch.cat([soft_prompt(self.state, unit), words])
        output = self.network(inputs_embeds=vectors[None]).logits[0]
        return output[LEARNED + len(hard) - 1 :].log_softmax(-1)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory):
    """Our model with the converted weights, and the plain one."""
    folder = save_causal(tmp_path_factory.mktemp("gpt2"))
    stop = SentenceTokenizer.of_causal(name=str(folder)).eos_id
    state = random_state(folder, stop)
    converted = convert(state, Options(base=folder))
    vectors = torch.randn(len(NAMES), EMBEDDING, generator=torch.Generator().manual_seed(3))
    sizes = dict(
        override.removeprefix("model.module.").split("=")
        for override in converted.overrides
        if override.startswith("model.module.")
    )
    ratio = float(sizes.pop("mlp_ratio"))
    model = ViECap(
        feature_size=converted.feature_size,
        pretrained=str(folder),
        tokenizer=converted.tokenizer,
        entities=EntityIndex(names=NAMES, embeddings=functional.normalize(vectors, dim=-1)),
        temperature=0.3,
        threshold=0.25,
        mlp_ratio=ratio,
        search=AveragedBeamSearch.with_settings(
            beam_size=5, max_length=MAX_LENGTH, special_tokens=True, end_words=["."]
        ),
        **{name: int(size) for name, size in sizes.items()},
    ).eval()
    loaded = model.load_state_dict(converted.weights, strict=False)
    assert loaded.missing_keys == ["entities"]
    assert not loaded.unexpected_keys
    unused = [key.key for key in converted.keys if not key.into]
    assert unused == ["gpt.transformer.h.0.attn.bias"]
    return model, Plain(folder, state, model)


def photos(model: ViECap, captions: tuple[str, ...]) -> Batch:
    rows = [torch.tensor(model.tokenizer.encode(caption)) for caption in captions]
    exist = [torch.ones(len(row), dtype=torch.bool) for row in rows]
    generator = torch.Generator().manual_seed(1)
    numbers = tuple(str(number) for number in range(len(rows)))
    return Batch(
        rows=torch.arange(len(rows)),
        sample_ids=numbers,
        image_ids=numbers,
        image_index=torch.arange(len(rows)),
        regions=torch.randn(len(rows), 1, EMBEDDING, generator=generator),
        tokens=torch.nn.utils.rnn.pad_sequence(rows, batch_first=True),
        token_mask=torch.nn.utils.rnn.pad_sequence(exist, batch_first=True),
        weights=torch.ones(len(rows)),
    )


def test_the_loss_is_that_of_plain_code(parts) -> None:
    model, plain = parts
    batch = photos(model, ("a dog runs on the grass", "a cat sleeps"))
    losses = []
    for embedding, row, exist in zip(batch.regions, batch.tokens, batch.token_mask, strict=True):
        tokens = row[exist].tolist()[1:]
        log_probs = plain.log_probs(embedding[0], tokens[:-1])
        losses += [-float(log_probs[place, token]) for place, token in enumerate(tokens)]
    with torch.no_grad():
        expected = sum(losses) / len(losses)
        assert float(model.losses(batch).total) == pytest.approx(expected, rel=1e-5)


def test_captions_are_those_of_the_published_search(parts) -> None:
    model, plain = parts
    batch = photos(model, ("a cat",) * NUM_IMAGES)
    ends = [model.tokenizer._ids(stop)[-1] for stop in (".", " .")]
    expected = []
    for embedding in batch.regions[:, 0]:

        def predict(tokens, embedding=embedding):
            return plain.log_probs(embedding, tokens)[-1].numpy()

        beam = averaged_search(predict, ends=ends, beams=5, max_length=MAX_LENGTH)
        expected.append(model.tokenizer.decode(list(beam[0][1])))
    captions = [prediction.caption for prediction in model.generate(batch)]
    assert captions == expected
    assert len({*captions}) > 2, "random weights that tell photos apart"
