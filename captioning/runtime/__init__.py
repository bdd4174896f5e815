"""Environment of a process: files, locks, devices, distributed workers, optional packages."""
