"""``captioning app``: captions of photos, and suspected captions to decide on, in the browser."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter

from captioning.commands.command import PlainCommand
from captioning.commands.first_look import look_for_captioner, look_for_suspects
from captioning.commands.quick_imports import quick_imports
from captioning.config.plugins import import_plugins

_ABOUT = """(captioning demo is something else: it trains with and without curation)"""


def _arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _ABOUT
    add = parser.add_argument
    add("suspects", nargs="?", help="folder that captioning check wrote, or a run")
    add("--photos", nargs="+", default=[], metavar="FOLDER", help="the set that was checked")
    add(
        "--decisions",
        metavar="FILE",
        help="default SUSPECTS/decisions.json; an existing file is continued",
    )
    add("--top", type=int, metavar="N", help="of a run: the N captions of the highest loss")
    add(
        "--model", nargs="+", default=[], metavar="FOLDER",
        help="captioners to choose from, as captioning caption --model; default: the one in this "
        "package",
    )  # fmt: skip
    add("--prompt", help="what models of transformers are asked")
    add("--boxes", metavar="FILE", help="of captioning find-objects, for captioners on regions")
    add("--device", default="auto", help="cpu, cuda; auto takes a GPU if there is one")
    add("--host", default="127.0.0.1", help="address of this machine alone (127.0.0.1)")
    add("--port", type=int, default=8766, help="port (8766); 0 for any")
    add("--plugins", nargs="+", default=[], metavar="PACKAGE", help="of your own, of model or run")


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
        at_end = "ended; decisions are saved, the same command resumes"
        serve_until_interrupted(server, about=about, at_end=at_end)


APP = PlainCommand(
    name="app",
    summary="A local page: caption a photo, look through suspected captions.",
    examples=(
        "app",
        "app --model runs/flickr8k/updown_small/seed0 my_export",
        "app my_photos-check --photos my_photos",
    ),
    add_arguments=_arguments,
    call=_app,
)
