"""Captions and metrics of a finished run."""
