"""A launcher that runs the real probes on this machine: the whole of execute without ssh."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.run_case import Quiet, only, plan, topology
from validation.execute import Remote, run_plan
from validation.model import Node, Plan, Topology

BANDWIDTH, BACK = "tcp-bandwidth.gpu1-lo.gpu2-lo", "tcp-bandwidth.gpu2-lo.gpu1-lo"


class LocalLauncher:
    """Every node is this machine. `refuse` are nodes that cannot be reached; `killed` nodes lose their processes."""

    def __init__(self, refuse: dict[str, str] | None = None) -> None:
        self.refuse = dict(refuse or {})
        self.running: list[Remote] = []
        self.started: list[tuple[str, tuple[str, ...]]] = []
        self.asked: list[str] = []

    async def connect(self, nodes: Sequence[Node]) -> dict[str, str]:
        return {n.name: self.refuse[n.name] for n in nodes if n.name in self.refuse}

    async def start(self, node: str, probe: Sequence[str]) -> Remote:
        self.started.append((node, tuple(probe)))
        command = [sys.executable, "-I", "-m", "validation.probes", "--controlled", *probe]
        if node in self.refuse:
            command = [sys.executable, "-I", "-c", "import sys; sys.exit(255)"]
        remote = await Remote.spawn(node, command)
        self.running.append(remote)
        return remote

    async def here(self, node: str, probe: Sequence[str]) -> Remote:
        return await self.start(node, probe)

    async def alive(self, node: str) -> str | None:
        self.asked.append(node)
        return self.refuse.get(node)

    async def close(self) -> None:
        for remote in self.running:
            if not remote.ended:
                await remote.stop()


def execute(run_dir: Path, whole: Plan, topo: Topology, launcher: LocalLauncher | None = None, **more: object) -> Quiet:
    progress = Quiet()
    launcher = launcher or LocalLauncher()

    async def work() -> None:
        try:
            await run_plan(whole, topo, launcher, run_dir, progress, **more)  # type: ignore[arg-type]
        finally:
            await launcher.close()

    asyncio.run(work())
    return progress


def with_port(whole: Plan, port: int, **changed: object) -> Plan:
    """The plan on a port of this test's own, so that its processes can be told from others."""
    measurements = tuple(
        m.model_copy(update={"params": {**m.params, "port": port}, **changed}) if "port" in m.params else m
        for m in whole.measurements
    )
    return whole.model_copy(update={"measurements": measurements})


def bandwidth(seconds: int, port: int, *ids: str, **changed: object) -> tuple[Plan, Topology]:
    topo = topology(3)
    return with_port(only(plan(topo, "transport", seconds=seconds), *(ids or (BANDWIDTH,))), port, **changed), topo
