"""Export of finished runs: folders for others, and ONNX."""
