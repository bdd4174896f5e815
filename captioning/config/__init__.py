"""Configs: composed, checked, and built into parts."""
