"""Two processes (DDP, gloo) give the edits of one."""

from __future__ import annotations

import os
import subprocess
import sys

import foreign
import foreign_images
import pytest

from curation.loop.ledger import read_history


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*")
@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*")
def test_two_processes_give_the_edits_of_one(tmp_path, repository):
    # 21 samples over two processes: the sampler repeats one, whose mean loss must not change
    folders = [tmp_path / "one", tmp_path / "two"]
    foreign.main(folders[0], "1")
    subprocess.run(
        [sys.executable, "-m", "tests.late", foreign.__file__, folders[1], "2"],
        env=os.environ | {"PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        timeout=300,
    )
    for name in ("curation.jsonl", "curation/epochs.json", "curation/report.html"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    single, double = (read_history(folder / "curation/losses.npz") for folder in folders)
    assert single[2].tobytes() == double[2].tobytes()
    assert single[2].shape == (3, 21)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*")
@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*")
def test_two_processes_share_out_the_pictures_and_decide_the_same(tmp_path, repository):
    folders = [tmp_path / "one", tmp_path / "two"]
    paths = [str(repository), str(repository / "tests" / "augmentation" / "image_replacement")]
    foreign_images.main(folders[0], "1")
    subprocess.run(
        [sys.executable, "-m", "tests.late", foreign_images.__file__, folders[1], "2"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        timeout=300,
    )
    for name in ("curation.jsonl", "curation/epochs.json"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    pictures = [sorted(p.name for p in (f / "curation/images").iterdir()) for f in folders]
    assert pictures[0] == pictures[1]
    assert len(pictures[0]) == 24
    shares = [file.read_text().splitlines() for file in (tmp_path / "two-made").glob("*.txt")]
    assert [len(share) for share in shares] == [12, 12]
    assert len(set(shares[0]) | set(shares[1])) == 24
