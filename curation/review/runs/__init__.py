"""Reports on one run, or compares several, as a page and as figures."""
