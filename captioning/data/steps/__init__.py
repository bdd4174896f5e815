"""Processing steps from annotations to training data, chosen and ordered by ``steps=``."""
