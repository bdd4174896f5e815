"""Commands that train and write the package's shipped weights; no product module imports them."""
