"""Where a program runs: files, locks, devices, processes, optional packages."""
