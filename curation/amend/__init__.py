"""Amenders: edit the samples that a policy has selected."""
