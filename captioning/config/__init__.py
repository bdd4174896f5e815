"""Compose configs, check their values, and build the components that they describe."""
