"""Train generators for augmentation: training loop, settings in checkpoints, and model card."""
