#!/usr/bin/python3
"""One read of everything a role must know about a node, so that a converged role costs one round trip."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import resource
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: node_state
short_description: Read packages, units, files, links, sysctls and limits of a node in one go
description:
  - A pure read; never changes anything, and runs the same in check mode.
  - Roles act only on what differs from the wanted state, so that a converged node costs few remote tasks.
options:
  packages:
    description: Debian packages; the result maps each to its installed version, "" where it is not installed.
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
    description: Small text files; the result maps each to its text, "" where it is missing. Never for secrets.
    type: list
    elements: path
    default: []
  links:
    description: Network interfaces; the result tells mtu, txqueuelen, operstate and IPv4 addresses of each.
    type: list
    elements: str
    default: []
  sysctls:
    description: Kernel keys; the result tells the value of each and whether this node's kernel lets us set it.
    type: list
    elements: str
    default: []
author: Elastic AI Toolkit
"""
EXAMPLES = r"""
- name: Read the node
  node_state:
    packages: [chrony]
    units: [chrony.service]
  register: base_state
"""
RETURN = r"""
packages: {description: versions by package, returned: always, type: dict}
missing_packages: {description: those not installed, returned: always, type: list}
units: {description: active and enabled by unit, returned: always, type: dict}
files: {description: sha256 by path, returned: always, type: dict}
contents: {description: text by path, returned: always, type: dict}
links: {description: facts by interface, returned: always, type: dict}
sysctls: {description: value and settable by key, returned: always, type: dict}
package_lists: {description: whether any package lists were ever fetched, returned: always, type: bool}
cpus: {description: cores that a process on the node may use, returned: always, type: int}
limits: {description: hard limits of a login session in bytes or counts (-1 is unlimited) and whether this node
  may raise them, returned: always, type: dict}
"""

CAP_SYS_RESOURCE = 24  # bit number in <linux/capability.h>


def read_packages(module: AnsibleModule, names: list[str]) -> dict[str, str]:
    """Installed version of each package, "" for one that is not (completely) installed."""
    versions = dict.fromkeys(names, "")
    if not names:
        return versions
    fields = "${Package} ${db:Status-Status} ${Version}\n"
    # dpkg-query exits 1 when some name is unknown and still lists the others: both are answers.
    code, out, err = module.run_command(["dpkg-query", "-W", "-f", fields, *names])
    if code not in (0, 1):
        module.fail_json(msg=f"dpkg-query failed: {err.strip()}")
    for line in out.splitlines():
        name, status, version = [*line.split(" ", 2), "", ""][:3]
        if name in versions and status == "installed":
            versions[name] = version
    return versions


def read_units(module: AnsibleModule, names: list[str]) -> dict[str, dict[str, bool]]:
    """Whether each unit is active and enabled; an unknown unit is neither."""
    units = {name: {"active": False, "enabled": False} for name in names}
    if not names:
        return units
    code, out, err = module.run_command(
        ["systemctl", "show", "--property=Id,Names,ActiveState,UnitFileState", "--", *names]
    )
    if code != 0:
        module.fail_json(msg=f"systemctl show failed: {err.strip()}")
    for name, block in zip(names, out.strip("\n").split("\n\n"), strict=False):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        units[name] = {
            "active": values.get("ActiveState") == "active",
            "enabled": values.get("UnitFileState", "").startswith("enabled"),
        }
    return units


def read_files(patterns: list[str]) -> dict[str, str]:
    """sha256 of each existing path that matches a pattern."""
    found: dict[str, str] = {}
    for pattern in patterns:
        for name in sorted(glob.glob(pattern)):  # noqa: PTH207 - absolute patterns, which Path.glob refuses
            path = Path(name)
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return found


def read_contents(paths: list[str]) -> dict[str, str]:
    """Text of each file, "" where it is missing."""
    return {name: Path(name).read_text(encoding="utf-8") if Path(name).is_file() else "" for name in paths}


def read_links(module: AnsibleModule, names: list[str]) -> dict[str, dict[str, Any]]:
    """MTU in bytes, queue length in packets, state and addresses (with prefix length) of each interface."""
    links: dict[str, dict[str, Any]] = {
        name: {"exists": False, "mtu": 0, "txqueuelen": 0, "operstate": "absent", "addresses": []} for name in names
    }
    if not names:
        return links
    code, out, err = module.run_command(["ip", "-json", "address", "show"])
    if code != 0:
        module.fail_json(msg=f"ip address show failed: {err.strip()}")
    for link in json.loads(out):
        if link.get("ifname") in links:
            links[link["ifname"]] = {
                "exists": True,
                "mtu": link.get("mtu", 0),
                "txqueuelen": link.get("txqlen", 0),
                "operstate": link.get("operstate", "").lower(),
                "addresses": [
                    f"{a['local']}/{a['prefixlen']}" for a in link.get("addr_info", []) if a.get("family") == "inet"
                ],
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
            "sysctls": listed,
        },
        supports_check_mode=True,
    )
    wanted = module.params
    packages = read_packages(module, wanted["packages"])
    module.exit_json(
        changed=False,
        packages=packages,
        missing_packages=[name for name, version in packages.items() if not version],
        units=read_units(module, wanted["units"]),
        files=read_files(wanted["files"]),
        contents=read_contents(wanted["contents"]),
        links=read_links(module, wanted["links"]),
        sysctls=read_sysctls(wanted["sysctls"]),
        limits=read_limits(),
        cpus=len(os.sched_getaffinity(0)),
        package_lists=any(Path("/var/lib/apt/lists").glob("*_Packages*")),
    )


if __name__ == "__main__":
    main()
