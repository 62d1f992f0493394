#!/usr/bin/python3
"""Observe what decides whether a node can be provisioned; the decision is the controller's."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.elastic_ai.toolkit.plugins.module_utils.bluefield import read_bluefields
from ansible_collections.elastic_ai.toolkit.plugins.module_utils.container import read_container
from ansible_collections.elastic_ai.toolkit.plugins.module_utils.foreign import read_foreign
from ansible_collections.elastic_ai.toolkit.plugins.module_utils.network import device_states, read_claims, renamed
from ansible_collections.elastic_ai.toolkit.plugins.module_utils.packet_filter import read_filters
from ansible_collections.elastic_ai.toolkit.plugins.module_utils.plain import plain
from ansible_collections.elastic_ai.toolkit.plugins.module_utils.time_servers import ask_time_servers

DOCUMENTATION = r"""
module: node_preflight
short_description: Observe what decides whether a node can be provisioned
version_added: 0.1.0
description:
  - A pure read without a judgement. What it returns can be recorded and judged later without the node.
  - Kernel, installed kernels and PCI devices are read by node_state.
options:
  disk_paths: {description: paths whose free space is asked for, type: list, elements: path, default: []}
  sysfs_root: {description: where hardware is read; tests plant their own tree, type: path, default: /sys}
  controller_time_s: {description: the controller's clock just before this call, type: float, required: true}
  time_servers: {description: those to ask for the time (in a container none), type: list, elements: str, default: []}
author: Elastic AI Toolkit
"""
EXAMPLES = r"""
- name: Observe the node
  elastic_ai.toolkit.node_preflight:
    disk_paths: [/opt, /var]
    controller_time_s: "{{ now(utc=true).timestamp() }}"
"""
RETURN = r"""
hostname: {description: the node's own name, returned: always, type: str}
hostname_resolves: {description: whether the node can resolve it, returned: always, type: bool}
os: {description: id and version and whether it is like rhel, returned: always, type: dict}
architecture: {description: machine, returned: always, type: str}
python: {description: version of Python, returned: always, type: str}
glibc: {description: version of the C library and empty where it is another, returned: always, type: str}
root: {description: whether the module runs as root, returned: always, type: bool}
systemd: {description: whether systemd is the init, returned: always, type: bool}
memory_mib: {description: memory, returned: always, type: int}
disks: {description: by path - existing folder above it and its device and free_mib, returned: always, type: dict}
ipv6: {description: IPv6 addresses of a wider scope than the link or the host, returned: always, type: list}
links: {description: IPv4 addresses by network interface, returned: always, type: dict}
network: {description: running network managers and files that configure ports and NetworkManager's state of each port,
  returned: always, type: dict}
carrier: {description: by network interface that is up whether it has a carrier, returned: always, type: dict}
bluefield: {description: "mode by network interface of a BlueField: dpu, nic, empty", returned: always, type: dict}
drivers: {description: kernel driver by network interface that has one, returned: always, type: dict}
links_error: {description: why the interfaces could not be listed, returned: always, type: str}
filters: {description: chains of the packet filter that refuse by default and what they let in,
  returned: always, type: list, elements: dict}
headers: {description: of the running kernel - present or installable or missing or unknown, returned: always,
  type: str}
secure_boot: {description: enabled or disabled or unsupported or unknown, returned: always, type: str}
mok_enrolled: {description: this node's signing keys that its firmware trusts, returned: always, type: list}
sqv: {description: whether apt of this node verifies signatures by sqv, returned: always, type: bool}
time_servers: {description: by server why it gave no time - empty where it did, returned: always, type: dict}
tuned_profile: {description: profile of the tuned that runs, empty where none runs, returned: always, type: str}
jobs: {description: numbers of Slurm's jobs that have a step or a lease on this node, returned: always, type: list}
provisioned_release: {description: stack release that this node was provisioned with, returned: always, type: str}
provisioned_versions: {description: by role the provider and the versions that this node was provisioned with, returned:
  always, type: dict}
foreign: {description: files and services and work that no ledger of the toolkit knows, returned: always, type: dict}
node_time_s: {description: the node's clock when it answered, returned: always, type: float}
offset_at_most_s: {description: upper limit of the clock's offset; it includes the way to the node, returned: always,
  type: float}
"""

MANAGERS = ("NetworkManager", "systemd-networkd")
SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# Where DKMS of Debian and EL, and Ubuntu's, keep the certificate that they sign modules with.
MOK_FILES = ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der")


def read_os(file: Path = Path("/etc/os-release")) -> dict[str, Any]:
    """Operating system as os-release names it: assignments of the shell, with either kind of quotes or none."""
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    release = {key: value.strip().strip("\"'") for key, value in pairs}
    family = {release.get("ID", ""), *release.get("ID_LIKE", "").split()}
    return {"id": release.get("ID", "?"), "version": release.get("VERSION_ID", "?"), "rhel_like": "rhel" in family}


def read_disks(paths: list[str]) -> dict[str, dict[str, Any]]:
    """Free space on the file system that each path is or would be on."""
    disks = {}
    for path in paths:
        existing = Path(path)
        while not existing.exists():
            existing = existing.parent
        disks[path] = {
            "existing": str(existing),
            "device": existing.stat().st_dev,
            "free_mib": shutil.disk_usage(existing).free // 2**20,
        }
    return disks


def read_links(module: AnsibleModule) -> tuple[list[dict[str, Any]], str]:
    """The interfaces as `ip` lists them, and why they could not be listed."""
    code, out, err = plain(module).run_command(["ip", "-details", "-json", "address", "show"])
    if code != 0:
        return [], err.strip()
    return [link for link in json.loads(out) if "ifname" in link], ""


def wide_ipv6(links: list[dict[str, Any]]) -> list[str]:
    """IPv6 addresses by which a node reaches further than its link; those of containers' bridges are among them."""
    entries = [entry for link in links for entry in link.get("addr_info", [])]
    return sorted(e["local"] for e in entries if e.get("family") == "inet6" and e.get("scope") == "global")


def addresses(links: list[dict[str, Any]]) -> dict[str, list[str]]:
    """IPv4 addresses by interface."""
    return {
        link["ifname"]: [entry["local"] for entry in link.get("addr_info", []) if entry.get("family") == "inet"]
        for link in links
    }


def carriers(links: list[dict[str, Any]]) -> dict[str, bool]:
    """Whether something comes by the cable of each interface; of one that is switched off nobody knows."""
    flags = {link["ifname"]: set(link.get("flags", ())) for link in links}
    return {name: "LOWER_UP" in own for name, own in flags.items() if "UP" in own}


def read_drivers(sysfs: Path) -> dict[str, str]:
    """Kernel driver of each network interface with a device: mlx5_core, or cdc_ether of a BMC's USB function."""
    links = sorted((sysfs / "class/net").glob("*/device/driver"))
    return {link.parent.parent.name: link.resolve().name for link in links}


def read_network(module: AnsibleModule, links: list[dict[str, Any]]) -> dict[str, Any]:
    """Who configures the ports: managers that run, files, and what NetworkManager says of each port."""
    running = [
        name for name in MANAGERS if plain(module).run_command(["systemctl", "is-active", "--quiet", name])[0] == 0
    ]
    said = ""
    if "NetworkManager" in running and shutil.which("nmcli"):
        said = plain(module).run_command(["nmcli", "-t", "-f", "DEVICE,STATE", "device"])[1]
    claims, renames = read_claims(links), renamed(links)
    return {"running": running, "claims": claims, "networkmanager": device_states(said), "renames": renames}


def read_headers(module: AnsibleModule, in_container: bool) -> str:
    """Whether modules can be built for the running kernel, from what is here and from package lists already fetched.

    In a container, which has its host's kernel, nobody builds any: what it could fetch is not looked up.
    """
    kernel = platform.release()
    if (Path("/lib/modules") / kernel / "build" / "Makefile").exists():
        return "present"
    if in_container:
        return "unknown"
    if shutil.which("apt-cache"):
        if not any(Path("/var/lib/apt/lists").glob("*_Packages*")):
            return "unknown"
        _, out, _ = plain(module).run_command(["apt-cache", "policy", f"linux-headers-{kernel}"])
        return "installable" if re.search(r"Candidate: (?!\(none\))\S", out) else "missing"
    if shutil.which("dnf"):
        code, out, _ = plain(module).run_command(["dnf", "-q", "-C", "repoquery", f"kernel-devel-uname-r = {kernel}"])
        if code != 0:  # no cached lists
            return "unknown"
        return "installable" if out.strip() else "missing"
    return "unknown"


def read_secure_boot(sysfs: Path) -> str:
    """State of Secure Boot from the firmware's variable: four bytes of attributes, then the value."""
    if not (sysfs / "firmware/efi").is_dir():
        return "unsupported"
    try:
        return "enabled" if (sysfs / SECURE_BOOT).read_bytes()[4:5] == b"\x01" else "disabled"
    except FileNotFoundError:
        return "disabled"  # firmware without the variable does not verify
    except OSError:
        return "unknown"


def read_mok_enrolled(module: AnsibleModule) -> list[str]:
    """Certificates of this node's DKMS that the firmware trusts already."""
    if not shutil.which("mokutil"):
        return []
    enrolled = []
    for file in MOK_FILES:
        if Path(file).is_file() and "already enrolled" in plain(module).run_command(["mokutil", "--test-key", file])[1]:
            enrolled.append(file)
    return enrolled


def read_tuned(module: AnsibleModule, file: Path = Path("/etc/tuned/active_profile")) -> str:
    """The profile of the tuned that runs, "" where none runs or it has none."""
    if plain(module).run_command(["systemctl", "is-active", "--quiet", "tuned"])[0] != 0:
        return ""
    try:
        return " ".join(file.read_text(encoding="utf-8").split())
    except OSError:
        return ""


def read_jobs(proc: Path = Path("/proc"), leases: Path = Path("/run/elastic-ai/leases")) -> list[str]:
    """Jobs of Slurm with a lease or a step here: slurmstepd names its process after it, `slurmstepd: [123.batch]`."""
    found = {path.name for path in leases.glob("[0-9]*") if path.name.isdigit()}
    for process in proc.glob("[0-9]*"):  # no further: one that ends meanwhile is an error of glob's
        try:
            title = re.match(rb"slurmstepd: \[(\d+)", (process / "cmdline").read_bytes())
        except OSError:  # ended meanwhile
            continue
        if title:
            found.add(title[1].decode())
    return sorted(found, key=int)


RECORD = Path("/etc/elastic-ai/provisioned.json")


def read_record(file: Path = RECORD) -> dict[str, Any]:
    """The record that role acceptance leaves, {} without one."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def read_release(file: Path = RECORD) -> str:
    """The stack release in the record, "" without one."""
    return str(read_record(file).get("release", ""))


def read_versions(file: Path = RECORD) -> dict[str, dict[str, str]]:
    """By role what the record says of its provider, its kind of modules and its versions."""
    results = read_record(file).get("results")
    found: dict[str, dict[str, str]] = {}
    for role, result in (results if isinstance(results, dict) else {}).items():
        if isinstance(result, dict) and isinstance(result.get("versions") or {}, dict):
            own = {key: result[key] for key in ("provider", "flavour") if result.get(key)}
            told = {**own, **{key: value for key, value in (result.get("versions") or {}).items() if value}}
            found |= {role: {key: str(value) for key, value in told.items()}} if told else {}
    return found


def read_glibc() -> str:
    """Version of glibc, as 2.36; "" where the C library is another."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").partition("glibc ")[2]
    except (OSError, ValueError):
        return ""


def resolves(name: str) -> bool:
    """Whether the node can resolve a name."""
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return False
    return True


def main() -> None:
    """Observe and return."""
    module = AnsibleModule(
        argument_spec={
            "disk_paths": {"type": "list", "elements": "path", "default": []},
            "sysfs_root": {"type": "path", "default": "/sys"},
            "controller_time_s": {"type": "float", "required": True},
            "time_servers": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    arrival = time.time()  # at once: what follows must not count as an offset of the clock
    links, links_error = read_links(module)
    hostname = socket.gethostname()
    in_container = read_container()
    module.exit_json(
        changed=False,
        hostname=hostname,
        hostname_resolves=resolves(hostname),
        os=read_os(),
        architecture=platform.machine(),
        python=platform.python_version(),
        glibc=read_glibc(),
        root=os.geteuid() == 0,
        systemd=Path("/run/systemd/system").is_dir(),
        memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        disks=read_disks(module.params["disk_paths"]),
        links=addresses(links),
        ipv6=wide_ipv6(links),
        carrier=carriers(links),
        bluefield=read_bluefields(plain(module).run_command, shutil.which, Path(module.params["sysfs_root"])),
        drivers=read_drivers(Path(module.params["sysfs_root"])),
        links_error=links_error,
        filters=read_filters(plain(module).run_command),
        network=read_network(module, links),
        headers=read_headers(module, in_container),
        secure_boot=read_secure_boot(Path(module.params["sysfs_root"])),
        mok_enrolled=read_mok_enrolled(module),
        sqv=Path("/usr/bin/sqv").exists(),
        time_servers={} if in_container else ask_time_servers(module.params["time_servers"]),
        tuned_profile=read_tuned(module),
        jobs=read_jobs(),
        provisioned_release=read_release(),
        provisioned_versions=read_versions(),
        foreign=read_foreign(module.run_command, platform.release()),
        node_time_s=arrival,
        offset_at_most_s=round(arrival - module.params["controller_time_s"], 3),
    )


if __name__ == "__main__":
    main()
