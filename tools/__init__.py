"""Training of the small shipped weights, and studies; not part of the wheel."""
