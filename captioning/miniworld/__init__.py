"""MiniWorld, the embedded default data set: generated scenes with captions, boxes and graphs."""
