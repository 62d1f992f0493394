"""Faults planted into a lab, which a validation must find and name."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from toolkit.errors import LabError, or_nearest
from toolkit.lab import devices, network, power, vm
from toolkit.lab.bmc import rack
from toolkit.lab.bmc.bmcfaults import BMC_FAULTS
from toolkit.lab.bmc.rack import LOOK_S
from toolkit.lab.gpufaults import GPU_FAULTS
from toolkit.lab.lab import Say, boot, load
from toolkit.lab.leaf import leaf
from toolkit.lab.leaf.leaffaults import LEAF_FAULTS
from toolkit.lab.morefaults import MORE_FAULTS
from toolkit.lab.sh import run
from toolkit.lab.spec import LabSpec, NodeSpec, read_faults
from toolkit.lab.storagefaults import STORAGE_FAULTS, acts
from toolkit.lab.vmfaults import HEAD, NODE_FAULTS, PORT

EMPTIED = f": >/{devices.LIBRARIES}/libnvidia-opencl.so.1\n"
NOT_EMPTIED = f"rm -f /{devices.LIBRARIES}/libnvidia-opencl.so.1\n"
Act = Callable[[LabSpec, NodeSpec, Say], None]


@dataclass(frozen=True)
class Fault:
    """What it does, in words for --help, how it is planted and cleared, and the criteria that find it."""

    about: str
    plant: Act
    clear: Act
    vm_only: bool = True
    gpus_only: bool = False
    bmc: bool = False
    switch: bool = False
    storage: bool = False
    found_by: tuple[str, ...] = ()

    @property
    def nodes(self) -> str:
        """On which nodes it can be, in words."""
        plain = (
            "GPU servers" if self.gpus_only else "machines" if self.vm_only else "containers" if self.storage else "all"
        )
        parts = (("BMC", self.bmc), ("switch", self.switch), ("storage", self.storage))
        return " with ".join([plain, *(name for name, needed in parts if needed)])


def slow_rate_gbps(spec: LabSpec, node: NodeSpec) -> float:
    """What a slow link carries, 10^9 bit/s: so much below what the node reaches that it shows, and not so little that
    soft-RoCE's retransmission timer (67 ms with perftest) runs out while a message is under way."""
    return spec.rate_gbps / (50 if node.kind == "vm" and spec.accel == "tcg" else 10)


def check(spec: LabSpec, node: NodeSpec, kind: str) -> None:
    """LabError for a fault that does not exist, cannot be on this kind of node, or comes on top of another."""
    if kind not in FAULTS:
        raise LabError(f"no fault '{kind}'; {or_nearest(kind, FAULTS)}")
    if FAULTS[kind].vm_only and node.kind != "vm":
        machines = ", ".join(n.name for n in spec.nodes if n.kind == "vm")
        raise LabError(
            f"{node.name} is a container, and {kind} needs a virtual machine: "
            + (f"in lab '{spec.name}' these are {machines}" if machines else "'toolkit lab up --nodes vm' has some")
        )
    if FAULTS[kind].bmc and not spec.bmc:
        raise LabError(f"{node.name} has no BMC, and {kind} is reported by one; 'toolkit lab up --bmc' makes some")
    if FAULTS[kind].switch and not spec.switch:
        raise LabError(f"lab '{spec.name}' has no switch that {kind} is seen at; 'toolkit lab up --switch' makes one")
    if FAULTS[kind].storage and not spec.storage:
        raise LabError(f"lab '{spec.name}' declares no storage that {kind} is seen at; 'toolkit lab up --storage' does")
    if FAULTS[kind].gpus_only and node.group != "gpu_servers":
        raise LabError(f"{node.name} has no GPUs, and {kind} is a fault of one")
    there = read_faults(spec).get(node.name, kind)
    if there != kind:
        raise LabError(f"{node.name} has the fault {there} already; clear it first: toolkit lab fault clear")


def plant(lab: str, node_name: str, kind: str, say: Say) -> None:
    """Plant fault `kind` on a node. Raises LabError for an unknown lab, node or kind."""
    spec = load(lab)
    node = spec.node(node_name)
    check(spec, node, kind)
    if kind == read_faults(spec).get(node.name):
        return  # planted twice it could not be cleared
    _record(spec, read_faults(spec) | {node.name: kind})  # first, so that what is half planted is cleared too
    try:
        FAULTS[kind].plant(spec, node, say)
    except LabError:  # it could not be had here; what it did of it is taken back as far as that goes
        with contextlib.suppress(LabError):
            FAULTS[kind].clear(spec, node, say)
        _record(spec, {name: there for name, there in read_faults(spec).items() if name != node.name})
        raise


def clear(lab: str, node_name: str, say: Say) -> None:
    """Clear the fault planted on a node; a dead node is booted again."""
    spec = load(lab)
    node = spec.node(node_name)
    faults = read_faults(spec)
    kind = faults.pop(node.name, None)
    if kind is not None:
        FAULTS[kind].clear(spec, node, say)
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


def _script(text: str) -> Act:
    return lambda spec, node, say: _on_node(spec, node, text)


def gpu_script(spec: LabSpec, node: NodeSpec, kind: str | None) -> str:
    """Shell that gives a node's emulated GPUs their description with that fault, or without any."""
    return f"""[ -e /{devices.DESCRIPTION} ] || {{ echo 'no emulated GPUs on this node' >&2; exit 1; }}
cat >/{devices.DESCRIPTION}.new <<'END'
{devices.description(spec, node, kind)}END
mv /{devices.DESCRIPTION}.new /{devices.DESCRIPTION}
"""


def _describe(kind: str | None) -> Act:
    return lambda spec, node, say: _on_node(spec, node, gpu_script(spec, node, kind))


def _kill_node(spec: LabSpec, node: NodeSpec, say: Say) -> None:
    power.cut(spec, node)


def _record(spec: LabSpec, faults: dict[str, str]) -> None:
    (spec.dir / "faults.json").write_text(json.dumps(faults))


def _one_way(sending: bool) -> tuple[Act, Act]:
    """A slow link in one direction alone, and both as they were."""
    return (
        lambda spec, node, say: network.shape_one_way(spec, node, slow_rate_gbps(spec, node), sending),
        lambda spec, node, say: network.shape_link(spec, node, spec.rate_gbps),
    )


def twin(spec: LabSpec, node: NodeSpec) -> NodeSpec:
    """The node whose address another one takes: the next of the lab."""
    return spec.after(node)


def _take_address(what: str) -> Act:
    def act(spec: LabSpec, node: NodeSpec, say: Say) -> None:
        address = f"{spec.fabric_address(twin(spec, node))}/32"
        _on_node(spec, node, f"ip addr {what} {address} dev {PORT}{' || true' if what == 'del' else ''}\n")

    return act


def _renew_bmc(spec: LabSpec, node: NodeSpec, say: Say) -> None:
    """Have the node's BMC answer with the fault that is noted, or without any; it takes a moment to read it."""
    rack.write(spec, node, vm.MEMORY_MIB)
    time.sleep(4 * LOOK_S)


def _clear_bmc(spec: LabSpec, node: NodeSpec, say: Say) -> None:
    """Without any, although it is still noted."""
    rack.write(spec, node, vm.MEMORY_MIB, clean=True)
    time.sleep(4 * LOOK_S)


def _renew_switch(spec: LabSpec, node: NodeSpec, say: Say) -> None:
    """Have the lab's switch follow the faults that are noted; a moment later nodes hear of it."""
    leaf.write(spec)
    time.sleep(4 * leaf.LOOK_S)


def _clear_switch(spec: LabSpec, node: NodeSpec, say: Say) -> None:
    """As without this fault, although it is still noted."""
    leaf.write(spec, well=node.name)
    time.sleep(4 * leaf.LOOK_S)


def _plug(into: str, follow: Act) -> Act:
    def act(spec: LabSpec, node: NodeSpec, say: Say) -> None:
        network.plug(spec, node, into)
        if spec.switch:
            follow(spec, node, say)

    return act


FAULTS = {
    "slow-link": Fault(
        "the node's fabric link carries a tenth of its declared rate (an emulated machine's a fiftieth, because "
        "emulation itself leaves about a tenth)",
        lambda spec, node, say: network.shape_link(spec, node, slow_rate_gbps(spec, node)),
        lambda spec, node, say: network.shape_link(spec, node, spec.rate_gbps),
        vm_only=False,
        found_by=("tr.tcpbw",),
    ),
    "slow-sending": Fault(
        "what the node sends over its fabric link is slow as by slow-link; what it receives is not",
        *_one_way(sending=True),
        vm_only=False,
        found_by=("tr.tcpbw",),
    ),
    "slow-receiving": Fault(
        "what the node receives over its fabric link is slow as by slow-link; what it sends is not",
        *_one_way(sending=False),
        vm_only=False,
        found_by=("tr.tcpbw",),
    ),
    "cable-swapped": Fault(
        "the node's fabric cable is plugged into the management switch",
        _plug(network.MANAGEMENT, _renew_switch),
        _plug(network.FABRIC, _clear_switch),
        vm_only=False,
        found_by=("pf.mtu",),
    ),
    "duplicate-address": Fault(
        "the node has the next node's fabric address, too",
        _take_address("add"),
        _take_address("del"),
        vm_only=False,
        found_by=("pf.ports",),
    ),
    "dead-node": Fault("the node loses power: all its processes are killed at once", _kill_node, boot, vm_only=False),
    "port-down": Fault(
        f"{PORT} loses its link, as when its cable is pulled",
        lambda spec, node, say: vm.set_link(spec, node, PORT, up=False),
        lambda spec, node, say: vm.set_link(spec, node, PORT, up=True),
        found_by=("pf.ports",),
    ),
    "library-empty": Fault(
        "a library of the emulated driver is empty, as an installation that ran out of disk leaves it",
        _script(EMPTIED),
        _script(NOT_EMPTIED),
        vm_only=False,
        gpus_only=True,
        found_by=("pf.gpulib",),
    ),
    **{
        kind: Fault(f.about, _describe(kind), _describe(None), vm_only=False, gpus_only=True, found_by=f.found_by)
        for kind, f in GPU_FAULTS.items()
    },
    **{
        kind: Fault(f.about, _renew_bmc, _clear_bmc, f.machine, gpus_only=True, bmc=True, found_by=(f.found_by,))
        for kind, f in BMC_FAULTS.items()
    },
    leaf.CROSSED: Fault(
        "the fabric cables of the node and of the next one are in each other's switch port",
        _renew_switch,
        _clear_switch,
        vm_only=False,
        switch=True,
        found_by=("pf.cabling",),
    ),
    **{
        kind: Fault(f.about, _renew_switch, _clear_switch, vm_only=False, switch=True, found_by=("pf.switch",))
        for kind, f in LEAF_FAULTS.items()
    },
    **{
        kind: Fault(f.about, *acts(kind, _script), vm_only=False, storage=True, found_by=f.found_by)
        for kind, f in STORAGE_FAULTS.items()
    },
    **{
        kind: Fault(f.about, _script(f.plant), _script(f.clear), f.vm_only, found_by=f.found_by)
        for kind, f in {**NODE_FAULTS, **MORE_FAULTS}.items()
    },
}
