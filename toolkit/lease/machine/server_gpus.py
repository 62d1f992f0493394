"""The GPUs of a server as a host has them: what NVML says, and what a context takes of each, as measured."""

from __future__ import annotations

from toolkit.lease.machine.context_size import measured as contexts
from toolkit.lease.machine.nvml import gpus, processes, utilisation

__all__ = ["contexts", "gpus", "processes", "utilisation"]
