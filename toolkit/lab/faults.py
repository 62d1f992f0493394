"""Faults planted into a lab, which a validation must find and name."""

from __future__ import annotations

import json
import os
import signal

from toolkit.lab import network, nodes
from toolkit.lab.host import detect
from toolkit.lab.lab import boot, load, read_faults
from toolkit.lab.sh import LabError, run
from toolkit.lab.spec import LabSpec, NodeSpec

#: name -> what it does, for the help text
KINDS = {
    "slow-link": "the node's fabric link carries a tenth of its declared rate",
    "dead-node": "the node loses power: all its processes are killed at once",
}


def plant(lab: str, node_name: str, kind: str) -> None:
    """Plant fault `kind` on a node. Raises LabError for an unknown lab, node or kind."""
    spec = load(lab)
    node = spec.node(node_name)
    if kind not in KINDS:
        raise LabError(f"no fault '{kind}'; there are: {', '.join(KINDS)}")
    if kind == "slow-link":
        network.shape_link(spec, node, spec.rate_gbps / 10)
    else:
        _kill_node(spec, node)
    _record(spec, read_faults(spec) | {node.name: kind})


def clear(lab: str, node_name: str) -> None:
    """Take back the fault planted on a node; a dead node is booted again."""
    spec = load(lab)
    node = spec.node(node_name)
    faults = read_faults(spec)
    kind = faults.pop(node.name, None)
    if kind == "slow-link":
        network.shape_link(spec, node, spec.rate_gbps)
    elif kind == "dead-node":
        boot(spec, node, lambda _: None)
    _record(spec, faults)


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
