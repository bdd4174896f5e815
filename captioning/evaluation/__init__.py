"""Predictions and scores of a finished run."""
