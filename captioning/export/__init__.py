"""Finished runs for others: exported folders, captioners in Python, and ONNX."""
