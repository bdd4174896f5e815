"""Captions as text: tokens, parses, lemmas, embeddings and language models."""
