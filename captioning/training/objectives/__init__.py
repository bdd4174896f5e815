"""Objectives of training: the likelihood, or rewards of captions that the model draws."""
