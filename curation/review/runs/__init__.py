"""Report on one run or compare several runs, as a page and as figures."""
