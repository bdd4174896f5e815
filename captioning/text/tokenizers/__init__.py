"""Tokenizers that convert captions to token ids and back."""
