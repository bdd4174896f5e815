"""Datasets: readers of annotations, processing steps, image features, and batches."""
