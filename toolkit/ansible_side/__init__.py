"""Programs that run in the Python that has ansible-core; each is started by its path and imports nothing of ours."""
