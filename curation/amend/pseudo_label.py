"""Photos without captions get them from the captioner that is being trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytorch_lightning as pl
import torch.distributed as dist

from captioning.data.roster import build_roster
from captioning.types import Prediction, Sample
from curation.base import AbstractAmender, Amended, Context, Selected
from curation.loop.probes import datamodule_of, undisturbed

Written = dict[str, Prediction]
"""Captions by image."""

PSEUDO_LABEL = "pseudo-label:"
"""Begins the origin of a caption so written; the search follows."""


class PseudoLabel(AbstractAmender):
    """Writes pseudo-labels: captions that are then trained on as if they were true.

    Source: Bujimalla et al., "Partially-Supervised Novel Object Captioning", Step 3.

    Each selected photo has a sample for each search, in the order of the arguments: the first gets
    the caption of constrained search, which must say what is known to be in the photo (PLC), the
    second that of plain search (with the first: PLB). With twice as many samples, a third begins
    with constrained search again, and so on: the photo is seen as often as others with as many
    captions. Acting again, all are written anew by what has been learnt since. The weights are
    those of the step, not averaged ones.

    Args:
        constrained: search under constraints, such as `ConstrainedBeamSearch`; None: not done.
        plain: search without; None: not done.
        constraints: which words, from the samples as the annotations have them, such as
            `constraints_from_classes` or `constraints_from_regions`; needed by constrained search.
        met_only: leave a sample as it is where its constraints were not met.
        online: once a photo has its captions, write them anew in every batch that it is in, by the
            captioner of that moment. The journal keeps those of the rounds alone.

    Raises:
        ValueError: no search, or constrained search without constraints.
    """

    def __init__(
        self,
        *,
        constrained: Callable[..., Any] | None = None,
        plain: Callable[..., Any] | None = None,
        constraints: Callable[..., Any] | None = None,
        met_only: bool = True,
        online: bool = False,
    ) -> None:
        if constrained is None and plain is None:
            raise ValueError("pseudo-labels need a search: give constrained, plain or both")
        if constrained is not None and constraints is None:
            raise ValueError(
                "constrained search needs constraints: choose curation.amend.constraints, such as "
                "captioning.decoding.image_constraints.constraints_from_regions"
            )
        self.searches = {"constrained": constrained, "plain": plain}
        self.constraints = constraints
        self.met_only, self.online = met_only, online
        self._trainer: pl.Trainer | None = None
        self._module: pl.LightningModule | None = None

    def attach(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Take the captioner, and where captions are online each batch.

        Raises:
            ValueError: batches that cannot be made anew.
        """
        self._trainer, self._module = trainer, module
        if self.online:
            datamodule_of(trainer).rewrite(self._rewritten)

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """One caption per selected sample that a search found one for.

        Raises:
            ValueError: the samples of a photo are no multiple of the searches.
        """
        kinds = self._kinds(context, selected)
        originals = context.view.roster.by_id
        written = {
            kind: _of_all_processes(
                self._write(kind, [originals[name] for name, of in kinds.items() if of == kind])
            )
            for kind in self._used
        }
        edits, kept, notes = [], [], []
        for one in selected:
            kind, sample = kinds[one.sample.sample_id], one.sample
            found = written[kind][sample.image_id]
            problem = self._problem(found)
            waiting = sample.weight < 1  # what its words were was nothing to learn from
            if problem or (found.caption == sample.caption and not waiting):
                kept.append(sample.sample_id)
                notes += [f"left alone: {problem}"] if problem else []
                continue
            origin = PSEUDO_LABEL + kind
            edits.append(context.edit(one, "replace_caption", value=found.caption, origin=origin))
            if waiting:
                edits.append(context.edit(one, "down_weight", value="1", origin=origin))
        return Amended(edits=tuple(edits), kept=tuple(kept), notes=tuple(notes))

    @property
    def _used(self) -> list[str]:
        return [kind for kind, search in self.searches.items() if search is not None]

    def _kinds(self, context: Context, selected: Sequence[Selected]) -> dict[str, str]:
        """Which search each selected sample's caption is of."""
        roster, kinds = context.view.roster, {}
        for one in selected:
            rows = roster.rows_by_image[one.sample.image_id]
            if len(rows) % len(self._used):
                raise ValueError(
                    f"photo {one.sample.image_id} has {len(rows)} samples for "
                    f"{len(self._used)} pseudo-labels ({', '.join(self._used)}): read the photos "
                    f"without captions with {len(self._used)} samples each, or a multiple of it: "
                    "steps.hold_out.samples_per_photo"
                )
            place = rows.index(one.sample.row) % len(self._used)
            kinds[one.sample.sample_id] = self._used[place]
        return kinds

    def _write(self, kind: str, samples: Sequence[Sample]) -> Written:
        """Captions of the samples' photos."""
        if self._trainer is None or self._module is None:
            raise RuntimeError("pseudo-labels need attach(trainer, module) before amend")
        if not samples:
            return {}
        module: Any = self._module
        words, wanted = module.tokenizer, None
        if kind == "constrained" and self.constraints is not None:
            wanted = self.constraints(samples)
        captions: Written = {}
        with undisturbed(self._trainer, self._module):
            roster = build_roster(kind, samples)
            loader = datamodule_of(self._trainer).eval_dataloader(roster)
            for batch in map(self._trainer.strategy.batch_to_device, loader):
                predictions = module.generate(
                    batch,
                    search=self.searches[kind],
                    machines=wanted and wanted.machines(batch.image_ids, words),
                )
                captions |= {prediction.image_id: prediction for prediction in predictions}
        return captions

    def _rewritten(self, samples: Sequence[Sample]) -> list[Sample] | None:
        """The samples of a batch with pseudo-labels of this moment; None if it has none."""
        kinds = {s.row: s.origin.removeprefix(PSEUDO_LABEL) for s in samples if _is_written(s)}
        if not kinds:
            return None
        if self._trainer is None:
            raise RuntimeError("pseudo-labels need attach(trainer, module) before training")
        originals = datamodule_of(self._trainer).view.roster.samples
        written = {
            # a batch may have a sample twice
            kind: self._write(kind, [originals[row] for row in kinds if kinds[row] == kind])
            for kind in sorted(set(kinds.values()))
        }
        new = []
        for sample in samples:
            found = written[kinds[sample.row]][sample.image_id] if sample.row in kinds else None
            if found is not None and not self._problem(found):
                sample = replace(sample, caption=found.caption)
            new.append(sample)
        return new

    def _problem(self, found: Prediction) -> str:
        if not found.caption.strip():
            return "an empty caption"
        if self.met_only and found.satisfied is False:
            return "constraints not met"
        return ""


def _is_written(sample: Sample) -> bool:
    return sample.origin.startswith(PSEUDO_LABEL)


def _of_all_processes(found: Written) -> Written:
    if not (dist.is_available() and dist.is_initialized()):
        return found
    parts: list[Written | None] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, found)
    return {image: caption for part in parts for image, caption in (part or {}).items()}
