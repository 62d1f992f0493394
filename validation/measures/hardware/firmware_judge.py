"""Judging firmware and BIOS settings by the BMCs: alike on servers of a model, as wanted, nothing pending."""

from __future__ import annotations

import re
from collections.abc import Mapping

from validation.judging.case import Case
from validation.judging.methods import method
from validation.measures.hardware.bios_wishes import ALIKE, WISHES
from validation.measures.hardware.facts import BmcNode
from validation.measures.hardware.seen import Findings, Seen, odd, on_each_bmc
from validation.model import Judgement
from validation.rules.criterion import Criterion

_MAC = re.compile(r"\s*-\s*([0-9A-F]{2}:){5}[0-9A-F]{2}$", re.IGNORECASE)
"""What iDRAC appends to the name of a network card's firmware."""
#: Server model -> component -> version that was tried (NVIDIA Infra Controller 2.3, its list of hardware,
#: October 2026). Older is remarked and no failure: the table certifies nothing.
TRIED: Mapping[str, Mapping[str, str]] = {
    "PowerEdge XE9680": {"BMC": "7.20.60.50", "BIOS": "2.7.4"},
    "PowerEdge R760": {"BMC": "7.20.60.50", "BIOS": "2.7.5"},
    "PowerEdge R750": {"BMC": "7.20.60.50", "BIOS": "1.18.1"},
    "PowerEdge R760xd2": {"BMC": "7.20.80.50", "BIOS": "2.9.4"},
    "PowerEdge R670": {"BMC": "1.20.80.51", "BIOS": "1.7.5"},
    "PowerEdge R770": {"BMC": "1.20.80.51", "BIOS": "1.7.5"},
    "PowerEdge R640": {"BMC": "7.00.00.182", "BIOS": "2.24.0"},
}


@method("bmc-firmware", "firmware of every part by the BMC, alike on servers of a model")
def judge_firmware(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node with a BMC: firmware as on the others of its model."""
    return on_each_bmc(case, criterion, "the versions that most servers of the model have", _firmware)


def versions(bmc: BmcNode) -> dict[str, str]:
    """Component -> its versions, those of several equal parts together."""
    found: dict[str, set[str]] = {}
    for one in bmc.firmware or ():
        found.setdefault(_MAC.sub("", one.name), set()).add(one.version)
    return {name: "/".join(sorted(mine)) for name, mine in found.items()}


def _firmware(seen: Seen, found: Findings) -> None:
    found.unknown += seen.bmc.unread("FirmwareInventory", "UpdateService")
    if not seen.bmc.firmware:
        found.unknown.append("the BMC lists no firmware")
        return
    mine = versions(seen.bmc)
    alike = {name: versions(bmc) for name, bmc in seen.alike.items() if bmc.firmware}
    for component in sorted(mine):
        others = {name: listed[component] for name, listed in alike.items() if component in listed}
        if words := odd(others, seen.node.name):
            found.wrong.append(f"firmware of {component} is {words}")
    _by_host(seen, found)
    for component, tried in TRIED.get(seen.bmc.server.model or "", {}).items():
        manager = seen.bmc.manager.firmware if seen.bmc.manager else None
        here = manager if component == "BMC" else seen.bmc.server.bios_version
        if here and order(here) < order(tried):
            found.remarks.append(f"{component} is {here}, older than {tried} of NVIDIA Infra Controller's list")
    among = f"as on {len(alike) - 1} more of its model" if len(alike) > 1 else "the only server of its model"
    found.right.append(f"{len(mine)} components, {among}")


def order(version: str) -> tuple[int, ...]:
    """A version to be compared with others of the same component."""
    return tuple(int(digits) for digits in re.findall(r"\d+", version))


def _by_host(seen: Seen, found: Findings) -> None:
    """Firmware of NVMe drives, as the node sees it."""
    host = seen.facts.parts.drives if seen.facts is not None and seen.facts.parts is not None else None
    shown = {str(part.serial): part.firmware for part in host or () if part.serial and part.firmware}
    for part in seen.bmc.of("drive"):
        other = shown.get(part.serial or "")
        if part.protocol == "NVMe" and part.firmware and other and other != part.firmware:
            found.wrong.append(f"firmware of drive {part.slot} is {part.firmware} by the BMC, {other} by the node")


@method("bmc-bios", "BIOS attributes by the BMC, against those of a GPU node and the others of its model")
def judge_bios(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node with a BMC: BIOS attributes as wanted, the same on all of a model, and no change that waits."""
    return on_each_bmc(case, criterion, "the attributes of a GPU node, and bmc.bios of the inventory", _bios)


def _bios(seen: Seen, found: Findings) -> None:
    bios = seen.bmc.bios
    if bios is None:
        found.unknown += seen.bmc.unread("Bios") or ["the BMC shows no BIOS attributes"]
        return
    if seen.bmc.bios_pending is None:
        found.unknown += seen.bmc.unread("Bios/Settings")
    elif seen.bmc.bios_pending:
        waits = ", ".join(seen.bmc.bios_pending[:3])
        found.unknown.append(f"BIOS changes wait for a reboot ({waits}), so that the shown values may not be in force")
    declared = seen.node.bmc.bios if seen.node.bmc is not None else {}
    gpus = "gpu_servers" in seen.node.groups
    wanted = {name: values for name, (values, _) in WISHES.items() if gpus} | {n: (v,) for n, v in declared.items()}
    judged, named = 0, set()
    for name, values in wanted.items():
        if name not in bios:
            if name in declared:
                found.wrong.append(f"BIOS has no attribute {name}, which the inventory wants")
            continue
        judged += 1
        if str(bios[name]) not in values:
            named.add(name)
            found.wrong.append(f"BIOS {name} is {bios[name]}, wanted is {' or '.join(values)}")
    for name in ALIKE:
        shown = {other: str(bmc.bios[name]) for other, bmc in seen.alike.items() if bmc.bios and name in bmc.bios}
        # a value that is wrong by itself is its own node's finding, and no reason to look at this one
        others = {other: value for other, value in shown.items() if name not in wanted or value in wanted[name]}
        if name not in named and (words := odd(others, seen.node.name)):
            found.wrong.append(f"BIOS {name} is {words}")
    if judged:
        found.right.append(f"{judged} attributes as wanted")
    elif not gpus:
        found.right.append("no GPU server: alike within its model")
