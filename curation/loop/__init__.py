"""The curation loop: read the losses and decide on edits at the end of each epoch."""
