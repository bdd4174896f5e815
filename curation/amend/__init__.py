"""Amenders: edit the selected samples."""
