"""Photos: opening, backbones, detectors and joint spaces of photos and texts."""
