"""What a GPU server knows of a lease, for tests: whole, so that a test names only what it is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolkit.lease.endpoint import LeaseEndpoint
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.instance_record import Instance

TOKEN = "t" * 43


def leased_gpu(index: int = 0, shards: int = 140, of: int = 140, **changes: Any) -> LeasedGpu:
    """An emulated GPU of 256 MiB, or a part of it."""
    limit = None if shards == of else 256 * shards // of
    told: dict[str, Any] = {"limit_mib": limit, "emulated": True, **changes}
    return LeasedGpu(
        index, told.pop("uuid", f"GPU-{index}"), told.pop("name", "Emulated X"), told.pop("memory_mib", 256),
        shards, of, **told,
    )  # fmt: skip


def instance(**changes: Any) -> Instance:
    """A lease of one whole GPU, by the reference engine; `where="server"`: without an engine."""
    job = changes.get("job", "41")
    engine = "" if changes.get("where") == "server" else "reference"
    told: dict[str, Any] = {
        "job": job, "lease": int(job.lstrip("s")), "owner_uid": 1001, "mode": "run", "host": "client1",
        "clients": ("127.0.0.1",), "address": "127.0.0.1", "port": 31000, "agent_port": 31001,
        "devices": (leased_gpu(),), "engine": engine, "release": "r1" if engine else "",
        "engine_dir": Path("/opt/engine"), "mps_pipe": None, "transport": "tcp", "device_group": "",
        "deadline": None, "slurm_end": None, "deadline_file": Path("/run/elastic-ai/leases") / job / "deadline",
        "grace_s": 30.0, "heartbeat_s": 5.0, "first_s": 60.0, "memory_bytes": 512 << 20, "job_memory_mib": 0,
        "job_cpus": 0, "tasks": 512, "idle_s": None, "started": 0.0, "where": "client",
    }  # fmt: skip
    return Instance(**(told | changes))


def endpoint(node: str = "gpu1", token: str = TOKEN, **changes: Any) -> LeaseEndpoint:
    """What its owner reads."""
    return LeaseEndpoint.of(instance(**changes), token, node)
