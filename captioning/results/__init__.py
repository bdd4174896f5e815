"""Run folders, the records that tables are built from, and the tables."""
