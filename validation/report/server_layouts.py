"""Servers of the field by how their GPUs are plugged in: which one a node is, in what it differs. Words, no verdict.

What is wrong with a link, a NUMA node or an NVLink is judged by pf.pcie, pf.numa and pf.nvlink, whatever the server; a
layout says which of the maker's configurations stands there, and what was moved, added or taken away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from typing import NamedTuple

from validation.base.counting import number_of
from validation.model.node_facts import NodeFacts
from validation.model.nvlink import NvGpu, joined
from validation.model.pci import PciCard

Groups = tuple[tuple[int, ...], ...]
Named = Callable[[str], str]


class ServerLayout(NamedTuple):
    """groups: for each socket the GPUs that share each of its host ports. pair_links: NVLinks between each two GPUs at
    least, `links` of each GPU in all (to each other, or to NVSwitches); 0: none."""

    name: str
    server: str
    gpu: str
    groups: Groups
    source: str
    pair_links: int = 0
    links: int = 0

    @property
    def gpus(self) -> int:
        """How many GPUs."""
        return sum(map(sum, self.groups))


_PAPER = "Dell whitepaper, February 2019, table 3 and figure 10"
_LAB = "Dell HPC Innovation Lab, 2017: C4130 with P100"
_SLOTS = "Dell technical guide of the server: slots of x16 of the processors' own"
_SXM2, _PCIE = r"SXM2", r"PCIE|PCIe|P40|T4|L4"
LAYOUTS = (
    ServerLayout("C4130 configuration G", "C4130", _PCIE, ((2,), (2,)), _LAB),
    ServerLayout("C4130 configuration K", "C4130", _SXM2, ((4,), ()), _LAB, pair_links=1, links=4),
    ServerLayout("C4140 configuration K", "C4140", _SXM2, ((4,), ()), _PAPER, pair_links=2, links=6),
    ServerLayout("C4140 configuration M", "C4140", _SXM2, ((1, 1), (1, 1)), _PAPER, pair_links=2, links=6),
    ServerLayout("C4140 configuration B", "C4140", _PCIE, ((4,), ()), _PAPER),
    ServerLayout("C4140 configuration G", "C4140", _PCIE, ((2,), (2,)), _PAPER),
    ServerLayout("R740 with three GPUs", "R740", _PCIE, ((1, 1), (1,)), _SLOTS),
    ServerLayout("R7525 with three GPUs", "R7525", _PCIE, ((1, 1), (1,)), _SLOTS),
    ServerLayout("XE8545", "XE8545", r"A100-SXM4", ((1, 1), (1, 1)), "Dell technical guide of the XE8545", 4, 12),
    ServerLayout("XE9680 with H100, H200", "XE9680", r"H[12]00", ((2, 2), (2, 2)),
                 "Dell technical guide of the XE9680; NVIDIA HGX H100 data sheet", 0, 18),
    ServerLayout("XE9680 with A100", "XE9680", r"A100", ((2, 2), (2, 2)),
                 "Dell technical guide of the XE9680; NVIDIA HGX A100 data sheet", 0, 12),
    ServerLayout("XE9712, a tray of GB200 NVL72", "XE9712", r"GB[23]00", ((1, 1), (1, 1)),
                 "NVIDIA GB200 NVL72 data sheet; Dell XE9712 specification", 0, 18),
)  # fmt: skip
"""What public documents tell of each. Tried on trees that are constructed after them, on none of these servers."""


class Recognised(NamedTuple):
    """The layout that is the nearest, and in what the node differs from it: nothing where it is that one."""

    layout: ServerLayout
    differences: tuple[str, ...]

    @property
    def words(self) -> str:
        """`XE8545`, or `XE8545, but GPU 0000:c1:00.0 has 8 lanes, 16 there`."""
        return self.layout.name + (f", but {'; '.join(self.differences)}" if self.differences else "")


def recognise(facts: NodeFacts, at: Named = str) -> Recognised | None:
    """Which layout a node has; None of a server of no known layout, or of which too little is told.

    `at`: how the differences name a card by its PCI address.
    """
    gpus = [card for card in facts.pci if card.what == "gpu"]
    if not gpus or not all(card.root_port for card in gpus):
        return None
    server = re.compile(r"\b(\w+)\s*$").search(facts.model)
    mine = [one for one in LAYOUTS if server is not None and one.server == server[1]]
    fitting = [one for one in mine if re.search(one.gpu, facts.gpu_model)] or mine
    found = [Recognised(one, tuple(_differences(facts, gpus, one, at))) for one in fitting]
    return min(found, key=lambda one: len(one.differences), default=None)


def _socket(facts: NodeFacts, card: PciCard) -> int | None:
    """Its socket by its NUMA node, which stands for a socket where nothing tells of sockets."""
    sockets = {node.number: node.socket for node in facts.numa_nodes}
    return None if card.numa is None else sockets.get(card.numa, card.numa)


def _differences(facts: NodeFacts, gpus: Sequence[PciCard], layout: ServerLayout, at: Named) -> Iterable[str]:
    if len(gpus) != layout.gpus:
        yield f"{number_of(len(gpus), 'GPU')}, {layout.gpus} there"
    yield from _moved(facts, gpus, layout, at)
    for card in gpus:
        if card.link.lanes is not None and card.link.lanes < 16:
            yield f"GPU {at(card.address)} has {card.link.lanes} lanes, 16 there"
    uplinks = {link.end.address: link for card in gpus for link in card.uplinks}
    for link in uplinks.values():
        if link.end.link.lanes is not None and link.end.link.lanes < 16:
            yield f"the switch {at(link.end.address)} has {link.end.link.lanes} lanes to the host, 16 there"
    if facts.nvlink is not None:
        yield from _links(facts.nvlink, layout, at)


def _moved(facts: NodeFacts, gpus: Sequence[PciCard], layout: ServerLayout, at: Named) -> list[str]:
    """How the GPUs are spread over sockets and host ports, in as few words as explain it."""
    if any(_socket(facts, card) is None for card in gpus):
        return [f"the socket of GPU {at(card.address)} is unknown" for card in gpus if _socket(facts, card) is None]
    sockets = sorted({socket for card in gpus if (socket := _socket(facts, card)) is not None})
    sockets += [-1 - spare for spare in range(len(layout.groups) - len(sockets))]
    ports: dict[tuple[int, str], list[PciCard]] = {}
    for card in gpus:
        socket = _socket(facts, card)
        ports.setdefault((-9 if socket is None else socket, card.root_port), []).append(card)
    if len(sockets) > len(layout.groups):
        return [f"GPUs on {number_of(len(sockets), 'socket')}, {len(layout.groups)} there"]
    tried = [_spread(ports, dict(zip(order, layout.groups, strict=True)), at) for order in permutations(sockets)]
    return min(tried, key=lambda said: sum(map(len, said)))


def _spread(ports: dict[tuple[int, str], list[PciCard]], wanted: dict[int, tuple[int, ...]], at: Named) -> list[str]:
    """Differences, where each socket is to have such groups."""
    said = []
    for socket, groups in wanted.items():
        mine = sorted((cards for (at, _), cards in ports.items() if at == socket), key=len, reverse=True)
        if sorted(map(len, mine), reverse=True) == sorted(groups, reverse=True):
            continue
        left, odd = list(groups), []
        for cards in mine:
            if len(cards) in left:
                left.remove(len(cards))
            else:
                odd.append(cards)
        names = ", ".join(f"GPU {at(card.address)}" for cards in odd for card in cards)
        found = " and ".join(str(len(cards)) for cards in mine) or "no GPU"
        there = " and ".join(map(str, groups)) or "none"
        where = f"socket {socket}" if socket >= 0 else "the other socket"
        said.append(f"{where} has {found} at its host ports, {there} there" + (f" ({names})" if names else ""))
    return said


def _links(gpus: Sequence[NvGpu], layout: ServerLayout, at: Named) -> Iterable[str]:
    if not layout.links:
        some = [at(gpu.address) for gpu in gpus if gpu.up]
        if some:
            yield f"NVLinks up of {', '.join(some)}, none there"
        return
    pairs = joined(gpus)
    for (one, other), number in pairs.items() if layout.pair_links else ():
        if number < layout.pair_links:
            yield f"{number} NVLinks between {at(one)} and {at(other)}, {layout.pair_links} there"
    told = {gpu for pair, number in pairs.items() if number < layout.pair_links for gpu in pair}
    for gpu in gpus:
        if gpu.up < layout.links and gpu.address not in told:
            yield f"GPU {at(gpu.address)} has {gpu.up} NVLinks up, {layout.links} there"
