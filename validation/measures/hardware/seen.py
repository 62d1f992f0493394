"""What judges of hardware share: a node by its BMC beside its own facts, and what servers of a model have alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from validation.judging.case import Case, facts_for, judgement
from validation.measures.hardware.facts import BmcFacts, BmcNode
from validation.measures.hardware.plan import short_names
from validation.model import Bound, Judgement, Measurement, Node, ReasonCode, VerdictName
from validation.model.node_facts import NodeFacts
from validation.rules.criterion import Criterion

NAMED = 4
"""How many findings a judgement names; the facts have all. Project default."""


@dataclass(frozen=True)
class Seen:
    """A node by its BMC and by itself. `facts` None: the node was not looked at. `others`: all BMCs that were read."""

    node: Node
    bmc: BmcNode
    facts: NodeFacts | None
    others: Mapping[str, BmcNode]

    @property
    def alike(self) -> dict[str, BmcNode]:
        """The BMCs of servers of the same model, this one's among them."""
        return {name: one for name, one in self.others.items() if one.server.model == self.bmc.server.model}


@dataclass
class Findings:
    """What is wrong with a node, what could not be found out, what is right, and what is worth a look."""

    wrong: list[str]
    unknown: list[str]
    right: list[str]
    remarks: list[str]

    @classmethod
    def none(cls) -> Findings:
        """Nothing found yet."""
        return cls([], [], [], [])

    def verdict(self) -> tuple[VerdictName, ReasonCode, str]:
        """Wrong before unknown before right; nothing that was compared is no pass."""
        if self.wrong:
            return "fail", "not-equal", said(self.wrong)
        if self.unknown or not self.right:
            return "not-measured", "missing-metric", said(self.unknown) or "nothing of it was found out"
        if self.remarks:
            return "pass", "remarked", said(self.remarks)
        return "pass", "within-bounds", said(self.right)


def said(words: list[str]) -> str:
    """The first few, and how many more."""
    return "; ".join(words[:NAMED]) + (f"; and {len(words) - NAMED} more" if len(words) > NAMED else "")


def first_readings(case: Case, criterion: Criterion) -> list[Measurement]:
    """The readings of BMCs before the other suites."""
    return [m for m in case.serving(criterion) if m.id.startswith("bmc.")]


def on_each_bmc(
    case: Case, criterion: Criterion, derivation: str, judge: Callable[[Seen, Findings], None]
) -> list[Judgement]:
    """Every node with a BMC; one that could not be read is not measured, with the reason."""
    bound = Bound(metric=criterion.metric or criterion.id, unit="", derivation=(derivation,), source=criterion.source)
    judged = []
    hosts = case.node_facts()
    for measurement in first_readings(case, criterion):
        for name in measurement.nodes:
            got = facts_for(case, criterion, name, measurement.id, BmcFacts, bound)
            if isinstance(got, Judgement):
                judged.append(got)
                continue
            others = {one.node: one for one in got.nodes if not one.error}
            bmc = got.node(name)
            if bmc is None or bmc.error:
                why = f"the BMC of {name}: {bmc.error if bmc else 'was not asked'}"
                judged.append(
                    judgement(criterion, name, "not-measured", "missing-metric", why, [measurement.id], bound=bound)
                )
                continue
            found = Findings.none()
            judge(Seen(case.topology.node(name), bmc, hosts.get(name), others), found)
            verdict, code, why = found.verdict()
            why += " (an emulated BMC)" if bmc.emulated else ""
            text = said([*found.wrong, *found.unknown, *found.right, *found.remarks]) or None
            judged.append(judgement(criterion, name, verdict, code, why, [measurement.id], text=text, bound=bound))
    return judged


def odd(values: Mapping[str, str], name: str) -> str:
    """How a node's value differs from those of the others, in words; "" where it does not.

    The value that most have is the usual one; without a majority every node that differs from another is named.
    """
    mine = values.get(name)
    ranking = Counter(values.values()).most_common()
    if mine is None or len(ranking) < 2:
        return ""
    usual = ranking[0][0] if ranking[0][1] > ranking[1][1] else None
    if mine == usual:
        return ""
    others = sorted(other for other, value in values.items() if value != mine)
    have = usual if usual is not None else "/".join(sorted({values[other] for other in others}))
    return f"{mine}, {short_names(others)} {'has' if len(others) == 1 else 'have'} {have}"
