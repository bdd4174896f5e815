"""A loop that needs no model: its losses are made up.

Also a script: ``python plain_run.py FOLDER NUM_PROCESSES`` runs it by several processes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from foreign import make_policy, make_roster

from curation import Curation
from curation.base import Score


class Rows(Score):
    """High rows are bad."""

    name = "row"

    def scores(self, context):
        scores = torch.full((len(context.view.roster),), torch.nan)
        scores[context.live_rows] = torch.from_numpy(context.live_rows).float()
        return scores


def losses_of(rows: torch.Tensor, epoch: int) -> torch.Tensor:
    """Made up, different for every row and epoch."""
    return ((rows * 7 + epoch * 3) % 11).float() + rows / 100 + 1


def run_epoch(curation: Curation, batch_size: int = 5) -> None:
    rows = torch.tensor([sample.row for sample in curation.samples()])
    for batch in rows.split(batch_size):
        curation.add(batch, losses_of(batch, curation.epoch).requires_grad_())
    curation.end_epoch()


def opened(folder, **changes) -> Curation:
    options = {"samples": make_roster(), "policy": make_policy(), "plot": False} | changes
    return Curation.open(folder, **options)


def files_of(folder) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def main(folder: str, num_processes: int) -> None:
    """Three epochs of a process, which adds its share; the last sample may come twice."""
    rank = int(os.environ.get("RANK", "0"))
    curation = opened(Path(folder), samples=make_roster(num_images=7))
    for _ in range(3):
        rows = torch.tensor([sample.row for sample in curation.samples()])
        rows = torch.cat([rows, rows[-1:].repeat(-len(rows) % num_processes)])
        share = rows[rank::num_processes]
        curation.add(share, losses_of(share, curation.epoch))
        curation.end_epoch()
    curation.finish()
    if num_processes > 1:
        torch.save(curation.state_dict()["journal"], Path(folder) / f"journal-{rank}.pt")
        disagree(curation, rank)


def disagree(curation: Curation, rank: int) -> None:
    """A process that decides something else is noticed."""
    curation._curator.policy = make_policy(ratio=0.1 + 0.2 * rank)
    curation.add(torch.arange(4), torch.arange(4.0))
    try:
        curation.end_epoch()
    except RuntimeError as error:
        print(f"rank {rank}: {error}")


def start(rank: int, folder: str, num_processes: int) -> None:
    """A process of several."""
    os.environ["RANK"] = str(rank)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=num_processes
    )
    main(folder, num_processes)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    Path(sys.argv[1]).mkdir()
    torch.multiprocessing.start_processes(
        start, (sys.argv[1], int(sys.argv[2])), int(sys.argv[2]), start_method="fork"
    )
