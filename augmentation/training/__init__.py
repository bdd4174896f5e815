"""Trainings of augmentation: their loop, their dependencies, and the card beside their weights."""
