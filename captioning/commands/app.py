"""``captioning app``: caption photos and decide on suspected captions in the browser."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter

from captioning.commands.command import PlainCommand
from captioning.commands.first_look import look_for_captioner, look_for_suspects
from captioning.commands.quick_imports import quick_imports
from captioning.config.plugins import import_plugins

_ABOUT = "(captioning demo differs: it trains with and without curation)"


def _arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _ABOUT
    add = parser.add_argument
    add("suspects", nargs="?", help="folder written by captioning check, or a run folder")
    add("--photos", nargs="+", default=[], metavar="FOLDER", help="folder that was checked")
    add(
        "--decisions",
        metavar="FILE",
        help="file of decisions (SUSPECTS/decisions.json); an existing file is continued",
    )
    add("--top", type=int, metavar="N", help="with a run: the N captions of highest loss")
    add(
        "--model", nargs="+", default=[], metavar="FOLDER",
        help="captioners to choose from, as in caption --model; default: the shipped one",
    )  # fmt: skip
    add("--prompt", help="prompt for models of transformers")
    add("--boxes", metavar="FILE", help="boxes of captioning find-objects, for region models")
    add("--device", default="auto", help="cpu, cuda or auto (a GPU if there is one)")
    add("--host", default="127.0.0.1", help="address to listen on (127.0.0.1: this machine only)")
    add("--port", type=int, default=8766, help="port of the page (8766); 0 for any free port")
    add("--plugins", nargs="+", default=[], metavar="PACKAGE", help="your own packages to import")


def _app(options: Namespace) -> None:
    if options.suspects is not None:
        look_for_suspects(options.suspects)
    for model in options.model:
        look_for_captioner(model)
    with quick_imports():
        from curation.review.app.app import Settings, open_app
        from curation.review.page_server import serve_until_interrupted

    chosen = dict(vars(options))
    host, port = chosen.pop("host"), chosen.pop("port")
    import_plugins(options.plugins)
    with open_app(Settings(models=chosen.pop("model"), **chosen), host=host, port=port) as opened:
        server, about = opened
        at_end = "ended; decisions are saved, and the same command resumes"
        serve_until_interrupted(server, about=about, at_end=at_end)


APP = PlainCommand(
    name="app",
    summary="Serve a local page to caption a photo and to review suspected captions.",
    examples=(
        "app",
        "app --model runs/flickr8k/updown_small/seed0 my_export",
        "app my_photos-check --photos my_photos",
    ),
    add_arguments=_arguments,
    call=_app,
)
