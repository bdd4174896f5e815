"""The tables and figures of reproduced papers: published values, and values measured here."""
