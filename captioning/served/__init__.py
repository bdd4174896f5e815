"""Client for models served over HTTP, with a captioner and a judge of captions built on it."""
