"""New captions from captions, by taking sentences apart and putting them together again."""
