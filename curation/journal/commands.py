"""The commands of ``captioning curate journal``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from curation.journal.journal import encode, find_journal, read_journal, repair, undo, write_journal


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors of the user's making are one line on stderr and status 2."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except BrokenPipeError:
        # the reader, such as `head`, has enough; say nothing more to it, also not at exit
        sys.stdout = None
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="captioning curate journal", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    show = commands.add_parser("show", help="print what was changed, by epoch, and the edits")
    show.add_argument("journal", help="journal or run folder")
    show.add_argument("--limit", type=int, default=20, help="edits to print; 0 for all")
    show.set_defaults(run=_show)

    undone = commands.add_parser("undo", help="take edits back (criteria are combined with 'and')")
    undone.add_argument("journal", help="journal or run folder")
    undone.add_argument("--sample-ids", nargs="+", metavar="ID")
    undone.add_argument("--epochs", nargs="+", type=int, metavar="K")
    undone.add_argument("--policy")
    undone.add_argument("--output", help="where the new journal goes; default: in place")
    undone.set_defaults(run=_undo)

    mend = commands.add_parser("repair", help="drop a last line that was cut off")
    mend.add_argument("journal", help="journal or run folder")
    mend.set_defaults(run=_repair)
    return parser


def _show(options: argparse.Namespace) -> None:
    header, edits = read_journal(options.journal)
    print(f"{header.roster} (fingerprint {header.fingerprint}), seed {header.seed}")
    counts = Counter((edit.epoch, edit.policy, edit.action) for edit in edits)
    for (epoch, policy, action), count in sorted(counts.items()):
        print(f"epoch {epoch}: {count} x {action} by {policy!r}")
    shown = edits[: options.limit] if options.limit > 0 else edits
    for edit in shown:
        value = "" if edit.value is None else f" -> {edit.value!r} ({edit.origin})"
        print(f"  {edit.epoch} {edit.sample_id} {edit.action}{value}: {edit.reason}")
    if len(shown) < len(edits):
        print(f"  ... {len(edits) - len(shown)} more (--limit 0 shows all)")


def _undo(options: argparse.Namespace) -> None:
    header, edits = read_journal(options.journal)
    result = undo(
        edits, sample_ids=options.sample_ids, epochs=options.epochs, policy=options.policy
    )
    output = options.output or find_journal(options.journal)
    write_journal(output, header, (encode(edit) for edit in result.journal))
    print(
        f"{len(result.undone)} edits undone, {len(result.followed)} that rested on them too, "
        f"{len(result.journal)} left in {output}"
    )


def _repair(options: argparse.Namespace) -> None:
    dropped = repair(options.journal)
    print("the journal is whole" if dropped is None else f"dropped: {dropped!r}")
