"""Curation in training loops that are not this project's."""
