"""Turn samples into batches: dataset, loaders, and further model inputs."""
