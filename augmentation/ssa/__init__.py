"""Structured semantic augmentation: captions of a photo merged as graphs, new ones sampled."""
