"""Computation without gradients, shard by shard, in this process or on many machines."""
