"""Judging an InfiniBand fabric as one node sees it: a subnet manager, every node's ports, links as sold, no errors.

Tested on what the tools print on a simulated fabric (ibsim), never on InfiniBand hardware: the judgement says so.
"""

from __future__ import annotations

import re

from validation.criterion import Criterion
from validation.judging.case import Case, judgement, unusable
from validation.judging.rdma_ports import BEFORE
from validation.model import Bound, Judgement, ReasonCode, Result

SPEEDS = {56: "4x FDR", 100: "4x EDR", 200: "4x HDR", 400: "4x NDR"}
"""Line rate of a profile, Gbit/s -> width and speed as ibnetdiscover writes them (four lanes)."""

RECORDED = "tested on recordings of a simulated fabric only, never on InfiniBand hardware"


def judge_ib_fabric(case: Case, criterion: Criterion) -> list[Judgement]:
    """The whole fabric, once for each node that it was asked from."""
    speed = SPEEDS.get(round(case.fabric.line_rate_gbps))
    bound = Bound(
        metric="ib_fabric",
        unit="",
        equal=f"master subnet manager; every declared port there; links {speed or 'of the profile'}; no error counters",
        derivation=(f"{case.fabric.name}: {case.fabric.sources.line_rate_gbps}", f"this release's judging: {RECORDED}"),
        source=criterion.source,
    )
    judged = []
    for measurement in case.serving(criterion):
        gone = unusable(case, criterion, "cluster", (measurement.id,), bound)
        result = case.usable(measurement.id)
        if gone is not None or result is None:
            judged += [gone] if gone else []
            continue
        judged.append(_judge(case, criterion, result, speed, bound))
    return judged


def _lines(result: Result, key: str) -> list[str]:
    found = result.facts.get(key)
    return [str(line) for line in found] if isinstance(found, list) else []


def _judge(case: Case, criterion: Criterion, result: Result, speed: str | None, bound: Bound) -> Judgement:
    managers, links, errors = (_lines(result, key) for key in ("subnet_managers", "links", "errors"))
    evidence = [result.measurement]
    wrong = [f"subnet manager is not master: {line}" for line in managers if not line.startswith("MASTER ")]
    unknown = []
    connected = [link.split(" | ") for link in links if not link.endswith("|")]
    wrong += [f"link {a} - {b} runs at {rate}, {speed} wanted" for rate, a, b in connected if speed and rate != speed]
    wrong += [f"errors: {line}" for line in errors]
    there = {guid for _, a, b in connected for guid in (a.split()[-1], b.split()[-1])}
    for node in case.topology.nodes:
        ids = f"{BEFORE}.{node.name}"
        ports = case.usable(ids)
        for port in (p for p in node.ports if p.rdma):
            guid = _port_guid(ports, port.interface)
            evidence += [ids] if ids not in evidence and ports is not None else []
            if guid is None:
                unknown.append(f"{node.name}/{port.interface}: its GUID is not known")
            elif guid not in there:
                wrong.append(f"{node.name}/{port.interface} ({guid}) has no link in the fabric")
    text = f"{len(connected)} links, {len(errors)} ports with errors, {', '.join(managers)} ({RECORDED})"
    if wrong:
        return judgement(
            criterion, "cluster", "fail", "not-equal", "; ".join(wrong), evidence, text=text, bound=bound
        )  # fmt: skip
    unanswered = result.facts.get("unanswered")
    if unanswered:
        unknown.append(f"{unanswered} queries for error counters were not answered")
    if speed is None:
        unknown.append(f"no link speed is known for {case.fabric.line_rate_gbps:g} Gbit/s")
    if unknown:
        code: ReasonCode = "missing-metric"
        why = f"not judged because {'; '.join(unknown)}; {text}"
        return judgement(criterion, "cluster", "not-measured", code, why, evidence, text=text, bound=bound)
    return judgement(criterion, "cluster", "pass", "within-bounds", text, evidence, text=text, bound=bound)


def _port_guid(ports: Result | None, interface: str) -> str | None:
    """A port's GUID as ibnetdiscover writes it: the lower half of its first GID."""
    gids = ports.facts.get(f"{interface}.gids") if ports is not None else None
    for line in gids if isinstance(gids, list) else []:
        found = re.search(r"((?:[0-9a-f]{4}:){7}[0-9a-f]{4})", str(line))
        if found:
            return "0x" + "".join(found[1].split(":")[4:])
    return None
