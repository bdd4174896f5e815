"""Layers and decoders that captioners are built of."""
