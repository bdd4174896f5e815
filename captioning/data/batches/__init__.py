"""Turns samples into batches: the data set, its loaders, and further inputs of models."""
