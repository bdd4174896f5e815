"""Captions made new from captions: taken apart, put together again."""
