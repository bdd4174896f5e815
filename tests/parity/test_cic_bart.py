"""CIC-BART as its authors publish it: the same loss and captions as a restatement in plain torch.

The restatement follows the papers (Cho et al., 2021; Basioti et al., 2024), the names and shapes of
published checkpoints and the search of transformers 4 with bart-base's settings; it shares no layer
with the model. Its weights are random.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from captioning.convert.converted import Converted, Options
from captioning.convert.vl_bart import convert
from captioning.decoding.beam_transformers import TransformersBeamSearch
from captioning.decoding.words_to_tokens import bind_search
from captioning.models.cic_bart import CicBart
from captioning.results.run_folder import RunFolder
from captioning.types import Batch, Control
from tests.captioning.data.byte_pairs import write_byte_pairs

D, HEADS, LAYERS, INNER, PLACES, FEATURES = 16, 2, 2, 24, 96, 12
SIZES = {
    "hidden_size": D,
    "num_layers": LAYERS,
    "num_heads": HEADS,
    "intermediate_size": INNER,
    "max_positions": PLACES,
}
VISUAL = "model.encoder.visual_embedding"
BEGIN, END = 0, 2
CAPTIONS = ("a dog run", "a dog", "run a dog a do", "dog run")
IMAGES = (0, 1, 2, 2)
CONTROLS = (
    Control(regions=(0, 2), ordered=False, num_words=3, verbs=("run",)),
    Control(regions=(1,), ordered=False, num_words=2),
    Control(regions=(0, 1, 2), ordered=False, num_words=15),
    Control(regions=(2,), ordered=False, num_words=2),
)
SHOWN = ([0, 1, 3], [0, 2], [0, 1, 2, 3], [0, 3])  # rows of features, the photo first
SETTINGS = {"max_length": 14, "beam_size": 5, "length_penalty": 1.0, "no_repeat_ngram_size": 3}


def layer(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (D,), f"{name}.bias": (D,)}


def published_shapes(size: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"model.shared.weight": (size, D)}
    for stack in ("encoder", "decoder"):
        shapes[f"model.{stack}.embed_positions.weight"] = (PLACES + 2, D)
        shapes |= norm(f"model.{stack}.layernorm_embedding")
        attentions = ["self_attn", "encoder_attn"][: 1 + (stack == "decoder")]
        for number in range(LAYERS):
            place = f"model.{stack}.layers.{number}"
            for attention in attentions:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    shapes |= layer(f"{place}.{attention}.{part}", D, D)
                shapes |= norm(f"{place}.{attention}_layer_norm")
            shapes |= layer(f"{place}.fc1", D, INNER) | layer(f"{place}.fc2", INNER, D)
            shapes |= norm(f"{place}.final_layer_norm")
    shapes |= layer(f"{VISUAL}.feat_embedding.0", FEATURES, D)
    shapes |= layer(f"{VISUAL}.absolute_vis_pos_embedding.0", 5, D)
    shapes |= {f"{VISUAL}.img_order_embedding.weight": (2, D)} | norm(f"{VISUAL}.layer_norm")
    return shapes


def published_state(size: int) -> dict[str, Tensor]:
    """Random weights with the names of ``Epoch30.pth``."""
    generator = torch.Generator().manual_seed(4)
    state = {
        name: torch.randn(shape, generator=generator) * 0.5
        for name, shape in published_shapes(size).items()
    }
    for name in state:
        if "norm" in name and name.endswith("weight"):
            state[name] += 1
    words = state["model.shared.weight"]
    for name in ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
        state[f"{name}.weight"] = words
    state[f"{VISUAL}.obj_order_embedding.weight"] = words
    return state | {"final_logits_bias": torch.zeros(1, size)}


class Restated:
    """The authors' network for one caption at a time, padding of regions included."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        self.state = state
        self.words = state["model.shared.weight"]

    def linear(self, name: str, rows: Tensor) -> Tensor:
        return rows @ self.state[f"{name}.weight"].t() + self.state[f"{name}.bias"]

    def norm(self, name: str, rows: Tensor) -> Tensor:
        weight, bias = self.state[f"{name}.weight"], self.state[f"{name}.bias"]
        return functional.layer_norm(rows, (D,), weight, bias)

    def attended(self, name: str, rows: Tensor, read: Tensor, causal: bool = False) -> Tensor:
        queries, keys, values = (
            self.linear(f"{name}.{part}", x).view(len(x), HEADS, -1).transpose(0, 1)
            for part, x in (("q_proj", rows), ("k_proj", read), ("v_proj", read))
        )
        scores = queries @ keys.transpose(1, 2) / math.sqrt(D / HEADS)
        if causal:
            scores = scores + torch.full_like(scores, -torch.inf).triu(1)
        mixed = (scores.softmax(-1) @ values).transpose(0, 1).reshape(len(rows), D)
        return self.norm(f"{name}_layer_norm", rows + self.linear(f"{name}.out_proj", mixed))

    def fed_forward(self, place: str, rows: Tensor) -> Tensor:
        inner = functional.gelu(self.linear(f"{place}.fc1", rows))
        return self.norm(f"{place}.final_layer_norm", rows + self.linear(f"{place}.fc2", inner))

    def text(self, stack: str, ids: list[int]) -> Tensor:
        places = self.state[f"model.{stack}.embed_positions.weight"][2 : 2 + len(ids)]
        return self.norm(f"model.{stack}.layernorm_embedding", self.words[ids] + places)

    def encode(self, ids: list[int], features: Tensor, boxes: Tensor) -> Tensor:
        # The authors take the four numbers of a box for x1, x2, y1, y2.
        area = (boxes[:, 3] - boxes[:, 2]) * (boxes[:, 1] - boxes[:, 0])
        place = self.linear(
            f"{VISUAL}.absolute_vis_pos_embedding.0", torch.cat([boxes, area[:, None]], 1)
        )
        order = self.words[[len(self.words) - 1 - turn for turn in range(len(boxes))]]
        image = self.state[f"{VISUAL}.img_order_embedding.weight"][0]
        regions = self.linear(f"{VISUAL}.feat_embedding.0", features) + place + image + order
        rows = torch.cat([self.text("encoder", ids), self.norm(f"{VISUAL}.layer_norm", regions)])
        for number in range(LAYERS):
            place = f"model.encoder.layers.{number}"
            rows = self.fed_forward(place, self.attended(f"{place}.self_attn", rows, rows))
        return rows

    def log_probs(self, ids: list[int], memory: Tensor) -> Tensor:
        """After each of the decoder's input tokens, over the complete vocabulary."""
        rows = self.text("decoder", ids)
        for number in range(LAYERS):
            place = f"model.decoder.layers.{number}"
            rows = self.attended(f"{place}.self_attn", rows, rows, causal=True)
            rows = self.attended(f"{place}.encoder_attn", rows, memory)
            rows = self.fed_forward(place, rows)
        return (rows @ self.words.t()).log_softmax(-1)

    def beam(self, memory: Tensor, max_length: int) -> list[int]:
        """Five beams, done when five captions have ended; the first token is forced."""
        beams, ended = [([END, BEGIN], 0.0)], []
        while len(ended) < 5 and len(beams[0][0]) < max_length:
            candidates = []
            for ids, total in beams:
                scores = self.log_probs(ids, memory)[-1]
                for word in repeating(ids):
                    scores[word] = -torch.inf
                values, words = scores.topk(10)
                candidates += [
                    ([*ids, int(w)], total + float(v)) for v, w in zip(values, words, strict=True)
                ]
            candidates = sorted(candidates, key=lambda c: -c[1])[:10]
            for place, (ids, total) in enumerate(candidates):
                if ids[-1] == END and place < 5:
                    ended.append((ids, total / (len(ids) - 1)))
            beams = [c for c in candidates if c[0][-1] != END][:5]
            ended = sorted(ended, key=lambda c: -c[1])[:5]
        if len(ended) < 5:
            ended += [(ids, total / len(ids)) for ids, total in beams]
        return max(ended, key=lambda c: c[1])[0][1:]


def repeating(ids: list[int]) -> set[int]:
    """Words after which three in a row would occur for the second time."""
    grams = zip(ids, ids[1:], ids[2:], strict=False)
    return {last for first, second, last in grams if [first, second] == ids[-2:]}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bart")
    write_byte_pairs(folder)
    config = {"model_type": "bart", "encoder_attention_heads": HEADS}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def state(base: Path) -> dict[str, Tensor]:
    from captioning.text.tokenizers.bart import BartTokenizer

    return published_state(len(BartTokenizer.of_bart(name=str(base))))


@pytest.fixture(scope="module")
def converted(base: Path, state: dict[str, Tensor]) -> Converted:
    return convert(state, Options(base=base))


@pytest.fixture(scope="module")
def model(converted: Converted) -> CicBart:
    model = CicBart(
        feature_size=converted.feature_size,
        tokenizer=converted.tokenizer,
        search=TransformersBeamSearch.with_settings(
            early_stopping=True, count_prompt=True, special_tokens=True, **SETTINGS
        ),
        published_area=True,
        blank_before_verbs=True,
        control_tokens_said=True,
        attend_padding=True,
        forced_begin=True,
        **SIZES,
    )
    model.load_state_dict(dict(converted.weights))
    return model.eval()


def make_batch(model: CicBart, captions: list[int]) -> Batch:
    rows = [model.tokenizer.encode(CAPTIONS[number]) for number in captions]
    width = max(map(len, rows))
    tokens = torch.tensor([row + [1] * (width - len(row)) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    generator = torch.Generator().manual_seed(1)
    regions = torch.randn(3, 4, FEATURES, generator=generator) * 2
    boxes = torch.rand(3, 4, 2, 2, generator=generator).sort(dim=2).values.flatten(2)
    return Batch(
        rows=torch.arange(len(rows)),
        sample_ids=tuple(f"s{number}" for number in captions),
        image_ids=("7", "8", "9"),
        image_index=torch.tensor([IMAGES[number] for number in captions]),
        regions=regions,
        region_mask=None,
        tokens=tokens,
        token_mask=torch.arange(width) < lengths[:, None],
        controls=tuple(CONTROLS[number] for number in captions),
        extras={"boxes": boxes},
    )


def memory_of(
    theirs: Restated, model: CicBart, batch: Batch, place: int, shown: list[int], width: int
):
    """What the encoder makes of a caption whose regions are filled up to ``width``."""
    image = int(batch.image_index[place])
    features, boxes = torch.zeros(width, FEATURES), torch.zeros(width, 4)
    features[: len(shown)] = batch.regions[image, shown]
    boxes[: len(shown)] = batch.extras["boxes"][image, shown]
    return theirs.encode(model.text.ids(batch.controls[place]), features, boxes)


@torch.no_grad()
def test_the_loss_is_the_authors(model: CicBart, state: dict[str, Tensor]) -> None:
    batch, theirs = make_batch(model, [0, 1, 2, 3]), Restated(state)
    losses, all_losses = model.losses(batch), []
    for place, shown in enumerate(SHOWN):
        ids = batch.tokens[place][batch.token_mask[place]].tolist()
        assert ids[:2] == [END, BEGIN]
        log_probs = theirs.log_probs(ids[:-1], memory_of(theirs, model, batch, place, shown, 4))
        nll = -log_probs.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        assert losses.per_sample[place].item() == pytest.approx(nll.mean().item(), abs=1e-5)
        all_losses.append(nll)
    assert losses.total.item() == pytest.approx(torch.cat(all_losses).mean().item(), abs=1e-5)


@torch.no_grad()
def test_captions_are_the_authors(model: CicBart, state: dict[str, Tensor]) -> None:
    theirs, captions = Restated(state), []
    for search in (model.search, bind_search(model.search.changed(max_length=30), model.tokenizer)):
        batch = make_batch(model, [0, 1, 2])
        for place, prediction in enumerate(model.generate(batch, search=search)):
            memory = memory_of(theirs, model, batch, place, SHOWN[place], 4)
            expected = theirs.beam(memory, search.settings.max_length)
            assert prediction.caption == model.tokenizer.decode([END, *expected])
            captions.append(prediction.caption)
    assert len(set(captions)) > 2


def test_every_key_is_explained(converted: Converted, state: dict[str, Tensor]) -> None:
    assert [use.key for use in converted.keys] == list(state)
    unused = {use.key for use in converted.keys if not use.into}
    aliases = ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    aliases = (*aliases, f"{VISUAL}.obj_order_embedding")
    assert unused == {f"{name}.weight" for name in aliases}
    assert {name for use in converted.keys for name in use.into} == set(converted.weights)


def test_keys_of_several_gpus_and_older_code(base: Path, converted: Converted, state) -> None:
    older = {
        f"module.{name.replace('model.encoder.', 'model.vis_encoder.')}": tensor
        for name, tensor in state.items()
    }
    weights = convert(older, Options(base=base)).weights
    assert weights.keys() == converted.weights.keys()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in converted.weights.items())


def test_wrong_input_is_refused(base: Path, state: dict[str, Tensor]) -> None:
    with pytest.raises(ValueError, match="give --base FOLDER, a bart-base"):
        convert(state, Options())
    short = {name: t[:-1] if name == "model.shared.weight" else t for name, t in state.items()}
    with pytest.raises(ValueError, match=r"words with the control tokens, the checkpoint has"):
        convert(short, Options(base=base))
    with pytest.raises(ValueError, match="not a checkpoint of VL-BART with one layer norm"):
        convert({"model.shared.weight": torch.ones(3, 4)}, Options(base=base))


def test_the_command_makes_a_run(tmp_path: Path, base: Path, state: dict[str, Tensor]) -> None:
    from captioning.commands.main import main

    torch.save(state, tmp_path / "Epoch30.pth")
    options = [str(tmp_path / "Epoch30.pth"), "data=miniworld_tiny", "--base", str(base)]
    main(["convert", "vl_bart", *options, "--to", str(tmp_path / "run")])
    config = RunFolder(tmp_path / "run").config()
    assert config.model.module.hidden_size == D
    assert config.search.no_repeat_ngram_size == 3
    assert config.search.early_stopping
