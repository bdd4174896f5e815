"""The tables and figures of reproduced papers: what is published, and what was measured here."""
