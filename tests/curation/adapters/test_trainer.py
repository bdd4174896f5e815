"""transformers' Trainer, with accumulation, weights, evaluation and resuming amid an epoch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from foreign import make_policy
from plain_run import Rows, files_of, opened
from transformers import (
    AutoModelForCausalLM,
    AutoProcessor,
    GitForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from captioning.data.roster import build_roster
from captioning.text.sentence_spans import sentence_numbers, sentence_spans
from captioning.vision.photos import load_rgb
from curation import CuratedDataset, TrainerCuration, per_sample_losses, with_rows
from curation.adapters.curation import Curation
from curation.adapters.losses import label_spans, per_sentence_losses, plain_token_losses
from curation.adapters.rosters import make_roster
from curation.adapters.trainer import (
    caption_losses,
    check_arguments,
    own_losses,
    token_losses,
)
from curation.amend.down_weight import DownWeight
from curation.amend.sentences import RemoveSentences
from curation.loop.policy import Policy
from curation.score.sentences import SentenceLoss
from curation.select.top import Top

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*pin_memory.*"),
    # accelerate's, as a batch is too small for the number of processes
    pytest.mark.filterwarnings("ignore:.*even_batches.*"),
]


class Killed(BaseException):
    """As a signal ends a program."""


class Kill(TrainerCallback):
    """Ends training after a step."""

    def __init__(self, step: int):
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise Killed


@pytest.fixture
def train(git):
    model_folder, photos = git
    processor = AutoProcessor.from_pretrained(model_folder)

    def item_of(sample):
        return {"image": load_rgb(sample.image_path), "text": sample.caption}

    def collate(items):
        images, texts = [item["image"] for item in items], [item["text"] for item in items]
        batch = processor(images=images, text=texts, padding=True, return_tensors="pt")
        batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        return batch

    def function(folder: Path, *, callbacks=(), resume=None, data=None, dropout=0.1, **changes):
        options = {
            "policy": make_policy(ratio=0.1),
            "samples": photos,
            **changes.pop("curation", {}),
        }
        curation = opened(folder, **options)
        model = AutoModelForCausalLM.from_pretrained(
            model_folder, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
        )
        settings = {
            "output_dir": str(folder),
            "num_train_epochs": 2,
            "per_device_train_batch_size": 4,
            "learning_rate": 1e-2,
            "remove_unused_columns": False,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "use_cpu": True,
        }
        trainer = Trainer(
            model=model,
            args=TrainingArguments(**settings | changes),
            train_dataset=CuratedDataset(item_of, curation) if data is None else data(curation),
            eval_dataset=[item_of(sample) for sample in curation.roster.samples[:6]],
            data_collator=with_rows(collate),
            callbacks=[TrainerCuration(curation), *callbacks],
        )
        trainer.train(resume_from_checkpoint=resume)
        return curation, trainer

    return function


def weights(trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def same(first, second) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


def test_recording_changes_no_bit_of_the_training(train, tmp_path, monkeypatch):
    policy = make_policy(ratio=0.0)
    watched, _ = train(tmp_path / "a", curation={"policy": policy})[::-1]
    monkeypatch.setattr(TrainerCuration, "on_step_end", lambda *args, **kwargs: None)
    monkeypatch.setattr(TrainerCuration, "_after", lambda *args: None)
    plain, _ = train(tmp_path / "b", curation={"policy": policy})[::-1]
    assert same(weights(watched), weights(plain))


@pytest.mark.parametrize("steps", [1, pytest.param(2, marks=pytest.mark.long), 4])
def test_accumulation_sees_every_caption_once_an_epoch(train, tmp_path, steps):
    curation, trainer = train(
        tmp_path, gradient_accumulation_steps=steps, curation={"policy": make_policy(ratio=0.0)}
    )
    assert trainer.state.global_step == 2 * -(-6 // steps)
    assert curation.epoch == 2
    record = curation._curator.records
    assert [entry["num_seen"] for entry in record] == [24, 24]


@pytest.mark.long
def test_evaluation_and_hooks_leave_nothing_behind(train, tmp_path):
    curation, trainer = train(
        tmp_path, eval_strategy="steps", eval_steps=2, label_names=["labels"], num_train_epochs=1
    )
    assert curation._curator.records[0]["num_seen"] == 24
    assert float(curation._curator.ledger._count.sum()) == 0
    assert not trainer.model._forward_hooks
    assert not trainer.model._forward_pre_hooks


@pytest.mark.parametrize("step", [4, *(pytest.param(n, marks=pytest.mark.long) for n in (6, 8))])
def test_killed_amid_an_epoch_or_at_its_end_it_ends_with_the_same_bits(train, tmp_path, step):
    straight, resumed = tmp_path / "a", tmp_path / "b"
    saving = {"save_strategy": "steps", "save_steps": 2}
    _, expected = train(straight, **saving)
    with pytest.raises(Killed):
        train(resumed, callbacks=[Kill(step + 1)], **saving)
    checkpoint = resumed / f"checkpoint-{step}"
    assert (checkpoint / "curation.safetensors").is_file()
    _, actual = train(resumed, resume=str(checkpoint), **saving)
    assert same(weights(expected), weights(actual))
    names = ("curation.jsonl", "curation/epochs.json", "curation/losses.npz")
    first, second = files_of(straight), files_of(resumed)
    assert all(first[name] == second[name] for name in names)


@pytest.fixture
def weighted_policy():
    """Half of the captions count a quarter, from the start."""
    policy = make_policy(amend=DownWeight(factor=0.25), from_epoch=-1, until_epoch=-1)
    policy.select = Top(ratio=0.5, score=Rows())
    return policy


def test_down_weighted_captions_count_less_and_updates_keep_their_size(
    train, tmp_path, weighted_policy
):
    curation, trainer = train(tmp_path, max_steps=1, curation={"policy": weighted_policy})
    assert curation.mean_weight == 0.625
    batch = next(iter(trainer.get_train_dataloader()))
    labels, rows = batch["labels"], batch.pop("row")
    outputs = trainer.model.train()(**batch)
    losses = per_sample_losses(outputs.logits, labels)
    counts = (labels[:, 1:] != -100).sum(1)
    inputs = batch | {"num_items_in_batch": torch.tensor(100)}
    weighted = TrainerCuration(curation)._weighted(outputs, losses, rows, inputs)["loss"]
    expected = (curation.weights(rows) * losses * counts).sum() / 100 / 0.625
    assert weighted.item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.long
def test_weights_mean_the_same_however_gradients_are_accumulated(train, tmp_path, weighted_policy):
    results = {}
    for size, steps, policy in ((8, 1, weighted_policy), (4, 2, weighted_policy), (8, 1, None)):
        _, trainer = train(
            tmp_path / f"{size}-{policy is None}",
            num_train_epochs=1,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=steps,
            train_sampling_strategy="sequential",
            optim="sgd",
            dropout=0.0,
            curation={"policy": policy or make_policy(ratio=0.0)},
        )
        results[size, policy is None] = weights(trainer)
    at_once, in_steps, plain = results[8, False], results[4, False], results[8, True]
    assert all(torch.allclose(at_once[name], in_steps[name], atol=1e-6) for name in at_once)
    assert not all(torch.allclose(at_once[name], plain[name], atol=1e-6) for name in plain)


@pytest.fixture
def without_num_items(monkeypatch):
    """As models whose forward pass takes no num_items_in_batch."""
    monkeypatch.setattr(GitForCausalLM, "accepts_loss_kwargs", False, raising=False)


@pytest.mark.long
@pytest.mark.parametrize("steps", [1, 2])
def test_updates_of_means_of_means_are_logged(train, tmp_path, without_num_items, caplog, steps):
    policy = {"policy": make_policy(ratio=0.0)}
    _, trainer = train(tmp_path, max_steps=1, gradient_accumulation_steps=steps, curation=policy)
    assert not trainer.model_accepts_loss_kwargs
    messages = [text for text in caplog.messages if "num_items_in_batch" in text]
    assert len(messages) == steps - 1
    if messages:
        assert "GitForCausalLM takes no num_items_in_batch" in messages[0]
        assert "mean of 2 batches' means" in messages[0]
        assert "set gradient_accumulation_steps=1" in messages[0]


@pytest.mark.long
def test_updates_of_one_mean_are_not_logged(train, tmp_path, caplog):
    _, trainer = train(tmp_path, max_steps=1, gradient_accumulation_steps=2)
    assert trainer.model_accepts_loss_kwargs
    assert not any("num_items_in_batch" in text for text in caplog.messages)


@pytest.mark.long
def test_weights_are_refused_where_updates_are_means_of_means(
    train, tmp_path, without_num_items, weighted_policy
):
    with pytest.raises(ValueError, match="weights are of tokens of a whole update.*GitForCausalLM"):
        train(tmp_path / "a", gradient_accumulation_steps=2, curation={"policy": weighted_policy})
    later = make_policy(amend=DownWeight(factor=0.25))
    with pytest.raises(ValueError, match="curation: weights .*gradient_accumulation_steps=1"):
        train(tmp_path / "b", gradient_accumulation_steps=2, curation={"policy": later})
    train(tmp_path / "c", max_steps=1, curation={"policy": later})


@pytest.mark.long
def test_weights_of_another_amender_are_refused_when_they_come(
    train, tmp_path, without_num_items, monkeypatch
):
    lowered = property(lambda curation: 0.5 if curation.epoch else 1.0)
    monkeypatch.setattr(Curation, "mean_weight", lowered)
    with pytest.raises(ValueError, match="weights are of tokens of a whole update"):
        train(tmp_path, gradient_accumulation_steps=2)


def test_fused_outputs_are_read_and_weighted(train, tmp_path):
    curation, _ = train(tmp_path, num_train_epochs=1)
    log_probs = -torch.tensor([[1.0, 2.0, 0.0], [4.0, 0.0, 0.0]])
    outputs = {"log_probs": log_probs, "label_mask": log_probs != 0}
    assert caption_losses(outputs, torch.zeros(2, 4)).tolist() == [1.5, 4]
    with pytest.raises(ValueError, match="the model returned no logits .*use_liger_kernel=False"):
        caption_losses({"loss": 1}, torch.zeros(2, 4))
    hooks = TrainerCuration(curation)
    curation._weights, curation._mean_weight = torch.tensor([1.0, 0.5]), 0.75
    hooks._weighted(outputs, torch.zeros(2), torch.tensor([0, 1]), {"labels": torch.zeros(2, 4)})
    assert torch.allclose(outputs["log_probs"][1], log_probs[1] * 0.5 / 0.75)


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"remove_unused_columns": True}, "remove_unused_columns=True drops the rows"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor keeps the labels from the model"),
        (
            {"dataloader_num_workers": 1, "dataloader_persistent_workers": True},
            "dataloader_persistent_workers=False",
        ),
        ({"data": lambda curation: [{"row": 0}] * 8}, "training loader over CuratedDataset"),
    ],
)
def test_settings_that_undo_curation_are_refused(train, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        train(tmp_path, **changes)


def test_an_order_by_length_is_refused(tmp_path):
    settings = TrainingArguments(
        output_dir=str(tmp_path),
        train_sampling_strategy="group_by_length",
        remove_unused_columns=False,
    )
    with pytest.raises(ValueError, match="sorts by the lengths of the first epoch"):
        check_arguments(settings)


@pytest.mark.long
def test_a_start_that_does_not_fit_the_folder_is_refused(train, tmp_path):
    saving = {"save_strategy": "epoch"}
    train(tmp_path, num_train_epochs=1, **saving)
    with pytest.raises(ValueError, match=r"training starts at epoch 0, but .* epoch 1: call"):
        train(tmp_path)
    (tmp_path / "checkpoint-6" / "curation.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="so curation cannot resume from step 6"):
        train(tmp_path, resume=True)


def test_a_batch_without_rows_is_refused(train, tmp_path):
    curation, trainer = train(tmp_path, num_train_epochs=1)
    hooks = TrainerCuration(curation)
    with pytest.raises(ValueError, match="the batch has no 'row': collate with with_rows"):
        hooks._before(trainer.model.train(), (), {"labels": torch.ones(1)})
    hooks._before(trainer.model.eval(), (), {"labels": torch.ones(1)})
    assert hooks._rows is None


@pytest.mark.long
def test_a_last_epoch_cut_short_is_not_decided_on(train, tmp_path, caplog):
    curation, _ = train(tmp_path, max_steps=8)
    assert curation.epoch == 1
    assert "max_steps ended training within epoch 1" in caplog.text


@pytest.mark.parametrize("kept", [0, 1])
def test_losses_are_read_from_the_graph_of_the_models_own(kept: int) -> None:
    """Where the model leaves the last logits out, and where it ignores their label (``kept``)."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 6, 11, generator=generator).requires_grad_()
    labels = torch.randint(11, (3, 6), generator=generator)
    labels[0, 4:] = labels[2, 1:3] = -100
    places = 6 if kept else 5
    targets = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1 : 1 + places]
    flat = logits[:, :places].reshape(-1, 11)
    summed = torch.nn.functional.cross_entropy(flat, targets.reshape(-1), reduction="sum")
    other, loss = logits.sum(), summed / 7
    with torch.no_grad():
        expected = per_sample_losses(logits, labels)
        torch.testing.assert_close(own_losses(loss, labels, places=6, shift=True), expected)
        assert own_losses(other, labels, places=6, shift=True) is None
        assert own_losses(None, labels, places=6, shift=True) is None
        by_token = plain_token_losses(logits, labels)
        fused = {"log_probs": -by_token, "label_mask": labels[:, 1:] != -100}
        for outputs in ({"loss": loss, "logits": logits}, {"logits": logits}, fused):
            torch.testing.assert_close(token_losses(outputs, labels), by_token)


def test_the_hook_records_sentences_and_the_next_epoch_lacks_the_worst(git, tmp_path) -> None:
    model_folder, photos = git
    processor = AutoProcessor.from_pretrained(model_folder)
    roster = make_roster(photos)
    long = [replace(one, caption=f"{one.caption}. a very green square.") for one in roster.samples]

    def item_of(sample):
        return {"image": load_rgb(sample.image_path), "text": sample.caption}

    def collate(items):
        images, texts = [item["image"] for item in items], [item["text"] for item in items]
        batch = processor(images=images, text=texts, padding=True, return_tensors="pt")
        batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        return batch

    select = Top(ratio=0.5, score=SentenceLoss())
    policy = Policy(select=select, amend=RemoveSentences(), name="worst")
    curation = opened(
        tmp_path / "run",
        policy=policy,
        samples=build_roster("long", long),
        signals=("sentence_loss",),
    )
    data = CuratedDataset(item_of, curation)
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "run"),
        num_train_epochs=1,
        per_device_train_batch_size=4,
        remove_unused_columns=False,
        learning_rate=0.0,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )

    def train(collator):
        model = AutoModelForCausalLM.from_pretrained(
            model_folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
        )
        hook = TrainerCuration(curation)
        trainer = Trainer(
            model, arguments, train_dataset=data, data_collator=collator, callbacks=[hook]
        )
        trainer.train()
        return trainer.model

    with pytest.raises(ValueError, match=r"has no 'sentences', .* with_rows\(collate, curation="):
        train(with_rows(collate))
    collator = with_rows(collate, curation=curation, tokenizer=processor.tokenizer)
    model = train(collator)
    found = curation._curator.signals["sentence_loss"].history()[0]
    batch = with_rows(collate)([{**item_of(one), "row": one.row} for one in long])
    texts = [one.caption for one in long]
    spans = label_spans(batch["labels"], texts, processor.tokenizer)
    pairs = zip(spans, texts, strict=True)
    numbers = torch.tensor([sentence_numbers(own, sentence_spans(text)) for own, text in pairs])
    inputs = {key: value for key, value in batch.items() if key != "row"}
    with torch.no_grad():
        logits = model(**inputs).logits
    expected = per_sentence_losses(logits, batch["labels"], numbers, num_sentences=2)
    torch.testing.assert_close(found, expected)
    edits = curation.view.journal
    assert len(edits) == len(long) // 2
    assert all(edit.origin.startswith("sentence:") for edit in edits)
