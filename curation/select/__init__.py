"""Selectors: which samples a policy acts on."""
