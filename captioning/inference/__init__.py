"""Caption photos with a trained captioner, without training code, Hydra or Lightning."""
