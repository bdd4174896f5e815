"""Readers of annotation formats; each reader returns a `Roster`."""
