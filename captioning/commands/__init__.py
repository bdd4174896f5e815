"""The subcommands of ``captioning``: each parses, calls and prints."""
