"""Amenders: what is done to selected samples."""
