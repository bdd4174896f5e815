"""``captioning curate journal show|undo|repair``: print, undo or repair a journal's edits."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from captioning.commands.command import PlainCommand, add_format, print_json
from captioning.commands.first_look import look_for_journal


def _arguments(parser: ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    show = commands.add_parser("show", help="print the number of edits by epoch, and the edits")
    show.add_argument("journal", help="journal or run folder")
    show.add_argument("--limit", type=int, default=20, help="number of edits to print; 0 for all")
    add_format(show)
    show.set_defaults(run=_show)

    undone = commands.add_parser("undo", help="undo edits that meet all given criteria")
    undone.add_argument("journal", help="journal or run folder")
    undone.add_argument("--sample-ids", nargs="+", metavar="ID", help="edits of these samples")
    undone.add_argument("--epochs", nargs="+", type=int, metavar="K", help="edits of these epochs")
    undone.add_argument("--policy", metavar="NAME", help="edits of this policy")
    undone.add_argument("--out", help="file for the new journal; default: overwrite the old")
    undone.set_defaults(run=_undo)

    repaired = commands.add_parser("repair", help="drop a truncated last line and duplicate edits")
    repaired.add_argument("journal", help="journal or run folder")
    repaired.set_defaults(run=_repair)


def _call(options: Namespace) -> None:
    look_for_journal(options.journal)
    try:
        options.run(options)
    except BrokenPipeError:
        # the reader, such as `head`, has enough; say nothing more to it, also not at exit
        sys.stdout = None


def _show(options: Namespace) -> None:
    from curation.journal.journal import edit_counts, read_journal

    header, edits = read_journal(options.journal)
    if options.format == "json":
        print_json({"header": asdict(header), "edits": [asdict(edit) for edit in edits]})
        return
    _print(f"{header.roster} (fingerprint {header.fingerprint}), seed {header.seed}")
    for (epoch, policy, action), count in edit_counts(edits):
        _print(f"epoch {epoch}: {count} x {action} by {policy!r}")
    shown = edits[: options.limit] if options.limit > 0 else edits
    for edit in shown:
        value = "" if edit.value is None else f" -> {edit.value!r} ({edit.origin})"
        _print(f"  {edit.epoch} {edit.sample_id} {edit.action}{value}: {edit.reason}")
    if len(shown) < len(edits):
        print(f"  ... {len(edits) - len(shown)} more (--limit 0 shows all)")


@contextmanager
def _alone_with(journal: Path) -> Iterator[None]:
    """Lock a run folder's journal against a running training."""
    from captioning.runtime.file_lock import held, lock_of
    from curation.manifest import is_run_folder

    folder = journal.parent
    if not is_run_folder(folder):
        yield
        return
    with held(lock_of(folder), subject=str(folder), warn=print):
        yield


def _undo(options: Namespace) -> None:
    from curation.journal.journal import encode, find_journal, read_journal, undo, write_journal

    output = Path(options.out or find_journal(options.journal))
    with _alone_with(output):
        header, edits = read_journal(options.journal)
        result = undo(
            edits, sample_ids=options.sample_ids, epochs=options.epochs, policy=options.policy
        )
        write_journal(output, header, (encode(edit) for edit in result.journal))
    print(
        f"{len(result.undone)} edits undone, {len(result.followed)} dependent edits undone with "
        f"them, {len(result.journal)} edits left in {output}"
    )


def _repair(options: Namespace) -> None:
    from curation.journal.journal import find_journal, read_journal, repair

    with _alone_with(find_journal(options.journal)):
        repaired = repair(options.journal)
    if repaired.cut is not None:
        print(f"dropped: {repaired.cut!r}")
    if repaired.doubles:
        lines = ", ".join(map(str, repaired.doubles[:10]))
        more = ", ..." if len(repaired.doubles) > 10 else ""
        print(
            f"dropped {len(repaired.doubles)} duplicate edits (lines {lines}{more}): two "
            "programs may have written here; the run's checkpoint holds the edits it trained with"
        )
    _, edits = read_journal(options.journal)  # nothing is called whole that cannot be read
    print(f"the journal is intact: {len(edits)} edits")


def _print(line: str) -> None:
    """Print text of an untrusted file without terminal control codes."""
    print("".join(c if c.isprintable() else repr(c)[1:-1] for c in line))


JOURNAL = PlainCommand(
    name="curate journal",
    summary="Show, undo or repair the edits in a run's journal.",
    examples=(
        "curate journal show runs/my_run/seed0 --format json",
        "curate journal undo runs/my_run/seed0 --epochs 3",
    ),
    add_arguments=_arguments,
    call=_call,
)
