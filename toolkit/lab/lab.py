"""Bringing a lab up, looking at it, and taking it down without a trace."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from toolkit.errors import LabError
from toolkit.lab import devices, frameworks, network, nodes, vm
from toolkit.lab.accel import accelerate
from toolkit.lab.bmc import rack
from toolkit.lab.debrepo import Served
from toolkit.lab.devices import Emulation, emulation
from toolkit.lab.host import check_memory, check_ready, detect, raise_inotify
from toolkit.lab.image import base_image
from toolkit.lab.inventory import write_inventory
from toolkit.lab.leaf import leaf
from toolkit.lab.sh import run
from toolkit.lab.sources import Release, machine_release, os_key, release_for
from toolkit.lab.spec import (
    DEFAULT_NAME,
    LabSpec,
    NodeSpec,
    inventory_dir,
    lab_dir,
    read_faults,
    state_root,
)
from toolkit.lab.standin import has_rpms, repositories
from toolkit.lab.vmimage import OVERLAY_GB, VmImage, check_space, vm_image
from toolkit.lab.waiting import NodeWatch, greets, wait_for_all
from toolkit.lab.wanted import WantedLab
from validation.base.counting import number_of

Say = Callable[[str], None]
T = TypeVar("T", LabSpec, NodeSpec)


@dataclass(frozen=True)
class NodeStatus:
    """What `toolkit lab status` says of a node. `memory_bytes` is None where the kernel does not account it."""

    node: str
    group: str
    management: str
    fabric: str
    rate_gbps: float
    running: bool
    ssh: bool
    fault: str | None


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lab's lock: two commands on one lab wait for each other; a killed one frees it."""
    locks = state_root() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    lab_dir(name)  # refuses a bad name before it becomes a file
    with (locks / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def load(name: str) -> LabSpec:
    """The spec of an existing lab; LabError with what to do when there is none."""
    path = lab_dir(name) / "spec.json"
    if not path.is_file():
        raise LabError(f"there is no lab '{name}'; 'toolkit lab up' makes one")
    raw = json.loads(path.read_text())
    raw.setdefault("os", machine_release().title)  # a lab made before labs could choose
    raw["nodes"] = tuple(_known(NodeSpec, n) for n in raw["nodes"])
    return _known(LabSpec, raw)


def _known(kind: type[T], values: dict[str, Any]) -> T:
    """A spec without what another release of the toolkit wrote into it: its labs must still be counted and cleared."""
    names = {field.name for field in fields(kind)}
    return kind(**{key: value for key, value in values.items() if key in names})


def names() -> list[str]:
    """Labs of which anything exists: a folder or a network namespace."""
    labs = state_root() / "labs"
    found = {p.name for p in labs.iterdir()} if labs.is_dir() else set()
    return sorted(found)


def up(wanted: WantedLab, say: Say, copy: Path | None = None, pythons: Mapping[str, str] | None = None) -> LabSpec:
    """Make the lab and its inventory; return when every node answers ssh.

    The inventory is written into the lab's own folder, and a copy of it into the folder `copy`. A lab that already runs
    as asked is left as it is, one that runs otherwise is not touched (LabError), and whatever a killed `up` left is
    cleared first. pythons: by engine, whose framework the nodes get, and the engine for it. Raises LabError.
    """
    release = release_for(wanted.os_name)
    if wanted.mirror:
        from toolkit.lab import mirrored  # here, for few labs have one

        mirrored.refuse_unusable(Path(wanted.mirror))
    check_ready(wanted.vms, rpms=has_rpms(os_key(release.title)), lldp=wanted.switch)
    with locked(wanted.name):
        asked = wanted.spec()
        chosen = [one for one in frameworks.FRAMEWORKS if one.engine in (pythons or {})]
        engines = [
            frameworks.provide(one, (pythons or {})[one.engine], base_image(release, say), say) for one in chosen
        ]
        running = running_as_asked(asked, wanted.command)
        if running is not None:
            say(f"lab '{wanted.name}' is up already")
            built = _renew_devices(running, base_image(release, say), say)
            spec, served = running, serve_vendors(running, say)
        else:
            _clear(wanted.name, say)
            spec, served, built = _make(asked, release, say)
        for folder in (inventory_dir(wanted.name), copy):
            if folder is not None:
                write_inventory(spec, folder, served, built, engines=engines)
        if engines:
            copies = {one.framework.engine: one.copy for one in engines}
            roots = [spec.node_dir(node) / "root" for node in spec.nodes if node.kind == "container"]
            commands = frameworks.give(spec.dir, roots, copies)
            for node in (node for node in spec.nodes if node.kind == "vm"):
                run([*ssh_words(spec, node), "sh"], stdin=frameworks.as_shell(commands))
        return spec


def _make(wanted: LabSpec, release: Release, say: Say) -> tuple[LabSpec, Served, Emulation | None]:
    """Images, networks and nodes of a lab of which nothing is there; whatever was made goes again when that fails."""
    machines = sum(n.kind == "vm" for n in wanted.nodes)
    if machines:
        check_memory(machines, vm.TAKEN_MIB + vm.OVERHEAD_MIB)
    image = base_image(release, say)
    built = emulation(image, release.title, say)
    vm_disk = None
    if machines:
        vm_disk = vm_image(release, say)
        found = accelerate(vm_disk, say)
        say(f"virtual machines run with {found.describe()}")
        wanted = replace(wanted, accel=found.name)
        check_space(state_root(), machines * OVERLAY_GB, f"a lab with {number_of(machines, 'virtual machine')}")
    spec = _claim(wanted)
    served = serve_vendors(spec, say)
    try:
        _start(spec, image, vm_disk, built, say)
    except BaseException:
        say("taking down what was made so far")
        _clear(spec.name, lambda _: None)
        raise
    return spec, served, built


def _renew_devices(spec: LabSpec, image: Path, say: Say) -> Emulation | None:
    """Emulated GPUs as the sources are now, in containers of a lab that runs; machines keep those they came with."""
    built = emulation(image, spec.os, say)
    for node in spec.nodes:
        if node.kind == "container":
            devices.install(spec.node_dir(node) / "root", devices.node_files(spec, node, built))
    return built


def serve_vendors(spec: LabSpec, say: Say) -> Served:
    """Point the lab at the vendors' stand-ins as the data are now; at once, also where it runs already."""
    served = repositories(os_key(spec.os), say)
    new = spec.vendor.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.symlink_to(served.folder)
    new.replace(spec.vendor)
    return served


def _claim(wanted: LabSpec) -> LabSpec:
    """The lab in networks of its own, written down: two labs that come up at the same time do not get the same."""
    with (state_root() / "locks" / ".networks").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        spec = replace(wanted, index=network.free_index(_taken()))
        spec.dir.mkdir(parents=True)
        (spec.dir / "spec.json").write_text(json.dumps(asdict(spec)))
    return spec


def _taken() -> set[int]:
    return {load(n).index for n in names() if (lab_dir(n) / "spec.json").is_file()}


def running_as_asked(wanted: LabSpec, command: str) -> LabSpec | None:
    """The lab as it runs, when it is healthy and as wanted; None when there is none or it must be made anew.

    LabError where it runs and is not what `command` asks for: what to do is said, and nothing is taken down.
    """
    name = wanted.name
    if not (lab_dir(name) / "spec.json").is_file():
        return None
    spec, states = load(name), status(name)
    if spec == replace(wanted, index=spec.index, accel=spec.accel):
        return spec if all(s.ssh and not s.fault for s in states) else None
    if not any(s.running for s in states):
        return None
    down = f"toolkit lab down{'' if name == DEFAULT_NAME else f' --name {name}'}"
    raise LabError(f"lab '{name}' is up with {_described(spec)}; run '{down}' first, then '{command}'")


def _described(spec: LabSpec) -> str:
    """`4 nodes (2 virtual machines) of debian12 at 1 Gbit/s`."""
    machines = sum(n.kind == "vm" for n in spec.nodes)
    sort = number_of(machines, "virtual machine") if machines else "containers"
    system = f"{os_key(spec.os)}{' (stand-in)' if spec.over else ''}"
    return f"{number_of(len(spec.nodes), 'node')} ({sort}) of {system} at {spec.rate_gbps:g} Gbit/s"


def _start(spec: LabSpec, image: Path, vm_disk: VmImage | None, built: Emulation | None, say: Say) -> None:
    host = detect()
    say(f"host: {host.describe()}")
    raise_inotify(nodes_of_all_labs())
    key = spec.dir / "id_ed25519"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"lab {spec.name}", "-f", str(key)])
    public = key.with_suffix(".pub").read_text()
    network.create_switch(spec)
    if spec.bmc:
        rack.prepare(spec, vm.MEMORY_MIB)
    if spec.switch:
        leaf.prepare(spec)

    def make(node: NodeSpec) -> None:
        network.attach_node(spec, node)
        if node.kind == "vm":
            assert vm_disk is not None
            vm.prepare(spec, node, vm_disk, public, built)
            vm.boot(spec, node, host)
        else:
            nodes.prepare(spec, node, image, public, built)
            nodes.boot(spec, node, host)

    with ThreadPoolExecutor(8) as pool:
        # Machines take longest, so they start first.
        list(pool.map(make, sorted(spec.nodes, key=lambda n: n.kind != "vm")))
        network.start_services(spec, host)
        if spec.bmc:
            where = [rack.address(spec, node) for node in spec.nodes]
            network.start_bmcs(spec, host, rack.folder(spec), where, rack.PORT)
        if spec.switch:
            network.start_leaf(spec, host, leaf.folder(spec), leaf.address(spec), leaf.PORT)

        def again(node: NodeSpec, doing: str) -> None:
            """As when root had no inotify instance left: what it does is said, and it boots once more."""
            say(f"{node.name} does not answer ssh; it is started once more. {doing}")
            nodes.stop(spec.name, [node.name], host, grace_s=0)
            nodes.boot(spec, node, host)

        wait_for_all(spec, spec.nodes, say, NodeWatch(again=again))


def boot(spec: LabSpec, node: NodeSpec, say: Say) -> None:
    """Start a node that lost its power, and return when it answers ssh."""
    (vm.boot if node.kind == "vm" else nodes.boot)(spec, node, detect())
    wait_for_all(spec, (node,), say)


def nodes_of_all_labs() -> int:
    """How many nodes the labs of this machine have together."""
    count = 0
    for name in names():
        with contextlib.suppress(LabError):  # another lab may go while this one comes
            count += len(load(name).nodes)
    return count


def status(name: str) -> list[NodeStatus]:
    """One entry per node of the lab; LabError when there is no such lab."""
    spec = load(name)
    faults = read_faults(spec)

    def look(node: NodeSpec) -> NodeStatus:
        address = spec.management_address(node)
        return NodeStatus(
            node=node.name,
            group=node.group,
            management=address,
            fabric=spec.fabric_address(node),
            rate_gbps=spec.rate_gbps,
            running=bool(nodes.processes(name, node.name)),
            ssh=greets(address, 10 if node.kind == "vm" else 3),
            fault=faults.get(node.name),
        )

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(look, spec.nodes))


def ssh_words(spec: LabSpec, node: NodeSpec) -> list[str]:
    """ssh to a node as root, to be followed by a command. Every lab has host keys of its own, so none is kept."""
    checks = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    return ["ssh", "-i", str(spec.dir / "id_ed25519"), *checks, f"root@{spec.management_address(node)}"]


def down(name: str, say: Say) -> bool:
    """Take the lab down; True when there was anything. Works by name, so it clears half-made labs as well."""
    with locked(name):
        return _clear(name, say)


def _clear(name: str, say: Say) -> bool:
    home = lab_dir(name)
    if not home.exists() and not network.namespaces_of(name):
        return False
    say(f"stopping lab '{name}'")
    folders = [p.name for p in (home / "nodes").iterdir()] if (home / "nodes").is_dir() else []
    with rack.switching(home / "bmc"):  # what a BMC starts is found below; one that is ended here starts nothing
        network.stop_services(name)
    nodes.stop(name, folders, detect())
    say(f"removing lab '{name}'")
    nodes.unmount(home)
    network.delete_networks(name)
    shutil.rmtree(home, ignore_errors=True)
    if home.exists():
        raise LabError(f"{home} could not be removed entirely; see what holds it with: findmnt -R {home}")
    return True
