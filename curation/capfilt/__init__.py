"""CapFilt of a whole training set, in shards."""
