"""Checkpoints that authors published, as runs of this project or in transformers' format."""
