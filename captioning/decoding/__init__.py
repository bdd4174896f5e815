"""Search algorithms that decode captions from any stepper model."""
