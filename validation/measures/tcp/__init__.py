"""TCP between two fabric ports: bandwidth, latency, loss."""
