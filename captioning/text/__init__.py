"""Text processing of captions: tokenizers, parses, lemmas, embeddings and language models."""
