"""Leases: GPUs, or parts of them, for a program on another machine.

A lease is a Slurm job. What runs on nodes (this package without its controller's parts) needs the standard library, and
click for the commands; nothing here may import anything else but the errors (toolkit/errors.py and
validation/base/errors.py).
"""

from __future__ import annotations

from pathlib import Path

from toolkit.errors import LeaseError
from toolkit.exits import Exit

__all__ = [
    "ENGINE_DIR",
    "JOB_NAME",
    "MUNGE_KEY",
    "POOL_CONF",
    "RUN_DIR",
    "SERVER_CONF",
    "SHARDS_PER_GPU",
    "Exit",
    "LeaseError",
]

#: Name of the Slurm jobs that are leases.
JOB_NAME = "elastic-ai-lease"
#: Shards of a GPU where the pool's description says nothing else (role slurm's default): the smallest number of which
#: 1/2 to 1/10, 1/12, 1/14, 1/15, 1/16 and 1/20 are whole.
SHARDS_PER_GPU = 5040
#: Instances on a GPU server, one folder for each Slurm job.
RUN_DIR = Path("/run/elastic-ai/leases")
ENGINE_DIR = Path("/opt/elastic-ai/engine/current")
SERVER_CONF = Path("/etc/elastic-ai/remoting/server.json")
#: On machines that use GPUs: the pool's servers as the last run of site.yml found them.
POOL_CONF = Path("/etc/elastic-ai/remoting/pool.json")
#: The key that all machines of Slurm have, for root and munge alone.
MUNGE_KEY = Path("/etc/munge/munge.key")
