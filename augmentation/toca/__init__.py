"""Text-only synthesis for image captioning (ToCa): structures and words for a language model."""
