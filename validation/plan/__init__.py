"""Which measurement of which nodes in which rounds, before anything runs. No I/O."""
