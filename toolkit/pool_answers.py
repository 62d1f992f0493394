"""The pool as answers have it (`--json`), for whoever shows it: one form, so that no two places differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from toolkit import answers
from toolkit.lease.client import endings
from toolkit.lease.client.manage import Lease
from toolkit.lease.pool import PoolGpu
from toolkit.lease.queue.waiting_list import Waiting


def gpus_data(gpus: Iterable[PoolGpu], queue: Iterable[Waiting]) -> dict[str, Any]:
    """GPUs and who waits; what is not known is null."""
    return {"gpus": [_gpu(one) for one in gpus], "waiting": [_waiting(one) for one in queue]}


def _gpu(gpu: PoolGpu) -> dict[str, Any]:
    return {
        **asdict(gpu),
        "memory_mib": gpu.memory_mib or None,
        "context_bytes": gpu.context_bytes or None,
        "state": gpu.state or None,
        "uses": [asdict(use) | {"until": answers.when(use.until)} for use in gpu.uses],
        "free_shards": gpu.free,
        "free": gpu.free / gpu.of,
    }


def _waiting(one: Waiting) -> dict[str, Any]:
    return {
        **asdict(one),
        "what": one.what or None,
        "since": answers.when(one.since),
        "expected": answers.when(one.expected),
    }


def lease_data(item: Lease, runs: str | None) -> dict[str, Any]:
    """A lease. runs: the owner's own program that goes on alone on it, None where there is none or it is another's."""
    parts = [
        {
            "job": job.id,
            "state": job.state,
            "gpus": [{"server": h.node, "index": h.index, "shards": h.shards or None} for h in job.held],
        }
        for job in item.jobs
    ]
    first = item.jobs[0]
    return {
        "lease": item.id,
        "user": first.user,
        "what": item.what,
        "state": item.state,
        "where": item.where or None,
        "until": answers.when(item.end),
        "class": first.partition,
        "reason": item.reason or None,
        "ended": endings.ended_words(item.over) if item.over else None,
        "runs": runs,
        "parts": parts,
    }
