"""Other pictures for samples: retrieved or generated."""
