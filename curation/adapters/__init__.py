"""Curation in training loops that users write themselves or take from other libraries."""
