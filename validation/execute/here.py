"""Probes on this machine itself: the node is where the validation runs, and nothing is reached over a network."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from validation.execute.remote import Remote, named
from validation.model import Node
from validation.nvml import binding

ROOT = Path(__file__).resolve().parents[2]
_PROBES = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module('validation.probes', run_name='__main__', alter_sys=True)"
)
"""Isolated mode, as on nodes: the probes are those beside this file, installed or not, and never of this folder."""


class HereLauncher:
    """Launcher of the one node that is this machine. Its probes run as this user, and end with this process."""

    def __init__(self) -> None:
        """Nothing is started yet."""
        self._probes: set[Remote] = set()

    async def connect(self, nodes: Sequence[Node]) -> dict[str, str]:
        """This machine is reached already."""
        return {}

    async def start(self, node: str, probe: Sequence[str]) -> Remote:
        """Start a probe."""
        command = [sys.executable, "-I", "-c", _PROBES, str(ROOT), "--controlled", *probe]
        remote = await Remote.spawn(node, command, {**os.environ, **binding.told()}, what=named(probe))
        self._probes = {p for p in self._probes if not p.ended} | {remote}
        return remote

    async def here(self, node: str, probe: Sequence[str]) -> Remote:
        """The same: there is no other machine."""
        return await self.start(node, probe)

    async def alive(self, node: str) -> str | None:
        """It is."""
        return None

    async def close(self) -> None:
        """Stop all probes."""
        await asyncio.gather(*(p.stop() for p in self._probes if not p.ended))
        self._probes = set()
