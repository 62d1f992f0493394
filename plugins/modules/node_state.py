#!/usr/bin/python3
"""One read of everything a role must know about a node, so that a converged role costs one round trip."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import platform
import pwd
import re
import resource
import shutil
import socket
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.elastic_ai.toolkit.plugins.module_utils.container import read_container
from ansible_collections.elastic_ai.toolkit.plugins.module_utils.plain import plain

DOCUMENTATION = r"""
module: node_state
short_description: Read packages, units, files, links, kernel and hardware of a node in one go
version_added: 0.1.0
description:
  - A pure read; never changes anything, and runs the same in check mode.
  - Roles act only on what differs from the wanted state, so that a converged node costs few remote tasks.
options:
  packages:
    description: Packages (dpkg or rpm); the result maps each to its installed version, "" where it is not installed.
    type: list
    elements: str
    default: []
  units:
    description: systemd units; the result tells active and enabled of each.
    type: list
    elements: str
    default: []
  files:
    description: Paths or globs; the result maps each matching path to its sha256 ("" for a directory).
    type: list
    elements: path
    default: []
  contents:
    description: Small text files; the result maps each to its text, "" where it is missing; a glob stands for the
      files that match it. Never for secrets.
    type: list
    elements: path
    default: []
  links:
    description: Network interfaces; the result tells mtu, txqueuelen, operstate and addresses of each.
    type: list
    elements: str
    default: []
  own_addresses:
    description: IP addresses; the result tells of each whether a service of this node can listen at it.
    type: list
    elements: str
    default: []
  sysctls:
    description: Kernel keys; the result tells the value of each and whether this node's kernel lets us set it.
    type: list
    elements: str
    default: []
  modules:
    description: Kernel modules; the result tells loaded, version and available of each.
    type: list
    elements: str
    default: []
  pci:
    description: Whether to list the PCI devices.
    type: bool
    default: false
  sysfs_root:
    description: Where hardware and modules are read; tests plant their own tree.
    type: path
    default: /sys
  users:
    description: Local users; the result maps each to whether it exists.
    type: list
    elements: str
    default: []
  accounts:
    description: Users by name or number, by whatever the node asks for them, a directory too; the result maps each to
      its name and uid, and to nothing where there is none.
    type: list
    elements: str
    default: []
author: Elastic AI Toolkit
"""
EXAMPLES = r"""
- name: Read the node
  elastic_ai.toolkit.node_state:
    packages: [chrony]
    units: [chrony.service]
  register: base_state
"""
RETURN = r"""
packages: {description: versions by package, returned: always, type: dict}
missing_packages: {description: those not installed, returned: always, type: list}
held: {description: those of the packages asked for that are on hold (dpkg) or locked to a version (dnf),
  returned: always, type: list}
units: {description: active and enabled by unit, returned: always, type: dict}
files: {description: sha256 by path, returned: always, type: dict}
contents: {description: text by path, returned: always, type: dict}
links: {description: facts by interface, returned: always, type: dict}
own_addresses: {description: whether it is the node's own by address, returned: always, type: dict}
sysctls: {description: value and settable by key, returned: always, type: dict}
package_lists: {description: whether any package lists were ever fetched, returned: always, type: bool}
cpus: {description: processors of the node whatever this login may use, and of a container those that it was given,
  returned: always, type: int}
limits: {description: hard limits of a login session in bytes or counts (-1 is unlimited) and whether this node
  may raise them, returned: always, type: dict}
kernel: {description: release of the running kernel, returned: always, type: str}
kernels: {description: releases of the installed kernels with the newest first, returned: always, type: list}
cmdline: {description: boot parameters of the running kernel, returned: always, type: str}
in_container: {description: whether the node is a container, returned: always, type: bool}
modules_loadable: {description: whether modules of the running kernel can be loaded, returned: always, type: bool}
modules: {description: loaded and version and available by module, returned: always, type: dict}
pci: {description: address and vendor and device and class and numa_node and driver of each device and its subsystem
  and whether it is a virtual function, returned: always, type: list}
users: {description: existence by user, returned: always, type: dict}
accounts: {description: name and uid by what was asked for, returned: always, type: dict}
reboot_hints: {description: packages that asked for a reboot, returned: always, type: list}
"""

CAP_SYS_RESOURCE = 24  # bit number in <linux/capability.h>
#: Architecture of Debian's packages for this machine, by the kernel's name of it.
NATIVE = {"x86_64": "amd64", "aarch64": "arm64"}
RPM_FIELDS = "%{NAME} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE} %{ARCH}\n"


def read_packages(module: AnsibleModule, names: list[str]) -> tuple[dict[str, str], list[str]]:
    """Installed version of each package ("" for one that is not completely installed), and which are held."""
    versions = dict.fromkeys(names, "")
    held: list[str] = []
    if not names:
        return versions, held
    if shutil.which("dpkg-query") is None and shutil.which("rpm") is not None:
        # The exit code counts the names that are not installed; both kinds of lines are answers.
        _, out, _ = plain(module).run_command(["rpm", "-q", "--qf", RPM_FIELDS, *names])
        for line in out.splitlines():
            name, version, architecture = [*line.split(" ", 2), "", ""][:3]
            if architecture in ("i386", "i486", "i586", "i686") and platform.machine() == "x86_64":
                continue
            for asked in (name, f"{name}-{version}.{architecture}"):  # as kernel-devel of one kernel is asked for
                if asked in versions:
                    versions[asked] = version
        locks = Path("/etc/dnf/plugins/versionlock.list")
        lines = locks.read_text(encoding="utf-8").splitlines() if locks.is_file() else []
        held = [name for name in versions if any(re.match(re.escape(name) + r"-\d+:", line) for line in lines)]
        return versions, held
    fields = "${Package} ${db:Status-Want} ${db:Status-Status} ${Version} ${Architecture}\n"
    native = NATIVE.get(platform.machine(), "")
    # dpkg-query exits 1 when some name is unknown and still lists the others: both are answers.
    code, out, err = plain(module).run_command(["dpkg-query", "-W", "-f", fields, *names])
    if code not in (0, 1):
        module.fail_json(msg=f"dpkg-query failed: {err.strip()}")
    for line in out.splitlines():
        name, want, status, version, architecture = [*line.split(" ", 4), "", "", "", ""][:5]
        if native and architecture not in (native, "all", ""):
            continue  # libcuda1:i386 is no libcuda1
        if name in versions and (status == "installed" or status.startswith("triggers")):
            versions[name] = version
            if want == "hold":
                held.append(name)
    return versions, held


def read_units(module: AnsibleModule, names: list[str]) -> dict[str, dict[str, bool]]:
    """Whether each unit is active and enabled; an unknown unit is neither."""
    units = {name: {"active": False, "enabled": False} for name in names}
    if not names:
        return units
    code, out, err = plain(module).run_command(
        ["systemctl", "show", "--property=Id,Names,ActiveState,UnitFileState", "--", *names]
    )
    if code != 0:
        module.fail_json(msg=f"systemctl show failed: {err.strip()}")
    for name, block in zip(names, out.strip("\n").split("\n\n")):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        units[name] = {
            "active": values.get("ActiveState") == "active",
            "enabled": values.get("UnitFileState", "").startswith("enabled"),
        }
    return units


def matching(pattern: str) -> list[str]:
    """Existing paths that match a pattern, sorted."""
    return sorted(glob.glob(pattern))  # noqa: PTH207 - absolute patterns, which Path.glob refuses


def read_files(patterns: list[str]) -> dict[str, str]:
    """sha256 of each existing path that matches a pattern."""
    found: dict[str, str] = {}
    for pattern in patterns:
        for name in matching(pattern):
            path = Path(name)
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return found


def read_contents(patterns: list[str]) -> dict[str, str]:
    """Text of each file, "" where it is missing; a glob contributes the files that match it."""
    names = [n for p in patterns for n in (matching(p) if glob.has_magic(p) else [p])]
    return {n: Path(n).read_text(encoding="utf-8", errors="replace") if Path(n).is_file() else "" for n in names}


def addresses(link: dict[str, Any], family: str) -> list[str]:
    """Addresses of one family of a link as `ip` lists it."""
    return [f"{a['local']}/{a['prefixlen']}" for a in link.get("addr_info", []) if a.get("family") == family]


def read_links(module: AnsibleModule, names: list[str]) -> dict[str, dict[str, Any]]:
    """MTU in bytes, queue length in packets, state and addresses (with prefix length) of each interface."""
    links: dict[str, dict[str, Any]] = {
        name: {"exists": False, "mtu": 0, "txqueuelen": 0, "operstate": "absent", "addresses": [], "addresses6": []}
        for name in names
    }
    if not names:
        return links
    code, out, err = plain(module).run_command(["ip", "-json", "address", "show"])
    if code != 0:
        module.fail_json(msg=f"ip address show failed: {err.strip()}")
    for link in json.loads(out):
        if link.get("ifname") in links:
            links[link["ifname"]] = {
                "exists": True,
                "mtu": link.get("mtu", 0),
                "txqueuelen": link.get("txqlen", 0),
                "operstate": link.get("operstate", "").lower(),
                "addresses": addresses(link, "inet"),
                "addresses6": addresses(link, "inet6"),
            }
    return links


def read_sysctls(keys: list[str]) -> dict[str, dict[str, Any]]:
    """Value of each key (blanks folded) and whether the node may set it.

    access(2) answers for the mount too: below a read-only /proc/sys, as in containers, a key is not writable.
    """
    values: dict[str, dict[str, Any]] = {}
    for key in keys:
        path = Path("/proc/sys") / key.replace(".", "/")
        try:
            value = " ".join(path.read_text(encoding="ascii").split())
        except OSError:
            value = ""
        values[key] = {"value": value, "settable": os.access(path, os.W_OK)}
    return values


def read_limits() -> dict[str, Any]:
    """Hard limits of the login session that runs this module, and whether the node may raise them."""
    bounding = 0
    for line in Path("/proc/1/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapBnd:"):
            bounding = int(line.split()[1], 16)
    return {
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],
        "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "raisable": bool(bounding >> CAP_SYS_RESOURCE & 1),
    }


def word(path: Path) -> str:
    """Text of a one-line sysfs file, "" where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def release_key(release: str) -> list[tuple[int, int, str]]:
    """Order of kernel releases: numbers count as numbers, so that 6.1.0-9 comes before 6.1.0-21."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.findall(r"\d+|[^\d.+~-]+", release)]


def read_kernels(root: Path = Path("/")) -> list[str]:
    """Releases that have a kernel image or a tree of modules, newest first."""
    trees = {path.parent.name for path in root.glob("lib/modules/*/modules.dep")}
    images = {path.name.removeprefix("vmlinuz-") for path in root.glob("boot/vmlinuz-*")}
    return sorted(trees | images, key=release_key, reverse=True)


def read_modules(module: AnsibleModule, names: list[str], sysfs: Path, kernel: str) -> dict[str, dict[str, Any]]:
    """Whether each module is loaded (or built in), its version, and whether the running kernel has it."""
    tree = Path("/lib/modules") / kernel
    there: set[str] = set()
    if names:
        for listing in (tree / "modules.dep", tree / "modules.builtin"):
            files = (line.split(":")[0] for line in word(listing).splitlines())
            there |= {Path(file).name.split(".ko")[0].replace("-", "_") for file in files}
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        own = name.replace("-", "_")
        loaded, available = (sysfs / "module" / own).is_dir(), own in there
        version = word(sysfs / "module" / own / "version")
        if not version and available and shutil.which("modinfo"):
            version = plain(module).run_command(["modinfo", "-F", "version", own])[1].strip()
        found[name] = {"loaded": loaded, "version": version, "available": available or loaded}
    return found


def manages_switches(path: Path) -> dict[str, bool]:
    """Whether an InfiniBand function of ConnectX is there for the NVSwitches of its board; {} where nobody can read."""
    if word(path / "vendor") != "0x15b3" or not word(path / "class").startswith("0x0207"):
        return {}
    try:
        return {"manages_switches": b"SW_MNG" in (path / "vpd").read_bytes()}
    except OSError:
        return {}


def read_pci(sysfs: Path) -> list[dict[str, Any]]:
    """All PCI devices."""
    devices = []
    for path in sorted((sysfs / "bus/pci/devices").glob("*")):
        node, driver, board = word(path / "numa_node"), path / "driver", word(path / "subsystem_device")
        devices.append(
            {
                "address": path.name,
                "vendor": word(path / "vendor"),
                "device": word(path / "device"),
                "class": word(path / "class"),
                **({"subsystem": board} if board else {}),
                **({"virtual": True} if (path / "physfn").exists() else {}),
                **manages_switches(path),
                "numa_node": int(node) if re.fullmatch(r"-?\d+", node) else -1,
                "driver": driver.resolve().name if driver.exists() else "",
            }
        )
    return devices


def is_own(address: str) -> bool:
    """Whether a service of this node can listen at an address; False for what is no IP address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as one:
        try:
            one.bind((address, 0))
        except OSError:
            return False
    return True


def read_cpus(in_container: bool) -> int:
    """Processors of this node. Not those of this session, which systemd may hold to a few (CPUAffinity, AllowedCPUs).

    Of a container, which shows its host's, those that it was given: asked for all, the kernel grants these.
    """
    every = os.sysconf("SC_NPROCESSORS_ONLN")
    if not in_container:
        return every
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))
        return len(os.sched_getaffinity(0))
    except OSError:
        return len(before)
    finally:
        os.sched_setaffinity(0, before)


def user_exists(name: str) -> bool:
    """Whether the node knows a user."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def account(word: str) -> dict[str, Any]:
    """Name and uid of a user by either; nothing where the node knows none."""
    try:
        found = pwd.getpwuid(int(word)) if word.isdigit() else pwd.getpwnam(word)
    except (KeyError, OverflowError):
        return {}
    return {"name": found.pw_name, "uid": found.pw_uid}


def main() -> None:
    """Read what was asked for and return it."""
    listed = {"type": "list", "elements": "str", "default": []}
    paths = {"type": "list", "elements": "path", "default": []}
    module = AnsibleModule(
        argument_spec={
            "packages": listed,
            "units": listed,
            "files": paths,
            "contents": paths,
            "links": listed,
            "own_addresses": listed,
            "sysctls": listed,
            "modules": listed,
            "pci": {"type": "bool", "default": False},
            "sysfs_root": {"type": "path", "default": "/sys"},
            "users": listed,
            "accounts": listed,
        },
        supports_check_mode=True,
    )
    wanted = module.params
    sysfs, kernel, in_container = Path(wanted["sysfs_root"]), platform.release(), read_container()
    packages, held = read_packages(module, wanted["packages"])
    hints = Path("/run/reboot-required.pkgs") if Path("/run/reboot-required").exists() else Path("/nonexistent")
    module.exit_json(
        changed=False,
        packages=packages,
        missing_packages=[name for name, version in packages.items() if not version],
        held=held,
        units=read_units(module, wanted["units"]),
        files=read_files(wanted["files"]),
        contents=read_contents(wanted["contents"]),
        links=read_links(module, wanted["links"]),
        own_addresses={address: is_own(address) for address in wanted["own_addresses"]},
        sysctls=read_sysctls(wanted["sysctls"]),
        limits=read_limits(),
        cpus=read_cpus(in_container),
        package_lists=any(Path("/var/lib/apt/lists").glob("*_Packages*")),
        kernel=kernel,
        kernels=read_kernels(),
        cmdline=word(Path("/proc/cmdline")),
        in_container=in_container,
        modules_loadable=not in_container and (Path("/lib/modules") / kernel).is_dir(),
        modules=read_modules(module, wanted["modules"], sysfs, kernel),
        pci=read_pci(sysfs) if wanted["pci"] else [],
        users={name: user_exists(name) for name in wanted["users"]},
        accounts={word: account(word) for word in wanted["accounts"]},
        reboot_hints=sorted(set(word(hints).splitlines())),
    )


if __name__ == "__main__":
    main()
