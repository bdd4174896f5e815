"""The journal: a log of all edits that curation makes."""
