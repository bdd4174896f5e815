"""The environment of a program: files, locks, devices, processes, optional packages."""
