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
    if isinstance(ports, list):
        found["fabric_port_count"] = str(sum(1 for p in ports if "=absent" not in p))
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
    wrong += _port_rates(node, ports if isinstance(ports, list) else [])
    if wrong:
        return judgement(criterion, node.name, "fail", "not-equal", "; ".join(wrong), [id_], text=text, bound=bound)
    undeclared = sorted(set(found) - set(declared))
    if undeclared:
        why = f"the inventory's bom does not declare {', '.join(undeclared)}; found: {text}"
        return judgement(criterion, node.name, "not-measured", "no-bound", why, [id_], text=text, bound=bound)
    return judgement(
        criterion, node.name, "pass", "within-bounds", "equal to the declared bom", [id_], text=text, bound=bound
    )


def _port_rates(node: Node, ports: list[str]) -> list[str]:
    """Ports of real hardware whose negotiated rate differs from the declared one (veth speeds mean nothing)."""
    if node.virtual:
        return []
    speeds = {m[1]: int(m[2]) / 1000 for p in ports if (m := re.match(r"([^=]+)=.*speed=(\d+)", p))}
    return [
        f"{port.interface} runs at {speeds[port.interface]:g} Gbit/s, {port.rate_gbps:g} declared"
        for port in node.ports
        if port.rate_gbps is not None and port.interface in speeds and speeds[port.interface] != port.rate_gbps
    ]


def _odd_ones(case: Case, criterion: Criterion) -> dict[str, list[str]]:
    """Node -> components in which it differs from its group. The majority is right; without one all are named."""
    facts = {m.nodes[0]: r.facts for m in case.serving(criterion) if (r := case.usable(m.id)) is not None}
    odd: dict[str, list[str]] = {}
    for group in sorted({g for n in case.topology.nodes for g in n.groups}):
        members = [n.name for n in case.topology.nodes if group in n.groups and n.name in facts]
        for component in COMPONENTS:
            versions = {name: str(facts[name].get(component, "")) for name in members}
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


def _unsettled(facts: Mapping[str, object]) -> list[str]:
    """What left the provisioned state: packages of another version than was provisioned, reboots that wait."""
    drift, pending = facts.get("drift"), facts.get("reboot_pending")
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
    unseen = sorted(set(node.stack) - set(facts))
    if unseen:
        why = f"the node's facts say nothing of {', '.join(unseen)}"
        return judgement(criterion, node.name, "not-measured", "missing-metric", why, [id_], text=text, bound=bound)
    if not node.stack:
        why = f"the inventory declares no stack for {node.name}; found: {text}"
        return judgement(criterion, node.name, "not-measured", "no-bound", why, [id_], text=text, bound=bound)
    why = f"equal to the declared stack ({', '.join(sorted(node.stack))}) and within its groups"
    return judgement(criterion, node.name, "pass", "within-bounds", why, [id_], text=text, bound=bound)
