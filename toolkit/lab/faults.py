"""Faults planted into a lab, which a validation must find and name."""

from __future__ import annotations

import json
import os
import signal

from toolkit.errors import LabError
from toolkit.lab import network, nodes, vm
from toolkit.lab.host import detect
from toolkit.lab.lab import Say, boot, load, read_faults
from toolkit.lab.sh import run
from toolkit.lab.spec import LabSpec, NodeSpec
from toolkit.lab.vmfaults import HEAD, NODE_FAULTS, PORT

#: name -> what it does, for the help text; these on every node
ANY_NODE = {
    "slow-link": "the node's fabric link carries a tenth of its declared rate (an emulated machine's a fiftieth, for "
    "emulation itself leaves about a tenth)",
    "dead-node": "the node loses power: all its processes are killed at once",
}
#: these on virtual machines alone
VM_ONLY = {
    "port-down": f"{PORT} loses its link, as when its cable is pulled",
    **{kind: fault.about for kind, fault in NODE_FAULTS.items()},
}
KINDS = {**ANY_NODE, **VM_ONLY}


def slow_rate_gbps(spec: LabSpec, node: NodeSpec) -> float:
    """What a slow link carries, 10^9 bit/s: so much below what the node reaches that it shows, and not so little that
    soft-RoCE's retransmission timer (67 ms with perftest) runs out while a message is under way."""
    return spec.rate_gbps / (50 if node.kind == "vm" and spec.accel == "tcg" else 10)


def check(spec: LabSpec, node: NodeSpec, kind: str) -> None:
    """LabError for a fault that does not exist, cannot be on this kind of node, or comes on top of another."""
    if kind not in KINDS:
        raise LabError(f"no fault '{kind}'; there are: {', '.join(KINDS)}")
    if kind in VM_ONLY and node.kind != "vm":
        machines = ", ".join(n.name for n in spec.nodes if n.kind == "vm")
        raise LabError(
            f"{node.name} is a container, and {kind} needs a virtual machine: "
            + (f"in lab '{spec.name}' these are {machines}" if machines else "'toolkit lab up --nodes vm' has some")
        )
    there = read_faults(spec).get(node.name, kind)
    if there != kind:
        raise LabError(f"{node.name} has the fault {there} already; clear it first: toolkit lab fault clear")


def plant(lab: str, node_name: str, kind: str) -> None:
    """Plant fault `kind` on a node. Raises LabError for an unknown lab, node or kind."""
    spec = load(lab)
    node = spec.node(node_name)
    check(spec, node, kind)
    if kind == read_faults(spec).get(node.name):
        return  # planted twice it could not be taken back
    if kind == "slow-link":
        network.shape_link(spec, node, slow_rate_gbps(spec, node))
    elif kind == "dead-node":
        _kill_node(spec, node)
    elif kind == "port-down":
        vm.set_link(spec, node, PORT, up=False)
    else:
        _on_node(spec, node, NODE_FAULTS[kind].plant)
    _record(spec, read_faults(spec) | {node.name: kind})


def clear(lab: str, node_name: str, say: Say) -> None:
    """Take back the fault planted on a node; a dead node is booted again."""
    spec = load(lab)
    node = spec.node(node_name)
    faults = read_faults(spec)
    kind = faults.pop(node.name, None)
    if kind == "slow-link":
        network.shape_link(spec, node, spec.rate_gbps)
    elif kind == "dead-node":
        boot(spec, node, say)
    elif kind == "port-down":
        vm.set_link(spec, node, PORT, up=True)
    elif kind is not None:
        _on_node(spec, node, NODE_FAULTS[kind].clear)
    _record(spec, faults)


def _on_node(spec: LabSpec, node: NodeSpec, script: str) -> None:
    target = f"root@{spec.management_address(node)}"
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    options += ["-o", "ConnectTimeout=20", "-o", "BatchMode=yes"]
    ssh = ["ssh", "-i", str(spec.dir / "id_ed25519"), *options, target, "sh", "-s"]
    done = run(ssh, stdin=HEAD + script, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise LabError(f"{node.name}: {said}")


def _kill_node(spec: LabSpec, node: NodeSpec) -> None:
    host = detect()
    if host.systemd:
        run(["systemctl", "kill", "--signal=KILL", nodes.unit_name(spec.name, node.name)], check=False)
    # node-loop first, so that it does not start the node again
    for pid in sorted(nodes.processes(spec.name, node.name)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _record(spec: LabSpec, faults: dict[str, str]) -> None:
    (spec.dir / "faults.json").write_text(json.dumps(faults))
