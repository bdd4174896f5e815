"""Small curated trainings of every kind of model, by one process or several that are forked.

A script: ``python process_run.py FOLDER`` leaves ``FOLDER/NAME-NUM_PROCESSES``, each with the last
weights and losses, and the files of a run.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import nltk.tokenize  # noqa: F401  # a tokenizer's; a second, which each process would take again
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from captioning.data.batches.base import AbstractBatchReader, Epoch, Read
from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.batches.settings import LoaderSettings, Splits
from captioning.data.roster import Roster, build_roster
from captioning.models.base import AbstractCaptioner
from captioning.models.training_steps import trainable
from captioning.training.callbacks import CaptionEvaluation, Speed, StepSeed
from captioning.training.finite_loss import FiniteLoss
from captioning.training.objectives.rewards import CiderReward
from captioning.training.objectives.self_critical import SelfCritical
from captioning.training.trainer import WarmWeightAveraging
from captioning.types import Sample
from curation.amend.down_weight import DownWeight
from curation.amend.mask_words import MaskWords
from curation.amend.remove import Remove
from curation.amend.replace import ReplaceCaption
from curation.base import Amender, Selector
from curation.loop.callback import CurationCallback
from curation.loop.policy import Policy
from curation.loop.probes import AbstractProbe, OnlineProbe, RescoreProbe
from curation.select.sigma import Sigma
from curation.select.top import Top
from tests.captioning.models.test_cos_cvae import V
from tests.curation.toy_words import ToyWords
from tests.tiny import CAPTIONS, FEATURE_SIZE, MODELS, NUM_REGIONS

RIVALS = dict.fromkeys(("dog", "red", "runs", "boy"), ("cat", 0.9))
NUM_IMAGES, NUM_EPOCHS, SHARE = 9, 3, 0.2
PROCESSES = (1, 2, 3)
ENVIRONMENT = {"MASTER_ADDR": "127.0.0.1"}


def _self_critical() -> SelfCritical:
    return SelfCritical(reward=CiderReward(), num_samples=2, likelihood_weight=0.5, seed=3)


def _top() -> Top:
    return Top(ratio=0.1)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A training; ``share`` is of dropout."""

    model: str
    share: float = SHARE
    select: Callable[[], Selector] = _top
    amend: Callable[[], Amender] = Remove
    probe: Callable[[], AbstractProbe] = OnlineProbe
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    loader: Mapping[str, Any] = field(default_factory=dict)
    trainer: Mapping[str, Any] = field(default_factory=dict)
    num_val: int = 3
    texts: bool = False
    objective: Callable[[], Any] | None = None
    averaged: bool = False


CASES = {
    "updown": Case(model="updown", averaged=True, trainer={"accumulate_grad_batches": 2}),
    "caption_sum": Case(model="updown_nocaps", share=0.0, amend=ReplaceCaption, probe=RescoreProbe),
    "blip": Case(
        model="blip_prompted",
        select=partial(Sigma, num_std=1.0),
        amend=partial(MaskWords, score=ToyWords(RIVALS)),
        trainer={"gradient_clip_val": 0.5},
        num_val=1,
    ),
    "cic_bart": Case(model="cic_bart", amend=DownWeight, loader={"batch_size": 2}),
    "self_critical": Case(model="updown", objective=_self_critical, loader={"batch_size": 8}),
    "viecap": Case(model="viecap", texts=True, loader={"fixed_updates": False}),
    "cos_cvae": Case(
        model="cos_cvae",
        model_settings={"later": {"nll_nn": 0.2, "kl_nn": 0.15}, "first_epochs": 0},
        loader={"fixed_updates": False},
    ),
}

# Of three, processes without a caption or a photo to test are among them.
OF_THREE = ("updown", "blip", "cic_bart")


def cases(number: int) -> list[str]:
    """What so many processes train."""
    return [name for name in CASES if number < 3 or name in OF_THREE]


def roster(name: str, num_images: int, prefix: str = "i") -> Roster:
    """Images with one to four captions of different lengths."""
    texts = [caption.split() for caption in CAPTIONS]
    samples = []
    for image in range(num_images):
        for number in range(1 + image % 4):
            head, tail = texts[(image + number) % 6], texts[(image * 5 + 3 * number) % 6]
            sample = Sample(
                row=0,
                sample_id=f"{prefix}{image}#{number}",
                image_id=f"{prefix}{image}",
                image_path=Path(f"{prefix}{image}.jpg"),
                caption=" ".join(head[: 2 + (image + number) % 4] + tail[1:]),
            )
            samples.append(sample)
    return build_roster(name, samples)


class Tensors(AbstractBatchReader):
    """Made-up regions and boxes of photos, and contexts of other photos for captions."""

    def __init__(self, *, texts: bool) -> None:
        self.texts = texts

    @property
    def pictures(self) -> str:
        return "grid"

    def open(self, epoch: Epoch) -> Read:
        return self._read

    def _read(
        self, captions: Sequence[Sample], photos: Sequence[Sample], batch: dict[str, Any]
    ) -> dict[str, Any]:
        contexts = torch.tensor([[1, 5, V, 6, 2, 0], [1, V, 7, V + 1, 6, 2]])
        lengths = torch.tensor([[5, 6]]).repeat(len(captions), 1)
        lengths[torch.tensor([sample.row % 3 == 0 for sample in captions])] = 0
        tensors = {
            "boxes": torch.stack([_drawn(photo.image_id, (NUM_REGIONS, 4)) for photo in photos]),
            "context_tokens": contexts.repeat(len(captions), 1, 1),
            "context_lengths": lengths,
            "object_words": torch.tensor([[8, 9], [10, -1]]).repeat(len(captions), 1, 1),
        }
        if not self.texts:
            regions = [_drawn(photo.image_id, (NUM_REGIONS, FEATURE_SIZE)) for photo in photos]
            return {**tensors, "regions": torch.stack(regions)}
        embeddings = [_drawn(sample.caption, (FEATURE_SIZE,)) for sample in captions]
        entities = torch.tensor([[sample.row % 5, -1] for sample in captions])
        return {"text_embeddings": torch.stack(embeddings), "text_entities": entities}


def _drawn(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(int.from_bytes(name.encode()) % 2**31)
    return torch.rand(shape, generator=generator)


def captioner(case: Case) -> AbstractCaptioner:
    """A model of small random weights with dropout wherever it has a place for it."""
    torch.manual_seed(0)
    model = MODELS[case.model](2, **case.model_settings)
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, float) and (name == "p" or "dropout" in name):
                setattr(module, name, case.share)
    model._optimizer = partial(torch.optim.SGD, lr=0.1, momentum=0.5)
    return model


def fit(
    case: Case, folder: Path, *, epochs: int = NUM_EPOCHS, resume_from: Path | None = None
) -> None:
    """Train; process 0 leaves the weights."""
    os.environ.update(ENVIRONMENT)  # of which Lightning takes some away after a run
    num_processes = int(os.environ["WORLD_SIZE"])
    model, reader = captioner(case), Tensors(texts=case.texts)
    model.objective = case.objective and case.objective()
    val = roster("val", case.num_val, prefix="v")
    data = CaptionDataModule(
        splits=Splits(train=roster("train", NUM_IMAGES), val=val),
        tokenizer=model.tokenizer,
        readers={"tensors": reader},
        loader=LoaderSettings(**{"batch_size": 7, "captions_per_image": 2, **case.loader}),
    )
    policy = Policy(select=case.select(), amend=case.amend(), name="policy")
    trainer = pl.Trainer(
        devices=num_processes,
        strategy="ddp" if num_processes > 1 else "auto",
        max_epochs=epochs,
        callbacks=[
            CaptionEvaluation(folder=folder, metrics=["BLEU"], val_metrics=["BLEU"]),
            StepSeed(seed=3),
            FiniteLoss(),
            Speed(folder=folder),
            *([WarmWeightAveraging(decay=0.9)] if case.averaged else []),
            CurationCallback(policy=policy, probe=case.probe(), plot=False, seed=3),
            ModelCheckpoint(dirpath=folder, filename="last", save_on_train_epoch_end=True),
        ],
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=1,
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,
        **{"accelerator": "cpu", "gradient_clip_val": 2.0, **case.trainer},
    )
    trainer.fit(trainable(model), data, ckpt_path=resume_from, weights_only=True)
    if trainer.is_global_zero:
        weights = {name: value.detach() for name, value in model.state_dict().items()}
        loss = trainer.callback_metrics["train/loss"]
        torch.save({"weights": weights, "loss": loss}, folder / "end.pt")


def jobs(folder: Path, number: int) -> None:
    """All its cases, by a process of ``number``."""
    for name in cases(number):
        fit(CASES[name], folder / f"{name}-{number}")


def process(folder: Path, number: int, rank: int, port: int, run: Callable[..., None]) -> None:
    """One of ``number`` processes."""
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    values = {"MASTER_PORT": port, "WORLD_SIZE": number, "NODE_RANK": 0, "LOCAL_RANK": rank}
    ENVIRONMENT.update({name: str(value) for name, value in values.items()})
    run(folder, number)


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def by_processes(folder: Path, number: int, run: Callable[..., None]) -> None:
    """Run by forked processes, which spares each the imports."""
    context = torch.multiprocessing.get_context("fork")
    port = free_port()
    started = [
        context.Process(target=process, args=(folder, number, rank, port, run))
        for rank in range(number)
    ]
    for child in started:
        child.start()
    for child in started:
        child.join()
    if any(child.exitcode for child in started):
        sys.exit(f"{number} processes ended with {[child.exitcode for child in started]}")


def _change(folder: Path, number: int) -> None:
    """A run that goes on with another number of processes, one epoch each."""
    epochs = 1 + len(list(folder.glob("changing*.ckpt")))
    before = folder / f"changing{epochs - 1}.ckpt"
    run = folder / "changing"
    fit(CASES["updown"], run, epochs=epochs, resume_from=before if before.is_file() else None)
    if ENVIRONMENT["LOCAL_RANK"] == "0":
        (run / "last.ckpt").rename(folder / f"changing{epochs}.ckpt")


def main(folder: str) -> None:
    """All trainings."""
    torch.set_num_threads(1)
    path = Path(folder)
    for number in PROCESSES:
        by_processes(path, number, jobs)
    for number in (1, 2, 1):
        by_processes(path, number, _change)


if __name__ == "__main__":
    main(*sys.argv[1:])
