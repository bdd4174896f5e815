"""Where a run's curves go."""
