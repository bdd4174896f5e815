"""Words of a caption that are likely wrong, judged by a masked-word network."""
