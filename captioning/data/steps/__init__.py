"""Steps from annotations to what is trained on, chosen and ordered by ``steps=``."""
