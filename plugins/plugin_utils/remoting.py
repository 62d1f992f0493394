"""What roles remoting_server and remoting_client know of the servers of leases."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterable, Mapping
from typing import Any


def lease_gpus(inventory: str, address: str, memory_mib: int) -> dict[str, Any]:
    """GPUs and problem of a server by what its inventory program prints, "" where it did not run, where it listens, and
    the host memory that it gives each device of a lease (0: what the engine states).

    Without the memory in use: it changes while the pool is provisioned again.
    """
    said = json.loads(inventory) if inventory else {"gpus": [], "problem": ""}
    gpus = [{key: value for key, value in gpu.items() if key != "used_mib"} for gpu in said["gpus"]]
    return {"gpus": gpus, "problem": said["problem"], "address": address, "memory_mib": memory_mib}


def lease_idle_minutes(pool: Mapping[str, Any]) -> dict[str, float]:
    """`classes.NAME` and `users.NAME` -> idle_minutes, of those classes of the policies that have it."""
    found = {}
    for kind in ("classes", "users"):
        for name, one in (pool.get(kind) or {}).items():
            if (one or {}).get("idle_minutes") is not None:
                found[f"{kind}.{name}"] = float(one["idle_minutes"])
    return found


def lease_people(pool: Mapping[str, Any]) -> dict[str, list[str]]:
    """The users and the groups of the policy's classes of users, each once."""
    classes = [one or {} for one in (pool.get("users") or {}).values()]
    return {
        kind: sorted({str(name) for one in classes for name in one.get(kind) or []}) for kind in ("users", "groups")
    }


#: The image of the stage of the training, which every server has where the policy names no other.
TRAINING_IMAGE = "training"


def lease_default_image(pool: Mapping[str, Any], images: Iterable[Mapping[str, Any]]) -> str:
    """The image for programs that a server cannot run without one: the policy's, else the first that the role keeps
    there (variable remoting_server_images), else that of the training."""
    kept = [str(image["name"]) for image in images]
    return str(pool.get("default_image") or [*kept, TRAINING_IMAGE][0])


def lease_addresses(names: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Short host name -> where leases listen there, as the default of remoting_server_address has it: by the inventory,
    so that a run of some nodes knows all."""
    addresses = {}
    for host in names:
        given = hostvars[host]
        port = next(iter(given.get("fabric_ports") or [{}]))
        address = given.get("remoting_server_address") or port.get("address") or given.get("ansible_host") or host
        addresses[host.split(".")[0]] = str(address).strip().split("/")[0]
    return addresses


def lease_servers(names: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]], recorded: str) -> dict[str, Any]:
    """Short host name -> what role remoting_server found there; of a host that the run does not reach what is recorded.

    `recorded` is the text of the node's pool.json, "" where there is none. What the server's survey found is added (the
    stage of the training makes one more, after it brought an image), and without a survey, as in check mode, what the
    last one found.
    """
    known = (json.loads(recorded) if recorded else {}).get("servers") or {}
    servers = {}
    for host in names:
        name, found = host.split(".")[0], hostvars[host].get("remoting_server_found") or {}
        if found.get("gpus") or found.get("problem"):
            servers[name] = found
        elif name in known:
            servers[name] = known[name]
        offers = hostvars[host].get("remoting_server_offers") or (known.get(name) or {}).get("offers")
        if offers and name in servers:
            servers[name] = {**servers[name], "offers": offers}
    return servers


def engine_described(path: str) -> dict[str, Any]:
    """engine.json of an archive on this machine; {} for none, a URL, and one that the role will refuse."""
    if not path or "://" in path:
        return {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            file = archive.extractfile("engine.json")
            data = json.loads(file.read(1 << 20)) if file else {}
    except (OSError, EOFError, KeyError, ValueError, tarfile.TarError):
        return {}
    return data if isinstance(data, dict) else {}


def driver_opens_devices(params: str, gid: str) -> bool:
    """Whether the driver that is loaded makes device files for others than root and the group of this number.

    params: /proc/driver/nvidia/params, "" where no driver is loaded.
    """
    told = dict(re.findall(r"^(\w+): (\d+)\s*$", params, re.MULTILINE))
    return bool(params.strip()) and (told.get("DeviceFileMode"), told.get("DeviceFileGID")) != (str(0o660), str(gid))


def driver_unused(modules: str) -> list[str]:
    """NVIDIA's modules in the order in which they can be unloaded; none where something has one of them open.

    modules: /proc/modules, whose third word counts who uses a module, and whose fourth names the modules among these.
    """
    lines = [line.split() for line in modules.splitlines() if re.match(r"nvidia(_\w+)?\s", line)]
    users = {words[0]: [name for name in words[3].split(",") if name not in ("", "-")] for words in lines}
    if any(int(words[2]) > len(users[words[0]]) or not set(users[words[0]]) <= set(users) for words in lines):
        return []
    order: list[str] = []
    while len(order) < len(users):
        free = sorted(name for name in users if name not in order and set(users[name]) <= set(order))
        if not free:
            return []
        order += free
    return order


def engine_refused(path: str, sha256: str, archive: Mapping[str, Any], variable: str = "remoting_engine") -> list[str]:
    """Why the archive of an engine is refused: no declared checksum, not there, or of another one.

    archive: what module stat said of it; {} where `path` is a URL, which is checked when it is downloaded. variable:
    how the inventory's variables of this engine begin.
    """
    if not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        return [f"{variable}_sha256 is not set (64 hex digits); sha256sum {path} tells it"]
    if not archive:
        return []
    if not archive["exists"]:
        return [f"{variable}_artifact: {path} is not on this machine"]
    actual = archive.get("checksum") or "of a folder"
    if actual != sha256.lower():
        return [f"{variable}_artifact: {path} has the checksum {actual}, and {variable}_sha256 says {sha256}"]
    return []
