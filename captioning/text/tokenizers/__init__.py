"""Captions to token ids and back."""
