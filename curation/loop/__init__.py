"""The loop of curation: losses in, edits out, at each epoch's end."""
