"""The machine that leases run on: its processes, ports, users, GPUs and firewall, in one object (`host.py`)."""
