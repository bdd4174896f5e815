"""Scores of samples: the higher, the worse."""
