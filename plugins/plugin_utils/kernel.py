"""Boot parameters, module blacklist and kernel packages: what role kernel does, from one reading of the node."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

Json = Mapping[str, Any]

GRUB_CONFIG = "/boot/grub/grub.cfg"
GRUB_DEFAULTS = "/etc/default/grub"
MEMORY = "/var/lib/elastic-ai/kernel.json"
ENTRIES = "/boot/loader/entries/*.conf"
#: Files whose text the plan needs: __kernel_reads of the role.
READS = (MEMORY, GRUB_CONFIG, GRUB_DEFAULTS, ENTRIES)
#: What turns the IOMMU on, by the vendor of the host bridge.
IOMMU = {"0x8086": "intel_iommu=on", "0x1022": "amd_iommu=on"}
HOST_BRIDGE = "0x0600"


def boot_arguments(options: Json, pci: Iterable[Json]) -> list[str]:
    """The boot parameters wanted, in a fixed order.

    options: iommu_passthrough, numa_balancing, cstate_max (-1: leave), hugepages [{size, count}], extra {name: value}.
    """
    arguments: list[str] = []
    if options["iommu_passthrough"]:
        bridges = {d["vendor"] for d in pci if str(d["class"]).startswith(HOST_BRIDGE)}
        arguments += [IOMMU[vendor] for vendor in sorted(bridges) if vendor in IOMMU]
        arguments.append("iommu=pt")
    if not options["numa_balancing"]:
        arguments.append("numa_balancing=disable")
    if options["cstate_max"] >= 0:
        arguments += [f"intel_idle.max_cstate={options['cstate_max']}", f"processor.max_cstate={options['cstate_max']}"]
    for pages in options["hugepages"]:
        arguments += [f"hugepagesz={pages['size']}", f"hugepages={pages['count']}"]
    for name, value in sorted(options["extra"].items()):
        arguments.append(f"{name}={value}" if value not in (None, "") else str(name))
    return arguments


def _missing(arguments: Iterable[str], words: Iterable[str]) -> list[str]:
    there = set(words)
    return [a for a in arguments if a not in there]


def _memory(contents: Json) -> dict[str, Any]:
    text = str(contents.get(MEMORY) or "").strip()
    memory: dict[str, Any] = json.loads(text) if text else {}
    return {"arguments": memory.get("arguments", []), "held": memory.get("held", [])}


def _loader(contents: Json) -> str:
    """grub (Debian's update-grub), bls (EL's grubby) or ''."""
    if any(path.startswith("/boot/loader/entries/") for path in contents):
        return "bls"
    return "grub" if contents.get(GRUB_DEFAULTS) and contents.get(GRUB_CONFIG) else ""


def _boot_lines(contents: Json, loader: str) -> list[list[str]]:
    """The words of each line that boots a kernel, without recovery entries."""
    if loader == "bls":
        texts = [t for p, t in contents.items() if p.startswith("/boot/loader/entries/") and "rescue" not in p]
        found = [re.findall(r"^options\s+(.*)$", text, re.M) for text in texts]
        return [line.split() for lines in found for line in lines]
    lines = re.findall(r"^\s*linux\S*\s+\S+\s+(.*)$", str(contents.get(GRUB_CONFIG, "")), re.M)
    return [line.split() for line in lines if "single" not in line.split() and "recovery" not in line.split()]


def kernel_plan(node: Json, wanted: Json) -> dict[str, Any]:
    """What to write, what to run and what waits for a reboot.

    node: a reading of node_state with the text of READS, the packages to hold, module nouveau and pci.
    wanted: options (boot_arguments), nouveau_off, hold, series, packages (names that bring a kernel).
    """
    memory, contents = _memory(node["contents"]), node["contents"]
    loader = _loader(contents)
    arguments = boot_arguments(wanted["options"], node["pci"])
    empty: dict[str, Any] = {
        "loader": "",
        "arguments": [],
        "boot_files_differ": False,
        "to_remove": [],
        "to_hold": [],
        "to_release": [],
        "held": [],
        "nouveau_off": False,
        "reboot_required": [],
    }
    if node["in_container"]:
        said = "boot parameters, module blacklist and kernel packages are those of the container's host"
        return {**empty, "not_applicable": [said]}
    not_applicable = []
    if not loader and arguments:
        not_applicable.append(f"the boot loader is not GRUB: set the boot parameters by hand: {' '.join(arguments)}")
    elif node["modules_loadable"] is False and not node["kernels"]:
        not_applicable.append("this node's kernel has no modules: there is none to blacklist")
    dropped = [a for a in memory["arguments"] if a not in arguments]
    lines = _boot_lines(contents, loader) if loader else []
    differ = any(_missing(arguments, line) or set(dropped) & set(line) for line in lines) or (
        bool(loader) and not lines
    )
    installed = [name for name in wanted["packages"] if node["packages"][name]]
    hold = installed if wanted["hold"] and wanted["series"] else []
    reasons = []
    absent = _missing(arguments, str(node["cmdline"]).split()) if loader else []
    stale = [a for a in dropped if a in str(node["cmdline"]).split()]
    if absent:
        reasons.append(f"boot parameters not in effect yet: {' '.join(absent)}")
    if stale:
        reasons.append(f"boot parameters still in effect: {' '.join(stale)}")
    if wanted["nouveau_off"] and node["modules"]["nouveau"]["loaded"]:
        reasons.append("kernel module nouveau is loaded; it stays away from the next boot on")
    newest = (node["kernels"] or [node["kernel"]])[0]
    if newest != node["kernel"]:
        reasons.append(f"kernel {node['kernel']} runs, {newest} is installed")
    return {
        "loader": loader,
        "arguments": arguments if loader else [],
        "boot_files_differ": differ,
        "to_remove": dropped,
        "to_hold": [name for name in hold if name not in node["held"]],
        "to_release": [name for name in memory["held"] if name in node["held"] and name not in hold],
        # Held by this role, and not before it came: only those are released again.
        "held": [n for n in hold if n in memory["held"] or n not in node["held"]],
        "nouveau_off": bool(wanted["nouveau_off"]),
        "reboot_required": reasons,
        "not_applicable": not_applicable,
    }


def kernel_undo(node: Json) -> dict[str, Any]:
    """What to take back; nothing where the role never ran."""
    memory = _memory(node["contents"])
    loader = _loader(node["contents"])
    words = str(node["cmdline"]).split()
    in_effect = [] if node["in_container"] else [a for a in memory["arguments"] if a in words]
    return {
        "loader": loader,
        "to_remove": memory["arguments"],
        "to_release": [name for name in memory["held"] if name in node["held"]],
        "reboot_required": [f"boot parameters still in effect: {' '.join(in_effect)}"] if in_effect else [],
    }
