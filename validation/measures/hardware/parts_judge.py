"""Judging parts: what the BMC lists against what the node's own system shows, and both against the order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from validation.base.counting import number_of
from validation.judging.case import Case
from validation.judging.methods import method
from validation.measures.hardware.facts import OF_PARTS, BmcFacts, BmcNode
from validation.measures.hardware.plan import short_names
from validation.measures.hardware.seen import Findings, Seen, first_readings, on_each_bmc
from validation.model import Judgement
from validation.model.parts import HostParts, Part, Unseen
from validation.probes.host_parts import serial
from validation.rules.criterion import Criterion

BUSY_PERCENT, IDLE_PERCENT = 90.0, 0.0
"""Use of a GPU by NVML, and by the BMC, that cannot both be right (telemetry of some servers shows 0 % under load)."""

DIRECT = re.compile(r"CPU\.")
"""The controller of drives at a processor's own lanes, as iDRAC names it (`CPU.1`); others are RAID, BOSS and AHCI."""
MADE_BY_RAID = re.compile(r"\b(?:BOSS|PERC)\b|DELLBOSS", re.IGNORECASE)
"""Models of drives that a controller shows in place of those behind it, as BOSS-N1 does as NVMe."""


WORDS = {"dimm": "memory module", "gpu": "GPU", "nic": "network card", "drive": "drive"}
OWN_DRIVES = ("NVMe", "SATA")
"""Protocols of drives that one server alone has."""


@method("bmc-parts", "parts and serial numbers by the BMC, against the node's own and the order")
def judge_parts(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node with a BMC: both list the same parts, and no other node's BMC lists one of them."""
    owners = _owners(case, criterion)

    def judge(seen: Seen, found: Findings) -> None:
        _alone(seen, owners, found)
        _parts(seen, found)

    return on_each_bmc(case, criterion, "each part by its serial number or MAC address, on both sides", judge)


Owners = dict[tuple[str, str], list[str]]
"""Kind and serial number of a part -> the nodes whose BMCs list it. Of a server the kind is "server"."""


def _owners(case: Case, criterion: Criterion) -> Owners:
    owners: Owners = {}
    for measurement in first_readings(case, criterion):
        result = case.usable(measurement.id)
        facts = result.facts_of(BmcFacts) if result is not None else None
        for bmc in facts.nodes if facts is not None else ():
            for key in dict.fromkeys(key for key, _ in _numbered(bmc)):
                owners.setdefault(key, []).append(bmc.node)
    return owners


def _numbered(bmc: BmcNode) -> list[tuple[tuple[str, str], str]]:
    """What is in one server alone, by kind and serial number, in words. Supplies may be a chassis's, and SAS drives in
    an enclosure have a way to each of two servers."""
    tag = serial(bmc.server.service_tag)
    found = [(("server", tag.casefold()), f"service tag {tag}")] if tag else []
    for part in bmc.parts:
        number, words = serial(part.serial), WORDS.get(part.kind)
        if number and words and (part.kind != "drive" or part.protocol in OWN_DRIVES):
            found.append(((part.kind, number.casefold()), f"{words} {part.slot}, serial {number}"))
    return found


def _alone(seen: Seen, owners: Owners, found: Findings) -> None:
    for key, words in _numbered(seen.bmc):
        others = [name for name in owners.get(key, ()) if name != seen.node.name]
        if others and key[0] == "server":
            found.wrong.append(f"{short_names(others)} {'has' if len(others) == 1 else 'have'} the same {words}")
        elif others:
            found.wrong.append(f"{words}: {short_names(others)} {'lists' if len(others) == 1 else 'list'} the same")


def _parts(seen: Seen, found: Findings) -> None:
    found.unknown += seen.bmc.unread("Systems", *OF_PARTS)
    _order(seen, found)
    sick = [part for part in (*seen.bmc.parts, *seen.bmc.of("fan")) if part.health not in (None, "OK")]
    found.wrong += [f"{part}: its health is {part.health}" for part in sick]
    host = seen.facts.parts if seen.facts is not None else None
    if host is None:
        why = "in a container, whose parts are its host's" if seen.facts is not None else "not looked at"
        found.unknown.append(f"the node itself was {why}")
        return
    _same_server(seen, host, found)
    found.unknown += [f"the node does not show its {one}" for one in host.unread if _matters(seen, one)]
    if host.dimms is not None:
        _by_serial("memory module", seen.bmc.of("dimm"), host.dimms, found)
    if host.gpus is not None:
        _by_serial("GPU", seen.bmc.of("gpu"), host.gpus, found)
        _use(seen, host.gpus, found)
    if host.drives is not None:
        _drives(seen, host.drives, found)
    if host.nics is not None:
        _cards(seen, host.nics, found)


def _matters(seen: Seen, unseen: Unseen) -> bool:
    """A node without GPUs, by its BMC and its order, need not show them."""
    return unseen.what != "gpus" or bool(seen.bmc.of("gpu") or seen.node.bom.gpu_count)


def _order(seen: Seen, found: Findings) -> None:
    kinds: tuple[tuple[Literal["gpu", "cpu"], int | None, str], ...] = (
        ("gpu", seen.node.bom.gpu_count, "GPU"),
        ("cpu", seen.node.bom.cpu_sockets, "processor"),
    )
    for kind, wanted, words in kinds:
        there = len(seen.bmc.of(kind))
        if wanted is not None and there != wanted and not seen.bmc.unread("Processors"):
            found.wrong.append(f"the BMC lists {there} of {wanted} {words}s of the order")
    model, ordered = seen.bmc.server.model, seen.node.bom.model
    if model and ordered and model.casefold() != ordered.casefold():
        found.wrong.append(f"the BMC is of a {model}, ordered is a {ordered}")


def _same_server(seen: Seen, host: HostParts, found: Findings) -> None:
    mine = {text.casefold() for text in (seen.bmc.server.service_tag, seen.bmc.server.serial) if text}
    if host.serial and mine:
        if host.serial.casefold() in mine:
            found.right.append(f"service tag {host.serial}")
        else:
            found.wrong.append(
                f"the BMC is of server {seen.bmc.server.service_tag}, the node is {host.serial}: another machine's"
            )
    elif not mine:
        found.unknown.append("the BMC gives no service tag")
    one, two = seen.bmc.server.bios_version, host.bios_version
    if one and two and one != two:
        found.wrong.append(f"BIOS is {one} by the BMC, {two} by the node")


def _by_serial(words: str, bmc: Iterable[Part], host: Iterable[Part], found: Findings) -> None:
    """Parts of both sides, by serial number; where one side has a part without, by their numbers."""
    left, right = tuple(bmc), tuple(host)
    if not left and not right:
        return
    if not all(part.serial for part in (*left, *right)):
        if len(left) != len(right):
            found.wrong.append(f"{len(left)} {words}s by the BMC, {len(right)} by the node")
        bare = [str(part) for part in (*left, *right) if not part.serial]
        found.remarks.append(f"{len(bare)} {words}s have no serial number on one side: {', '.join(bare[:3])}")
        found.right.append(f"{len(left)} {words}s by number")
        return
    one = {str(part.serial).casefold(): part for part in left}
    two = {str(part.serial).casefold(): part for part in right}
    found.wrong += [
        f"{words} {one[s].slot}, serial {one[s].serial}: the node does not have it" for s in one if s not in two
    ]
    found.wrong += [
        f"{words} {two[s].slot}, serial {two[s].serial}: the BMC does not list it" for s in two if s not in one
    ]
    if len(one) < len(left):
        found.wrong.append(f"two {words}s have the same serial number by the BMC")
    found.right.append(f"{len(left)} {words}s by serial number")


def _use(seen: Seen, gpus: Iterable[Part], found: Findings) -> None:
    by_serial = {str(part.serial): part for part in seen.bmc.of("gpu") if part.serial}
    for gpu in gpus:
        other = by_serial.get(gpu.serial or "")
        if other is None or other.use_percent is None or gpu.use_percent is None:
            continue
        if gpu.use_percent >= BUSY_PERCENT and other.use_percent <= IDLE_PERCENT:
            words = f"GPU {other.slot} is used {other.use_percent:g} % by the BMC, {gpu.use_percent:g} % by NVML"
            found.wrong.append(f"{words}: the BMC's figures of GPUs cannot be used")


def _drives(seen: Seen, host: Iterable[Part], found: Findings) -> None:
    """NVMe drives at a processor's own lanes: another controller hides its drives, or shows others in their place."""
    mine = seen.bmc.of("drive")
    two = tuple(part for part in host if part.serial)
    known = {str(part.serial).casefold() for part in mine}
    shown = {str(part.serial).casefold() for part in two}
    for part in two:
        virtual = MADE_BY_RAID.search(part.model or "") is not None
        if str(part.serial).casefold() not in known and part.protocol == "NVMe" and not virtual:
            found.wrong.append(f"drive {part.slot}, serial {part.serial}: the BMC does not list it")
    hidden = []
    for part in mine:
        if part.protocol != "NVMe" or not part.serial or part.serial.casefold() in shown:
            continue
        if DIRECT.match(part.controller or ""):
            found.wrong.append(f"drive {part.slot}, serial {part.serial}: the node does not have it")
        else:
            hidden.append(f"{part.slot} behind {part.controller or 'an unnamed controller'}")
    if hidden:
        found.remarks.append(f"{number_of(len(hidden), 'NVMe drive')} not compared: {', '.join(hidden[:3])}")
    if len(mine) > len(hidden) or (two and not hidden):
        found.right.append(number_of(len(mine) - len(hidden), "drive"))


def _cards(seen: Seen, host: Iterable[Part], found: Findings) -> None:
    """Network ports by their MAC addresses. Ports that are not Ethernet have none, and cards may be theirs."""
    ports = tuple(host)
    listed = {mac for card in seen.bmc.of("nic") for mac in card.macs}
    shown = {mac: part for part in ports for mac in part.macs}
    others = [part.slot for part in ports if part.protocol not in (None, "Ethernet")]
    if others:
        found.remarks.append(f"{number_of(len(others), 'port')} not compared, not Ethernet: {', '.join(others[:3])}")
    if not listed and not shown:
        return
    if not listed:
        found.unknown.append("the BMC gives no MAC address of its network cards")
        return
    for mac, part in shown.items():
        if mac not in listed:
            found.wrong.append(f"network port {part.slot}, {mac}: the BMC does not list it")
    gone = [card for card in seen.bmc.of("nic") if card.macs and not shown.keys() & set(card.macs)]
    if len(gone) > len(others):
        found.wrong += [f"network card {card.slot}, {', '.join(card.macs)}: the node does not have it" for card in gone]
    found.right.append(f"{number_of(len(shown), 'network port')} by MAC address")
