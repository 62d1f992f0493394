"""Judging how cards are plugged in: the PCI Express link of each, and GPUs beside the ports that serve them."""

from __future__ import annotations

from dataclasses import dataclass

from validation.criterion import Criterion
from validation.judging.case import CONTAINERS, Case, judgement, unusable
from validation.model import Bound, Judgement, ReasonCode, Result, VerdictName


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


def cards(lines: list[str]) -> list[Card]:
    """The fact `pci` as cards. What a link is rated is the lesser of card and slot: neither end can do more."""
    found = []
    for line in lines:
        what, interface, address, *rest = line.split(" ")
        values = {key: value for key, _, value in (word.partition("=") for word in rest)}

        def number(key: str, values: dict[str, str] = values) -> float | None:
            return float(values[key]) if values.get(key) else None

        def rated(kind: str, values: dict[str, str] = values) -> float | None:
            known = [float(values[key]) for key in (f"max_{kind}", f"slot_{kind}") if values.get(key)]
            return min(known) if values.get(f"max_{kind}") else None

        numa = values.get("numa", "")
        found.append(
            Card(
                what=what,
                interface=interface,
                address="" if address == "none" else address,
                speed=number("speed"),
                width=number("width"),
                rated_speed=rated("speed"),
                rated_width=rated("width"),
                numa=int(numa) if numa.lstrip("-").isdigit() else -1,
            )
        )
    return found


def _facts(
    case: Case, criterion: Criterion, node: str, id_: str, bound: Bound
) -> tuple[Result, list[Card]] | Judgement:
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
    return result, cards(lines)


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
        mine = got[1]
        text = "; ".join(card.link for card in mine if card.address)
        wrong = [c.link for c in mine if _short_of(c.width, c.rated_width) or (c.what == "nic" and _slow(c))]
        silent = [c.name for c in mine if None in (c.speed, c.width, c.rated_speed, c.rated_width)]
        idle = [c.link for c in mine if c.what == "gpu" and _slow(c)]
        if wrong:
            judged.append(
                judgement(criterion, node, "fail", "not-equal", "; ".join(wrong), evidence, text=text, bound=bound)
            )
        elif silent or not mine:
            why = f"no PCI Express link is shown of {', '.join(silent)}" if silent else "neither GPU nor fabric port"
            why += ": a virtual device has none" if case.virtual else ""
            judged.append(
                judgement(criterion, node, "not-measured", _missing(case), why, evidence, text=text, bound=bound)
            )
        elif idle:
            why = f"a GPU that idles lowers its link's speed, so it must be read under load: {'; '.join(idle)}"
            judged.append(
                judgement(criterion, node, "not-measured", "missing-metric", why, evidence, text=text, bound=bound)
            )
        else:
            judged.append(judgement(criterion, node, "pass", "within-bounds", text, evidence, text=text, bound=bound))
    return judged


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
        gpus = [c for c in got[1] if c.what == "gpu"]
        ports = [c for c in got[1] if c.what == "nic"]
        text = "; ".join(f"{c.name}: NUMA node {c.numa}" for c in (*gpus, *ports) if c.address)
        nowhere = [c.name for c in (*gpus, *ports) if c.numa < 0]
        far = [c for c in gpus if c.numa not in {p.numa for p in ports}]
        said = ", ".join(f"{p.interface} on {p.numa}" for p in ports)
        code: ReasonCode = _missing(case)
        verdict: VerdictName = "not-measured"
        if not gpus:
            why = "no GPU in this node"
        elif not ports:
            why = "no fabric port in this node"
        elif nowhere:
            why = f"the firmware assigns no NUMA node to {', '.join(nowhere)}"
        elif far:
            verdict, code = "fail", "not-equal"
            why = "; ".join(f"{c.name} is on NUMA node {c.numa}, its ports elsewhere ({said})" for c in far)
        else:
            verdict, code, why = "pass", "within-bounds", text
        judged.append(judgement(criterion, node, verdict, code, why, evidence, text=text or None, bound=bound))
    return judged
