"""Image captioning: data, models, search, metrics and training."""

__version__ = "0.1.0"
