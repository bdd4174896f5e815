"""New image-caption pairs by moving objects between photos."""
