"""Makers of the small weights that the package ships; nothing imports them."""
