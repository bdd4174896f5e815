"""Training of one captioner from a config."""
