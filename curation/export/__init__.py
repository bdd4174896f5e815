"""The curated set as files."""
