"""What is judged: plan and results brought together, and what can be said of a measurement without a usable result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter

from validation.analysis.denial import last_results
from validation.analysis.stats import Summary
from validation.judging.accepted import AcceptedRates
from validation.judging.case_columns import CaseColumns
from validation.judging.run_data import Evidence
from validation.model import (
    Bound,
    Judgement,
    Measurement,
    Node,
    Plan,
    ReasonCode,
    Result,
    Subject,
    Topology,
    VerdictName,
)
from validation.model.facts import Facts
from validation.model.node_facts import NodeFacts
from validation.model.result import F
from validation.rules.bounds import bounds_of
from validation.rules.criterion import Criterion
from validation.rules.fabric import Fabric
from validation.rules.virtual import CONTAINERS, passed_through, virtual_facts


@dataclass(frozen=True)
class Case:
    """Everything that a judgement may look at. `attempts` are all results of each measurement in their order, `latest`
    the one that stands for it where a single one has to. `virtual` chooses the bounds of rehearsals. `accepted`: what
    the site trained at when it was accepted.
    """

    topology: Topology
    plan: Plan
    fabric: Fabric
    criteria: tuple[Criterion, ...]
    latest: dict[str, Result]
    virtual: bool
    attempts: dict[str, tuple[Result, ...]] = field(default_factory=dict)
    accepted: AcceptedRates | None = None

    def serving(self, criterion: Criterion) -> list[Measurement]:
        """Planned measurements that serve the criterion, in the plan's order."""
        return self._serving.get(criterion.id, [])

    @cached_property
    def _serving(self) -> dict[str, list[Measurement]]:
        """Criteria that the same measurements serve have the same list: of a fleet, hundreds have."""
        alike: dict[tuple[str, ...], list[tuple[int, Measurement]]] = {}
        for at, m in enumerate(self.plan.measurements):
            alike.setdefault(m.criteria, []).append((at, m))
        groups = {criteria: [m for _, m in found] for criteria, found in alike.items()}
        mine: dict[str, list[tuple[str, ...]]] = {}
        for criteria in alike:
            for id_ in dict.fromkeys(criteria):
                mine.setdefault(id_, []).append(criteria)
        return {
            id_: groups[which[0]]
            if len(which) == 1
            else [m for _, m in sorted((one for criteria in which for one in alike[criteria]), key=itemgetter(0))]
            for id_, which in mine.items()
        }

    @cached_property
    def columns(self) -> CaseColumns:
        """The samples of all results, as columns."""
        return CaseColumns(self.attempts)

    @cached_property
    def bounds(self) -> dict[str, Bound]:
        """The fabric's bounds by the profile's key; what has no figure is not there."""
        return bounds_of(self.fabric)

    @cached_property
    def lab_bounds(self) -> dict[str, Bound]:
        """The same, where a lab declares its link by that link."""
        return bounds_of(self.fabric, self.topology.lab_link)

    @cached_property
    def planned(self) -> frozenset[str]:
        """Ids of all planned measurements."""
        return frozenset(m.id for m in self.plan.measurements)

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """The nodes under test by name."""
        return {node.name: node for node in self.topology.nodes}

    @cached_property
    def virtual_nodes(self) -> frozenset[str]:
        """Nodes that are virtual machines by their own facts. A run without a node's facts is no acceptance anyway."""
        facts = [self.latest[m.id] for m in self.plan.measurements if m.kind == "facts" and m.id in self.latest]
        said = ((r.provenance.nodes, r.facts_of(NodeFacts)) for r in facts)
        return frozenset(nodes[0] for nodes, f in said if nodes and f is not None and f.virt != "none")

    @cached_property
    def virtual_machines(self) -> frozenset[str]:
        """The same without containers: a hypervisor made their ports, NUMA nodes and the ways between their cards."""
        return frozenset(name for name, facts in self.node_facts().items() if facts.virt not in ("none", *CONTAINERS))

    @cached_property
    def passed_through(self) -> bool:
        """Whether this one machine's GPUs are real, whatever it runs in itself: passed_through() of its facts."""
        return passed_through(self.topology, self.node_facts().values())

    def gpu_proves_nothing(self, emulated: bool) -> str:
        """In words, why a GPU's own rates (its memory, what it computes, its copies from and to the host) are not
        judged; "" where they are. A GPU that was passed through to one machine by itself is a GPU."""
        if emulated:
            return "the GPUs are emulated, and prove no figure"
        if self.virtual and not self.passed_through:
            return "the node is virtual, and proves no figure"
        return ""

    def way_proves_nothing(self, node: str, emulated: bool) -> str:
        """The same of what passes between the GPUs of a node: by ways that a hypervisor made it is none of theirs."""
        if (why := self.gpu_proves_nothing(emulated)) or not self.virtual or node not in self.virtual_machines:
            return why
        return "the node is a virtual machine, and the ways between its GPUs are what its hypervisor makes them"

    def applies(self, criterion: Criterion) -> bool:
        """True where the criterion has a meaning on this fabric."""
        return criterion.applies is None or criterion.applies.to(self.fabric)

    def usable(self, measurement: str) -> Result | None:
        """The measurement's result where it was measured, else None. One that is ok and tells an error is neither."""
        result = self.latest.get(measurement)
        return result if result is not None and result.status == "ok" and not result.error else None

    def tries(self, measurement: str) -> tuple[Result, ...]:
        """All attempts of the measurement that were measured, in their order."""
        return tuple(r for r in self.attempts.get(measurement, ()) if r.status == "ok")

    def emulated(self, measurement: Measurement) -> bool:
        """True where an emulated machine takes part: its processor, not its link, bounds what it carries."""
        if self.topology.lab_link is None or not self.topology.lab_link.emulated:
            return False
        return any(self.topology.node(name).emulated for name in measurement.nodes)

    def node_facts(self) -> dict[str, NodeFacts]:
        """What the looks at the nodes found, by node; one that could not be looked at is not among them."""
        found = {}
        for m in self.plan.measurements:
            result = self.usable(m.id) if m.kind == "facts" else None
            facts = result.facts_of(NodeFacts) if result is not None else None
            if facts is not None:
                found[m.nodes[0]] = facts
        return found

    @cached_property
    def lost(self) -> tuple[Measurement, ...]:
        """Planned measurements without a usable result: completeness is plan minus results."""
        return tuple(m for m in self.plan.measurements if self.usable(m.id) is None)

    def missing(self) -> tuple[str, ...]:
        """Their ids."""
        return tuple(m.id for m in self.lost)


def make_case(
    topology: Topology,
    plan: Plan,
    fabric: Fabric,
    criteria: Iterable[Criterion],
    results: Sequence[Result],
    accepted: AcceptedRates | None = None,
) -> Case:
    """Plan and results brought together; results that are in no plan are left out."""
    attempts: dict[str, list[Result]] = {m.id: [] for m in plan.measurements}
    for result in results:
        if result.measurement in attempts:
            attempts[result.measurement].append(result)
    latest = last_results(r for mine in attempts.values() for r in mine)
    return Case(
        topology=topology,
        plan=plan,
        fabric=fabric,
        criteria=tuple(criteria),
        latest=latest,
        virtual=is_virtual(topology, plan, fabric, latest),
        attempts={id_: tuple(mine) for id_, mine in attempts.items() if mine},
        accepted=accepted,
    )


def is_virtual(topology: Topology, plan: Plan, fabric: Fabric, latest: Mapping[str, Result]) -> bool:
    """True where the inventory says so, or the facts of a node that were found out."""
    facts = [latest[m.id] for m in plan.measurements if m.kind == "facts" and m.id in latest]
    return topology.virtual or bool(virtual_facts((r for r in facts if r.status == "ok"), fabric))


def discounted(case: Case, evidence: Evidence) -> Case:
    """The case without what is said of measurements whose evidence does not hold; their facts make nothing virtual."""
    if not evidence.faults:
        return case
    latest, attempts = dict(case.latest), dict(case.attempts)
    for id_, why in evidence.faults.items():
        if id_ in latest:
            nothing = {"status": "unparseable", "error": why, "samples": (), "facts": {}}
            latest[id_] = latest[id_].model_copy(update=nothing)
            attempts[id_] = (latest[id_],)
    virtual = is_virtual(case.topology, case.plan, case.fabric, latest)
    return replace(case, latest=latest, attempts=attempts, virtual=virtual)


def judgement(
    criterion: Criterion,
    about: Subject | str,
    verdict: VerdictName,
    code: ReasonCode,
    reason: str,
    evidence: Sequence[str],
    *,
    summary: Summary | None = None,
    text: str | None = None,
    bound: Bound | None = None,
) -> Judgement:
    """A Judgement with the criterion's id on a subject, or the node of that name; `summary` gives its value, interval
    and number of samples.
    """
    return Judgement.made(
        criterion=criterion.id,
        about=Subject.node(about) if isinstance(about, str) else about,
        verdict=verdict,
        reason_code=code,
        reason=reason,
        value=float(summary.median) if summary else None,
        low=float(summary.low) if summary else None,
        high=float(summary.high) if summary else None,
        samples=summary.count if summary else 0,
        text=text,
        bound=bound,
        evidence=tuple(evidence),
    )


def unusable(
    case: Case, criterion: Criterion, about: Subject | str, ids: Sequence[str], bound: Bound | None
) -> Judgement | None:
    """A not-measured judgement where one of the measurements `ids` has no usable result, else None.

    A training whose batch did not fit into memory is not-applicable where the same did fit with a smaller one.
    """
    for id_ in ids:
        found = case.usable(id_)
        if found is not None:
            none = found.facts.why_no_figure() if found.no_figure and isinstance(found.facts, Facts) else ""
            if not none:
                continue
            smaller = _smaller(case, id_)
            why = f"{id_}: {none}" + (f"; {smaller} did" if smaller else "")
            if smaller:
                return judgement(criterion, about, "not-applicable", "not-applicable", why, ids, bound=bound)
            return judgement(criterion, about, "not-measured", "missing-metric", why, ids, bound=bound)
        result = case.latest.get(id_)
        if result is None:
            code: ReasonCode = "missing-result"
            why = f"{id_} was planned, but there is no result of it"
        else:
            code = "tool-failed"
            why = f"{id_}: {result.status}" + (f": {result.error}" if result.error else "")
        return judgement(criterion, about, "not-measured", code, why, ids, bound=bound)
    return None


def _smaller(case: Case, id_: str) -> str:
    """The measurement that trained the same network on as many ranks with a smaller batch; "" where there is none."""
    asked = case.plan.measurement(id_).params
    for other in case.plan.measurements:
        mine, result = other.params, case.usable(other.id)
        alike = all(mine.get(key) == asked.get(key) for key in ("model", "precision", "ranks", "hosts"))
        if alike and result is not None and result.samples and int(str(mine["batch"])) < int(str(asked["batch"])):
            return other.id
    return ""


def facts_for(
    case: Case, criterion: Criterion, about: Subject | str, id_: str, form: type[F], bound: Bound | None
) -> F | Judgement:
    """What a measurement found out, of that form; a not-measured judgement where there is no usable result of it."""
    gone = unusable(case, criterion, about, (id_,), bound)
    if gone is not None:
        return gone
    found = case.latest[id_].facts_of(form)
    if found is not None:
        return found
    why = f"{id_} has a result, but no facts in it"
    return judgement(criterion, about, "not-measured", "missing-metric", why, (id_,), bound=bound)
