"""Nodes that join a running lab and leave it: the others are not touched, and the inventory follows."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from toolkit.errors import LabError
from toolkit.lab import frameworks, network, nodes, vm
from toolkit.lab.bmc import rack
from toolkit.lab.devices import Emulation, emulation
from toolkit.lab.host import check_ready, detect, raise_inotify
from toolkit.lab.image import base_image
from toolkit.lab.inventory import write_inventory
from toolkit.lab.lab import Say, load, locked, nodes_of_all_labs, serve_vendors
from toolkit.lab.leaf import leaf
from toolkit.lab.sources import os_key, release_for
from toolkit.lab.spec import NODE_NAME, LabSpec, NodeSpec, inventory_dir, read_faults
from toolkit.lab.standing import HOSTS, is_up
from toolkit.lab.waiting import wait_for_all
from validation.base.counting import number_of

GROUP_OF = {"client": "clients", "gpu": "gpu_servers"}
MOST = 60


def grown(spec: LabSpec, name: str) -> LabSpec:
    """The lab with one node more, whose addresses are nobody's; LabError for a node that it cannot have."""
    kind = re.sub(r"\d+$", "", name)
    if not re.fullmatch(NODE_NAME, name) or kind not in GROUP_OF or re.fullmatch(r"\D+0\d*", name):
        raise LabError(f"--add {name!r}: a node that joins is called gpuN or clientN, such as gpu3")
    if any(node.name == name for node in spec.nodes):
        raise LabError(f"lab '{spec.name}' has {name} already; it has {', '.join(n.name for n in spec.nodes)}")
    if spec.vms:
        raise LabError(f"lab '{spec.name}' has virtual machines; nodes join labs of containers alone")
    if len(spec.nodes) >= MOST:
        raise LabError(f"lab '{spec.name}' has {number_of(len(spec.nodes), 'node')}, and a lab has {MOST} at most")
    taken = {node.number for node in spec.nodes}
    number = next(n for n in range(1, MOST + 1) if n not in taken)
    return replace(spec, nodes=(*spec.nodes, NodeSpec(name, GROUP_OF[kind], number)))


def shrunk(spec: LabSpec, name: str) -> LabSpec:
    """The lab without a node; LabError where it is the head, or the last GPU server."""
    node = spec.node(name)
    rest = tuple(other for other in spec.nodes if other.name != name)
    if node.group == "heads":
        raise LabError(f"{name} is the head, without which there is no lab; take the lab down: toolkit lab down")
    if not any(other.group == "gpu_servers" for other in rest):
        raise LabError(f"{name} is the last GPU server of lab '{spec.name}'; take the lab down: toolkit lab down")
    return replace(spec, nodes=rest)


def add(lab: str, name: str, say: Say, copy: Path | None = None) -> LabSpec:
    """Let a node join a lab that is up; returns when it answers ssh.

    What is left of a node of that name that the inventory does not list goes first: an `add` was killed, or the node
    left. The inventory in the lab's folder has it then, and a copy in `copy`. Raises LabError; a node that does not
    come up is taken away again.
    """
    with locked(lab):
        spec = load(lab)
        if not is_up(lab):
            raise LabError(f"lab '{lab}' is not up; bring it up first: toolkit lab up")
        there = next((node for node in spec.nodes if node.name == name), None)
        if there is not None and not _listed(copy if copy and (copy / HOSTS).is_file() else inventory_dir(lab), name):
            say(f"{name}: clearing what is left of it; the inventory does not list it")
            spec = _without(spec, there)
        wanted = grown(spec, name)
        release = release_for(os_key(spec.os))
        check_ready(False)
        image = base_image(release, say)
        built = emulation(image, release.title, say)
        node = wanted.node(name)
        _write(wanted)
        try:
            _start(wanted, node, image, built, say)
        except BaseException:
            say(f"taking {name} away again")
            _without(wanted, node)
            raise
        frameworks.give(wanted.dir, [wanted.node_dir(node) / "root"], frameworks.newest(wanted.dir))
        _renew_inventory(wanted, built, say, copy, name)
        return wanted


def remove(lab: str, name: str, say: Say, copy: Path | None = None) -> LabSpec:
    """Take a node out of a lab that is up: its processes, files and network go, and the inventory lists it no more."""
    with locked(lab):
        spec = load(lab)
        rest = shrunk(spec, name)
        say(f"stopping {name}")
        spec = _without(spec, spec.node(name))
        built = emulation(base_image(release_for(os_key(spec.os)), say), spec.os, say)
        _renew_inventory(rest, built, say, copy)
        return rest


def _start(spec: LabSpec, node: NodeSpec, image: Path, built: Emulation | None, say: Say) -> None:
    raise_inotify(nodes_of_all_labs())
    public = (spec.dir / "id_ed25519.pub").read_text()
    network.attach_node(spec, node)
    if spec.bmc:
        rack.write(spec, node, vm.MEMORY_MIB)
    if spec.switch:
        leaf.write(spec)
    nodes.prepare(spec, node, image, public, built)
    nodes.boot(spec, node, detect())
    wait_for_all(spec, (node,), say)


def _without(spec: LabSpec, node: NodeSpec) -> LabSpec:
    """End a node and all that is of it; the lab as it is then, written down last, so that this can be repeated."""
    rack.remove(spec, node)  # first: its BMC would switch it on again
    nodes.stop(spec.name, [node.name], detect())
    nodes.discard(spec.node_dir(node))
    if spec.node_ns(node) in network.namespaces_of(spec.name):
        network.delete_node(spec, node)
    faults = read_faults(spec)
    if faults.pop(node.name, None) is not None:
        (spec.dir / "faults.json").write_text(json.dumps(faults))
    rest = replace(spec, nodes=tuple(other for other in spec.nodes if other.name != node.name))
    _write(rest)
    if rest.switch:
        leaf.write(rest)
    return rest


def _write(spec: LabSpec) -> None:
    path = spec.dir / "spec.json"
    new = path.with_suffix(".new")
    new.write_text(json.dumps(asdict(spec)))
    new.replace(path)


def _listed(folder: Path, name: str) -> bool:
    """Whether an inventory of the lab has the node: it came up once, so that what it has is not cleared by itself."""
    hosts = folder / HOSTS
    return hosts.is_file() and re.search(rf"^\s+{name}:", hosts.read_text(), re.MULTILINE) is not None


def _renew_inventory(spec: LabSpec, built: Emulation | None, say: Say, copy: Path | None, new: str = "") -> None:
    """Write the lab's inventory, and its copy, anew; `new` is the node that comes in.

    What `toolkit node remove` took out stays out, and so does what a killed `add` left.
    """
    served = serve_vendors(spec, say)
    for folder in (inventory_dir(spec.name), copy):
        if folder is None:
            continue
        there = (folder / HOSTS).is_file()
        kept = tuple(n for n in spec.nodes if not there or n.name == new or _listed(folder, n.name))
        with _same_age(folder / HOSTS):
            write_inventory(replace(spec, nodes=kept), folder, served, built, keep_engine=True)


@contextlib.contextmanager
def _same_age(path: Path) -> Iterator[None]:
    """Keep a file's time: by that of its inventory a lab's record of deployments is told from an earlier lab's, and
    this is the same lab."""
    before = path.stat() if path.exists() else None
    yield
    if before is not None:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
