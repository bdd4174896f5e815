"""Data sets: readers of annotations, steps, features, and batches."""
