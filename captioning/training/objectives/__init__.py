"""Training objectives: likelihood, or rewards of captions sampled from the model."""
