"""Language models that write captions, and the rules for accepting their answers."""
