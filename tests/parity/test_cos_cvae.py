"""COS-CVAE as its authors publish it: the same loss and captions as a restatement in plain torch.

The restatement follows the paper (Mahajan and Roth, 2020) and the shapes and names of the published
checkpoints; it shares no layer with the model. Its weights are random.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from captioning.convert.converted import Converted, Options
from captioning.convert.cos_cvae import convert
from captioning.decoding.latent_draws import PublishedLatentSearch
from captioning.decoding.words_to_tokens import bind_search
from captioning.models.cos_cvae import CosCvae
from captioning.models.layers.gaussian import key_of, keyed_noise
from captioning.results.run_folder import RunFolder
from captioning.types import Batch

D, H, L, A, E, P, M, O, Z = 7, 9, 6, 9, 5, 4, 6, 3, 2  # sizes; attention as wide as its LSTM
SINGULAR, PLURAL = ("dog", "cat", "bird", "man", "ball"), ("dogs", "birds")
OTHER = ("a", "two", "the", "red", "runs", "sits", "with", "and", "after")
WORDS = ("<pad>", "<start>", "<end>", "<unk>", "<temp>", *SINGULAR, *PLURAL, *OTHER)
V = len(WORDS)
CAPTIONS = (
    "a dog runs after two birds",
    "the man with a quixotic dog and a cat and a ball and a bird and birds",
    "the red runs",
    "a cat sits",
)
IMAGES = (0, 1, 1, 2)
FORM = (
    "attention_bias",
    "prior_reads_words",
    "all_object_slots",
    "drop_to_padding",
    "unknown_is_padding",
    "plain_start",
)
SIZES = {
    "attention_lstm_size": H,
    "language_lstm_size": L,
    "attention_size": A,
    "embedding_size": E,
    "posterior_embedding_size": P,
    "context_hidden": M,
    "object_hidden": O,
    "context_size": Z,
    "object_size": Z,
}


def cell(inputs: int, size: int) -> dict[str, tuple[int, ...]]:
    ends = {"weight_ih": (4 * size, inputs), "weight_hh": (4 * size, size)}
    return ends | {"bias_ih": (4 * size,), "bias_hh": (4 * size,)}


def gru(inputs: int, size: int, end: str) -> dict[str, tuple[int, ...]]:
    ends = {"weight_ih_l0": (3 * size, inputs), "weight_hh_l0": (3 * size, size)}
    shapes = ends | {"bias_ih_l0": (3 * size,), "bias_hh_l0": (3 * size,)}
    return {f"{name}{end}": shape for name, shape in shapes.items()}


def linear(inputs: int, outputs: int, *, bias: bool = True) -> dict[str, tuple[int, ...]]:
    return {"weight": (outputs, inputs)} | ({"bias": (outputs,)} if bias else {})


def published_state(seed: int = 0) -> dict[str, Tensor]:
    """Random weights with the names and the order of sizes of the authors' checkpoints."""
    decoder = {
        "attention.attn_lstm": cell(D + 2 * Z + E + L, H),
        "attention.obj_enc_attn": linear(D, A),
        "attention.attn_out_fc": linear(H, A),
        "attention.final_attn_fc": linear(A, 1),
        "embedding": {"weight": (V, E)},
        "decode_step": cell(D + H + L, L),
        "output_projection.0": linear(L, E),
        "output_layer": linear(E, V, bias=False),
    }
    prior = {
        "emd": {"weight": (V, P)},
        "lstm_mask": cell(D + Z + P, M),
        "lstm_obj": cell(D + 2 * Z + P, O),
        "fc_m_out": linear(M, 2 * Z),
        "fc_o_out": linear(O, 2 * Z),
    }
    context = {
        "emd": {"weight": (V, P)},
        "gru": gru(P, M, "") | gru(P, M, "_reverse"),
        "fc1_out": linear(2 * M + Z, 2 * Z),
    }
    objects = {
        "emd": {"weight": (V, P)},
        "gru": gru(P + D + M, O, ""),
        "fc1_out": linear(O + 2 * Z, 2 * Z),
    }
    parts = {"txtDecoder_sd": decoder, "g_prior_sd": prior}
    parts |= {"texEncoder_Mask_sd": context, "texEncoder_Obj_sd": objects}
    generator = torch.Generator().manual_seed(seed)
    # Latents feed the next one's log-variance, which nothing bounds; the decoder tells words apart.
    spreads = {"txtDecoder_sd": 1.2, "g_prior_sd": 0.6}
    return {
        f"{part}.{layer}.{name}": torch.randn(shape, generator=generator) * spreads.get(part, 0.3)
        for part, layers in parts.items()
        for layer, shapes in layers.items()
        for name, shape in shapes.items()
    }


class Restated:
    """The authors' model, a caption or a hypothesis at a time."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        self.state = state

    def linear(self, name: str, value: Tensor) -> Tensor:
        return functional.linear(
            value, self.state[f"{name}.weight"], self.state.get(f"{name}.bias")
        )

    def cell(self, name: str, inputs: list[Tensor], state: tuple[Tensor, Tensor]):
        layer = torch.nn.LSTMCell(sum(map(len, inputs)), len(state[0]))
        layer.load_state_dict({end: self.state[f"{name}.{end}"] for end in layer.state_dict()})
        return layer(torch.cat(inputs), state)

    def gru(self, name: str, inputs: Tensor) -> Tensor:
        both = f"{name}.weight_ih_l0_reverse" in self.state
        size = self.state[f"{name}.weight_hh_l0"].shape[1]
        layer = torch.nn.GRU(inputs.shape[1], size, bidirectional=both)
        layer.load_state_dict({end: self.state[f"{name}.{end}"] for end in layer.state_dict()})
        return layer(inputs)[0]

    def chain(self, name: str, statistics: list[Tensor], noise: Tensor):
        """Drawn latents, means and log-variances of a posterior, step by step."""
        drawn, means, logs = [torch.zeros(Z)], [], []
        for step, eps in zip(statistics, noise, strict=True):
            mean, log = self.linear(name, torch.cat([step, drawn[-1]])).chunk(2)
            drawn.append(mean + eps * (0.5 * log).exp())
            means.append(mean)
            logs.append(log)
        return torch.stack(drawn[1:]), torch.stack(means), torch.stack(logs)

    def posteriors(self, context: list[int], objects: list[int], mean: Tensor, noise: Tensor):
        embedded = self.state["texEncoder_Mask_sd.emd.weight"][context]
        states = self.gru("texEncoder_Mask_sd.gru", embedded)
        z_context = self.chain("texEncoder_Mask_sd.fc1_out", list(states), noise[:, :Z])
        summary = states.mean(0).view(2, M).mean(0)
        slots = (objects[:5] + [0] * 5)[:5]  # five slots, padding is read as well
        embedded = self.state["texEncoder_Obj_sd.emd.weight"][slots]
        image = torch.cat([mean, summary]).expand(5, -1)
        pooled = self.gru("texEncoder_Obj_sd.gru", torch.cat([embedded, image], 1)).mean(0)
        inputs = [torch.cat([pooled, z]) for z in z_context[0]]
        return z_context, self.chain("texEncoder_Obj_sd.fc1_out", inputs, noise[:, Z:])

    def prior(self, word: int, mean: Tensor, z_context: Tensor | None, before, states):
        """One step: means and log-variances of both, and a function for the second."""
        embedded = self.state["g_prior_sd.emd.weight"][word]
        states[0] = self.cell("g_prior_sd.lstm_mask", [before[:Z], embedded, mean], states[0])
        context = self.linear("g_prior_sd.fc_m_out", states[0][0]).chunk(2)

        def objects(z_context: Tensor):
            inputs = [z_context, before[Z:], embedded, mean]
            states[1] = self.cell("g_prior_sd.lstm_obj", inputs, states[1])
            return self.linear("g_prior_sd.fc_o_out", states[1][0]).chunk(2)

        return context, objects

    def start(self):
        prior = [(torch.zeros(M), torch.zeros(M)), (torch.zeros(O), torch.zeros(O))]
        return prior, [(torch.zeros(H), torch.zeros(H)), (torch.zeros(L), torch.zeros(L))]

    def decode(self, word: int, latents: Tensor, regions: Tensor, states) -> Tensor:
        mean, (_, (language, _)) = regions.mean(0), states
        embedded = self.state["txtDecoder_sd.embedding.weight"][word]
        name = "txtDecoder_sd.attention"
        inputs = [mean, latents, embedded, language]
        states[0] = self.cell(f"{name}.attn_lstm", inputs, states[0])
        query = self.linear(f"{name}.attn_out_fc", states[0][0])
        squashed = torch.tanh(self.linear(f"{name}.obj_enc_attn", regions) + query)
        alpha = self.linear(f"{name}.final_attn_fc", squashed)[:, 0].softmax(0)
        inputs = [alpha @ regions, states[0][0], language]
        states[1] = self.cell("txtDecoder_sd.decode_step", inputs, states[1])
        projected = torch.tanh(self.linear("txtDecoder_sd.output_projection.0", states[1][0]))
        return self.linear("txtDecoder_sd.output_layer", projected).log_softmax(0)

    def loss(self, caption: str, regions: Tensor, noise: Tensor, drops: Tensor):
        """Negative log-likelihood and divergence of a caption, as trained."""
        ids = [WORDS.index(word) if word in WORDS else 0 for word in caption.split()]
        read, targets = [1, *ids], [*ids, 2]
        context = [
            4 if WORDS[word] in SINGULAR else 3 if WORDS[word] in PLURAL else word
            for word in targets
        ]
        objects = [word for word in ids if WORDS[word] in SINGULAR + PLURAL]
        mean = regions.mean(0)
        q_context, q_objects = self.posteriors(context, objects, mean, noise)
        prior, decoder = self.start()
        nll = kl = torch.zeros(())
        before = torch.zeros(2 * Z)
        for step, (word, target) in enumerate(zip(read, targets, strict=True)):
            z = torch.cat([q_context[0][step], q_objects[0][step]])
            p_context, p_objects = self.prior(word, mean, None, before, prior)
            pairs = ((q_context, p_context), (q_objects, p_objects(z[:Z])))
            if word != 0:
                for (_, means, logs), (p_mean, p_log) in pairs:
                    gap = (logs[step].exp() + (means[step] - p_mean) ** 2) / (2 * p_log.exp())
                    kl = kl + (0.5 * (p_log - logs[step]) + gap - 0.5).sum()
            dropped = bool(drops[step]) and word not in (0, 1, 2)
            log_probs = self.decode(0 if dropped else word, z, regions, decoder)
            nll = nll - (log_probs[target] if target != 0 else 0)
            before = z
        return nll, kl

    def beam(self, regions: Tensor, noise: Tensor, temperature: float) -> list[tuple[str, float]]:
        """Both captions of a beam of two that makes all steps."""
        mean, beams = regions.mean(0), [([1], 0.0, torch.zeros(2 * Z), self.start())]
        for eps in noise:
            candidates = []
            for words, total, before, (prior, decoder) in beams:
                prior, decoder = list(prior), list(decoder)
                (m, s), p_objects = self.prior(words[-1], mean, None, before, prior)
                z = m + eps[:Z] * (0.5 * temperature * s).exp()
                m, s = p_objects(z)
                z = torch.cat([z, m + eps[Z:] * (0.5 * temperature * s).exp()])
                log_probs = self.decode(words[-1], z, regions, decoder)
                for value, word in zip(*log_probs.topk(2), strict=True):
                    candidates.append(
                        ([*words, int(word)], total + float(value), z, (prior, decoder))
                    )
            beams = sorted(candidates, key=lambda c: -c[1])[:2]
        return [(shown(words[1:19]), total) for words, total, *_ in beams]


def shown(words: list[int]) -> str:
    until = itertools.takewhile(lambda word: word != 2, words)
    return " ".join(WORDS[word] for word in until if word not in (0, 1))


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    path = tmp_path_factory.mktemp("cos_cvae") / "vocabulary.json"
    path.write_text(json.dumps({word: number for number, word in enumerate(WORDS)}))
    return convert(published_state(), Options(vocabulary=path))


@pytest.fixture(scope="module")
def model(converted: Converted) -> CosCvae:
    form = dict.fromkeys(FORM, True) | {"output_bias": False, "bounded_variances": False}
    model = CosCvae(
        feature_size=converted.feature_size,
        form=form,
        max_steps=20,
        reduction="caption_sum",
        first={"nll": 1.0, "kl": 0.2},
        tokenizer=converted.tokenizer,
        search=PublishedLatentSearch.with_settings(num_captions=3, beam_size=2),
        **SIZES,
    )
    model.load_state_dict(dict(converted.weights))
    return model


def make_batch(model: CosCvae) -> Batch:
    rows = [model.tokenizer.encode(caption) for caption in CAPTIONS]
    width = max(map(len, rows))
    tokens = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    regions = torch.randn(3, 4, D, generator=torch.Generator().manual_seed(1))
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[2, 2:] = False
    return Batch(
        rows=torch.arange(4),
        sample_ids=tuple("abcd"),
        image_ids=("7", "8", "9"),
        image_index=torch.tensor(IMAGES),
        regions=regions,
        region_mask=mask,
        tokens=tokens,
        token_mask=torch.arange(width) < lengths[:, None],
        controls=None,
        extras={},
    )


@pytest.mark.parametrize("training", [False, True])
def test_the_loss_is_the_authors(model: CosCvae, training: bool) -> None:
    batch, theirs = make_batch(model), Restated(published_state())
    expected, num_words = [], [len(c.split()) + 1 for c in CAPTIONS]
    noises = keyed_noise([(0, row, 0) for row in range(4)], num_words, 2 * Z + 1)
    for caption, image, noise, length in zip(CAPTIONS, IMAGES, noises, num_words, strict=True):
        regions = batch.regions[image][batch.region_mask[image]]
        drops = (noise[:length, -1] < 0) & training  # half of the words
        expected.append(torch.stack(theirs.loss(caption, regions, noise[:length, :-1], drops)))
    nll, kl = torch.stack(expected).unbind(1)
    losses = model.train(training).losses(batch)
    torch.testing.assert_close(losses.nll, nll + kl, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(losses.total, (nll + 0.2 * kl).mean(), rtol=1e-5, atol=1e-5)
    model.eval()


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_captions_are_the_authors(model: CosCvae, temperature: float) -> None:
    batch, theirs = make_batch(model), Restated(published_state())
    search = PublishedLatentSearch.with_settings(
        num_captions=3, beam_size=2, temperature=temperature, max_length=20, at_once=2
    )
    groups = model.eval().candidates(batch, search=bind_search(search, model.tokenizer))
    for number, predictions in enumerate(groups):
        regions = batch.regions[number][batch.region_mask[number]]
        keys = [(0, key_of(batch.image_ids[number]), draw) for draw in range(3)]
        with torch.no_grad():
            draws = [
                theirs.beam(regions, n, temperature) for n in keyed_noise(keys, [20] * 3, 2 * Z)
            ]
        expected = [caption for draw in draws for caption in draw]
        assert [p.caption for p in predictions] == [caption for caption, _ in expected]
        assert [p.score for p in predictions] == pytest.approx([s for _, s in expected], abs=1e-4)
    assert len({p.caption for group in groups for p in group}) > 3


def test_every_key_is_explained(converted: Converted) -> None:
    assert [use.key for use in converted.keys] == list(published_state())
    unused = {use.key for use in converted.keys if not use.into}
    assert unused == {"txtDecoder_sd.attention.final_attn_fc.bias"}
    assert {name for use in converted.keys for name in use.into} == set(converted.weights)


def test_the_vocabulary_must_be_the_checkpoint_s(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give --vocabulary FILE"):
        convert(published_state(), Options())
    path = tmp_path / "vocabulary.json"
    path.write_text(json.dumps(WORDS[:-1]))
    with pytest.raises(ValueError, match=rf"vocabulary.json: the checkpoint has {V} words"):
        convert(published_state(), Options(vocabulary=path))
    path.write_text(json.dumps({"<pad>": 0, "a": 2}))
    with pytest.raises(ValueError, match="without gaps"):
        convert(published_state(), Options(vocabulary=path))


def test_the_command_makes_a_run(tmp_path: Path) -> None:
    from captioning.commands.main import main

    nested: dict[str, dict[str, Tensor]] = {"optimizer": {"momentum": torch.ones(2)}}
    for name, tensor in published_state().items():
        part, _, rest = name.partition(".")
        nested.setdefault(part, {})[rest] = tensor
    torch.save(nested, tmp_path / "model_checkpoint.pt")
    (tmp_path / "words.json").write_text(json.dumps(WORDS))
    options = [str(tmp_path / "model_checkpoint.pt"), "data=miniworld_tiny"]
    words = ["--vocabulary", str(tmp_path / "words.json")]
    main(["convert", "cos_cvae", *options, *words, "--to", str(tmp_path / "run")])
    config = RunFolder(tmp_path / "run").config()
    assert config.model.module.form.prior_reads_words
    assert config.model.module.context_size == Z
    lines = (tmp_path / "run" / "keys.tsv").read_text().splitlines()
    assert len(lines) == len(published_state()) + 1
