"""Augmentation: new images and captions from old ones."""
