"""What happened in a run, or in several beside each other, as a page and as figures."""
