from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioning.data.readers.nocaps import read_domains, read_nocaps

DOMAINS = ("in-domain", "near-domain", "out-domain", "out-domain")


def write(folder: Path, **changes) -> dict:
    images = [
        {"id": n, "file_name": f"{n}.jpg", "domain": domain, "width": 9, "height": 9}
        for n, domain in enumerate(DOMAINS)
    ]
    images[0] |= changes
    captions = [{"id": n, "image_id": n % 4, "caption": f"Thing {n}."} for n in range(8)]
    path = folder / "nocaps.json"
    path.write_text(json.dumps({"images": images, "annotations": captions}))
    return {"name": "n", "annotations": path, "image_folder": None}


@pytest.mark.parametrize(
    ("domain", "ids"),
    [("in", ["0"]), ("near", ["1"]), ("out", ["2", "3"]), (None, ["0", "1", "2", "3"])],
)
def test_domains(tmp_path, domain, ids):
    roster = read_nocaps(**write(tmp_path), domain=domain)
    assert list(roster.rows_by_image) == ids
    assert len(roster) == 2 * len(ids)


def test_domains_by_image(tmp_path):
    domains = read_domains(write(tmp_path)["annotations"])
    assert domains == {"0": "in", "1": "near", "2": "out", "3": "out"}


def test_bad_domains_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"nocaps.json: images\[0\]: 'domain' must be one of"):
        read_nocaps(**write(tmp_path, domain="in"))
    with pytest.raises(
        ValueError, match=r"nocaps.json: images\[0\]: 'domain' is null; give it a value"
    ):
        read_nocaps(**write(tmp_path, domain=None))
    with pytest.raises(ValueError, match="domain must be in, near, out or null: got 'far'"):
        read_nocaps(**write(tmp_path), domain="far")
