"""Train image generators: an autoencoder, a small diffusion model, and fine-tuning."""
