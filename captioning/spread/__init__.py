"""Work without a gradient, shard by shard: in this process, or on many machines."""
