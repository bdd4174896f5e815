"""Run folders, records of runs, and tables built from them."""
