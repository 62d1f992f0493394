"""The inventory of a lab, in the same form as a customer's; only the variables under "lab" exist nowhere else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import yaml

from toolkit.lab.bmc import rack
from toolkit.lab.debrepo import Served
from toolkit.lab.devices import GPU_COUNT, Emulation
from toolkit.lab.frameworks import FRAMEWORKS, EngineForNodes
from toolkit.lab.host import give_to_caller
from toolkit.lab.image import USERS
from toolkit.lab.leaf import leaf
from toolkit.lab.nodes import SHARED, host_public_key
from toolkit.lab.sources import os_key
from toolkit.lab.spec import FABRIC_MTU, STORAGE, STORAGE_GB_S, VENDOR_HOST, LabSpec, NodeSpec
from toolkit.lab.standin import PLATFORM_PYTHON, load_system

#: A round trip between two nodes over the bridge stays below this on any machine that carries a lab at all; it is
#: what a rehearsal judges latency by (ours: the host's scheduler decides, not a wire).
RTT_MAX_US = 2000.0
#: Training ranks that a lab GPU server takes in place of GPUs.
SLOTS = 2
#: A lab GPU server's emulated GPUs as the scheduler knows them, as in the reference architecture's machine.
POOL_GPUS = {"count": GPU_COUNT, "type": "v100"}
#: Who leases, as on a site where one class of users may take GPUs back from another (docs/how-to/pool.md). A lease is
#: of the first class that has its user, and takes nothing back, unless its user asks for `urgent`.
POOL: dict[str, Any] = {
    "users": {
        "everyday": {"groups": ["users"], "users": [*USERS]},
        "urgent": {"users": [*USERS], "priority": 100, "preempts": ["everyday"]},
    },
    "preemption": {"after_minutes": 0, "grace_s": 90},
}
STORAGES: list[dict[str, Any]] = [
    {"name": STORAGE, "path": SHARED, "shared": True, "read_gb_s": STORAGE_GB_S, "write_gb_s": STORAGE_GB_S}
]
VERBS = "verbs"  # remoting_server_transport
RUNC = "/usr/local/libexec/elastic-ai-lab/runc"


def _host_vars(spec: LabSpec, node: NodeSpec, emulated_gpus: bool = False) -> dict[str, Any]:
    values: dict[str, Any] = {
        "ansible_host": spec.management_address(node),
        "fabric_ports": [
            {"interface": "fab0", "address": f"{spec.fabric_address(node)}/24", "rate_gbps": spec.rate_gbps}
        ],
        "bom": {"model": rack.CONTAINER_MODEL, "gpu_count": 0, "nic_model": "veth", "fabric_port_count": 1},
    }
    if node.kind == "vm":
        values["elastic_ai_virtual"] = "qemu"
        values["elastic_ai_emulated"] = spec.accel == "tcg"
        values["bom"] |= {"model": rack.VM_MODEL, "nic_model": "virtio-net"}
        # A stock kernel of its own: real verbs over soft-RoCE, and a Docker that needs no help.
        values |= {"ofed_soft_roce": True, "roce_enabled": True, "docker_daemon_config": {}}
        values["nvidia_driver_user_space_only"] = "true"  # there is no GPU that a kernel module could drive
        if spec.accel == "tcg":
            # Unpacking the training container takes ten minutes, and no training is measured on emulated processors.
            values["horovod_state"] = "absent"
    elif spec.vms:
        values["fabric_ports"][0]["rdma"] = False  # a container has no RDMA device: this port carries TCP alone
    if spec.switch and node.kind == "container":
        # what the switch is compared with; a container's port has no such settings, and role roce reports this
        values |= {"roce_enabled": True}
        values["fabric_ports"][0]["rdma"] = False
    if node.group == "gpu_servers":
        values["training_slots"] = SLOTS
        values["slurm_gpus"] = dict(POOL_GPUS)
        if emulated_gpus:
            values["elastic_ai_emulated_gpus"] = GPU_COUNT
    return values


def inventory_document(
    spec: LabSpec, key: Path, known_hosts: Path, served: Served, keys: Path, engine: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The whole of hosts.yml as data. `engine` are the variables of the remoting engine, if the lab has one."""
    common: dict[str, Any] = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(key),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={known_hosts} -o StrictHostKeyChecking=yes",
        "ansible_python_interpreter": "/usr/bin/python3",
        "fabric_mtu": FABRIC_MTU,
        "stack": {"os": spec.os},
        "elastic_ai_virtual": "systemd-nspawn",
        # What of the stack a Debian lab can truly hold, and the vendors' repositories as this lab stands in for them.
        "stack_release": "rehearsal",
        "repos_mirror": f"http://{VENDOR_HOST}",
        "repos_key_dir": str(keys),
        "repos_fingerprints": dict.fromkeys(served.repos, served.fingerprint),
        "elastic_ai_stand_ins": list(served.repos),
        "lab_link": {"rate_gbps": spec.rate_gbps, "rtt_max_us": RTT_MAX_US} | ({"emulated": True} if spec.vms else {}),
        # A lab is made anew again and again: its training image is made once.
        "horovod_keep_image": True,
        # On every container: systemd-nspawn withholds capabilities that Docker's --privileged asks for.
        "docker_daemon_config": {"default-runtime": "lab-runc", "runtimes": {"lab-runc": {"path": RUNC}}},
    }
    if spec.over:
        common["elastic_ai_os_stand_in"] = spec.over
        system = load_system(os_key(spec.os))
        common["stack_release"] = system.stack
        common |= {"ansible_python_interpreter": f"/{PLATFORM_PYTHON}"} if system.python else {}
        common |= system.stated
        common["horovod_state"] = "absent"  # the training image is bootstrapped on Debian alone
    if spec.mirror:
        from toolkit.lab import mirrored  # here, for few labs have one

        common |= mirrored.variables(spec)
    common |= engine or {}
    common |= leaf.variables(spec, key.parent) if spec.switch else {}
    common |= {"storage": [dict(one) for one in STORAGES]} if spec.storage else {}
    if engine and any(n.group == "clients" for n in spec.nodes):
        common["slurm_pool"] = POOL
    groups: dict[str, Any] = {g: {"hosts": {}} for g in ("heads", "clients", "gpu_servers")}
    for node in spec.nodes:
        groups[node.group]["hosts"][node.name] = _host_vars(spec, node, bool(engine))
        if spec.bmc:
            groups[node.group]["hosts"][node.name]["bmc"] = rack.variable(spec, node, key.parent)
    return {"all": {"vars": common, "children": groups}}


def engine_variables(built: Emulation, artefact: Path, vms: bool = False) -> dict[str, Any]:
    """What the remoting roles need to know of the lab's engine. Virtual machines have RDMA ports: their leases go by
    verbs."""
    found = {"remoting_engine_artifact": str(artefact), "remoting_engine_sha256": built.sha256}
    return found | ({"remoting_server_transport": VERBS} if vms and VERBS in built.info.transports else {})


def standing_engine(hosts: Path) -> dict[str, Any] | None:
    """The variables of the engine that an inventory of a lab names and has; None where there is none."""
    if not hosts.is_file():
        return None
    named = yaml.safe_load(hosts.read_text())["all"]["vars"]
    found = {key: named[key] for key in ("remoting_engine_artifact", "remoting_engine_sha256") if key in named}
    return found if len(found) == 2 and Path(found["remoting_engine_artifact"]).is_file() else None


def _standing_frameworks(spec: LabSpec, hosts: Path, anew: Collection[str]) -> dict[str, object]:
    """Variables of the frameworks' engines that this inventory has, but those that come anew."""
    found: dict[str, object] = {}
    for one in FRAMEWORKS:
        if one.engine not in anew and hosts.is_file() and one.given(spec.dir):
            found |= one.standing(yaml.safe_load(hosts.read_text())["all"]["vars"])
    return found


def labels(spec: LabSpec) -> str:
    """What says of values that a site states of its own repositories that these are a stand-in's."""
    stated = load_system(os_key(spec.os)).stated if spec.over else {}
    words = "values of this stand-in; a site states those of its own repositories"
    return f"# {', '.join(stated)}: {words}.\n" if stated else ""


def write_inventory(
    spec: LabSpec,
    folder: Path,
    served: Served,
    built: Emulation | None = None,
    keep_engine: bool = False,
    engines: Sequence[EngineForNodes] = (),
) -> Path:
    """Write hosts.yml, and beside it in .lab/ the lab's key, known_hosts, the keys of the vendors' stand-ins and the
    reference engine.

    `keep_engine`: the one that is there stays, although the sources may be others now: leases may run on it. engines:
    of frameworks; without one that which the inventory names stays.
    All of it is readable for the user who called sudo.
    """
    private = folder / ".lab"
    made = [p for p in folder.parents if not p.exists()]
    vendor_keys = private / "keys"
    shutil.rmtree(vendor_keys, ignore_errors=True)
    vendor_keys.mkdir(parents=True)
    copies = [Path(shutil.copyfile(served.key, vendor_keys / f"{repo}.asc")) for repo in served.repos]
    key, known_hosts, hosts = private / "id_ed25519", private / "known_hosts", folder / "hosts.yml"
    key.unlink(missing_ok=True)
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        handle.write((spec.dir / "id_ed25519").read_text())
    lines = [f"{spec.management_address(n)} {host_public_key(spec, n)}\n" for n in spec.nodes]
    lines += [leaf.known(spec)] if spec.switch else []
    known_hosts.write_text("".join(lines))
    copies += leaf.copy_into(spec, private) if spec.switch else []
    copies += rack.copy_into(spec, private) if spec.bmc else []
    engine = standing_engine(hosts) if keep_engine else None
    beside = _standing_frameworks(spec, hosts, {one.framework.engine for one in engines})
    kept = set(map(str, beside.values()))
    of_frameworks = tuple(f"elastic-ai-{one.engine}-" for one in FRAMEWORKS)
    for old in private.glob("elastic-ai-*.tar.gz"):
        if str(old.absolute()) not in kept and (engine is None or old.name.startswith(of_frameworks)):
            old.unlink()
    if built is not None and engine is None:
        name = f"elastic-ai-{built.info.engine}-{built.info.release}.tar.gz"
        copies.append(Path(shutil.copyfile(built.artefact, private / name)))
        engine = engine_variables(built, copies[-1].absolute(), spec.vms)
    for one in engines:
        beside |= one.placed(private)
    if beside and engine is not None:
        engine = {**engine, **beside}
    places = (key.absolute(), known_hosts.absolute(), served, vendor_keys.absolute())
    document = inventory_document(spec, *places, engine)
    text = yaml.safe_dump(document, sort_keys=False, explicit_start=True)
    head = f"# Written by 'toolkit lab up' for lab '{spec.name}'; written again each time.\n"
    hosts.write_text(f"{head}{labels(spec)}{text}")
    give_to_caller(*made, folder, private, key, known_hosts, hosts, vendor_keys, *copies)
    return hosts
