"""Captions of photos by a trained captioner: no training, no Hydra, no Lightning."""
