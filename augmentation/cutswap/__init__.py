"""CutSwap (Hahn, 2022): an object of a photo and its words swapped for another of its kind."""
