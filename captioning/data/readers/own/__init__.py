"""Read a user's own photos: detect the layout, read it, and split the photos."""
