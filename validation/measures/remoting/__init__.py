"""GPUs over the network: copies, parts, isolation, training, what changes hands."""
