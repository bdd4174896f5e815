"""Settings of pseudo-labels, and those of one process among several; the rest is in whole runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from pytorch_lightning.strategies import ModelParallelStrategy

from captioning.data.batches import datamodule
from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.batches.settings import LoaderSettings, Splits
from captioning.data.roster import CurationView, Roster, build_roster
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Batch, MaskedSpan, Prediction, Sample
from curation.amend.pseudo_label import PSEUDO_LABEL, PseudoLabel
from curation.base import Selected
from tests.contracts.test_policies import make_context


def test_a_search_is_needed_and_its_constraints() -> None:
    with pytest.raises(ValueError, match="need a decoding method: set constrained, plain or both"):
        PseudoLabel()
    with pytest.raises(ValueError, match="constrained search needs constraints"):
        PseudoLabel(constrained=lambda: None)


def both() -> PseudoLabel:
    return PseudoLabel(constrained=lambda: None, plain=lambda: None, constraints=lambda _: None)


def test_searches_take_turns_over_the_samples_of_a_photo(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def write(self: PseudoLabel, kind: str, samples: Sequence[Sample]) -> dict[str, Prediction]:
        requests.append((kind, [sample.sample_id for sample in samples]))
        return {s.image_id: Prediction(image_id=s.image_id, caption=kind) for s in samples}

    monkeypatch.setattr(PseudoLabel, "_write", write)
    context = make_context()
    photo = [Selected(sample=sample, reason="") for sample in map(context.live.get, range(4))]
    edits = both().amend(context, photo).edits
    assert [edit.value for edit in edits] == ["constrained", "plain"] * 2
    names = [candidate.sample.sample_id for candidate in photo]
    assert requests == [("constrained", names[::2]), ("plain", names[1::2])]


def test_a_placeholder_that_is_right_already_is_trained_on_from_now_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write(self: PseudoLabel, kind: str, samples: Sequence[Sample]) -> dict[str, Prediction]:
        return {s.image_id: Prediction(image_id=s.image_id, caption=s.caption) for s in samples}

    monkeypatch.setattr(PseudoLabel, "_write", write)
    context = make_context()
    for weight, actions in ((0.0, ["replace_caption", "down_weight"]), (1.0, [])):
        sample = replace(context.live[0], weight=weight)
        label = PseudoLabel(plain=lambda: None)
        amended = label.amend(context, [Selected(sample=sample, reason="")])
        assert [edit.action for edit in amended.edits] == actions
        assert amended.unchanged == (() if actions else (sample.sample_id,))


def test_the_captioner_must_be_known() -> None:
    context = make_context()
    alone = CurationView(roster=build_roster("one", [context.live[0], context.live[4]]))
    selected = [Selected(sample=context.live[0], reason="")]
    with pytest.raises(ValueError, match=r"1 samples for 2 .*: steps.hold_out.samples_per_photo"):
        both().amend(make_context(alone), selected)
    with pytest.raises(RuntimeError, match=r"need attach\(trainer, module\)"):
        PseudoLabel(plain=lambda: None).amend(make_context(alone), selected)


class Captioner(torch.nn.Module):
    """Says which image it saw."""

    tokenizer = None

    def generate(self, batch: Batch, *, search, machines) -> list[Prediction]:
        return [Prediction(image_id=name, caption=f"now {name}") for name in batch.image_ids]


def trainer_of(data: CaptionDataModule) -> SimpleNamespace:
    return SimpleNamespace(
        datamodule=data,
        strategy=SimpleNamespace(batch_to_device=lambda batch: batch),
        precision_plugin=SimpleNamespace(forward_context=nullcontext),
    )


def data_of(roster: Roster) -> CaptionDataModule:
    return CaptionDataModule(
        splits=Splits(train=roster, val=roster),
        tokenizer=WordTokenizer.build([s.caption for s in roster.samples], min_count=1),
        readers={},
        loader=LoaderSettings(eval_batch_size=1),
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_writes_all_captions_of_its_own_batch(
    monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    roster = make_context().view.roster
    data = data_of(roster)
    monkeypatch.setattr(datamodule, "rank_and_size", lambda: (rank, 2))
    label = PseudoLabel(plain=lambda: None, online=True)
    label.attach(trainer_of(data), Captioner())
    batch = [roster.samples[rows[0]] for rows in roster.rows_by_image.values()][:3]
    batch = [replace(sample, origin=f"{PSEUDO_LABEL}plain") for sample in batch]
    new = label._rewritten(batch)
    assert [sample.caption for sample in new] == [f"now {sample.image_id}" for sample in batch]


def test_a_caption_of_this_moment_has_no_masks_and_an_empty_one_is_not_taken() -> None:
    class Silent(Captioner):
        def generate(self, batch: Batch, **options) -> list[Prediction]:
            said = super().generate(batch, **options)
            return [replace(one, caption="") if one.image_id == "0" else one for one in said]

    roster = make_context().view.roster
    label = PseudoLabel(plain=lambda: None, online=True)
    label.attach(trainer_of(data_of(roster)), Silent())
    masks = (MaskedSpan(start=0, stop=7, weight=0.0),)
    batch = [roster.samples[roster.rows_by_image[image][0]] for image in ("0", "1")]
    batch = [replace(sample, origin=f"{PSEUDO_LABEL}plain", masks=masks) for sample in batch]
    first, second = label._rewritten(batch)
    assert first == batch[0]
    assert (second.caption, second.masks) == ("now 1", ())


def test_weights_in_shards_write_no_captions_in_each_batch() -> None:
    trainer = SimpleNamespace(strategy=ModelParallelStrategy())
    PseudoLabel(plain=lambda: None).attach(trainer, Captioner())
    with pytest.raises(ValueError, match=r"sharded weights.*: set curation.amend.online=false"):
        PseudoLabel(plain=lambda: None, online=True).attach(trainer, Captioner())
