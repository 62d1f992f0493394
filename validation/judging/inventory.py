"""Judging what a node is: its facts against the bill of materials and the stack that the inventory declares."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from validation.criterion import Criterion
from validation.judging.case import Case, judgement, unusable
from validation.model import Bound, Judgement, Node, Result
from validation.parsers.facts import COMPONENTS


def judge_bom(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node against its declared bill of materials; what is not declared cannot be confirmed."""
    judged = []
    for measurement in case.serving(criterion):
        name = measurement.nodes[0]
        gone = unusable(case, criterion, name, (measurement.id,), None)
        result = case.usable(measurement.id)
        judged.append(gone or _bom(criterion, case.topology.node(name), result, measurement.id))
    return judged


def _declared(node: Node) -> dict[str, str]:
    """What the inventory declares, as text; a node that declares no GPU need not name its model."""
    raw = node.bom.model_dump()
    if raw["gpu_count"] == 0 and raw["gpu_model"] is None:
        raw["gpu_model"] = ""
    return {key: str(value) for key, value in raw.items() if value is not None}


def _bom(criterion: Criterion, node: Node, result: Result | None, id_: str) -> Judgement:
    facts = result.facts if result is not None else {}
    ports = facts.get("fabric_ports")
    keys = ("model", "gpu_model", "gpu_count", "nic_model")
    found: dict[str, str] = {key: str(facts[key]) for key in keys if key in facts}
    lines = [str(line) for line in ports] if isinstance(ports, list) else []
    if isinstance(ports, list):
        found["fabric_port_count"] = str(len({m[1] for line in lines if (m := PORT.fullmatch(line))} - _absent(lines)))
    declared = _declared(node)
    bound = Bound(
        metric="bom",
        unit="",
        equal="; ".join(f"{k} {v or 'none'}" for k, v in declared.items()) or None,
        derivation=("declared in the inventory, host variable bom",),
        source=criterion.source,
    )
    text = "; ".join(f"{key} {value or 'none'}" for key, value in found.items())
    lacking = sorted(set(declared) - set(found))
    if lacking:
        why = f"the node's facts lack {', '.join(lacking)}"
        return judgement(criterion, node.name, "not-measured", "missing-metric", why, [id_], text=text, bound=bound)
    wrong = [f"{k} is {found[k] or 'none'}, {v or 'none'} declared" for k, v in declared.items() if found[k] != v]
    off, unknown = _ports(node, lines)
    wrong += off
    if wrong:
        return judgement(criterion, node.name, "fail", "not-equal", "; ".join(wrong), [id_], text=text, bound=bound)
    if unknown:
        why = f"not judged because {'; '.join(unknown)}"
        return judgement(criterion, node.name, "not-measured", "missing-metric", why, [id_], text=text, bound=bound)
    undeclared = sorted(set(found) - set(declared))
    if undeclared:
        why = f"the inventory's bom does not declare {', '.join(undeclared)}; found: {text}"
        return judgement(criterion, node.name, "not-measured", "no-bound", why, [id_], text=text, bound=bound)
    return judgement(
        criterion, node.name, "pass", "within-bounds", "equal to the declared bom", [id_], text=text, bound=bound
    )


PORT = re.compile(r"([^=,\s]+)=(\w+),mtu=(\d*),speed=(-?\d*)")
NO_SPEED = 2**32 - 1
"""Mbit/s that sysfs shows of a port without a link where it shows -1 as a number without sign."""


def _absent(lines: list[str]) -> set[str]:
    return {m[1] for line in lines if (m := PORT.fullmatch(line)) and m[2] == "absent"}


def _ports(node: Node, lines: list[str]) -> tuple[list[str], list[str]]:
    """What is wrong with the declared ports of real hardware, and what of them is not known.

    Each must be there, up, and of the declared rate. Of virtual nodes no port is looked at: veth speeds mean nothing.
    """
    if node.virtual:
        return [], []
    wrong: list[str] = []
    unknown = [
        f"a line of the fabric ports cannot be read: {line[:60]!r}" for line in lines if not PORT.fullmatch(line)
    ]
    for port in node.ports:
        name = port.interface
        there = [m for line in lines if (m := PORT.fullmatch(line)) and m[1] == name]
        if len(there) != 1:
            unknown.append(f"the facts say nothing of {name}" if not there else f"{name} stands there twice")
            continue
        state, speed = there[0][2], there[0][4]
        if state == "unknown":
            unknown.append(f"{name} is unknown, neither up nor down")
        elif state != "up":
            wrong.append(f"{name} is {state}, up wanted")
        elif not speed.isdigit() or int(speed) in (0, NO_SPEED):
            unknown.append(f"the speed of {name} is not known")
        elif port.rate_gbps is not None and int(speed) / 1000 != port.rate_gbps:
            wrong.append(f"{name} runs at {int(speed) / 1000:g} Gbit/s, {port.rate_gbps:g} declared")
    return wrong, unknown


def _odd_ones(case: Case, criterion: Criterion) -> dict[str, list[str]]:
    """Node -> components in which it differs from its group. The majority is right; without one all are named."""
    facts = {m.nodes[0]: r.facts for m in case.serving(criterion) if (r := case.usable(m.id)) is not None}
    odd: dict[str, list[str]] = {}
    for group in sorted({g for n in case.topology.nodes for g in n.groups}):
        members = [n.name for n in case.topology.nodes if group in n.groups and n.name in facts]
        for component in COMPONENTS:
            versions = {name: str(facts[name][component]) for name in members if component in facts[name]}
            ranking = Counter(versions.values()).most_common()
            if len(ranking) < 2:
                continue
            usual = ranking[0][0] if ranking[0][1] > ranking[1][1] else None
            for name, version in versions.items():
                if version == usual:
                    continue
                others = sorted(n for n, v in versions.items() if v != version)
                said = f"{component} is {version or 'absent'}, {_short(others)} of {group} have "
                said += (usual or "none") if usual is not None else "/".join(sorted({versions[n] for n in others}))
                if said not in odd.setdefault(name, []):
                    odd[name].append(said)
    return odd


def _short(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def judge_stack(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node against the declared stack release, and against the other nodes of its groups."""
    odd = _odd_ones(case, criterion)
    judged = []
    for measurement in case.serving(criterion):
        node = case.topology.node(measurement.nodes[0])
        gone = unusable(case, criterion, node.name, (measurement.id,), None)
        result = case.usable(measurement.id)
        judged.append(gone or _stack(criterion, node, result, measurement.id, odd.get(node.name, [])))
    return judged


SETTLED = ("drift", "reboot_pending")


def _unsettled(facts: Mapping[str, object]) -> list[str]:
    """What left the provisioned state: packages of another version than was provisioned, reboots that wait."""
    drift, pending = (facts.get(key) for key in SETTLED)
    said = [str(d) for d in drift] if isinstance(drift, list) else []
    return said + ([f"a reboot waits: {reason}" for reason in pending] if isinstance(pending, list) else [])


def _stack(criterion: Criterion, node: Node, result: Result | None, id_: str, odd: list[str]) -> Judgement:
    facts = result.facts if result is not None else {}
    bound = Bound(
        metric="stack",
        unit="",
        equal="; ".join(f"{k} {v or 'absent'}" for k, v in sorted(node.stack.items())) or None,
        derivation=("declared in the inventory, variable stack", "and equal on all nodes of a group"),
        source=criterion.source,
    )
    text = "; ".join(f"{c} {facts.get(c) or 'absent'}" for c in COMPONENTS)
    wrong = [
        f"{component} is {facts[component] or 'absent'}, {version or 'absent'} declared"
        for component, version in sorted(node.stack.items())
        if component in facts and str(facts[component]) != version
    ]
    wrong += odd + _unsettled(facts)
    if wrong:
        return judgement(criterion, node.name, "fail", "not-equal", "; ".join(wrong), [id_], text=text, bound=bound)
    unseen = sorted({*node.stack, *COMPONENTS, *SETTLED} - set(facts))
    unseen += [key for key in COMPONENTS if key in facts and not isinstance(facts[key], str)]
    unseen += [key for key in ("os", "kernel") if facts.get(key) == ""]  # which every node has
    unseen += [key for key in SETTLED if key in facts and not isinstance(facts[key], list)]
    if unseen:
        why = f"the node's facts say nothing of {', '.join(unseen)}"
        return judgement(criterion, node.name, "not-measured", "missing-metric", why, [id_], text=text, bound=bound)
    if not node.stack:
        why = f"the inventory declares no stack for {node.name}; found: {text}"
        return judgement(criterion, node.name, "not-measured", "no-bound", why, [id_], text=text, bound=bound)
    why = f"equal to the declared stack ({', '.join(sorted(node.stack))}) and within its groups"
    return judgement(criterion, node.name, "pass", "within-bounds", why, [id_], text=text, bound=bound)
