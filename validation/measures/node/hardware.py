"""Judging how cards are plugged in: the PCI Express link of each, and GPUs beside the ports that serve them."""

from __future__ import annotations

from collections.abc import Sequence

from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.model import Bound, Judgement, Node, ReasonCode, VerdictName
from validation.model.node_facts import NodeFacts
from validation.model.pci import DISTANCES, PciCard, Uplink
from validation.rules.criterion import Criterion
from validation.rules.virtual import CONTAINERS


def unseen(node: Node, facts: NodeFacts) -> list[str]:
    """What of a node's GPUs and fabric ports its cards do not show."""
    found = []
    counted, gpus = max(facts.gpu_count, node.bom.gpu_count or 0), sum(card.what == "gpu" for card in facts.pci)
    if gpus < counted:
        found.append(f"it shows {gpus} of {number_of(counted, 'GPU')}")
    for port in node.ports:
        there = [card for card in facts.pci if card.interface == port.interface]
        if not there:
            found.append(f"it shows nothing of {port.interface}")
        elif len(there) > 1:
            found.append(f"{port.interface} stands there twice")
    return found


_HIDDEN = (
    "{node} is a virtual machine ({virt}): the ports above its cards, and the cards' NUMA nodes, are what its "
    "hypervisor makes of them; look on the host, and declare it by a waiver"
)


def facts_of_cards(
    case: Case, criterion: Criterion, node: str, id_: str, bound: Bound
) -> tuple[NodeFacts, list[str], str] | Judgement:
    """A node's facts, what of its cards was not seen, and whose they are where a hypervisor shows them, else "".

    A judgement where the node's facts cannot tell.
    """
    facts = facts_for(case, criterion, node, id_, NodeFacts, bound)
    if isinstance(facts, Judgement):
        return facts
    if facts.virt in CONTAINERS:
        why = f"{node} is a container ({facts.virt}), whose PCI devices are its host's"
        return judgement(criterion, node, "not-measured", missing(case), why, [id_], bound=bound)
    hidden = "" if facts.virt == "none" or case.virtual else _HIDDEN.format(node=node, virt=facts.virt)
    return facts, unseen(case.topology.node(node), facts), hidden


def missing(case: Case) -> ReasonCode:
    """Virtual hardware cannot prove it; of real hardware the figure is missing."""
    return "virtual" if case.virtual else "missing-metric"


def _uplinks(cards: Sequence[PciCard]) -> list[tuple[Uplink, str]]:
    """The links of switches above the cards, each once, and in words which cards share it."""
    found: dict[str, Uplink] = {}
    below: dict[str, list[str]] = {}
    for card in cards:
        for link in card.uplinks:
            found[link.end.address] = link
            below.setdefault(link.end.address, []).append(card.name)
    return [(link, f"{link} (above {', '.join(below[address])})") for address, link in found.items()]


@method("pcie", "links of cards against what card and slot are rated at, as the node's sysfs says")
def judge_pcie(case: Case, criterion: Criterion) -> list[Judgement]:
    """The links of every node's GPUs and fabric ports, and of the switches above them, against what their ends can."""
    bound = Bound(
        metric="pcie_link",
        unit="",
        equal="each link on the way to the host at the lesser of its two ends' maximum",
        derivation=(
            "speed and width of card, slot and switch from their link capability registers (PCI Express base "
            "specification, sysfs current_link_* and max_link_*)",
        ),
        source=criterion.source,
    )
    judged = []
    for measurement in case.serving(criterion):
        node, evidence = measurement.nodes[0], [measurement.id]
        got = facts_of_cards(case, criterion, node, measurement.id, bound)
        if isinstance(got, Judgement):
            judged.append(got)
            continue
        facts, unseen, hidden = got
        mine, uplinks = facts.pci, _uplinks(facts.pci)
        text = "; ".join([*(str(card) for card in mine if card.address), *(str(link) for link, _ in uplinks)])

        def say(
            verdict: VerdictName, code: ReasonCode, why: str, node: str = node, text: str = text, id_: str = evidence[0]
        ) -> Judgement:
            return judgement(criterion, node, verdict, code, why, [id_], text=text, bound=bound)

        wrong = [*(str(c) for c in mine if c.short), *(words for link, words in uplinks if link.short)]
        silent = [c.name for c in mine if not (c.link.whole and c.rated.whole)]
        silent += [f"switch {link.end.address}" for link, _ in uplinks if not link.whole]
        beyond = [str(c) for c in mine if c.beyond]
        idle = [str(c) for c in mine if c.what == "gpu" and c.slow]
        why = list(unseen)
        if silent:
            virtual = ": a virtual device has none" if case.virtual else ""
            why.append(f"no PCI Express link is shown of {', '.join(silent)}{virtual}")
        if not mine:
            why.append("neither GPU nor fabric port")
        if beyond:
            why.append(f"above what it is rated: {'; '.join(beyond)}")
        if wrong:
            judged.append(say("fail", "not-equal", "; ".join(wrong)))
        elif hidden:
            judged.append(say("not-measured", "missing-metric", hidden))
        elif why:
            judged.append(say("not-measured", missing(case), "; ".join([*why, *_idle(idle)])))
        elif idle:
            judged.append(say("not-measured", "missing-metric", "; ".join(_idle(idle))))
        else:
            judged.append(say("pass", "within-bounds", text))
    return judged


def _idle(links: list[str]) -> list[str]:
    """In words, that these links of GPUs cannot be judged."""
    said = "a GPU that idles lowers its link's speed, so it must be read under load"
    return [f"{said}: {'; '.join(links)}"] if links else []


def _numa(card: PciCard) -> str:
    return "unknown" if card.numa is None else str(card.numa)


def nearest(gpu: PciCard, ports: Sequence[PciCard]) -> str:
    """`, nearest fab0, fab1 (PIX)`: the fabric ports that are nearest to a GPU; "" where nothing tells."""
    found = {port.interface: distance for port in ports if (distance := gpu.distance(port)) is not None}
    least = min(found.values(), key=DISTANCES.index, default=None)
    return f", nearest {', '.join(n for n, d in found.items() if d == least)} ({least})" if least else ""


def _apart(facts: NodeFacts, gpu: PciCard, ports: Sequence[PciCard]) -> str:
    """`: another socket, distance 21`, by the nearest of the ports; "" where nothing tells."""
    known = [facts.far(gpu.numa, p.numa) for p in ports if gpu.numa is not None and p.numa is not None]
    nearest_gap = min(filter(None, known), key=lambda gap: (gap.across_sockets is True, str(gap)), default=None)
    return f": {nearest_gap}" if nearest_gap else ""


@method("numa", "NUMA nodes of GPUs against those of fabric ports, as the node's sysfs says")
def judge_numa(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every GPU server: each GPU has a fabric port on its own NUMA node.

    Nodes without that role, and those that are declared to have no fabric port, have no subject.
    """
    bound = Bound(
        metric="numa_node",
        unit="",
        equal="for each GPU a fabric port on its NUMA node",
        derivation=("numa_node of the GPU's and the port's PCI function, as the firmware assigns it",),
        source=criterion.source,
    )
    judged = []
    for measurement in case.serving(criterion):
        node, evidence = measurement.nodes[0], [measurement.id]
        declared = case.topology.node(node)
        if "gpu_servers" not in declared.groups or (declared.bom.fabric_port_count == 0 and not declared.ports):
            continue
        got = facts_of_cards(case, criterion, node, measurement.id, bound)
        if isinstance(got, Judgement):
            judged.append(got)
            continue
        facts, unseen, hidden = got
        mine = facts.pci
        gpus = [c for c in mine if c.what == "gpu"]
        ports = [c for c in mine if c.what == "nic"]
        text = "; ".join(
            [f"{c.name}: NUMA node {_numa(c)}{nearest(c, ports)}" for c in gpus if c.address]
            + [f"{c.name}: NUMA node {_numa(c)}" for c in ports if c.address]
        )
        nowhere = [c.name for c in (*gpus, *ports) if c.numa is None]
        far = [c for c in gpus if c.numa not in {p.numa for p in ports}]
        said = ", ".join(f"{p.interface} on {_numa(p)}" for p in ports)
        code: ReasonCode = missing(case)
        verdict: VerdictName = "not-measured"
        if hidden:
            why = hidden
        elif not gpus or not ports:
            why = "; ".join([f"no {'fabric port' if gpus else 'GPU'} in this node", *unseen])
        elif unseen:
            why = "; ".join(unseen)
        elif nowhere:
            why = f"the firmware assigns no NUMA node to {', '.join(nowhere)}"
        elif far:
            verdict, code = "fail", "not-equal"
            why = "; ".join(
                f"{c.name} is on NUMA node {c.numa}, its ports elsewhere ({said}){_apart(facts, c, ports)}" for c in far
            )
        else:
            verdict, code, why = "pass", "within-bounds", text
        judged.append(judgement(criterion, node, verdict, code, why, evidence, text=text or None, bound=bound))
    return judged
