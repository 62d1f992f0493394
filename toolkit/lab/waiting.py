"""Waiting until nodes that were started answer ssh, and why one does not."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from toolkit.errors import LabError
from toolkit.lab import nodes
from toolkit.lab.inside import state
from toolkit.lab.spec import LabSpec, NodeSpec

SSH_DEADLINE_S = 60.0
VM_SSH_DEADLINE_S = 420.0  # emulated, and on a machine that does other work
PATIENCE = 4.0
"""How many times as long an emulated machine is waited for, at most, where others want the host's processors too."""
SSH_PORT = 22
CONNECT_S = 3.0
BANNER_S = 30.0
"""How long an emulated machine's sshd may take from the connection to its banner: each that is given up has made it
start another process, and with 30 programs waiting for 2 processors that never ended."""


def greets(address: str, timeout_s: float = CONNECT_S, banner_s: float | None = None, port: int = SSH_PORT) -> bool:
    """True when an ssh server at `address` is connected to within `timeout_s`, and then sends its banner within
    `banner_s` (None: the same)."""
    try:
        with socket.create_connection((address, port), timeout=timeout_s) as s:
            s.settimeout(timeout_s if banner_s is None else banner_s)
            return s.recv(4) == b"SSH-"
    except OSError:
        return False


def patience() -> float:
    """By how much longer than on a quiet host an emulated machine is waited for: programs that want to run for each
    processor, PATIENCE at most."""
    return min(PATIENCE, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def _greets_slowly(address: str) -> bool:
    return greets(address, banner_s=BANNER_S)


def _runs(lab: str, node: str) -> bool:
    return bool(nodes.processes(lab, node))


@dataclass(frozen=True)
class NodeWatch:
    """How nodes are watched. greets: whether ssh answers at an address; runs: whether a node of a lab has processes.

    A virtual machine without processes after `ended_after_s` seconds has failed; what is still open is said every
    `say_every_s` seconds. A container that does not answer within `again_after_s` seconds is given once to `again`,
    with what it was doing, and waited for anew.
    """

    greets: Callable[[str], bool] = _greets_slowly
    runs: Callable[[str, str], bool] = _runs
    ended_after_s: float = 5.0
    say_every_s: float = 4.0
    again: Callable[[NodeSpec, str], None] | None = None
    again_after_s: float = 30.0


def wait_for_all(
    spec: LabSpec, waited: Sequence[NodeSpec], say: Callable[[str], None], watch: NodeWatch | None = None
) -> None:
    """Return when all of these nodes answer ssh; says every few seconds which do not yet. Raises the first LabError."""
    watch = watch or NodeWatch()
    began = told = time.monotonic()
    given_up = threading.Event()
    with ThreadPoolExecutor(len(waited)) as pool:
        waiting = {n.name: pool.submit(wait_for_ssh, spec, n, watch, given_up=given_up) for n in waited}
        try:
            while open_ones := [name for name, future in waiting.items() if not future.done()]:
                for future in waiting.values():
                    if future.done():
                        future.result()
                time.sleep(0.05)
                if time.monotonic() - told > watch.say_every_s:
                    told = time.monotonic()
                    say(f"{', '.join(open_ones)}: booting, {told - began:.0f} s")
            for future in waiting.values():
                future.result()
        finally:
            given_up.set()  # also at Ctrl-C: nobody waits for the others any longer


def wait_for_ssh(
    spec: LabSpec,
    node: NodeSpec,
    watch: NodeWatch,
    deadline_s: float | None = None,
    given_up: threading.Event | None = None,
) -> None:
    """Return when the node's sshd greets, or when `given_up` is set; LabError with the console's last lines after
    `deadline_s` (by default what fits the kind of node and, of an emulated machine, the host's load), and at once when
    a machine's program has ended."""
    longer = patience if deadline_s is None and spec.accel == "tcg" else lambda: 1.0
    deadline_s = deadline_s or (VM_SSH_DEADLINE_S if spec.accel == "tcg" else SSH_DEADLINE_S)
    given_up = given_up or threading.Event()
    first = began = time.monotonic()
    again = watch.again if node.kind != "vm" else None
    while (waited := time.monotonic() - began) < deadline_s * longer():
        if given_up.is_set() or watch.greets(spec.management_address(node)):
            return
        if node.kind == "vm" and waited > watch.ended_after_s and not watch.runs(spec.name, node.name):
            raise LabError(f"the machine {node.name} has stopped; {_console_end(spec, node)}")
        if again and waited > watch.again_after_s:
            again(node, state(spec.name, node.name))
            again, began = None, time.monotonic()
        time.sleep(0.05)
    lines = [_console_end(spec, node)] + ([] if node.kind == "vm" else [f"inside: {state(spec.name, node.name)}"])
    spent = round(time.monotonic() - first, 1)  # with what was waited before it was started again
    raise LabError(f"node {node.name} did not answer ssh within {spent:g} s; " + "\n".join(lines))


def _console_end(spec: LabSpec, node: NodeSpec) -> str:
    console = spec.node_dir(node) / "console.log"
    lines = console.read_text(errors="replace").splitlines() if console.exists() else []
    said = [line.strip() for line in lines if line.strip() and not line.startswith("# ")]
    return "its console ends with:\n  " + ("\n  ".join(said[-8:]) or "(no output)")
