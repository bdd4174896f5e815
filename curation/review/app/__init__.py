"""A local page: captions of photos, and suspected captions to decide on."""
