"""Replace the images of samples by retrieved photos or generated images."""
