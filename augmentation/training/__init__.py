"""Trainings of augmentation: their loop, what they depend on, the card beside their weights."""
