"""Suspected captions to annotation tools and back."""
