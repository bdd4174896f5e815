"""``captioning curate study``: people annotate pictures in their browser."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from captioning.commands.command import PlainCommand


def _arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("images", help="folder with manifest.jsonl or .csv, or a run folder")
    add("--store", help="database; default IMAGES/study.sqlite")
    add("--within", nargs="+", default=[], help="further folders of pictures")
    add("--sets", type=int, default=5, help="at most (5)")
    add("--set-size", type=int, default=20, help="pictures of a set (20)")
    add("--seed", type=int, default=0, help="of the division into sets (0)")
    add("--annotations", type=int, default=3, help="wanted of a picture (3)")
    add("--host", default="127.0.0.1", help="address of this machine alone (127.0.0.1)")
    add("--port", type=int, default=8765, help="port (8765); 0 for any")
    add("--results", metavar="FOLDER", help="write what the annotations say, and end")


def _call(options: Namespace) -> None:
    from curation.review.page_server import serve_until_interrupted
    from curation.study.study import Settings, open_study, summarise

    chosen = dict(vars(options))
    results, host, port = (chosen.pop(name) for name in ("results", "host", "port"))
    settings = Settings(**chosen)
    if results is not None:
        print(summarise(settings, results))
        return
    server, numbers = open_study(settings, host=host, port=port)
    at_end = "ended; everything is saved, the same command goes on"
    serve_until_interrupted(server, about=numbers, at_end=at_end)


STUDY = PlainCommand(
    name="curate study",
    summary="Let people annotate the errors of pictures in their browser.",
    add_arguments=_arguments,
    call=_call,
)
