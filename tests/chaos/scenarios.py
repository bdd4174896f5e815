"""Small commands of every kind whose work is worth to be gone on with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.captioning.conftest import SMALL

QUIET = "trainer.enable_progress_bar=false"
TRAIN = ("train", *SMALL, QUIET, "num_epochs=3", "steps=[plant_swap20]", "run_dir={out}/run")
SHARED, OWN = "paths.cache={base}/cache", "paths.cache={out}/cache"
WORLD = ("data=miniworld_tiny", "data.train.num_scenes=10", "data.train.size=32")
AUGMENT = ("augment", *WORLD, SHARED, "out={out}/set")
FIRST = "{base}/first"
MODEL = ("search.max_length=8",)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A command.

    Attributes:
        name: for the record.
        command: its arguments; ``{out}`` is a folder of its own, ``{base}`` one for all.
        processes: that train as one.
        kills, terms: SIGKILLs and SIGTERMs of the whole.
        again: how the command says that nothing is left to do, where it refuses to run twice.
    """

    name: str
    command: Sequence[str]
    processes: int = 1
    kills: int = 5
    terms: int = 2
    again: str = ""

    def arguments(self, *, base: Path, out: Path) -> list[str]:
        """The command line of a run."""
        return [
            part.replace("{base}", str(base)).replace("{out}", str(out)) for part in self.command
        ]


def train(name: str, *overrides: str, cache: str = SHARED, **options: int) -> Scenario:
    """A training."""
    return Scenario(name=f"training: {name}", command=(*TRAIN, cache, *overrides), **options)


# What others begin with: a run, which is made once.
PREPARED = (
    *("train", *SMALL, QUIET, "num_epochs=1", "curation=remove", "curation.select.ratio=0.1"),
    *("optimizer.lr=0.01", SHARED, f"run_dir={FIRST}"),
)
HELD_OUT = (
    *("steps=[hold_out]", "steps.hold_out.classes={laptop: [laptop, laptops], bus: [bus, buses]}"),
    *("steps.hold_out.samples_per_photo=2", "tokenizer.extra_words=[laptop, laptops, bus, buses]"),
    *("first_images=null", "data.train.num_scenes=24", "search.max_length=20"),
)
IMAGES = ("curation.select.ratio=0.03", "first_images=10")
SCENARIOS: Sequence[Scenario] = (
    train("remove", "curation=remove", "curation.select.ratio=0.1", kills=10, terms=6),
    train("replace captions", "curation=replace_caption", "curation.select.ratio=0.1"),
    train("down-weight", "curation=down_weight", "curation.select.ratio=0.1"),
    train("replace images", "curation=replace_image", *IMAGES, cache=OWN, kills=4),
    train("replace both", "curation=replace_both", *IMAGES, cache=OWN, kills=3),
    train(
        "replace captions by a model's",
        "curation=replace_caption_model",
        "caption_source@curation.amend.source=run",
        "curation.select.ratio=0.1",
        f"curation.amend.source.captioner.run={FIRST}",
        "curation.amend.source.captioner.search.max_length=8",
    ),
    train(
        "replace both, captions by a model's",
        *("curation=replace_both_model", *IMAGES),
        "caption_source@curation.amend.caption.source=run",
        f"curation.amend.caption.source.captioner.run={FIRST}",
        "curation.amend.caption.source.captioner.search.max_length=8",
        cache=OWN,
        kills=3,
    ),
    train("pseudo-labels", *HELD_OUT, "curation=pseudo_label", kills=4),
    train(
        "CapFilt",
        "curation=capfilt",
        "caption_source@curation.captioner=run",
        "search@curation.captioner.captioner.search=sampling",
        "steps=[caption_slots]",
        f"curation.captioner.captioner.run={FIRST}",
        "curation.captioner.captioner.search.max_length=8",
        "curation.filter.scorer.name={base}/itm",
        cache=OWN,
    ),
    train(
        "remove, with loader processes",
        *("curation=remove", "curation.select.ratio=0.1", "loader.num_workers=2"),
        kills=6,
        terms=3,
    ),
    train(
        "remove, with two processes",
        *("curation=remove", "curation.select.ratio=0.1", "trainer.devices=2"),
        processes=2,
        kills=6,
        terms=3,
    ),
    train("without curation, from an empty cache", "curation=none", cache=OWN, kills=6, terms=3),
    Scenario(
        name="sweep of two seeds",
        command=(
            *("train", "-m", *SMALL, QUIET, "num_epochs=2", SHARED, "paths.runs={out}/runs"),
            *("seed=0,1", "curation=remove", "curation.select.ratio=0.1"),
        ),
        kills=5,
        terms=3,
    ),
    Scenario(
        name="images from captions",
        command=("augment", "pictures", *WORLD, OWN, "first_images=4"),
        kills=4,
    ),
    Scenario(
        name="SSA captions",
        command=(*AUGMENT, "method=ssa", "method.rules.min_well_formedness=0"),
    ),
    Scenario(
        name="ToCa captions",
        command=(
            *(*AUGMENT, "method=toca", "method.pace.num_captions=70"),
            "method.pace.batch_size=5",
        ),
    ),
    Scenario(
        name="pasted pairs",
        command=(
            *("augment", "data=miniworld_tiny", SHARED, "out={out}/set", "method=cutswap"),
            *("method.keep=null", "method.rules.num_captions=1", "method.num_patches=1"),
            *("method.min_uses=2", "max_pairs=6", "num_processes=2"),
        ),
    ),
    Scenario(
        name="features",
        command=(
            *("prepare", "data=miniworld_tiny", "data.train.num_scenes=40", SHARED),
            *("features.folder={out}/features", "+features.chunk_size=8"),
            *("features.backbone.name=test_resnet.r160_in1k", "features.backbone.weights=random"),
            "features.backbone.image_size=64",
        ),
        kills=8,
        terms=4,
    ),
    Scenario(
        name="evaluation, with Java",
        command=("evaluate", f"run={FIRST}", "out={out}/scores", "metrics.test=[BLEU,METEOR]"),
    ),
    Scenario(
        name="export of a captioner",
        command=("export", f"run={FIRST}", "to={out}/export"),
        kills=8,
        terms=5,
        again="is there already",
    ),
    Scenario(
        name="export of a curated set",
        command=("curate", "export", FIRST, "{out}/set", "--photos", "copy"),
        kills=8,
        terms=5,
        again="already",
    ),
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
