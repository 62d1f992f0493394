"""What `toolkit run` says between the start of a lease and that of its program."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.lease_host import FakeHost
from toolkit.lease import running
from toolkit.lease.ask import LeaseRequest
from toolkit.lease.endpoint import LeaseEndpoint
from toolkit.lease.fraction import GpuPart


def served(node: str, *notes: str) -> LeaseEndpoint:
    device = {"index": 0, "shards": 70, "of": 140, "emulated": False}
    return LeaseEndpoint(41, "41", node, "10.0.0.1", 1, 2, "t", "reference", "r1", "run", None, 1, 1, (device,), notes)


def test_what_a_lease_is_not_stands_before_its_program_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that finds no kernels on its GPU may go on, without a word, on the processor."""
    kernels, part = "moves memory and runs no kernels", "1/7 of 256 MiB is 36.57 MiB: you get 36"
    ends = [served("gpu1", kernels, part), served("gpu2", kernels)]
    monkeypatch.setattr(running.ask, "obtain", lambda *_: (41, ends))
    told: list[str] = []

    def start(*_: Any) -> int:
        told.append("the program starts")
        return 3

    monkeypatch.setattr(running, "start_and_wait", start)
    host = FakeHost()
    assert running.run(host, LeaseRequest(2, GpuPart(70, 140)), [[], []], ["true"], told.append) == 3
    assert told[1:] == [f"lease 41: {kernels}", f"lease 41: {part}", "the program starts"]
    assert host.slurm.cancelled == [41]
