"""Convert published checkpoints to runs of this project or to transformers' format."""
