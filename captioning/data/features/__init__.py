"""Features of photos: computed once, imported, stored."""
