"""Training image generators: an autoencoder, a small diffusion model, fine-tuning."""
