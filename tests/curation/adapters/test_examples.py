"""Each example trains a small GIT, and killed after an epoch it ends with the same bits."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from captioning.commands.main import main as command
from captioning.runtime.processors import load_image_text
from captioning.text.tokenizers.image_text import ImageTextTokenizer
from curation import Curation
from curation.finished_run import read_run

QUIET = {
    "plain_loop": {},
    "lightning_module": {
        "accelerator": "cpu",
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    },
    "transformers_trainer": {"use_cpu": True, "disable_tqdm": True, "report_to": "none"},
    "trl_sft": {"use_cpu": True, "disable_tqdm": True, "report_to": "none", "bf16": False},
}
NUM_EDITS = 6  # 10% of 24, 22 and 20 captions
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory.*exists and is not empty"),
    pytest.mark.filterwarnings("ignore:.*ckpt_path=.last.*"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*"),
]


class Killed(BaseException):
    """As a signal ends a program."""


# The loops are those of the adapters' own tests.
LONG = ("lightning_module", "transformers_trainer", "trl_sft")


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in QUIET]
)
def train(request, example, git):
    """Runs an example in a folder, for three epochs."""
    if request.param == "trl_sft":
        pytest.importorskip("trl", reason="needs trl and datasets (pip install '.[loops]')")
    module = example(request.param)

    def function(folder: Path) -> None:
        module.main(*git, str(folder), **QUIET[request.param])

    return function


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Of the last checkpoint, whoever wrote it."""
    plain, lightning = folder / "checkpoint.pt", folder / "last.ckpt"
    if plain.is_file():
        return torch.load(plain, weights_only=True)["model"]
    if lightning.is_file():
        return torch.load(lightning, weights_only=True)["state_dict"]
    last = max(folder.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]))
    return load_file(last / "model.safetensors")


def test_an_example_resumes_to_the_bit_and_its_folder_is_a_run(train, tmp_path, monkeypatch):
    straight, resumed = tmp_path / "straight", tmp_path / "resumed"
    train(straight)
    end_epoch = Curation.end_epoch

    def end_or_die(self):
        if self.epoch == 1:
            raise Killed
        return end_epoch(self)

    monkeypatch.setattr(Curation, "end_epoch", end_or_die)
    with pytest.raises(Killed):
        train(resumed)
    monkeypatch.setattr(Curation, "end_epoch", end_epoch)
    assert len(read_run(resumed).view.journal) == 2
    train(resumed)

    for name in ("curation.jsonl", "curation/epochs.json", "curation/losses.npz"):
        assert (straight / name).read_bytes() == (resumed / name).read_bytes(), name
    expected, actual = weights(straight), weights(resumed)
    assert all(torch.equal(expected[name], actual[name]) for name in expected)
    check_commands(straight, tmp_path)


def check_commands(run: Path, folder: Path) -> None:
    record = read_run(run)
    assert len(record.view.journal) == NUM_EDITS
    assert record.epochs == [0, 1, 2]
    page = folder / "page.html"
    assert command(["report", str(run), "--out", str(page), "--no-figures"]) in (0, None)
    assert page.stat().st_size > 10_000
    out = folder / "set"
    command(["curate", "export", str(run), str(out), "--format", "imagefolder"])
    assert len((out / "metadata.jsonl").read_text().splitlines()) == 12
    applied = folder / "applied.jsonl"
    roster = run / "curation" / "roster.jsonl"
    command(["curate", "apply", str(run), str(roster), "--out", str(applied)])
    assert applied.read_text().count('"sample_ids"') == 12
    command(["curate", "journal", "show", str(run)])
    shutil.rmtree(out)
    os.remove(applied)


def test_examples_are_short(repository):
    lengths = {
        path.name: len(path.read_text().splitlines())
        for path in (repository / "examples").glob("*.py")
    }
    assert set(lengths) == {"small_git.py", *(f"{name}.py" for name in QUIET)}
    assert max(lengths.values()) <= 60


def test_the_small_git_is_a_captioner(example, tmp_path):
    captions = tmp_path / "captions.txt"
    captions.write_text("a dog runs on the grass\na red bird sits on a tree\n" * 3)
    folder = str(tmp_path / "git")
    example("small_git").main(folder, str(captions), side=32, hidden=48, layers=1)
    tokenizer = ImageTextTokenizer.of_model(name=folder)
    assert tokenizer.decode(tokenizer.encode("a dog runs")) == "a dog runs"
    assert load_image_text(folder).config.vocab_size == len(tokenizer)
