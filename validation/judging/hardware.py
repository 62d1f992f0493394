"""Judging how cards are plugged in: the PCI Express link of each, and GPUs beside the ports that serve them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from validation.criterion import Criterion
from validation.judging.case import CONTAINERS, Case, judgement, unusable
from validation.model import Bound, Judgement, Node, ReasonCode, VerdictName


@dataclass(frozen=True)
class Card:
    """A line of the fact `pci`: `what` is nic or gpu, `interface` "-" for a GPU, `address` "" without a PCI device.

    Speeds are GT/s per lane, widths lanes; None where the device does not say. NUMA node -1 = none named.
    """

    what: str
    interface: str
    address: str
    speed: float | None
    width: float | None
    rated_speed: float | None
    rated_width: float | None
    numa: int

    @property
    def name(self) -> str:
        """`fab0 (0000:3b:00.0)` or `GPU 0000:18:00.0`."""
        return f"GPU {self.address}" if self.what == "gpu" else f"{self.interface} ({self.address or 'no PCI device'})"

    @property
    def link(self) -> str:
        """What the link is trained to and could be, in words."""
        return (
            f"{self.name}: {_or(self.speed)} GT/s x{_or(self.width)}, rated {_or(self.rated_speed)} GT/s "
            f"x{_or(self.rated_width)}"
        )


def _or(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


LINE = re.compile(r"(nic \S+|gpu -) (\S+)((?: \w+=\S*)*)")
NUMBER = re.compile(r"\d+(\.\d+)?")


def cards(lines: list[str]) -> list[Card]:
    """The fact `pci` as cards; a line that is none is left out (`malformed`)."""
    return [_card(found) for line in lines if (found := LINE.fullmatch(line))]


def malformed(lines: list[str]) -> list[str]:
    """Lines of the fact `pci` that describe no card."""
    return [line for line in lines if LINE.fullmatch(line) is None]


def _card(line: re.Match[str]) -> Card:
    """What a link is rated is the lesser of card and slot: neither end can do more. Words are no numbers."""
    what, _, interface = line[1].partition(" ")
    values = {key: value for key, _, value in (word.partition("=") for word in line[3].split())}

    def number(key: str) -> float | None:
        text = values.get(key, "")
        return float(text) or None if NUMBER.fullmatch(text) else None

    def rated(kind: str) -> float | None:
        card, slot = number(f"max_{kind}"), number(f"slot_{kind}")
        return min(card, slot) if card is not None and slot is not None else card

    numa = values.get("numa", "")
    return Card(
        what=what,
        interface=interface,
        address="" if line[2] == "none" else line[2],
        speed=number("speed"),
        width=number("width"),
        rated_speed=rated("speed"),
        rated_width=rated("width"),
        numa=int(numa) if re.fullmatch(r"-?\d+", numa) else -1,
    )


def _unseen(node: Node, facts: Mapping[str, object], lines: list[str], mine: list[Card]) -> list[str]:
    """What of a node's GPUs and fabric ports the fact `pci` does not show, or shows in two ways."""
    found = [f"a line of the cards cannot be read: {line[:60]!r}" for line in malformed(lines)]
    counted, declared = facts.get("gpu_count"), node.bom.gpu_count or 0
    gpus = len({card.address for card in mine if card.what == "gpu"})
    if isinstance(counted, bool) or not isinstance(counted, int):
        found.append("nothing says how many GPUs there are")
    elif gpus < max(counted, declared):
        found.append(f"it shows {gpus} of {max(counted, declared)} GPUs")
    for port in node.ports:
        there = [card for card in mine if card.interface == port.interface]
        if not there:
            found.append(f"it shows nothing of {port.interface}")
        elif len(there) > 1:
            found.append(f"{port.interface} stands there twice")
    return found


def _facts(
    case: Case, criterion: Criterion, node: str, id_: str, bound: Bound
) -> tuple[list[Card], list[str]] | Judgement:
    """A node's cards, and what of them was not seen; a judgement where the node's facts cannot tell."""
    gone = unusable(case, criterion, node, (id_,), bound)
    result = case.usable(id_)
    if gone is not None or result is None:
        assert gone is not None
        return gone
    lines = result.facts.get("pci")
    if not isinstance(lines, list):
        why = "the node's facts lack pci: measured by an older release"
        return judgement(criterion, node, "not-measured", "missing-metric", why, [id_], bound=bound)
    if str(result.facts.get("virt")) in CONTAINERS:
        why = f"{node} is a container ({result.facts['virt']}), whose PCI devices are its host's"
        return judgement(criterion, node, "not-measured", _missing(case), why, [id_], bound=bound)
    lines = [str(line) for line in lines]
    mine = cards(lines)
    return mine, _unseen(case.topology.node(node), result.facts, lines, mine)


def _missing(case: Case) -> ReasonCode:
    """Virtual hardware cannot prove it; of real hardware the figure is missing."""
    return "virtual" if case.virtual else "missing-metric"


def judge_pcie(case: Case, criterion: Criterion) -> list[Judgement]:
    """The links of every node's GPUs and fabric ports against what card and slot can do."""
    bound = Bound(
        metric="pcie_link",
        unit="",
        equal="each link at the lesser of the card's and the slot's maximum",
        derivation=(
            "speed and width of card and slot from their link capability registers (PCI Express base "
            "specification, sysfs current_link_* and max_link_*)",
        ),
        source=criterion.source,
    )
    judged = []
    for measurement in case.serving(criterion):
        node, evidence = measurement.nodes[0], [measurement.id]
        got = _facts(case, criterion, node, measurement.id, bound)
        if isinstance(got, Judgement):
            judged.append(got)
            continue
        mine, unseen = got
        text = "; ".join(card.link for card in mine if card.address)

        def say(
            verdict: VerdictName, code: ReasonCode, why: str, node: str = node, text: str = text, id_: str = evidence[0]
        ) -> Judgement:
            return judgement(criterion, node, verdict, code, why, [id_], text=text, bound=bound)

        wrong = [c.link for c in mine if _short_of(c.width, c.rated_width) or (c.what == "nic" and _slow(c))]
        silent = [c.name for c in mine if None in (c.speed, c.width, c.rated_speed, c.rated_width)]
        beyond = [c.link for c in mine if _short_of(c.rated_speed, c.speed) or _short_of(c.rated_width, c.width)]
        idle = [c.link for c in mine if c.what == "gpu" and _slow(c)]
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
        elif why:
            judged.append(say("not-measured", _missing(case), "; ".join([*why, *_idle(idle)])))
        elif idle:
            judged.append(say("not-measured", "missing-metric", "; ".join(_idle(idle))))
        else:
            judged.append(say("pass", "within-bounds", text))
    return judged


def _idle(links: list[str]) -> list[str]:
    """In words, that these links of GPUs cannot be judged."""
    said = "a GPU that idles lowers its link's speed, so it must be read under load"
    return [f"{said}: {'; '.join(links)}"] if links else []


def _short_of(value: float | None, rated: float | None) -> bool:
    return value is not None and rated is not None and value < rated


def _slow(card: Card) -> bool:
    return _short_of(card.speed, card.rated_speed)


def judge_numa(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every GPU server: each GPU has a fabric port on its own NUMA node. Nodes without that role have no subject."""
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
        if "gpu_servers" not in case.topology.node(node).groups:
            continue
        got = _facts(case, criterion, node, measurement.id, bound)
        if isinstance(got, Judgement):
            judged.append(got)
            continue
        mine, unseen = got
        gpus = [c for c in mine if c.what == "gpu"]
        ports = [c for c in mine if c.what == "nic"]
        text = "; ".join(f"{c.name}: NUMA node {c.numa}" for c in (*gpus, *ports) if c.address)
        nowhere = [c.name for c in (*gpus, *ports) if c.numa < 0]
        far = [c for c in gpus if c.numa not in {p.numa for p in ports}]
        said = ", ".join(f"{p.interface} on {p.numa}" for p in ports)
        code: ReasonCode = _missing(case)
        verdict: VerdictName = "not-measured"
        if not gpus or not ports:
            why = "; ".join([f"no {'fabric port' if gpus else 'GPU'} in this node", *unseen])
        elif unseen:
            why = "; ".join(unseen)
        elif nowhere:
            why = f"the firmware assigns no NUMA node to {', '.join(nowhere)}"
        elif far:
            verdict, code = "fail", "not-equal"
            why = "; ".join(f"{c.name} is on NUMA node {c.numa}, its ports elsewhere ({said})" for c in far)
        else:
            verdict, code, why = "pass", "within-bounds", text
        judged.append(judgement(criterion, node, verdict, code, why, evidence, text=text or None, bound=bound))
    return judged
