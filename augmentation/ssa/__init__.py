"""Structured semantic augmentation: merge a photo's captions into a graph, sample new captions."""
