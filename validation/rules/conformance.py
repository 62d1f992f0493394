"""Conformance: which claim of the founding documents a run confirms. Pure; from the verdict and the claims.

A claim is this site's where it was made on this fabric and on machines that are there, or of no particular one. Any
other is *elsewhere*: nothing here can confirm or miss it. A machine's claim takes only what was measured on those
machines alone. Of what is this site's a claim is

- confirmed: every judgement of its criterion that belongs to it reaches the published figure, less favourable by its
  rounding, with its whole 95 % interval; where the document has no figure: every judgement passed;
- missed: one of them is measured and does not reach it, or failed, waived or not: a waiver lifts a bound, no figure;
- rehearsed: one of both on virtual or emulated parts, which show the procedure and confirm nothing;
- not measured: anything else, with the reason.

The criterion's bound decides the sign-off, the published figure the claim: they differ where the bound is ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from validation.base.counting import number_of
from validation.model import CriterionVerdict, Judgement, Measurement, Model, Node, Plan, Topology, VerdictDoc
from validation.rules.reference import Claim, Machine, Reference, declared_as

State = Literal["confirmed", "missed", "rehearsed", "not-measured", "elsewhere"]
MACHINE = "pf.bom"
"""The criterion that says whether the site's machines are those that it declares."""


class ClaimLine(Model):
    """A claim as a run leaves it. `published` is what the document prints, None where it has no figure or it is lost;
    `limit` the figure that confirms it, in `unit`. `value` with its 95 % interval (`low`, `high`) is the measured one
    that decides, in the same unit, `subject` where. `reason` says why the state is what it is.
    """

    id: str
    document: str
    section: str
    statement: str
    machines: tuple[str, ...]
    fabrics: tuple[str, ...]
    inferred: tuple[str, ...]
    published: str | None
    limit: float | None
    sense: Literal["at-least", "at-most", "reported"] | None
    unit: str
    criterion: str | None
    statistic: str | None
    state: State
    reason: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    text: str | None = None
    subject: str | None = None
    evidence: tuple[str, ...] = ()


class Conformance(Model):
    """All claims of the founding documents, in their order. `rehearsal`: nothing of the run can be confirmed;
    `constructed`: for its data were made up.
    """

    rehearsal: bool
    constructed: bool = False
    claims: tuple[ClaimLine, ...]

    @property
    def counts(self) -> dict[State, int]:
        """How many claims are in which state, every state named."""
        found = Counter(line.state for line in self.claims)
        return {state: found[state] for state in get_args(State)}

    @property
    def here(self) -> int:
        """How many claims are this site's."""
        return len(self.claims) - self.counts["elsewhere"]


def conformance(
    verdict: VerdictDoc, reference: Reference, topology: Topology, plan: Plan, emulated: Collection[str] = ()
) -> Conformance:
    """Every claim of the founding documents against the verdict on a run.

    `emulated`: measurements that emulated GPUs took part in; what rests on one of them is rehearsed, whatever the nodes
    are.
    """
    rehearsal = topology.virtual or verdict.sign_off in ("REHEARSAL", "CONSTRUCTED EXAMPLE")
    criteria = {c.id: c for c in verdict.criteria}
    planned = {m.id: m for m in plan.measurements}
    site = _Site(verdict, reference, topology, criteria, planned, rehearsal, frozenset(emulated))
    lines = tuple(site.line(claim) for claim in reference.claims.values() if reference.document(claim).founding)
    return Conformance(rehearsal=rehearsal, constructed=verdict.sign_off == "CONSTRUCTED EXAMPLE", claims=lines)


def is_machine(machine: Machine, node: Node) -> bool:
    """True where the inventory declares the node as this machine."""
    return declared_as(machine.match, node.bom)


@dataclass(frozen=True)
class _Found:
    """What a run says of a claim."""

    state: State
    reason: str
    judgement: Judgement | None = None
    evidence: tuple[str, ...] = ()


class _Site:
    """What of a run the claims are held against."""

    def __init__(
        self,
        verdict: VerdictDoc,
        reference: Reference,
        topology: Topology,
        criteria: Mapping[str, CriterionVerdict],
        planned: Mapping[str, Measurement],
        rehearsal: bool,
        emulated: frozenset[str],
    ) -> None:
        self.emulated = emulated
        self.verdict, self.reference, self.topology = verdict, reference, topology
        self.criteria, self.planned, self.rehearsal = criteria, planned, rehearsal
        self.machines = {
            key: {node.name for node in topology.nodes if is_machine(machine, node)}
            for key, machine in reference.machines.items()
        }
        self.with_gpus = {node.name for node in topology.nodes if node.bom.gpu_model}

    def line(self, claim: Claim) -> ClaimLine:
        """The claim with what the run says of it."""
        published, by = claim.published, claim.confirmed_by
        found = self._found(claim)
        decisive = found.judgement
        return ClaimLine(
            id=claim.id,
            document=self.reference.document(claim).cite,
            section=claim.section,
            statement=claim.statement,
            machines=tuple(self.reference.machines[key].short for key in claim.machines),
            fabrics=claim.fabrics,
            inferred=claim.inferred,
            published=published.printed if published is not None else None,
            limit=claim.limit if published is not None else None,
            sense=published.sense if published is not None else None,
            unit=published.unit if published is not None else _unit(decisive),
            criterion=by.criterion if by is not None else None,
            statistic=by.statistic if by is not None else None,
            state=found.state,
            reason=found.reason,
            value=decisive.value if decisive is not None else None,
            low=decisive.low if decisive is not None else None,
            high=decisive.high if decisive is not None else None,
            text=decisive.text if decisive is not None else None,
            subject=decisive.subject if decisive is not None else None,
            evidence=found.evidence,
        )

    def _found(self, claim: Claim) -> _Found:
        elsewhere = self._elsewhere(claim)
        if elsewhere:
            return _Found("elsewhere", elsewhere)
        by = claim.confirmed_by
        if by is None:
            return _Found("not-measured", claim.unconfirmed)
        criterion = self.criteria.get(by.criterion)
        if criterion is None:
            return _Found("not-measured", f"{by.criterion} is no criterion of this run")
        applied = [j for j in criterion.judgements if j.reason_code != "not-applicable"]
        if not applied:
            return _Found("not-measured", criterion.reason)
        mine = [j for j in applied if self._worked(j, by.where)]
        asked: dict[str, object] = {**by.where, **{key: " or ".join(map(str, each)) for key, each in by.every.items()}}
        for key, each in by.every.items():
            mine = [j for j in mine if self._parameter(j, key) in each]
        if not mine:
            return _Found("not-measured", f"{by.criterion} was measured, but not with {_asked(asked)}")
        if by.against:
            mine = _quotients(mine, [j for j in applied if self._worked(j, by.against)])
            if not mine:
                both = f"{_asked(by.where)} and of {_asked(by.against)}"
                return _Found("not-measured", f"{by.criterion} has no values of {both} that compare")
        if by.gpus is not None:
            most = max(map(self._gpus, mine))
            mine = [j for j in mine if self._gpus(j) >= by.gpus]
            if not mine:
                why = f"{by.criterion} was measured over {number_of(most, 'GPU')}, not {by.gpus}"
                return _Found("not-measured", why)
        nodes = self._nodes(claim)
        mine = [j for j in mine if not claim.machines or (self._where(j) and self._where(j) <= nodes)]
        if not mine:
            named = ", ".join(self.reference.machines[key].short for key in claim.machines)
            return _Found("not-measured", f"{by.criterion} was measured, but not on {named} alone")
        return self._decided(claim, mine)

    def _nodes(self, claim: Claim) -> set[str]:
        """The nodes of the site that are machines of the claim."""
        return {node for key in claim.machines for node in self.machines[key]}

    def _where(self, judgement: Judgement) -> set[str]:
        """The nodes with GPUs on which the work of a judgement was done."""
        done: set[str] = {end.node for end in judgement.about.ends}
        for id_ in judgement.evidence:
            measurement = self.planned.get(id_)
            if measurement is not None:
                hosts = measurement.params.get("hosts")
                done |= set(hosts if isinstance(hosts, tuple) else measurement.nodes)
        return done & self.with_gpus

    def _gpus(self, judgement: Judgement) -> int:
        """How many GPUs the servers of a judgement's measurement have, by their bills of materials."""
        measurement = self.planned.get(judgement.evidence[-1]) if judgement.evidence else None
        servers = measurement.params.get("servers") if measurement is not None else None
        names = set(servers) if isinstance(servers, tuple) else self._where(judgement)
        return sum(node.bom.gpu_count or 0 for node in self.topology.nodes if node.name in names)

    def _elsewhere(self, claim: Claim) -> str:
        """Why a claim is not this site's; "" where it is."""
        why = []
        if claim.fabrics and self.verdict.fabric not in claim.fabrics:
            why.append(f"made on {', '.join(claim.fabrics)}")
        if claim.machines and not self._nodes(claim):
            why.append(f"made on {', '.join(self.reference.machines[key].short for key in claim.machines)}")
        return " and ".join(why)

    def _worked(self, judgement: Judgement, where: Mapping[str, str | int]) -> bool:
        """Whether the measurement that decides had these parameters."""
        return all(self._parameter(judgement, key) == value for key, value in where.items())

    def _parameter(self, judgement: Judgement, key: str) -> object:
        """A parameter of the measurement that decides."""
        measurement = self.planned.get(judgement.evidence[-1]) if judgement.evidence else None
        return None if measurement is None else _set(measurement, key)

    def _decided(self, claim: Claim, judgements: Sequence[Judgement]) -> _Found:
        by = claim.confirmed_by
        if by is not None and by.over is not None:
            judgements = [_over(j, self.reference.claim(by.over)) for j in judgements]
        if claim.by_verdict:  # what is reported beside has no verdict, and says nothing against it
            judgements = [j for j in judgements if j.reason_code != "reported"] or judgements
        real = [j for j in judgements if not self.emulated.intersection(j.evidence)]
        emulated, judgements = not real, real or judgements
        answers = [(_answer(claim, judgement), judgement) for judgement in judgements]
        evidence = tuple(dict.fromkeys(id_ for judgement in judgements for id_ in judgement.evidence))
        missed = [(words, j) for (reached, words), j in answers if reached is False]
        undecided = [(words, j) for (reached, words), j in answers if reached is None]
        reached = [(words, j) for (reached, words), j in answers if reached]
        words, judgement = _worst(claim, missed or undecided or reached)
        count = len(missed or undecided or reached)
        if len(answers) > 1:
            words = f"{'all' if count == len(answers) else count} of {len(answers)}: {words}"
        state: State = "missed" if missed else "not-measured" if undecided else "confirmed"
        lack = [
            f"{key} {value}"
            for key, each in (by.every.items() if by is not None else ())
            for value in each
            if not any(self._parameter(j, key) == value for j in judgements)
        ]
        if state == "confirmed" and lack:
            state, words = "not-measured", f"{words}; not measured with {', '.join(lack)}"
        if state != "not-measured" and (self.rehearsal or emulated):
            how = "reached" if state == "confirmed" else "not reached"
            words = f"{how} on virtual or emulated parts, which confirm nothing: {words}"
            state = "rehearsed"
        elif state != "not-measured" and claim.machines and not self._proved(judgements):
            words = f"{MACHINE} does not confirm that this is the machine: {words}"
            state = "not-measured"
        return _Found(state, words, judgement, evidence)

    def _proved(self, judgements: Sequence[Judgement]) -> bool:
        """Whether the nodes of judgements were found as they are declared."""
        nodes = {node for judgement in judgements for node in self._where(judgement)}
        bom = self.criteria.get(MACHINE)
        judged = bom.judgements if bom is not None else ()
        return nodes <= {end.node for j in judged if j.verdict == "pass" for end in j.about.ends}


def _unit(judgement: Judgement | None) -> str:
    return judgement.bound.unit if judgement is not None and judgement.bound is not None else ""


def _asked(where: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in where.items())


def _set(measurement: Measurement, key: str) -> object:
    """A parameter of a measurement, or the option of that name of the program that it loads (`load`)."""
    load = measurement.params.get("load")
    if key not in measurement.params and isinstance(load, tuple) and f"--{key}" in load[:-1]:
        return load[load.index(f"--{key}") + 1]
    return measurement.params.get(key)


_UNDECIDED = {"value": None, "low": None, "high": None}


def _divided(judgement: Judgement, over: tuple[float, float, float], words: str) -> Judgement:
    """A judgement whose value, with its interval, is the quotient over another value and its interval."""
    value, unit = judgement.value, _unit(judgement)
    if value is None:
        return judgement
    if min(over) <= 0:
        why = f"{judgement.subject}: {words} may be nothing, by which no value is divided"
        return judgement.model_copy(update={**_UNDECIDED, "reason": why})
    low = value if judgement.low is None else judgement.low
    high = value if judgement.high is None else judgement.high
    text = f"{value:.4g}{' ' + unit if unit else ''} over {words}"
    made = {"value": value / over[0], "low": low / over[2], "high": high / over[1], "bound": None, "text": text}
    return judgement.model_copy(update=made)


def _over(judgement: Judgement, claim: Claim) -> Judgement:
    """A judgement over what the document prints of another machine; without a value where it was measured in another
    unit."""
    figure = claim.published
    if figure is None or _unit(judgement) not in ("", figure.unit):
        printed = figure.unit if figure is not None else "no figure"
        why = f"measured in {_unit(judgement)}, published in {printed}"
        return judgement.model_copy(update={**_UNDECIDED, "reason": why})
    return _divided(judgement, (claim.value,) * 3, f"the {figure.printed} of {claim.id}")


def _quotients(mine: Sequence[Judgement], others: Sequence[Judgement]) -> list[Judgement]:
    """Each judgement over that of the others at the same place whose last words (the batch size) are its own. One that
    has no such partner decides nothing where the others were measured with these words at another place: what is
    missing of one place does not leave the rest to decide."""

    def key(judgement: Judgement) -> tuple[object, str]:
        return judgement.about.ends, judgement.about.op.rpartition(", ")[2]

    found, partners = [], {key(j): j for j in others}
    words = {at for _, at in partners}
    for judgement in mine:
        other = partners.get(key(judgement))
        if other is None and key(judgement)[1] not in words:
            continue  # this batch size was measured of one alone
        if other is None or other.value is None or judgement.value is None:
            why = f"{judgement.subject} has no value of both that compare"
            found.append(judgement.model_copy(update={**_UNDECIDED, "reason": why}))
            continue
        high = other.value if other.high is None else other.high
        over = (other.value, other.value if other.low is None else other.low, high)
        made = _divided(judgement, over, f"{other.value:.4g} of {other.subject}")
        found.append(made.model_copy(update={"evidence": (*judgement.evidence, *other.evidence)}))
    return found


def _answer(claim: Claim, judgement: Judgement) -> tuple[bool | None, str]:
    """Whether a judgement reaches what is claimed, None where it cannot decide, and why in words."""
    # what too much noise or a fault of the measurement made undecided decides here neither
    was = judgement.waived.was if judgement.waived is not None else judgement.verdict
    if claim.by_verdict or claim.published is None:
        reached = {"pass": True, "fail": False}.get(was)
        if not claim.by_verdict and judgement.reason_code == "reported":
            reached = True
        return reached, judgement.reason
    if was == "not-measured" and judgement.reason_code not in ("no-bound", "virtual"):
        return None, judgement.reason
    if judgement.value is None:
        return None, judgement.reason
    if _unit(judgement) not in ("", claim.published.unit):
        return None, f"measured in {_unit(judgement)}, published in {claim.published.unit}"
    limit, unit = claim.limit, claim.published.unit
    low = judgement.value if judgement.low is None else judgement.low
    high = judgement.value if judgement.high is None else judgement.high
    side = "at least" if claim.published.sense == "at-least" else "at most"
    words = f"{judgement.value:.4g} {unit} (95 % interval {low:.4g} to {high:.4g}), {side} {limit:g} confirms it"
    if claim.confirmed_by is not None and claim.confirmed_by.divides:
        words = f"{judgement.text} = {words}"
    best, worst = (high, low) if claim.published.sense == "at-least" else (-low, -high)
    wanted = limit if claim.published.sense == "at-least" else -limit
    if worst >= wanted:
        return True, words
    if best < wanted:
        return False, words
    return None, f"{words}: the interval includes it"


def _worst(claim: Claim, answers: Sequence[tuple[str, Judgement]]) -> tuple[str, Judgement]:
    """Of answers alike the one whose value is the least favourable."""
    higher = claim.published is None or claim.published.sense != "at-most"

    def key(answer: tuple[str, Judgement]) -> float:
        value = answer[1].value
        if value is None:
            return float("inf")
        return value if higher else -value

    return min(answers, key=key)
