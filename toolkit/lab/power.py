"""Power of a lab's nodes: it is cut at once, and given again. By a fault, and by the node's emulated BMC.

A container's processes are killed, a machine's qemu likewise: nothing is stopped in order. Both boot again with the
disk as it was.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

from toolkit.errors import LabError
from toolkit.lab import nodes, vm
from toolkit.lab.bmc import rack
from toolkit.lab.host import detect
from toolkit.lab.sh import run
from toolkit.lab.spec import LabSpec, NodeSpec

OFF_S = 1.0
"""How long a node is without power in a power cycle."""
GONE_S = 10.0


def cut(spec: LabSpec, node: NodeSpec) -> None:
    """Take the node's power away."""
    host = detect()
    if host.systemd:
        run(["systemctl", "kill", "--signal=KILL", nodes.unit_name(spec.name, node.name)], check=False)
    # node-loop first, so that it does not start the node again
    for pid in sorted(nodes.processes(spec.name, node.name)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def on(spec: LabSpec, node: NodeSpec) -> None:
    """Start the node where it is off, and return at once. LabError where what ran before does not go."""
    until = time.monotonic() + GONE_S
    while nodes.processes(spec.name, node.name):
        if time.monotonic() > until:
            raise LabError(f"{node.name} still runs {GONE_S:g} s after its power was cut")
        time.sleep(0.1)
    (vm.boot if node.kind == "vm" else nodes.boot)(spec, node, detect())


class Switch:
    """The power of one node as its BMC switches it."""

    def __init__(self, spec: LabSpec, node: NodeSpec) -> None:
        """Nothing is switched yet."""
        self._spec, self._node, self._lock = spec, node, threading.Lock()

    def state(self) -> str:
        """`On` or `Off`, in Redfish's words."""
        return "On" if nodes.processes(self._spec.name, self._node.name) else "Off"

    def reset(self, kind: str) -> None:
        """Switch as one of RESETS (bmc/constructed.py), by a thread of its own: a BMC answers before it has done it."""
        threading.Thread(target=self._do, args=(kind,), daemon=True).start()

    def _do(self, kind: str) -> None:
        with self._lock:
            if kind != "On":
                cut(self._spec, self._node)
            if kind == "PowerCycle":
                time.sleep(OFF_S)
            if kind != "ForceOff":
                self._on(kind)

    def _on(self, kind: str) -> None:
        """Start it, and hold back who takes the node or the lab down until its processes are found."""
        with rack.switching(rack.folder(self._spec)):
            if not rack.there(self._spec, self._node):  # it was taken down meanwhile
                return
            if kind != "On" or self.state() == "Off":  # what was cut may be seen for a moment still
                on(self._spec, self._node)
            until = time.monotonic() + GONE_S
            while self.state() == "Off" and time.monotonic() < until:
                time.sleep(0.05)
