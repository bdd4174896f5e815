"""Make new pairs of photo and caption by moving objects between photos."""
