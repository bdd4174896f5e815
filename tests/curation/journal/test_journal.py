"""Writing, reading, replaying, undoing and repairing journals."""

from __future__ import annotations

import json
import resource
from dataclasses import asdict, replace

import pytest
from filelock import FileLock
from foreign import make_roster
from hypothesis import given
from hypothesis import strategies as st

from captioning.commands.main import main
from captioning.data.roster import CurationView, build_roster
from captioning.runtime.file_lock import lock_of
from captioning.types import Edit
from curation.journal.journal import (
    Header,
    Repaired,
    append_lines,
    decode,
    encode,
    read_journal,
    repair,
    replay,
    undo,
    write_journal,
)

REMOVAL = Edit(sample_id="img0#0", action="remove", reason="loss 5", policy="p", epoch=0)
SWAP = Edit(
    sample_id="img1#0",
    action="replace_caption",
    value="other <b>words</b>",
    origin="sibling:img1#1",
    policy="p",
    epoch=0,
)
LATER = replace(SWAP, value="third", origin="sibling:img1#2", policy="q", epoch=1)
EDITS = (REMOVAL, SWAP, LATER)


@pytest.fixture
def roster():
    return make_roster()


@pytest.fixture
def journal(tmp_path, roster):
    header = Header(roster=roster.name, fingerprint=roster.fingerprint, seed=1)
    write_journal(tmp_path / "curation.jsonl", header, [])
    append_lines(tmp_path / "curation.jsonl", [encode(edit) for edit in EDITS])
    return tmp_path / "curation.jsonl"


@given(st.text(), st.text(), st.integers(-1, 99))
def test_any_edit_survives_its_line(text, name, epoch):
    edit = Edit(sample_id=name, action="replace_caption", value=text, reason=text, epoch=epoch)
    line = encode(edit)
    assert "\n" not in line
    assert decode(line, "here") == edit
    assert line == json.dumps(asdict(edit), ensure_ascii=False)
    assert '"value": null' in encode(Edit(sample_id=name, action="remove", reason=text))


def test_replay_of_file_and_folder(journal, roster):
    expected = CurationView(roster=roster, image_root=journal.parent).apply(EDITS)
    assert replay(roster, journal) == replay(roster, journal.parent) == expected
    assert read_journal(journal)[0] == Header(
        roster="toy/train", fingerprint=roster.fingerprint, seed=1
    )


def test_a_journal_of_other_annotations_is_refused(journal):
    other = make_roster(num_images=5)
    with pytest.raises(ValueError, match="'toy/train' with fingerprint"):
        replay(other, journal)


def test_two_policies_may_edit_a_sample_in_one_epoch(journal):
    other = replace(SWAP, value="fourth", policy="q")
    append_lines(journal, [encode(other)])
    assert read_journal(journal)[1] == [*EDITS, other]


def test_a_cut_line_is_named_and_repaired(journal, roster):
    content = journal.read_bytes()
    journal.write_bytes(content[:-9])
    with pytest.raises(ValueError, match=r"curation.jsonl line 4 is cut off.* repair"):
        read_journal(journal)
    assert main(["curate", "journal", "repair", str(journal)]) == 0
    assert read_journal(journal)[1] == [REMOVAL, SWAP]
    assert repair(journal) == Repaired(cut=None, doubles=())


def test_a_line_cut_within_a_character_is_repaired(journal):
    with journal.open("ab") as file:
        file.write('{"sample_id": "ä'.encode()[:-1])
    with pytest.raises(ValueError, match="line 5 is not UTF-8; for the last line"):
        read_journal(journal)
    repair(journal)
    assert read_journal(journal)[1] == list(EDITS)


def test_edits_of_two_programs_are_refused_and_doubles_removed(journal, capsys):
    append_lines(journal, [encode(edit) for edit in EDITS])
    with pytest.raises(ValueError, match=r"line 5: remove of 'img0#0' .* line 2 already.*repair"):
        read_journal(journal)
    assert main(["curate", "journal", "repair", str(journal)]) == 0
    assert "dropped 3 duplicate edits (lines 5, 6, 7)" in capsys.readouterr().out
    assert read_journal(journal)[1] == list(EDITS)


def test_edits_that_contradict_each_other_are_not_called_whole(journal, capsys):
    append_lines(journal, [encode(replace(SWAP, value="from another program"))])
    before = journal.read_bytes()
    assert main(["curate", "journal", "repair", str(journal)]) == 1
    shown = capsys.readouterr()
    assert "whole" not in shown.out
    assert "line 5: replace_caption of 'img1#0' in epoch 0 is in line 3 already" in shown.err
    assert journal.read_bytes() == before


@pytest.mark.parametrize("action", ["repair", "undo"])
def test_the_journal_of_a_run_that_goes_on_is_left_alone(journal, capsys, action):
    (journal.parent / "config.yaml").touch()
    before, ids = journal.read_bytes(), ["--policy", "p"] if action == "undo" else []
    with FileLock(lock_of(journal.parent)):
        assert main(["curate", "journal", action, str(journal.parent), *ids]) == 1
    assert f"{journal.parent} is in use by " in capsys.readouterr().err
    assert journal.read_bytes() == before
    assert main(["curate", "journal", action, str(journal.parent), *ids]) == 0


def test_repair_names_a_file_that_is_no_text(journal, capsys):
    with journal.open("ab") as file:
        file.write(b"\xff\xfe\n")
    before = journal.read_bytes()
    assert main(["curate", "journal", "repair", str(journal)]) == 1
    assert "curation.jsonl line 5 is not UTF-8" in capsys.readouterr().err
    assert journal.read_bytes() == before


def test_show_prints_no_codes_that_a_terminal_obeys(journal, capsys):
    hostile = "\x1b]0;title\x07\x1b[2J\u202e\ud800\r"
    line = json.dumps({"sample_id": hostile, "action": "remove", "reason": hostile})
    append_lines(journal, [line])
    assert main(["curate", "journal", "show", str(journal)]) == 0
    shown = capsys.readouterr().out
    assert r"\x1b]0;title\x07\x1b[2J\u202e\ud800\r remove: \x1b]0;title" in shown
    assert all(character.isprintable() for character in shown.replace("\n", ""))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 5 is not JSON"),
        ("[1]", "line 5 must be a JSON object"),
        ('{"action": "remove"}', r"missing \['sample_id'\]"),
        ('{"sample_id": "a", "action": "remove", "x": 1}', r"unknown \['x'\]"),
        ('{"sample_id": "a", "action": "burn"}', "got 'burn'"),
        ('{"sample_id": "a", "action": "remove", "epoch": "1"}', "epoch must be a int"),
        ('{"format": "curation-journal"}', "a second header"),
    ],
)
def test_bad_lines_are_named(journal, line, message):
    append_lines(journal, [line])
    with pytest.raises(ValueError, match=message):
        read_journal(journal)


def test_bad_heads_are_named(tmp_path, journal):
    for content, message in (
        ("", "line 1 is not a curation journal"),
        ("{}\n", "line 1 is not a curation journal"),
        ('{"format": "curation-journal", "version": 9}\n', "version 9"),
        ('{"format": "curation-journal", "version": 1}\n', "'roster'"),
    ):
        journal.write_text(content)
        with pytest.raises(ValueError, match=message):
            read_journal(journal)
    with pytest.raises(FileNotFoundError, match="elsewhere does not exist"):
        read_journal(tmp_path / "elsewhere")


def test_a_journal_applied_twice_or_with_unknown_ids_is_refused(journal, roster):
    append_lines(journal, [encode(replace(REMOVAL, epoch=1))])
    with pytest.raises(ValueError, match=r"curation.jsonl: edit 4: .*applied twice"):
        replay(roster, journal)
    main(["curate", "journal", "undo", str(journal), "--sample-ids", "img0#0"])
    append_lines(journal, [encode(replace(REMOVAL, sample_id="img77#0"))])
    with pytest.raises(ValueError, match="unknown sample_id 'img77#0'"):
        replay(roster, journal)


def test_undo_takes_back_what_rests_on_it():
    result = undo(EDITS, epochs=[0])
    assert result.undone == (REMOVAL, SWAP)
    # the later edit judged the caption that the undone one had put there
    assert result.followed == (LATER,)
    assert result.journal == ()
    assert undo(EDITS, policy="q").journal == (REMOVAL, SWAP)
    assert undo(EDITS, sample_ids=["img0#0"], policy="p").journal == (SWAP, LATER)


def test_undo_needs_a_criterion_that_matches():
    with pytest.raises(ValueError, match="choose the edits to undo"):
        undo(EDITS)
    with pytest.raises(ValueError, match="no edit matches"):
        undo(EDITS, epochs=[9])


@st.composite
def journals(draw):
    """A view after a few random valid edits, and the epochs to undo."""
    roster = make_roster(num_images=3, num_captions=2)
    view = CurationView(roster=roster)
    for epoch in range(draw(st.integers(1, 4))):
        samples = view.samples()
        chosen = draw(st.lists(st.sampled_from(samples), max_size=len(samples) - 1, unique=True))
        for sample in chosen:
            remove = draw(st.booleans())
            edit = Edit(
                sample_id=sample.sample_id,
                action="remove" if remove else "replace_caption",
                value=None if remove else f"new {epoch}",
                epoch=epoch,
            )
            view = view.apply([edit])
    return view, draw(st.sets(st.integers(0, 3)))


@given(journals())
def test_what_undo_leaves_can_be_replayed(case):
    view, epochs = case
    if not any(edit.epoch in epochs for edit in view.journal):
        return
    result = undo(view.journal, epochs=epochs)
    remaining = CurationView(roster=view.roster).apply(result.journal)
    assert len(remaining.samples()) >= len(view.samples())
    assert not any(edit.epoch in epochs for edit in remaining.journal)
    assert sorted(map(encode, (*result.journal, *result.undone, *result.followed))) == sorted(
        map(encode, view.journal)
    )


def test_commands_show_and_undo(journal, tmp_path, capsys):
    assert main(["curate", "journal", "show", str(journal), "--limit", "1"]) == 0
    shown = capsys.readouterr().out
    assert "epoch 0: 1 x remove by 'p'" in shown
    assert "2 more" in shown
    other = tmp_path / "other.jsonl"
    undo = ["undo", str(journal), "--policy", "q", "--out", str(other)]
    assert main(["curate", "journal", *undo]) == 0
    assert read_journal(other)[1] == [REMOVAL, SWAP]
    assert read_journal(journal)[1] == list(EDITS)


def test_commands_say_what_is_wrong_in_one_line(tmp_path, capsys):
    assert main(["curate", "journal", "show", str(tmp_path / "nowhere")]) == 1
    assert capsys.readouterr().err.startswith("curate journal: ")


def test_the_fingerprint_follows_captions_and_order(roster):
    swapped = build_roster("x", (roster.samples[1], roster.samples[0], *roster.samples[2:]))
    changed = build_roster("x", (replace(roster.samples[0], caption="new"), *roster.samples[1:]))
    assert len({roster.fingerprint, swapped.fingerprint, changed.fingerprint}) == 3


def test_a_full_disk_names_the_journal(journal):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)  # as a full disk does
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size + 9, limits[1]))
    try:
        with pytest.raises(OSError, match=r"free space and resume the run.*curation\.jsonl"):
            append_lines(journal, [encode(LATER)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_the_journal_is_shown_as_json(journal, capsys):
    assert main(["curate", "journal", "show", str(journal), "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [edit["sample_id"] for edit in shown["edits"]] == [edit.sample_id for edit in EDITS]
    assert "fingerprint" in shown["header"]
