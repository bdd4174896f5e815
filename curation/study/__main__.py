"""The command ``captioning curate study``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from curation.study.items import NUM_SETS, SET_SIZE, divide
from curation.study.manifest import read_items
from curation.study.results import write_results
from curation.study.server import Study, serve
from curation.study.store import Store


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; errors of the user's making are one line on stderr and status 2."""
    options = _parser().parse_args(arguments)
    folder = Path(options.images)
    try:
        items = read_items(folder, options.within)
        placed = divide(items, num_sets=options.sets, size=options.set_size, seed=options.seed)
        store = Store(path=options.store or folder / "study.sqlite")
        store.fill(placed)
        if options.results:
            summary = write_results(store, options.results, wanted=options.annotations)
            print(_said(summary, options.results))
            return 0
        roots = [folder, *map(Path, options.within)]
        paths = {item.name: item.path for item in items}
        study = Study(store=store, paths=paths, roots=roots, wanted=options.annotations)
        server = serve(study, host=options.host, port=options.port)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    host, port = server.server_address[:2]
    print(f"{len(placed)} pictures in {len({one.set_number for one in placed})} sets", flush=True)
    print(f"annotations go to {store.path}", flush=True)
    print(f"open http://{host}:{port}/ (Ctrl+C ends)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("ended; everything is saved, the same command goes on", file=sys.stderr)
    finally:
        server.server_close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="captioning curate study")
    parser.add_argument("images", help="folder with manifest.jsonl or .csv, or a run folder")
    parser.add_argument("--store", help="database; default IMAGES/study.sqlite")
    parser.add_argument("--within", nargs="+", default=[], help="further folders of pictures")
    parser.add_argument("--sets", type=int, default=NUM_SETS, help=f"at most ({NUM_SETS})")
    parser.add_argument("--set-size", type=int, default=SET_SIZE, help=f"pictures ({SET_SIZE})")
    parser.add_argument("--seed", type=int, default=0, help="of the division into sets (0)")
    parser.add_argument("--annotations", type=int, default=3, help="wanted of a picture (3)")
    parser.add_argument("--host", default="127.0.0.1", help="address (127.0.0.1, this machine)")
    parser.add_argument("--port", type=int, default=8765, help="port (8765); 0 for any")
    parser.add_argument("--results", metavar="FOLDER", help="write what was found, and end")
    return parser


def _said(summary: dict, folder: str) -> str:
    alpha = summary["krippendorff_alpha"]["all"]
    low, high = (summary["mean_errors"][half] for half in ("low", "high"))
    return (
        f"{folder}: {summary['num_pictures']} pictures, {summary['num_annotations']} annotations "
        f"by {summary['num_annotators']} people; mean errors {_two(low)} at low loss, {_two(high)} "
        f"at high loss; Krippendorff's alpha {_two(alpha)}"
    )


def _two(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
