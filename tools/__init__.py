"""Makers of the small weights that are shipped, and studies; no part of the wheel."""
