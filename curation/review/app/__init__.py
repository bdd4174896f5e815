"""A local web page that captions photos and collects decisions on suspected captions."""
