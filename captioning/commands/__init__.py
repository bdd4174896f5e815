"""Subcommands of ``captioning``, which parse arguments, call functions and print results."""
