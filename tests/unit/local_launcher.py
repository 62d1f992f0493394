"""A launcher that runs the real probes on this machine: the whole of execute without ssh."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from validation.execute import Remote
from validation.model import Node


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

    async def alive(self, node: str) -> str | None:
        self.asked.append(node)
        return self.refuse.get(node)

    async def close(self) -> None:
        for remote in self.running:
            if not remote.ended:
                await remote.stop()
