"""What of a run is virtual, emulated or made up, by the inventory and the nodes' own facts: what proves nothing."""

from __future__ import annotations

from collections.abc import Iterable

from validation.model import Result, Topology
from validation.model.node_facts import NodeFacts
from validation.rules.fabric import Fabric

CONTAINERS = frozenset(
    {
        "openvz",
        "lxc",
        "lxc-libvirt",
        "systemd-nspawn",
        "docker",
        "podman",
        "rkt",
        "wsl",
        "proot",
        "pouch",
        "container-other",
    }
)
"""What `systemd-detect-virt` calls containers: never a customer's node, whatever the fabric."""


def passed_through(topology: Topology, facts: Iterable[NodeFacts]) -> bool:
    """Whether the GPUs of one machine that nobody declared are real: what a container or a virtual machine was given.

    Such a machine is inspected, as one of hardware is; in a lab, and under an inventory, it is a rehearsal.
    """
    here = topology.here
    if here is None or topology.virtual or not here.gpus or here.emulated or here.gpu_trouble:
        return False
    return not any(one.lab or one.stand_ins for one in facts)


def rehearses(topology: Topology, results: Iterable[Result], fabric: Fabric) -> bool:
    """Whether virtual parts make a rehearsal of it. `results`: those of the looks at the nodes."""
    looks = list(results)
    if topology.virtual or not virtual_facts(looks, fabric):
        return topology.virtual
    return not passed_through(topology, (f for r in looks if (f := r.facts_of(NodeFacts)) is not None))


def constructed(results: Iterable[Result]) -> bool:
    """Whether the facts of any node were made up: the run is an example. `results`: those of the looks at the nodes."""
    return any(facts.constructed for r in results if (facts := r.facts_of(NodeFacts)) is not None)


def virtual_facts(results: Iterable[Result], fabric: Fabric) -> list[tuple[str, str]]:
    """(node, what shows that it is virtual) from the nodes' own facts.

    A container, a lab's mark and stand-ins for vendors' packages always count; a virtual machine counts unless its
    hypervisor is part of what this fabric profile describes (VMXNET3, PVRDMA).
    """
    shown = []
    for result in results:
        node = result.provenance.nodes[0] if result.provenance.nodes else result.measurement
        facts = result.facts_of(NodeFacts)
        if facts is None:
            continue
        if facts.lab:
            shown.append((node, f"lab {facts.lab}"))
        elif facts.virt in CONTAINERS or (facts.virt != "none" and facts.virt not in fabric.hypervisors):
            shown.append((node, facts.virt))
        if facts.stand_ins:
            shown.append((node, f"stand-ins for {', '.join(facts.stand_ins)}"))
    return shown
