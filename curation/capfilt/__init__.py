"""Apply CapFilt to a whole training set, in shards."""
