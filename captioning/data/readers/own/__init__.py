"""One's own photos in any layout: recognised, read by the reader of its format, and split."""
