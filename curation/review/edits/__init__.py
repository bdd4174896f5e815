"""The report of a curated run, as one page."""
