"""Judging what a node is: its facts against the bill of materials and the stack that the inventory declares.

Every part is compared once, here; the judgement carries what was declared and what was found, and the report shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.model import BOM_REQUIRED, Bound, Compared, Judgement, Node
from validation.model.node_facts import COMPONENTS, NodeFacts
from validation.rules.criterion import Criterion

HARDWARE = (
    *("virt", "model", "gpu_model", "gpu_count", "nic_model"),
    *("cpu_model", "cpu_sockets", "cpu_cores", "gpu_root_ports"),
)
"""Parts in which the nodes of a group are meant to be alike; what the bill of materials declares is judged."""

MEMORY_TOLERANCE = 0.01
"""Share by which memory may differ from what was ordered: the kernel counts it in blocks, and the firmware keeps some.
A module is more: 1 of 32 is 3 %. Project default.
"""


@method("bom", "facts against the inventory's bom")
def judge_bom(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node against its declared bill of materials; what is not declared cannot be confirmed."""
    odd = odd_ones(case, criterion, HARDWARE)
    judged = []
    for measurement in case.serving(criterion):
        node = case.topology.node(measurement.nodes[0])
        facts = facts_for(case, criterion, node.name, measurement.id, NodeFacts, None)
        if isinstance(facts, NodeFacts):
            facts = _bom(criterion, node, facts, measurement.id, odd.get(node.name, {}))
        judged.append(facts)
    return judged


def _compared(key: str, declared: object, found: object, odd: Mapping[str, str]) -> Compared:
    one, two = (None if value is None else str(value) for value in (declared, found))
    equal = None if one is None or two is None else one == two
    return Compared(key=key, declared=one, found=two, equal=equal, odd=key in odd)


def _materials(node: Node, facts: NodeFacts, odd: Mapping[str, str]) -> list[Compared]:
    """The bill of materials part by part; who declares no GPU or no fabric port need not name its model."""
    declared = node.bom.model_dump()
    for count, model in (("gpu_count", "gpu_model"), ("fabric_port_count", "nic_model")):
        if declared[count] == 0 and declared[model] is None:
            declared[model] = ""
    there = sum(port.operstate != "absent" for port in facts.fabric_ports)
    found = {**{key: getattr(facts, key) for key in HARDWARE}, "fabric_port_count": there}
    parts = [_compared(key, value, found[key], odd) for key, value in declared.items() if key != "memory_gib"]
    return [*parts, _memory(node.bom.memory_gib, facts)]


def _memory(declared: float | None, facts: NodeFacts) -> Compared:
    """Declared is the memory at the processors, or all of a node: some order memory on CXL or a GPU's along with it."""
    found, beside = facts.memory_gib, facts.memory_beside_gib
    one, two = (None if value is None else f"{value:.4g}" for value in (declared, found))
    sizes = [] if found is None else [found, found + (beside or 0)]
    equal = any(abs(size - declared) <= MEMORY_TOLERANCE * declared for size in sizes) if declared and sizes else None
    if two and beside:
        two = f"{two} and {beside:.4g} at no processor"
    return Compared(key="memory_gib", declared=one, found=two, equal=equal)


def _bom(criterion: Criterion, node: Node, facts: NodeFacts, id_: str, odd: Mapping[str, str]) -> Judgement:
    parts = _materials(node, facts, odd)
    bound = Bound(
        metric="bom",
        unit="",
        equal="; ".join(f"{p.key} {p.declared or 'none'}" for p in parts if p.declared is not None) or None,
        derivation=("declared in the inventory, host variable bom",),
        source=criterion.source,
    )
    text = "; ".join(f"{p.key} {p.found or 'none'}" for p in parts if p.found is not None)
    wrong = [f"{p.key} is {p.found or 'none'}, {p.declared or 'none'} declared" for p in parts if p.equal is False]
    off, unknown = _ports(node, facts)
    unknown += [f"{p.key} is not known, {p.declared} declared" for p in parts if p.declared and p.found is None]
    undeclared = sorted(p.key for p in parts if p.declared is None and p.key in BOM_REQUIRED)
    shown = (*parts, _rates(node, facts, bool(off or unknown)), _compared("virt", None, facts.virt, odd))
    if wrong or off:
        judged = judgement(criterion, node.name, "fail", "not-equal", "; ".join(wrong + off), [id_])
    elif unknown and any(p.declared is not None for p in parts):
        why = f"not judged because {'; '.join(unknown)}"
        judged = judgement(criterion, node.name, "not-measured", "missing-metric", why, [id_])
    elif undeclared:
        why = f"the inventory's bom does not declare {', '.join(undeclared)}; found: {text}"
        judged = judgement(criterion, node.name, "not-measured", "no-bound", why, [id_])
    else:
        judged = judgement(criterion, node.name, "pass", "within-bounds", "equal to the declared bom", [id_])
    return judged.model_copy(update={"text": text, "bound": bound, "compared": shown})


def _rates(node: Node, facts: NodeFacts, off: bool) -> Compared:
    """Declared and negotiated rates of the fabric ports; a virtual port's mean nothing."""
    declared = _gbits(p.rate_gbps for p in node.ports)
    found = None if node.virtual else _gbits(p.speed_mbit / 1000 for p in facts.fabric_ports if p.speed_mbit)
    equal = None if declared is None or found is None else not off
    return Compared(key="fabric_port_rate", declared=declared, found=found, equal=equal)


def _gbits(rates: Iterable[float | None]) -> str | None:
    known = sorted({rate for rate in rates if rate is not None})
    return ", ".join(f"{rate:g} Gbit/s" for rate in known) or None


def _ports(node: Node, facts: NodeFacts) -> tuple[list[str], list[str]]:
    """What is wrong with the declared ports of real hardware, and what of them is not known.

    Each must be there, up, and of the declared rate. Of virtual nodes no port is looked at: veth speeds mean nothing.
    """
    wrong: list[str] = []
    unknown: list[str] = []
    for port in node.ports if not node.virtual else ():
        name, there = port.interface, facts.port(port.interface)
        if there is None:
            unknown.append(f"the facts say nothing of {name}")
        elif there.operstate == "unknown":
            unknown.append(f"{name} is unknown, neither up nor down")
        elif there.operstate != "up":
            wrong.append(f"{name} is {there.operstate}, up wanted")
        elif there.speed_mbit is None:
            unknown.append(f"the speed of {name} is not known")
        elif port.rate_gbps is not None and there.speed_mbit / 1000 != port.rate_gbps:
            wrong.append(f"{name} runs at {there.speed_mbit / 1000:g} Gbit/s, {port.rate_gbps:g} declared")
    return wrong, unknown


def odd_ones(case: Case, criterion: Criterion, keys: Iterable[str]) -> dict[str, dict[str, str]]:
    """Node -> part in which it differs from its group -> in words. Without a majority all that differ are named."""
    found = {m.nodes[0]: r for m in case.serving(criterion) if (r := case.usable(m.id)) is not None}
    facts = {name: known for name, result in found.items() if (known := result.facts_of(NodeFacts)) is not None}
    odd: dict[str, dict[str, str]] = {}
    for group in sorted({g for n in case.topology.nodes for g in n.groups}):
        members = [n.name for n in case.topology.nodes if group in n.groups and n.name in facts]
        for key in keys:
            values = {name: str(said) for name in members if (said := getattr(facts[name], key)) is not None}
            ranking = Counter(values.values()).most_common()
            if len(ranking) < 2:
                continue
            usual = ranking[0][0] if ranking[0][1] > ranking[1][1] else None
            for name, value in values.items():
                if value == usual:
                    continue
                others = sorted(n for n, v in values.items() if v != value)
                said = f"{key} is {value or 'absent'}, {_short(others)} of {group} have "
                said += (
                    (usual or "none") if usual is not None else "/".join(sorted({values[n] or "none" for n in others}))
                )
                mine = odd.setdefault(name, {})
                mine[key] = f"{mine[key]}; {said}" if key in mine else said
    return odd


def _short(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:3])} and {len(names) - 3} more"


@method("stack", "facts against the inventory's stack, and between the nodes of a group")
def judge_stack(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node against the declared stack release, and against the other nodes of its groups."""
    odd = odd_ones(case, criterion, COMPONENTS)
    judged = []
    for measurement in case.serving(criterion):
        node = case.topology.node(measurement.nodes[0])
        facts = facts_for(case, criterion, node.name, measurement.id, NodeFacts, None)
        if isinstance(facts, NodeFacts):
            facts = _stack(criterion, node, facts, measurement.id, odd.get(node.name, {}))
        judged.append(facts)
    return judged


def _stack(criterion: Criterion, node: Node, facts: NodeFacts, id_: str, odd: Mapping[str, str]) -> Judgement:
    bound = Bound(
        metric="stack",
        unit="",
        equal="; ".join(f"{k} {v or 'absent'}" for k, v in sorted(node.stack.items())) or None,
        derivation=("declared in the inventory, variable stack", "and equal on all nodes of a group"),
        source=criterion.source,
    )
    keys = sorted({*COMPONENTS, *node.stack}, key=lambda key: (key not in COMPONENTS, key))
    parts = [_compared(key, node.stack.get(key), facts.version(key), odd) for key in keys]
    text = "; ".join(f"{key} {node.component(key, getattr(facts, key) or 'absent')}" for key in COMPONENTS)
    wrong = [f"{p.key} is {p.found or 'absent'}, {p.declared or 'absent'} declared" for p in parts if p.equal is False]
    # what left the provisioned state: packages of another version than was provisioned, reboots that wait
    wrong += [*odd.values(), *map(str, facts.drift), *(f"a reboot waits: {reason}" for reason in facts.reboot_pending)]
    unseen = [part.key for part in parts if part.found is None]
    if wrong:
        judged = judgement(criterion, node.name, "fail", "not-equal", "; ".join(wrong), [id_])
    elif unseen:
        why = f"the node's facts say nothing of {', '.join(unseen)}"
        judged = judgement(criterion, node.name, "not-measured", "missing-metric", why, [id_])
    elif not node.stack:
        why = f"the inventory declares no stack for {node.name}; found: {text}"
        judged = judgement(criterion, node.name, "not-measured", "no-bound", why, [id_])
    else:
        why = f"equal to the declared stack ({', '.join(sorted(node.stack))}) and within its groups"
        why += f"; the operating system is a stand-in over {node.os_stand_in}" if node.os_stand_in else ""
        judged = judgement(criterion, node.name, "pass", "within-bounds", why, [id_])
    return judged.model_copy(update={"text": text, "bound": bound, "compared": tuple(parts)})
