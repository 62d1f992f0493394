"""What root does for leases on a GPU server: start and end, the sweep, containers, native jobs, the agent."""
