"""Selectors: choose the samples that a policy edits."""
