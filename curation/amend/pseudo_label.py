"""Caption photos without captions by the captioner that is being trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytorch_lightning as pl
import torch.distributed as dist
from pytorch_lightning.strategies import ModelParallelStrategy

from captioning.data.roster import build_roster
from captioning.types import Prediction, Sample
from curation.base import LEFT_ALONE, Amended, Amender, Context, Selected
from curation.loop.probes import datamodule_of, undisturbed

CaptionsByImage = dict[str, Prediction]
"""Generated captions by ``image_id``."""

PSEUDO_LABEL = "pseudo-label:"
"""Prefix of the origin of a generated caption; the name of the search follows."""


class PseudoLabel(Amender):
    """Writes pseudo-labels: captions that are then trained on as if they were true.

    Source: Bujimalla et al., "Partially-Supervised Novel Object Captioning", Step 3.

    Each selected photo has a sample for each search, in the order of the arguments: the first gets
    the caption of constrained search, which must say what is known to be in the photo (PLC), the
    second that of plain search (with the first: PLB). With twice as many samples, a third begins
    with constrained search again, and so on: the photo is seen as often as others with as many
    captions. When the policy acts again, the captioner of that epoch writes all captions again,
    with the weights of the step, not averaged ones.

    Args:
        constrained: search under constraints, such as `ConstrainedBeamSearch`; None: not done.
        plain: search without; None: not done.
        constraints: makes the required words from the annotated samples, such as
            `constraints_from_classes` or `constraints_from_regions`; constrained search needs it.
        met_only: leave a sample as it is where its constraints were not met.
        online: once a photo has its captions, the current captioner writes them again in every
            batch with the photo. The journal keeps only the captions of the rounds.

    Raises:
        ValueError: both searches are None, or ``constraints`` are missing.
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
            raise ValueError("pseudo-labels need a decoding method: set constrained, plain or both")
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
        """Store the captioner, and rewrite captions in each batch if ``online`` is set.

        Raises:
            ValueError: the batches cannot be made again, or the weights are in shards.
        """
        self._trainer, self._module = trainer, module
        if self.online:
            _require_whole_weights(trainer)
            datamodule_of(trainer).rewrite(self._rewritten)

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Return one caption for each selected sample for which decoding found a caption.

        Raises:
            ValueError: the number of a photo's samples is not a multiple of the searches.
        """
        kinds = self._kinds(context, selected)
        originals = context.view.roster.by_id
        written = {
            kind: _gathered(
                self._write(
                    kind,
                    [
                        originals[sample_id]
                        for sample_id, search_kind in kinds.items()
                        if search_kind == kind
                    ],
                )
            )
            for kind in self._used
        }
        edits, unchanged, notes = [], [], []
        for candidate in selected:
            kind, sample = kinds[candidate.sample.sample_id], candidate.sample
            prediction = written[kind][sample.image_id]
            problem = self._problem(prediction)
            waiting = sample.weight < 1  # still a placeholder, which training skips
            if problem or (prediction.caption == sample.caption and not waiting):
                unchanged.append(sample.sample_id)
                notes += [f"{LEFT_ALONE}{problem}"] if problem else []
                continue
            origin = PSEUDO_LABEL + kind
            edits.append(
                context.edit(candidate, "replace_caption", value=prediction.caption, origin=origin)
            )
            if waiting:
                edits.append(context.edit(candidate, "down_weight", value="1", origin=origin))
        return Amended(edits=tuple(edits), unchanged=tuple(unchanged), notes=tuple(notes))

    @property
    def _used(self) -> list[str]:
        return [kind for kind, search in self.searches.items() if search is not None]

    def _kinds(self, context: Context, selected: Sequence[Selected]) -> dict[str, str]:
        """Decoding method of each selected sample, by ``sample_id``."""
        roster, kinds = context.view.roster, {}
        for candidate in selected:
            rows = roster.rows_by_image[candidate.sample.image_id]
            if len(rows) % len(self._used):
                raise ValueError(
                    f"photo {candidate.sample.image_id} has {len(rows)} samples for "
                    f"{len(self._used)} pseudo-labels ({', '.join(self._used)}): read the photos "
                    f"without captions with {len(self._used)} samples each, or a multiple of it: "
                    "steps.hold_out.samples_per_photo"
                )
            position = rows.index(candidate.sample.row) % len(self._used)
            kinds[candidate.sample.sample_id] = self._used[position]
        return kinds

    def _write(
        self, kind: str, samples: Sequence[Sample], *, shared: bool = True
    ) -> CaptionsByImage:
        """Generate captions for the samples' photos.

        Args:
            kind: the search's kind.
            samples: one or more of each photo.
            shared: whether all processes have these photos and each captions its share; otherwise
                this one captions them all.
        """
        if self._trainer is None or self._module is None:
            raise RuntimeError("pseudo-labels need attach(trainer, module) before amend")
        if not samples:
            return {}
        module: Any = self._module
        words, requirements = module.tokenizer, None
        if kind == "constrained" and self.constraints is not None:
            requirements = self.constraints(samples)
        captions: CaptionsByImage = {}
        with undisturbed(self._trainer, self._module):
            roster = build_roster(kind, samples)
            loader = datamodule_of(self._trainer).eval_dataloader(roster, shared=shared)
            for batch in map(self._trainer.strategy.batch_to_device, loader):
                predictions = module.generate(
                    batch,
                    search=self.searches[kind],
                    machines=requirements and requirements.machines(batch.image_ids, words),
                )
                captions |= {prediction.image_id: prediction for prediction in predictions}
        return captions

    def _rewritten(self, samples: Sequence[Sample]) -> list[Sample] | None:
        """Return the batch's samples with new pseudo-labels, or None without pseudo-labels."""
        kinds = {s.row: s.origin.removeprefix(PSEUDO_LABEL) for s in samples if _is_pseudo_label(s)}
        if not kinds:
            return None
        if self._trainer is None:
            raise RuntimeError("pseudo-labels need attach(trainer, module) before training")
        originals = datamodule_of(self._trainer).view.roster.samples
        written = {
            # a batch may have a sample twice; other processes have other batches
            kind: self._write(
                kind, [originals[row] for row in kinds if kinds[row] == kind], shared=False
            )
            for kind in sorted(set(kinds.values()))
        }
        new = []
        for sample in samples:
            prediction = (
                written[kinds[sample.row]][sample.image_id] if sample.row in kinds else None
            )
            if prediction is not None and not self._problem(prediction):
                sample = replace(sample, caption=prediction.caption, masks=())
            new.append(sample)
        return new

    def _problem(self, prediction: Prediction) -> str:
        if not prediction.caption.strip():
            return "an empty caption"
        if self.met_only and prediction.satisfied is False:
            return "constraints not met"
        return ""


def _require_whole_weights(trainer: pl.Trainer) -> None:
    if isinstance(trainer.strategy, ModelParallelStrategy):
        raise ValueError(
            "sharded weights cannot caption in each batch, because all processes would have to "
            "gather the weights: set curation.amend.online=false, or trainer.strategy=ddp"
        )


def _is_pseudo_label(sample: Sample) -> bool:
    return sample.origin.startswith(PSEUDO_LABEL)


def _gathered(captions: CaptionsByImage) -> CaptionsByImage:
    if not (dist.is_available() and dist.is_initialized()):
        return captions
    parts: list[CaptionsByImage | None] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, captions)
    return {image: caption for part in parts for image, caption in (part or {}).items()}
