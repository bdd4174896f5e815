"""Image captioning: data, models, search, metrics and training."""

import captioning.run_names  # noqa: F401  # configs use its resolver, whichever part reads them

__version__ = "0.1.0"
