"""From what a recovery's probe saw to figures, and how they are judged. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from validation.analysis.stats import summarize
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.kinds.parsing import Parsed, ParseError, as_facts, json_object
from validation.kinds.record import Kind, on_node
from validation.measures.recovery.boots import Boot, Reading
from validation.measures.recovery.head_judged import parse_head
from validation.measures.recovery.plan import READY_S
from validation.model import (
    Bound,
    Job,
    Judgement,
    Measurement,
    Node,
    Param,
    ReasonCode,
    Sample,
    Topology,
    VerdictName,
)
from validation.model.facts import Facts, Name
from validation.probes import ProbeDoc
from validation.rules.criterion import Criterion

OUT = ("down", "drain", "fail", "error", "unk", "not_resp")
RUNNING = "RUNNING"
MOST_NAMED = 4


class RebootFacts(Facts):
    """Boots of a node, in their order. `how`: its power was switched; "" of reboots by systemd."""

    type: Literal["recovery-reboots"] = "recovery-reboots"
    what: Literal["reboots", "cycles"]
    node: Name
    how: str = ""
    before: Reading
    boots: tuple[Boot, ...] = Field(min_length=1)


class DeadFacts(Facts):
    """A node that died under a job. `states`: moment, Slurm's state of the node and of the job."""

    type: Literal["recovery-dead"] = "recovery-dead"
    what: Literal["dead"]
    node: Name
    how: Name
    job: Name
    dead_at: float = Field(ge=0)
    alive_at: float = Field(ge=0)
    states: tuple[tuple[float, str, str], ...]

    @property
    def found_s(self) -> float | None:
        """From its death until it gets no work and its job has ended; None where that did not come."""
        for at, node, job in self.states:
            if at > self.dead_at and job not in ("", RUNNING) and any(mark in node for mark in OUT):
                return round(at - self.dead_at, 3)
        return None

    @property
    def back_s(self) -> float | None:
        """From its power until it serves again."""
        at = next((at for at, _, job in self.states if job == "back"), None)
        return None if at is None else round(at - self.alive_at, 3)


def parse(doc: ProbeDoc, params: Mapping[str, Param]) -> Parsed:
    """Seconds of boots, or until a dead node was found and was back."""
    said = json_object(doc["stdout"], "recovery: the report")
    what = params.get("what")
    if said.get("what") != what:
        raise ParseError(f"recovery: {said.get('what')!r} was done, {what!r} was asked")
    if what == "head":
        return parse_head(said)
    if what == "dead":
        dead = as_facts(DeadFacts, {"type": "recovery-dead", **said}, "recovery")
        times = [at for at, _, _ in dead.states]
        if times != sorted(times):
            raise ParseError("recovery: the states are not in the order of their times")
        if not dead.dead_at < dead.alive_at or (dead.back_s is not None and dead.back_s < 0):
            raise ParseError("recovery: the node was back before it had its power again, or had it before it died")
        found = (("recovery_found_s", dead.found_s), ("recovery_back_s", dead.back_s))
        return [Sample(metric=name, value=value, unit="s") for name, value in found if value is not None], dead
    facts = as_facts(RebootFacts, {"type": "recovery-reboots", **said}, "recovery")
    ids = [facts.before.boot, *(boot.reading.boot for boot in facts.boots)]
    if len(facts.boots) != params.get("times") or len(set(ids)) != len(ids):
        raise ParseError(f"recovery: {len(set(ids)) - 1} boots have an id of their own, not {params.get('times')}")
    metric = "recovery_power_ready_s" if facts.what == "cycles" else "recovery_ready_s"
    return [Sample(metric=metric, value=boot.ready_s, unit="s") for boot in facts.boots], facts


@method("recovery-boots", "boots of a node: ready in time, and all the same")
def judge_boots(case: Case, criterion: Criterion) -> Sequence[Judgement]:
    """Each node."""
    judged = []
    for m in case.serving(criterion):
        bound, name = _bound(criterion), m.nodes[0]
        facts = facts_for(case, criterion, name, m.id, RebootFacts, bound)
        if isinstance(facts, Judgement):
            judged.append(facts)
            continue
        times, count = [boot.ready_s for boot in facts.boots], len(facts.boots)
        odd = [(at, boot.reading.other(facts.before)) for at, boot in enumerate(facts.boots, 1)]
        same = sum(not words for _, words in odd)
        took = f"ready after {min(times):.1f} to {max(times):.1f} s"
        what = f"{facts.how + ': ' if facts.how else ''}{same} of {number_of(count, 'boot')} the same, {took}"
        if same < count:
            named = "; ".join(f"boot {at}: {', '.join(words[:MOST_NAMED])}" for at, words in odd if words)
            judged.append(judgement(criterion, name, "fail", "not-equal", f"{what}; {named}", [m.id],
                                    summary=summarize(times), text=what, bound=bound))  # fmt: skip
            continue
        late = bound.maximum is not None and max(times) > bound.maximum
        judged.append(judgement(criterion, name, *_said(late), what, [m.id], summary=summarize(times), text=what,
                                bound=bound))  # fmt: skip
    return judged


@method("recovery-found", "how soon a node that died under a job gets no work any more")
def judge_found(case: Case, criterion: Criterion) -> Sequence[Judgement]:
    """The one that died."""
    return _dead(case, criterion, "found")


@method("recovery-back", "how soon a node that died serves again")
def judge_back(case: Case, criterion: Criterion) -> Sequence[Judgement]:
    """The one that died."""
    return _dead(case, criterion, "back")


def _dead(case: Case, criterion: Criterion, part: Literal["found", "back"]) -> list[Judgement]:
    judged = []
    for m in case.serving(criterion):
        bound, name = _bound(criterion), m.nodes[0]
        facts = facts_for(case, criterion, name, m.id, DeadFacts, bound)
        if isinstance(facts, Judgement):
            judged.append(facts)
            continue
        value = facts.found_s if part == "found" else facts.back_s
        last = facts.states[-1] if facts.states else (0.0, "", "")
        if value is None:
            done = "found" if part == "found" else "serving again"
            why = f"never {done} while it was watched; at the end node {last[1]}, job {facts.job} {last[2]}"
            judged.append(judgement(criterion, name, "fail", "not-working", why, [m.id], bound=bound))
            continue
        late = bound.maximum is not None and value > bound.maximum
        done = "out of service, its job ended," if part == "found" else "serves"
        words = f"{done} after {value:.1f} s"
        judged.append(judgement(criterion, name, *_said(late), f"{words} ({facts.how})", [m.id],
                                summary=summarize([value]), text=words, bound=bound))  # fmt: skip
    return judged


def _said(late: bool) -> tuple[VerdictName, ReasonCode]:
    return ("fail", "above-maximum") if late else ("pass", "within-bounds")


def _bound(criterion: Criterion) -> Bound:
    return Bound(metric=criterion.metric or criterion.id, unit=criterion.unit or "s", maximum=criterion.bound.value,
                 derivation=(criterion.bound.words,), source=criterion.source)  # fmt: skip


def _words(node: Node) -> list[str]:
    ssh = node.ssh
    key = ["-i", ssh.key_file, "-o", "IdentitiesOnly=yes"] if ssh.key_file else []
    alive = ["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=4", "-o", "LogLevel=ERROR"]
    return ["ssh", *alive, *key, "-p", str(ssh.port), *ssh.extra_args, f"{ssh.user}@{ssh.host}"]


def _job(m: Measurement, topology: Topology) -> Job:
    node = topology.node(m.nodes[0])
    heads = [one for one in topology.nodes if "heads" in one.groups]
    return on_node(m, node=node.name, ssh=_words(node), head=_words(heads[0]) if heads else [],
                   ports=[port.interface for port in node.ports], ready_s=READY_S)  # fmt: skip


KINDS = (
    Kind(
        name="recovery",
        title="Recovery of a node",
        measures="Reboots a node several times, by itself or by its BMC, or lets it die under a job; reads it then.",
        tool="systemd and Slurm by ssh, BMCs by Redfish, from the machine that validates",
        more="how-to/recovery.md",
        job=_job,
        parse=parse,
        headline="recovery_ready_s",
        repeat_by="probe",
        on_controller=True,
        restarts=True,
    ),
)
