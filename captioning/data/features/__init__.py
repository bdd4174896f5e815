"""Image features: computed once, imported, and stored."""
