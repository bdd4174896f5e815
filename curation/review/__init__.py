"""HTML pages on which people review edits, runs and suspected captions."""
