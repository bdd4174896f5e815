"""The journal of edits."""
