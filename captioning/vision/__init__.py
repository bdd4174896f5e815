"""Photo processing: opening, backbones, detectors, and joint spaces of photos and texts."""
