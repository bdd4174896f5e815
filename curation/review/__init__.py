"""Pages where people look at edits, runs and suspected captions."""
