"""Provisioning through ansible-runner: what runs, how long it still takes, and what became of each node."""
