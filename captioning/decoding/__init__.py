"""Searches for captions: they know no model, and models know no search."""
