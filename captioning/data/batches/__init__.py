"""From samples to batches: the data set, its loaders, and what a model reads besides."""
