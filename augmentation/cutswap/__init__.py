"""CutSwap (Hahn, 2022): swap an object in a photo and its caption for a similar object."""
