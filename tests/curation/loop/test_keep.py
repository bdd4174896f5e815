"""Keep-lists: read, checked, and obeyed by a run."""

from __future__ import annotations

import json

import pytest
from foreign import ForeignData, make_policy, make_roster, train

from curation.journal.journal import read_journal
from curation.loop.callback import CurationCallback
from curation.loop.keep import KeepList, read_keep, write_keep


def keep_list(*sample_ids: str, fingerprint: str | None = None) -> KeepList:
    roster = make_roster()
    return KeepList(
        roster=roster.name,
        fingerprint=fingerprint or roster.fingerprint,
        sample_ids=sample_ids,
        accepted=("img0#0",),
    )


def edited(folder) -> list[str]:
    return [edit.sample_id for edit in read_journal(folder)[1]]


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*")
def test_a_run_never_edits_what_is_to_be_kept(tmp_path):
    def run(folder, **options):
        callback = CurationCallback(policy=make_policy(ratio=0.3), plot=False, **options)
        train(folder, epochs=2, callback=callback)
        return callback.curator

    run(tmp_path / "free")
    undone = edited(tmp_path / "free")[:2]
    write_keep(keep_list(*undone), tmp_path / "keep.json")
    curator = run(tmp_path / "kept", keep=tmp_path / "keep.json")
    assert undone == edited(tmp_path / "free")[:2]
    assert not set(undone) & set(edited(tmp_path / "kept"))
    assert set(edited(tmp_path / "free")[2:5]) <= set(edited(tmp_path / "kept"))
    # found bad, and left as they are: in the counts of the first epoch and of the second
    assert [record["num_kept"] for record in curator.records] == [2, 2]
    assert curator.records[0]["num_selected"] == 5


def test_a_keep_list_survives_its_file(tmp_path):
    keep = keep_list("img1#1", 'odd "id"</script>\u2028')
    write_keep(keep, tmp_path / "keep.json")
    assert read_keep(tmp_path / "keep.json") == keep


def test_a_keep_list_of_other_annotations_is_refused(tmp_path):
    roster = make_roster()
    keep_list("img1#1").check(roster, "keep.json")
    with pytest.raises(ValueError, match=r"keep.json is .*fingerprint 00.* use the annotations"):
        keep_list("img1#1", fingerprint="00").check(roster, "keep.json")
    with pytest.raises(ValueError, match="lacks 1 samples, such as 'img9#1'"):
        keep_list("img9#1", "img1#1").check(roster, "keep.json")
    write_keep(keep_list("img9#1"), tmp_path / "keep.json")
    callback = CurationCallback(policy=make_policy(), keep=tmp_path / "keep.json")
    with pytest.raises(ValueError, match="curation.keep is a keep-list for"):
        train(tmp_path, epochs=1, callback=callback, data=ForeignData(roster=roster))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "is not a keep-list"),
        ({"version": 2}, "has version 2"),
        ({"roster": None}, "'roster' must be a text: got None"),
        ({"sample_ids": "img0#0"}, "'sample_ids' must be a list"),
        ({"sample_ids": [3]}, "'sample_ids' must be a list"),
    ],
)
def test_other_files_are_refused(tmp_path, change, message):
    path = tmp_path / "keep.json"
    path.write_text(json.dumps(keep_list().to_dict() | change))
    with pytest.raises(ValueError, match=rf"keep.json:? {message}"):
        read_keep(path)


def test_a_missing_or_cut_file_names_the_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match="keep=null"):
        read_keep(tmp_path / "keep.json")
    (tmp_path / "keep.json").write_text('{"format": "curation-k')
    with pytest.raises(ValueError, match="not valid JSON"):
        read_keep(tmp_path / "keep.json")
