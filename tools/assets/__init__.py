"""Makers of the small weights that the package ships; no product module imports them."""
