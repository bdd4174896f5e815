"""MiniWorld, the built-in default dataset: generated scenes with captions, boxes and graphs."""
