"""Captioners."""
