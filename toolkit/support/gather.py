"""`toolkit support`, step by step: refuse early, ask node and BMC, clean, describe, pack."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolkit import acceptance
from toolkit.errors import UsageFault, or_nearest
from toolkit.interruption import term_as_ctrl_c
from toolkit.inventory import read_inventory
from toolkit.support import controller, measured, parts
from toolkit.support.node import ALL_S, PARTS_S, ask
from toolkit.support.package import MANIFEST, Package, now
from toolkit.support.parts import Part
from toolkit.support.readme import Told, readme
from toolkit.support.secret_filter import Literals
from validation.base.temporary import room
from validation.model import Node
from validation.rules.release import release

ROOM = "elastic-ai-support"
MOST_NAMES = 40


@dataclass(frozen=True)
class Request:
    """What was asked. `out`: the file, None for a name of its own in this folder."""

    node: str
    part: str
    inventory: Path
    runs_dir: Path
    out: Path | None = None


@dataclass(frozen=True)
class Packed:
    """What was written. `faults`: what could not be asked at all (node, bmc, part) -> why."""

    file: Path
    size: int
    files: int
    node: str
    part: Part | None
    run: str | None
    faults: dict[str, str]
    unread: list[dict[str, str]] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)
    hidden: dict[str, int] = field(default_factory=dict)


def find_node(inventory: Path, name: str) -> Node:
    """The node of that name; UsageFault with the names that there are."""
    nodes = read_inventory(inventory).nodes
    found = next((node for node in nodes if node.name == name), None)
    if found is None:
        names = [node.name for node in nodes]
        shown = ", ".join(names[:MOST_NAMES]) + (
            f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        )
        near = or_nearest(name, names, "there is no name like it", numbered=True)
        raise UsageFault(f"{inventory}: has no node {name!r}; {near}; its nodes: {shown}")
    return found


def target_of(request: Request, label: str, made: str) -> Path:
    """Where the file goes; UsageFault where that cannot be."""
    stamp = made.replace(":", "-")
    name = "-".join(filter(None, ("support", re.sub(r"[^A-Za-z0-9._-]", "-", request.node), label, stamp)))
    target = request.out or Path(f"{name}.tar.gz")
    if target.is_dir():
        target = target / f"{name}.tar.gz"
    if target.exists():
        raise UsageFault(f"{target}: is there already; name another file with --out")
    if not target.parent.is_dir():
        raise UsageFault(f"{target.parent}: no such folder; make it, or name another file with --out")
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass  # root may write anywhere but where the system of files refuses it
    except OSError as fault:
        raise UsageFault(
            f"{target.parent}: cannot be written to: {fault.strerror}; name another file with --out"
        ) from None
    return target


def make(request: Request, say: Callable[[str], None], doing: Callable[[str], None]) -> Packed:
    """Make the package; `say` prints a step, `doing` what is done within one.

    UsageFault where nothing can be packed; acceptance.Interrupted, KeyboardInterrupt.
    """
    node = find_node(request.inventory, request.node)
    made = now()
    target_of(request, "", made)
    with room(ROOM) as folder:
        say(f"looking up what this machine knows of {node.name}")
        secrets, unknown = controller.known_secrets(request.inventory, node.name)
        package = Package(folder, Literals(secrets), progress=doing)
        if unknown:
            package.unread("the node's secret variables, so that they are found by their form alone", unknown)
        last = measured.last_run(request.runs_dir, node.name)
        asked = acceptance.run_async(_ask(request, node, package, last, say))
        with term_as_ctrl_c():  # the handlers of what asked are gone
            package.settle()
            controller.pack_bmc(package, node, asked.bmc)
            controller.pack_records(package, request.inventory, node)
            measured.pack_run(package, last, node.name, request.runs_dir)
            listed = json.dumps([one.document() for one in asked.parts], indent=2) + "\n"
            package.add("parts.json", listed, "parts by the node, its BMC and the last run")
            told = Told(node.name, request.part, asked.part, asked.parts, made, release(), asked.faults, _events(asked))
            return _written(request, package, last, told, say)


def _events(asked: _Asked) -> list[dict[str, Any]] | None:
    said = asked.bmc.found.get("events")
    return [one for one in said if isinstance(one, dict)] if isinstance(said, list) else None


def _written(
    request: Request, package: Package, last: measured.LastRun, told: Told, say: Callable[[str], None]
) -> Packed:
    """Write the file."""
    target = target_of(request, told.part.label if told.part else "", told.made)
    say(f"writing {target}")
    top = target.name.removesuffix(".gz").removesuffix(".tar")
    size = package.write(target, top, _head(told), readme(told, package, last))
    run = last.run.folder.name if last.run else None
    return Packed(
        target, size, len(package.entries) + 2, told.node, told.part, run, dict(told.faults), package.unreads,
        package.left, dict(package.hidden),
    )  # fmt: skip


def _head(told: Told) -> dict[str, Any]:
    return {
        "toolkit": told.release, "made": told.made, "node": told.node, "asked_part": told.word or None,
        "part": told.part.document() if told.part else None, "not_asked": dict(told.faults), "this_file": MANIFEST,
    }  # fmt: skip


@dataclass
class _Asked:
    """What node and BMC answered."""

    bmc: controller.BmcAnswer
    parts: list[Part]
    part: Part | None
    faults: dict[str, str]


async def _ask(
    request: Request, node: Node, package: Package, last: measured.LastRun, say: Callable[[str], None]
) -> _Asked:
    """Ask the node and, at the same time, its BMC; of the node first which parts there are."""
    site, faults = str(request.inventory), dict[str, str]()
    bmc_task = asyncio.ensure_future(controller.ask_bmc(node, site))
    try:
        say(f"{node.name}: which parts it has")
        fault = await ask(node, site, package, {"what": "parts"}, PARTS_S)
        known = [part for part in map(parts.of_node, package.parts) if part is not None]
        known += [Part("nic", interfaces=(port.interface,), seen_by=("inventory",)) for port in node.ports]
        reached = bool(package.parts)
        part = parts.find(parts.union(known), request.part) if request.part else None
        bmc = await _bmc(bmc_task, node, say) if part is None or not reached else None
        every = parts.union([*known, *_of_bmc(bmc), *measured.parts_of(last, node.name)])
        if request.part:
            part = parts.find(every, request.part)
        if request.part and part is None and reached:
            raise UsageFault(
                f"{node.name} has no part {request.part!r}, and neither its BMC nor the last run lists one; its "
                f"parts:\n{parts.listed(every)}"
            )
        if reached:
            say(f"{node.name}: logs, tools and records")
            wanted: dict[str, Any] = {"what": "all"}
            if part is not None:
                chosen = {**part.document(), "pci": part.pci[0] if part.pci else ""}
                wanted |= {"part": chosen, "lines": parts.lines_of(part)}
            fault = await ask(node, site, package, wanted, ALL_S)
        if bmc is None:
            bmc = await _bmc(bmc_task, node, say)
            every = parts.union([*known, *_of_bmc(bmc), *measured.parts_of(last, node.name)])
            part = parts.find(every, request.part) if request.part else None
    finally:
        bmc_task.cancel()
        await asyncio.gather(bmc_task, return_exceptions=True)
    if fault:
        faults["node"] = fault
        package.unread(f"node {node.name}", fault)
    if bmc.declared and bmc.fault:
        faults["bmc"] = bmc.fault
    if request.part and part is None:
        faults["part"] = f"{request.part}: nobody who could be asked lists it"
    return _Asked(bmc, every, part, faults)


async def _bmc(
    task: asyncio.Future[controller.BmcAnswer], node: Node, say: Callable[[str], None]
) -> controller.BmcAnswer:
    if not task.done():
        say(f"{node.name}: waiting for its BMC")
    return await task


def _of_bmc(bmc: controller.BmcAnswer | None) -> list[Part]:
    if bmc is None:
        return []
    power, server = bmc.found.get("power"), bmc.found.get("server")
    groups = bmc.found.get("parts"), power.get("parts") if isinstance(power, dict) else None
    found = [parts.of_bmc(one) for said in groups if isinstance(said, list) for one in said if isinstance(one, dict)]
    if isinstance(server, dict):
        known = {"serial": server.get("service_tag") or server.get("serial"), "firmware": server.get("bios_version")}
        found.append(parts.of_bmc({"kind": "server", "model": server.get("model"), **known}))
    return [part for part in found if part is not None]
