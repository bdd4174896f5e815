"""ToCa's tables in small: synthetic captions and the trainings on them, row by row.

    python studies/study_toca.py --data flickr8k --seeds 0 1 2 -- threads=1
    python studies/study_toca.py --data coco --also flickr8k --seeds 0 1 2 -- \
        data.image_folder=FOLDER data.tested=FILE

First the synthetic captions (``captioning augment``), one set for all seeds, then the runs;
what is finished is not made again, and a row that begins with another one has that made first. At
the end (or alone, with ``--report``) `studies/toca_report.py` builds docs/results/toca.md. Of
what follows ``--``, settings of ``method`` and its writer go to the synthesis, those that begin
with ``teaching.``, without this, to the teaching of rows "taught", those of the corpus, paths and
``first_images`` to all, all others to train.py. With ``--also`` each run is tested on further
photos (evaluate.py), by the metrics of its own test, into RUN/flickr8k.

Small shares need more epochs than large ones, and synthetic captions do not help a captioner that
has not learned yet what people's have to teach. ``--read 50000 100000`` trains on D for the first
number of captions, each as often as it takes, and on T, behind D or alone, for the second; "tt", T
alone for longer, reads both numbers. The names of these runs' folders end with the epochs.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import toca_report
from omegaconf import OmegaConf
from report_parts import ROOT, run

from captioning.configuration import compose_config

MODEL = "viecap_small"
# Ablations by the names of their sets: overrides of the synthesis.
VARIANTS = {
    "": [],
    "r_wo": ["method.use_relations=false"],
    "g_wo": ["method.use_structures=false"],
    "tau1": ["method.tau=1"],
    "any": ["method.complete_first=false"],
    "taught": [],
    "taught_whole": ["method.max_given_words=null"],
}
TAUGHT = "taught"  # sets of this name are made by a language model that was taught T
CORPUS = 616_767  # captions of COCO
OF_SYNTHESIS = ("method.", "writer@method.")
OF_TEACHING = "teaching."
OF_BOTH = ("first_images=", "paths.", "corpus.share_seed=")


@dataclass(frozen=True, slots=True)
class Row:
    """A run of the tables.

    Attributes:
        kind: experiment: "t", "d" or "dt"; "tt" is "t" with about as many updates as D and T.
        variant: of `VARIANTS`, by which D was made.
        volume: share of D.
        begins: the row whose weights it begins with.
    """

    kind: str
    variant: str = ""
    volume: float = 1
    begins: str | None = None


ROWS: dict[str, Row] = {
    "t": Row("t"),
    "tt": Row("tt"),
    "d": Row("d"),
    "dt": Row("dt", begins="d"),
    "r_wo_d": Row("d", "r_wo"),
    "r_wo_dt": Row("dt", "r_wo", begins="r_wo_d"),
    "g_wo_d": Row("d", "g_wo"),
    "g_wo_dt": Row("dt", "g_wo", begins="g_wo_d"),
    "tau1_d": Row("d", "tau1"),
    "tau1_dt": Row("dt", "tau1", begins="tau1_d"),
    "any_d": Row("d", "any"),
    "any_dt": Row("dt", "any", begins="any_d"),
    "taught_d": Row("d", TAUGHT),
    "taught_dt": Row("dt", TAUGHT, begins="taught_d"),
    "taught_d_25": Row("d", TAUGHT, volume=0.25),
    "taught_dt_25": Row("dt", TAUGHT, volume=0.25, begins="taught_d_25"),
    "taught_whole_d": Row("d", "taught_whole"),
    "taught_whole_dt": Row("dt", "taught_whole", begins="taught_whole_d"),
    "d_10": Row("d", volume=0.1),
    "dt_10": Row("dt", volume=0.1, begins="d_10"),
    "d_25": Row("d", volume=0.25),
    "dt_25": Row("dt", volume=0.25, begins="d_25"),
    "d_50": Row("d", volume=0.5),
    "dt_50": Row("dt", volume=0.5, begins="d_50"),
}


@dataclass(frozen=True, kw_only=True)
class Study:
    """Rows at one share of COCO's captions.

    Attributes:
        data: whose photos are tested on.
        share: of COCO's captions that D is made of, and T.
        captions: synthetic ones that are wanted.
        runs: folder of all runs.
        extra: settings for synthesis and training.
        also: further data sets that runs are tested on.
        read: captions that a training on D reads, and one on T, alone or behind D; None: the
            experiments' epochs.
    """

    data: str
    share: float
    captions: int
    runs: Path
    extra: Sequence[str] = ()
    also: Sequence[str] = ()
    read: Sequence[int] | None = None

    def make(self, name: str, seed: int) -> None:
        """A row's run and its further tests, where they are not finished yet."""
        row = ROWS[name]
        folder = self.folder(row, seed)
        if not (folder / "metrics.json").is_file():
            self.train(row, seed)
        for data in self.also:
            if not (folder / data / "metrics.json").is_file():
                run(["evaluate.py", *self.further_test(folder, data)])

    def train(self, row: Row, seed: int) -> None:
        """A run, and before it what it needs."""
        if row.begins is not None:
            self.make(row.begins, seed)
        elif row.kind == "d":
            self.make_set(row.variant)
        run(["train.py", *self.training(row, seed)])

    def make_set(self, variant: str) -> None:
        """Synthetic captions, if they are not there yet."""
        if (self.set_folder(variant) / "card.json").is_file():
            return
        arguments = ["method=toca", "writer@method.writer=smollm2", *VARIANTS[variant]]
        if variant.startswith(TAUGHT):
            arguments = [
                "method=toca_taught",
                f"method.writer.name={self.taught()}",
                *VARIANTS[variant],
            ]
        arguments.append(f"method.pace.num_captions={self.captions}")
        extra = [
            override for override in self.extra if override.startswith((*OF_SYNTHESIS, *OF_BOTH))
        ]
        out = f"out={self.set_folder(variant)}"
        run(["-m", "captioning", "augment", *arguments, *self.share_of_t(), out, *extra])

    def taught(self) -> Path:
        """Folder of a language model that was taught T; it is taught if it is not there yet."""
        folder = self.runs / "teaching" / f"{self.data}-{self.share:.10g}"
        if not (folder / "card.json").is_file():
            teaching = [override for override in self.extra if override.startswith(OF_TEACHING)]
            extra = [override.removeprefix(OF_TEACHING) for override in teaching]
            extra += [override for override in self.extra if override.startswith(OF_BOTH)]
            run(
                [
                    "-m",
                    "captioning",
                    "augment",
                    "teach",
                    *self.share_of_t(),
                    f"out={folder}",
                    *extra,
                ]
            )
        return folder

    def share_of_t(self) -> list[str]:
        """The captions that are taught and that templates are made of."""
        tested = [
            override.partition("=")[2]
            for override in self.extra
            if override.startswith("data.tested=")
        ]
        left_out = [f"corpus.train.exclude_ids={path}" for path in tested]
        return ["corpus=coco", f"corpus.share={self.share:.10g}", *left_out]

    def training(self, row: Row, seed: int) -> list[str]:
        """What train.py is given."""
        kind = row.kind.replace("tt", "t")
        arguments = [f"experiment=toca/{self.data}_{kind}_small", f"seed={seed}"]
        arguments.append(f"run_name={self.folder(row, seed).parent.relative_to(self.runs)}")
        if row.kind == "d":
            path = self.set_folder(row.variant) / "captions.txt"
            arguments += [f"corpus.train.path={path}", f"corpus.share={row.volume:g}"]
            arguments.append(f"vocabulary.share={self.share:.10g}")
        else:
            arguments.append(f"corpus.share={self.share:.10g}")
        if self.read is not None:
            arguments.append(f"num_epochs={self.epochs_for(*self.read, row)}")
        elif row.kind == "tt":
            ratio = self.captions / (self.share * CORPUS)
            arguments.append(
                f"num_epochs={self.epochs('dt') + math.ceil(self.epochs('d') * ratio)}"
            )
        if row.begins is not None:
            arguments.append(f"start_from={self.folder(ROWS[row.begins], seed)}")
        prefixes = (*OF_SYNTHESIS, OF_TEACHING)
        return [
            *arguments,
            *(override for override in self.extra if not override.startswith(prefixes)),
        ]

    def further_test(self, folder: Path, data: str) -> list[str]:
        """What evaluate.py is given to test a run on other photos."""
        metrics = OmegaConf.load(folder / "config.yaml").metrics
        arguments = [f"run={folder}", f"data={data}", f"out={folder / data}"]
        arguments.append(f"metrics.test=[{','.join(metrics.test)}]")
        arguments.append(f"metrics.tokenizer={metrics.tokenizer}")
        return [*arguments, *(override for override in self.extra if override.startswith("paths."))]

    def epochs(self, kind: str) -> int:
        """Of T ("dt") or of D ("d"), as the experiment says."""
        return compose_config("train", [f"experiment=toca/{self.data}_{kind}_small"]).num_epochs

    def epochs_for(self, of_d: int, of_t: int, row: Row) -> int:
        """In which a run reads so many captions; T alone for longer both numbers."""
        if row.kind == "d":
            return max(1, round(of_d / (self.captions * row.volume)))
        num_captions = of_t + (of_d if row.kind == "tt" else 0)
        return max(1, round(num_captions / (self.share * CORPUS)))

    def folder(self, row: Row, seed: int) -> Path:
        """Of a row's run."""
        name = f"{MODEL}-toca_{row.kind}-coco-{self.share:.10g}"  # "t": as the experiment calls it
        if row.kind not in toca_report.ALONE:
            set_name = self.set_folder(row.variant).name.removeprefix(f"{self.data}-")
            name = f"{MODEL}-toca_{row.kind}-{set_name}-{row.volume:g}"
        if self.read is not None:
            name += f"-{self.epochs_for(*self.read, row)}epochs"
        return self.runs / self.data / name / f"seed{seed}"

    def set_folder(self, variant: str) -> Path:
        """Of synthetic captions."""
        name = f"{self.data}-{self.captions}of{self.share:.10g}"
        return self.runs / "toca_captions" / (f"{name}_{variant}" if variant else name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make what is missing, then report."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    extra = arguments[cut + 1 :]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=toca_report.TITLES, default="flickr8k")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--shares", nargs="+", type=float, default=[0.01], help="of COCO")
    parser.add_argument("--captions", type=int, default=10_000, help="synthetic ones of each share")
    parser.add_argument(
        "--also", nargs="+", choices=toca_report.ALSO, default=[], help="photos to test on, too"
    )
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument(
        "--read", nargs=2, type=int, metavar=("OF_D", "OF_T"), help="captions that trainings read"
    )
    options = parser.parse_args(arguments[:cut])
    tested = any(override.startswith("data.tested=") for override in extra)
    if options.data == "coco" and not options.report and not tested:
        parser.error(
            "--data coco needs -- data.image_folder=FOLDER data.tested=FILE, the ids of the photos "
            "to test on: their captions are left out of synthesis and training"
        )
    if options.data in options.also:
        parser.error(f"--also {options.data}: runs of --data {options.data} are tested on it")
    runs = Path(OmegaConf.load(ROOT / "configs" / "paths" / "default.yaml").runs).absolute()
    for share in [] if options.report else options.shares:
        study = Study(
            data=options.data,
            share=share,
            captions=options.captions,
            runs=runs,
            extra=extra,
            also=options.also,
            read=options.read,
        )
        for seed in options.seeds:
            for name in options.rows:
                study.make(name, seed)
    toca_report.main([])


if __name__ == "__main__":
    main()
