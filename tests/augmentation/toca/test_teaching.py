"""A small language model is taught a corpus, and then asked for captions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig
from safetensors.torch import load_file
from tokenizers.processors import TemplateProcessing

from augmentation.toca import teaching
from augmentation.toca.method import ToCa
from augmentation.toca.prompt_writer import PromptWriter
from augmentation.toca.teaching import IGNORED, Lessons, mean_loss_of, teach, with_templates
from augmentation.writing.causal_writer import CausalWriter
from captioning.config.compose import compose_config
from captioning.config.tasks import arguments_of
from captioning.text.causal import DOCUMENT_BREAK, imported, load_causal
from captioning.text.tagger import CaptionTagger
from captioning.training.rosters import read_corpus
from captioning.training.settings import Corpus
from tests.augmentation.toca.conftest import Filler
from tests.causal_folder import save_causal
from tests.task_calls import call, is_record

ROOT = Path(__file__).resolve().parents[3]
WORDS_ONLY = {"style": "words", "num_examples": 0, "instruct": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_causal(tmp_path_factory.mktemp("causal"), positions=256)


@pytest.fixture(scope="module")
def tokenizer(folder: Path):
    return imported("transformers").AutoTokenizer.from_pretrained(str(folder))


@pytest.fixture
def corpus(tmp_path: Path, gold) -> Path:
    path = tmp_path / "captions.txt"
    path.write_text("".join(f"{caption}\n" for caption, _ in gold[:20]), encoding="utf-8")
    return path


def config(name: str, *overrides: str) -> DictConfig:
    return compose_config(name, list(overrides))


def settings(folder: Path, corpus: Path, *more: str) -> DictConfig:
    return config(
        "teaching",
        "corpus=lines",
        f"corpus.train.path={corpus}",
        f"name={folder}",
        "device=cpu",
        "training.batch_size=4",
        "training.log_every=1",
        "val_batches=1",
        f"out={corpus.parent / 'taught'}",
        *more,
    )


def lessons(gold, tokenizer, full_template_share: float) -> Lessons:
    captions, tagged = zip(*gold, strict=True)
    return Lessons(
        [*with_templates(captions, tagged)],
        prompts=PromptWriter(**WORDS_ONLY),
        tokenizer=tokenizer,
        full_template_share=full_template_share,
    )


@pytest.mark.parametrize("full_share", [0.0, 1.0])
def test_a_lesson_asks_by_words_of_its_caption_and_answers_with_it(
    gold, tokenizer, full_share
) -> None:
    taught = lessons(gold, tokenizer, full_share)
    tokens, mask, labels = taught.draw(6, torch.Generator().manual_seed(3))
    captions = {caption.lower().rstrip(" .") for caption, _ in gold}
    shorter = 0
    for row, visible, answer in zip(tokens, mask.bool(), labels, strict=True):
        learned = tokenizer.decode(answer[answer != IGNORED])
        assert learned.endswith(".\n")
        caption = learned.lower().strip(" .\n")
        assert caption in captions
        text = tokenizer.decode(row[visible])
        question = text.removesuffix(learned)
        assert question.startswith("Words: ")
        assert question.endswith("\nSentence:")
        words = question.removeprefix("Words: ").removesuffix("\nSentence:").split(", ")
        places = [f" {caption} ".find(f"{word}") for word in words]
        assert -1 not in places
        shorter += len(words) < len(caption.split()) / 3
    assert (shorter > 0) == (full_share == 0)


def test_lessons_begin_with_the_token_that_begins_all_texts_of_the_model(gold, folder) -> None:
    llama = imported("transformers").AutoTokenizer.from_pretrained(str(folder))
    llama.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{DOCUMENT_BREAK} $A", special_tokens=[(DOCUMENT_BREAK, 0)]
    )
    tokens, mask, _ = lessons(gold, llama, 0.5).draw(4, torch.Generator().manual_seed(0))
    for row, visible in zip(tokens, mask.bool(), strict=True):
        assert row[visible].tolist().count(0) == 1
        assert row[visible][0] == 0


def test_lessons_are_drawn_by_the_generator_alone(gold, tokenizer) -> None:
    taught = lessons(gold, tokenizer, 0.5)
    first, again, other = (taught.draw(4, torch.Generator().manual_seed(n))[0] for n in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_loss_is_that_of_the_answers_alone_wherever_rows_are_padded(
    gold, folder: Path, tokenizer
) -> None:
    network = load_causal(str(folder)).eval().requires_grad_(False)
    tokens, mask, labels = lessons(gold, tokenizer, 0.5).draw(4, torch.Generator().manual_seed(0))
    together = mean_loss_of(network, tokens, mask, labels, half=False)
    total, number = 0.0, 0
    for row, visible, answer in zip(tokens, mask.bool(), labels, strict=True):
        row, answer = row[visible], answer[visible]
        logits = network(input_ids=row[None]).logits[0, :-1].log_softmax(-1)
        for place in (answer[1:] != IGNORED).nonzero()[:, 0].tolist():
            total -= float(logits[place, row[place + 1]])
            number += 1
    assert float(together) == pytest.approx(total / number, rel=1e-5)


@pytest.mark.long
def test_a_model_that_learned_a_corpus_by_heart_writes_its_captions(
    gold, folder: Path, tmp_path: Path
) -> None:
    learned = [(caption, tags) for caption, tags in gold if len(tags) < 10][:4]
    path = tmp_path / "captions.txt"
    path.write_text("".join(f"{caption}\n" for caption, _ in learned), encoding="utf-8")
    fast = ("training.num_steps=250", "training.lr=0.01", "full_template_share=1", "val_share=0.1")
    card = call(teach, settings(folder, path, *fast))
    assert card["captions"] == {"train": 3, "val": 1}
    assert card["history"][-1]["loss"] < 0.1 * card["history"][0]["loss"]
    embedding = "transformer.wte.weight"
    trained, before = (
        load_file(place / "model.safetensors") for place in (tmp_path / "taught", folder)
    )
    assert torch.equal(trained[embedding], before[embedding])
    writer = CausalWriter(name=str(tmp_path / "taught"), temperature=0, max_new_tokens=64)
    texts = [caption for caption, _ in learned]
    captions = [*with_templates(texts, CaptionTagger().tag(texts))]
    draws = np.random.default_rng(0)
    questions = PromptWriter(**WORDS_ONLY).prompts([template for _, template in captions], draws)
    answers = [answer.text for answer in writer.answers(questions, seed=0)]
    right = [answer == caption for answer, (caption, _) in zip(answers, captions, strict=True)]
    assert sum(right) == 3  # but for the one that was kept back


def test_the_taught_model_is_asked_as_it_was_taught() -> None:
    method = config("augmentation", "method=toca_taught", "method.writer.name=x").method
    assert method.prompts == config("teaching").prompts
    assert method.writer.max_small_words is None


@pytest.mark.long
def test_few_words_of_each_template_are_asked_for(gold, corpus: Path, tmp_path: Path) -> None:
    method = ToCa(
        writer=Filler(),
        tagger=CaptionTagger(),
        prompts=PromptWriter(),
        cache_folder=tmp_path,
        max_given_words=3,
        pace={"num_captions": 8},
    )
    method.synthesise(read_corpus(Corpus.of(settings(tmp_path, corpus).corpus)), tmp_path)
    lines = (tmp_path / "provenance.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert {len(record["words"]) for record in records} == {1, 2, 3}


@pytest.mark.slow
def test_a_killed_teaching_goes_on_as_if_it_had_not_been(
    folder: Path, corpus: Path, tmp_path: Path, monkeypatch
) -> None:
    steps = ("training.num_steps=4", "training.checkpoint_every=2")
    call(teach, settings(folder, corpus, *steps, f"out={tmp_path / 'whole'}"))
    calls = []

    def dying(*args, **kwargs):
        calls.append(args)
        if len(calls) == 5:  # the first is the validation before
            raise ConnectionError("killed")
        return mean_loss_of(*args, **kwargs)

    monkeypatch.setattr(teaching, "mean_loss_of", dying)
    with pytest.raises(ConnectionError):
        call(teach, settings(folder, corpus, *steps))
    monkeypatch.undo()
    chosen = settings(folder, corpus, *steps)
    card = call(teach, chosen)
    assert is_record(card["config"], chosen)
    assert [line["step"] for line in card["history"]] == [1, 2, 3, 4]
    uninterrupted, resumed = (
        load_file(tmp_path / name / "model.safetensors") for name in ("whole", "taught")
    )
    assert all(torch.equal(uninterrupted[name], resumed[name]) for name in uninterrupted)


def fit(network: torch.nn.Module, lessons: Any, config: DictConfig) -> None:
    given = arguments_of(teach, config)
    keys = ("precision", "num_epochs", "val_batches", "seed")
    options = {key: given[key] for key in keys} | {"checkpoint": Path(given["checkpoint"])}
    teaching.fit(network, lessons, given["training"], **options, identity={})


@pytest.mark.parametrize(("accumulate", "steps"), [(1, 3), (2, 2)])
def test_epochs_are_of_captions_however_many_a_step_has(
    monkeypatch, accumulate: int, steps: int
) -> None:
    asked = []

    class Recorder:
        def __init__(self, *, num_steps: int, **_: object) -> None:
            asked.append(num_steps)

        def run(self, *_: object) -> list[dict[str, float]]:
            return []

    class Taught:
        def __len__(self) -> int:
            return 9

        def draw(self, *_: object) -> tuple[()]:
            return ()

    monkeypatch.setattr(teaching, "TrainingLoop", Recorder)
    monkeypatch.setattr(teaching, "mean_loss_of", lambda *_, **__: torch.zeros(()))
    training = ("training.batch_size=3", f"training.accumulate={accumulate}", "num_epochs=1")
    config = compose_config("teaching", [*training, "name=x", "out=x", "training.num_steps=null"])
    lessons = {"train": Taught(), "val": Taught()}
    fit(torch.nn.Linear(1, 1), lessons, config)
    assert asked == [steps]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_is_one_mean_over_the_tokens_of_its_parts(
    accumulate: int, gold, folder: Path, tokenizer, tmp_path: Path, monkeypatch
) -> None:
    """Two draws whose answers differ in length."""
    drawn = [
        lessons(gold, tokenizer, 0.5).draw(number, torch.Generator().manual_seed(number))
        for number in (2, 5)
    ][:accumulate]
    numbers = [int((labels != IGNORED).sum()) for _, _, labels in drawn]
    assert len(set(numbers)) == accumulate
    network, gradients = load_causal(str(folder)).eval().double(), []

    class Taught:
        def __len__(self) -> int:
            return 9

        def draw(self, *_: object) -> tuple[torch.Tensor, ...]:
            return waiting.pop(0)

    def keep(*_: object) -> None:
        gradients.append([p.grad for p in network.parameters() if p.grad is not None])
        raise ConnectionError

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", keep)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    training = (f"training.accumulate={accumulate}", "training.num_steps=1", "val_batches=1")
    waiting = [drawn[0], *drawn]  # the first is validated
    overrides = [*training, "name=x", f"out={tmp_path / 'taught'}"]
    parts = {"train": Taught(), "val": Taught()}
    composed = compose_config("teaching", overrides)
    with pytest.raises(ConnectionError):
        fit(network, parts, composed)
    losses = [mean_loss_of(network, *lesson, half=False) for lesson in drawn]
    whole = sum(n * loss for n, loss in zip(numbers, losses, strict=True)) / sum(numbers)
    expected = torch.autograd.grad(whole, [p for p in network.parameters() if p.grad is not None])
    (found,) = gradients
    for one, other in zip(found, expected, strict=True):
        assert float((one - other).abs().max()) <= 1e-6 * float(other.abs().max())


def test_a_folder_of_another_teaching_is_refused(folder: Path, corpus: Path) -> None:
    steps = ("training.num_steps=1", "threads=1")
    call(teach, settings(folder, corpus, *steps))
    call(teach, settings(folder, corpus, "training.num_steps=1", "training.log_every=5"))
    card = (corpus.parent / "taught" / "card.json").read_text(encoding="utf-8")
    for changed, named in [
        ("seed=1", "seed was 0, is 1"),
        ("training.lr=0.1", "training.lr was 0.0003, is 0.1"),
        ("corpus.share=0.5", "photos and captions.corpus.fingerprint was "),
    ]:
        with pytest.raises(ValueError, match=named):
            call(teach, settings(folder, corpus, *steps, changed))
    lines = corpus.read_text(encoding="utf-8").splitlines(keepends=True)
    other = corpus.with_name("other.txt")
    other.write_text("".join(lines[1:]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"photos and captions.corpus.fingerprint was "):
        call(teach, settings(folder, corpus, *steps, f"corpus.train.path={other}"))
    assert (corpus.parent / "taught" / "card.json").read_text(encoding="utf-8") == card


def test_seeds_are_taught_in_folders_of_their_own() -> None:
    assert config("teaching", "seed=7").out.endswith("/teaching/lines-None/seed7")


def test_captions_that_the_model_does_not_take_are_refused_before_training(
    corpus: Path, tmp_path: Path
) -> None:
    short = save_causal(tmp_path / "short", positions=40)
    with pytest.raises(
        ValueError, match=r"up to \d+ tokens, but the language model reads at most 40"
    ):
        call(teach, settings(short, corpus))
    assert not (tmp_path / "taught").exists()


def test_a_corpus_of_one_caption_and_wrong_settings_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "one.txt"
    path.write_text("A dog.\n")
    with pytest.raises(ValueError, match="at least two captions .*: got 1"):
        call(teach, settings(folder, path))
    with pytest.raises(ValueError, match="^precision: must be one of float32, bf16-mixed, got"):
        call(teach, settings(folder, path, "precision=half"))


def test_checkpoints_of_before_prompts_were_a_part_are_gone_on_with(
    folder: Path, corpus: Path, monkeypatch
) -> None:
    seen = {}

    def stopped(*_, identity, **__) -> None:
        seen.update(identity)
        raise ConnectionError("stopped")

    monkeypatch.setattr(teaching, "fit", stopped)
    with pytest.raises(ConnectionError):
        call(teach, settings(folder, corpus))
    assert seen["prompts"] == WORDS_ONLY
