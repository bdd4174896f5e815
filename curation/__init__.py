"""Curation: watch every caption's loss, select the worst samples, amend them, keep a journal."""
