"""Scores of captions."""
