"""Language models that write captions, and which of their answers are taken."""
