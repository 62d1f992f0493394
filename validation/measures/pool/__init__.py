"""Use of the pool over time."""
