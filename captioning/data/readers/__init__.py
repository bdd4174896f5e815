"""Readers of annotations, one a format; each gives a `Roster`."""
