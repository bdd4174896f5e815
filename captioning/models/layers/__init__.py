"""Layers and decoders shared by captioning models."""
