"""Judging adapters against each other: those of one model have one firmware and are set alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from validation.judging.case import Case, judgement
from validation.judging.methods import method
from validation.measures.node.hardware import facts_of_cards, missing
from validation.model import Bound, Judgement
from validation.model.node_facts import NodeFacts
from validation.model.pci import PciCard
from validation.rules.criterion import Criterion

PARTS = {"firmware": "firmware", "link_layer": "link layer", "read_request_bytes": "largest read request in bytes"}
"""What of the adapters of a model is compared, in words."""


_Equals = tuple[str, str, bool]
"""Board, part, and of the link layer whether the port is to carry RDMA: a port of a card that can be either is set to
the layer of what it carries."""


def _equals(case: Case, node: str, card: PciCard, part: str) -> _Equals:
    ports = case.topology.node(node).ports
    tcp = any(not port.rdma for port in ports if port.interface == card.interface)
    return card.board, part, part == "link_layer" and tcp


def _usual(case: Case, criterion: Criterion) -> dict[_Equals, Counter[str]]:
    """How many adapters of all nodes have which value."""
    found: dict[_Equals, Counter[str]] = {}
    for measurement in case.serving(criterion):
        result = case.usable(measurement.id)
        facts = result.facts_of(NodeFacts) if result is not None else None
        for card in facts.pci if facts is not None else ():
            for part in PARTS:
                if card.what == "nic" and (value := getattr(card, part)):
                    found.setdefault(_equals(case, measurement.nodes[0], card, part), Counter())[str(value)] += 1
    return found


def _says(card: PciCard) -> str:
    parts = (f"{words} {getattr(card, part) or 'unknown'}" for part, words in PARTS.items())
    return f"{card.name}: {', '.join(parts)}"


def _odd(case: Case, node: str, card: PciCard, found: Mapping[_Equals, Counter[str]]) -> list[str]:
    """In which parts an adapter differs from most of its model; without a majority all of them do."""
    odd = []
    for part, words in PARTS.items():
        values = found.get(_equals(case, node, card, part), Counter())
        ranking = values.most_common()
        mine = str(getattr(card, part) or "")
        if not mine or len(ranking) < 2:
            continue
        most = ranking[0][0] if ranking[0][1] > ranking[1][1] else None
        if mine != most:
            others = most or "/".join(sorted(set(values) - {mine}))
            odd.append(f"{card.name} has {words} {mine}, others of its model {others}")
    return odd


@method("adapters", "firmware and settings of a model's adapters, against each other")
def judge_adapters(case: Case, criterion: Criterion) -> list[Judgement]:
    """The adapters of every node's fabric ports against all others of the same board."""
    bound = Bound(
        metric="adapters",
        unit="",
        equal="firmware, link layer and largest read request as on the other adapters of the model",
        derivation=("most of the adapters with the same PCI identifiers of device and board, on all nodes",),
        source=criterion.source,
    )
    found = _usual(case, criterion)
    judged = []
    for measurement in case.serving(criterion):
        node, id_ = measurement.nodes[0], measurement.id
        got = facts_of_cards(case, criterion, node, id_, bound)
        if isinstance(got, Judgement):
            judged.append(got)
            continue
        facts, _, hidden = got
        say = partial(judgement, criterion, node, evidence=[id_], bound=bound)
        mine = [card for card in facts.pci if card.what == "nic" and card.address]
        shown = {card.interface for card in mine}
        lacking = [port.interface for port in case.topology.node(node).ports if port.interface not in shown]
        text = "; ".join(map(_says, mine))
        wrong = [words for card in mine for words in _odd(case, node, card, found)]
        unread = [f"nothing is shown of {', '.join(lacking)}"] if lacking else []
        unread += [
            f"{words} of {card.name} could not be read"
            for card in mine
            for part, words in PARTS.items()
            if not getattr(card, part)
        ]
        alone = [card.name for card in mine if found.get(_equals(case, node, card, "firmware"), Counter()).total() < 2]
        if wrong:
            judged.append(say("fail", "not-equal", "; ".join(wrong), text=text))
        elif hidden:
            why = f"{node} is a virtual machine ({facts.virt}), whose adapters are its hypervisor's"
            judged.append(say("not-applicable", "not-applicable", why))
        elif unread:
            judged.append(say("not-measured", missing(case), "; ".join(unread), text=text))
        elif len(alone) == len(mine):
            why = f"no other adapter of its model to compare with: {text}" if mine else "no fabric port in this node"
            judged.append(say("not-applicable", "not-applicable", why, text=text or None))
        else:
            one = f"; the only one of its model: {', '.join(alone)}" if alone else ""
            judged.append(say("pass", "within-bounds", text + one, text=text))
    return judged
