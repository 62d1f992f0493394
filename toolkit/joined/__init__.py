"""A Slurm of the site's own that the pool joins: what it is, and what its administrator still has to add. Pure."""
