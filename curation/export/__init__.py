"""Export a curated dataset as files."""
