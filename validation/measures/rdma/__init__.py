"""RDMA: ports and their settings, first light, bandwidth, latency, GPUDirect, the InfiniBand fabric."""
