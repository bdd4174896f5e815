"""Captioning models."""
