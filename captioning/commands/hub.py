"""``captioning push``: publish exports on the hub."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from captioning.commands.command import PlainCommand
from captioning.commands.first_look import look_for_pushed
from captioning.commands.quick_imports import quick_imports
from captioning.config.plugins import import_plugins


def _arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("source", help="a run, an exported captioner, or an exported dataset")
    add("--repo", required=True, metavar="OWNER/NAME", help="hub repository; created if missing")
    add("--public", action="store_true", help="make a new repository public")
    add(
        "--replace",
        action="store_true",
        help="delete other files of the repository in the new commit",
    )
    add("--plugins", nargs="+", default=[], metavar="PACKAGE", help="your own packages to import")
    add("--dry-run", action="store_true", help="list the files without sending them")


def _push(options: Namespace) -> None:
    look_for_pushed(options.source)
    with quick_imports():
        from captioning.export.push import prepared, send

    import_plugins(options.plugins)
    with prepared(options.source, options.repo) as upload:
        size = f"{len(upload.sizes)} files, {sum(upload.sizes.values()) / 1e6:.1f} MB"
        if options.dry_run:
            print(f"{upload.kind} {options.repo}: {size}; nothing was sent")
            for name, count in upload.sizes.items():
                print(f"{count:14,}  {name}")
            return
        name = send(upload, options.repo, public=options.public, replace=options.replace)
    use = f'Captioner.load("{name}")'
    if upload.kind == "dataset":
        use = f"captioning train data=own data.root={name}"
    print(f"{name}: {size}\n{use}")


PUSH = PlainCommand(
    name="push",
    summary="Publish a captioner or a curated dataset on the hub, with its card.",
    examples=(
        "push my_captioner --repo me/my_captioner --dry-run",
        "push my_captioner --repo me/my_captioner --public",
    ),
    add_arguments=_arguments,
    call=_push,
)
