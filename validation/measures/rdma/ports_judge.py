"""Judging RDMA ports: up and of the right kind, lossless RoCE as provisioned, memory to register. Pure.

Each port is read before anything runs and again after the suites that load it; only growth between the two counts as
an error of this run, for drivers count from their start. What a reading lacks is not known, and never fine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass

from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement, unusable
from validation.judging.methods import method
from validation.measures.rdma import counters
from validation.measures.rdma.ports import Memlock, Policy, RdmaPort, RdmaPortsFacts
from validation.model import Bound, Endpoint, Judgement, Measurement, Node, Port, ReasonCode, Subject, VerdictName
from validation.rules.criterion import Criterion

BEFORE, AFTER = "rdma-ports", "rdma-ports-after"
UP = ("ACTIVE", "LinkUp")
UNLIMITED = -1

GUIDANCE = Policy(roce_mode="RoCE v2", tos=106, trust="dscp", dscp_prio={"26": 3, "48": 6}, pfc=(3,))
"""What RoCE ports have where no policy was provisioned: NVIDIA RoCE configuration guidance, DSCP 26 and ECN-capable
(26 x 4 + 2), priority 3, notifications DSCP 48 on priority 6."""

MUST_NOT_GROW = ", ".join(
    [*sorted(counters.LOST), "rx_prioN_buf_discard, rx_prioN_cong_discard", *sorted(counters.STORMS)]
)

NAMES = {
    "roce_mode": "default RoCE version of RDMA-CM",
    "tos": "type of service of RDMA-CM",
    "trust": "trust",
    "dscp_prio": "DSCP map",
    "pfc": "PFC priorities",
}
MORE = {"pause": "global pause", "ecn": "ECN of RoCE"}
"""Settings without a value of the policy. A traffic class of the port alone may be absent: then nothing overrides the
type of service."""


@dataclass(frozen=True)
class Seen:
    """A port and both readings of its node, None where the plan has none; `ids` of those that were planned."""

    node: Node
    port: Port
    facts: RdmaPortsFacts
    after: RdmaPortsFacts | None
    ids: tuple[str, ...]

    @property
    def subject(self) -> Subject:
        """`gpu1/fab0`."""
        return Subject.port(Endpoint(node=self.node.name, port=self.port.interface))

    @property
    def first(self) -> RdmaPort | None:
        """The port as it was before the load; None where the probe did not look at it."""
        return self.facts.port(self.port.interface)

    @property
    def last(self) -> RdmaPort | None:
        """The port as it was after the load; None without that reading."""
        return self.after.port(self.port.interface) if self.after is not None else None

    @property
    def device(self) -> str:
        """`rxe_fab0`, "" without one."""
        return self.first.device if self.first is not None else ""

    @property
    def readings(self) -> tuple[dict[str, int], dict[str, int]]:
        """The port's counters, before and after."""
        return self.first.counters if self.first else {}, self.last.counters if self.last else {}

    def growth(self, judged: Callable[[str], bool]) -> list[counters.Change]:
        """Judged counters that grew during the run."""
        return counters.growth(*self.readings, judged) if self.after is not None else []

    def gaps(self, groups: dict[str, Callable[[str], bool]]) -> list[str]:
        """Why growth of these groups of counters is not known; empty where it is, or where nothing was to grow."""
        return counters.gaps(*self.readings, groups) if self.after is not None else []


def seen(case: Case, criterion: Criterion) -> list[Seen | Judgement]:
    """Every RDMA port whose node was to be looked at; a judgement where the first reading has no usable result."""
    found: list[Seen | Judgement] = []
    for measurement in case.serving(criterion):
        if measurement.params.get("brief"):
            continue
        node = case.topology.node(measurement.nodes[0])
        last = _planned(case, f"{AFTER}.{node.name}")
        ids = (measurement.id, last.id) if last else (measurement.id,)
        for port in node.ports:
            if not port.rdma:
                continue
            about = Subject.port(Endpoint(node=node.name, port=port.interface))
            facts = facts_for(case, criterion, about, measurement.id, RdmaPortsFacts, None)
            after = case.usable(last.id) if last else None
            if isinstance(facts, RdmaPortsFacts):
                found.append(Seen(node, port, facts, after.facts_of(RdmaPortsFacts) if after else None, ids))
            else:
                found.append(facts)
    return found


def port_of(case: Case, end: Endpoint) -> RdmaPort | None:
    """A port as its node showed it before the load; None where that is not known."""
    result = case.usable(f"{BEFORE}.{end.node}")
    facts = result.facts_of(RdmaPortsFacts) if result is not None else None
    return facts.port(end.port) if facts is not None else None


def _planned(case: Case, id_: str) -> Measurement | None:
    return next((m for m in case.plan.measurements if m.id == id_), None)


def _missing(case: Case) -> ReasonCode:
    return "virtual" if case.virtual else "missing-metric"


@method("rdma-port", "what RDMA ports say of their state, twice, and their counters")
def judge_rdma_port(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every RDMA port: up, of the profile's link layer and rate, with a GID for its address; no link errors."""
    judged = []
    for one in seen(case, criterion):
        if isinstance(one, Judgement):
            judged.append(one)
            continue
        bound = _port_bound(case, criterion, one)
        wrong, unknown = _port_faults(case, one)
        text = _port_text(one)

        def say(
            verdict: VerdictName, code: ReasonCode, why: str, one: Seen = one, text: str = text, bound: Bound = bound
        ) -> Judgement:
            return judgement(criterion, one.subject, verdict, code, why, one.ids, text=text, bound=bound)

        if wrong:
            judged.append(say("fail", "not-equal", "; ".join(wrong)))
            continue
        late = _late(case, criterion, one, bound)
        if late is not None:
            judged.append(late)
        elif unknown:
            judged.append(say("not-measured", "missing-metric", f"not judged because {'; '.join(unknown)}; {text}"))
        else:
            why = text + ("" if len(one.ids) > 1 else "; read once: no suite of this run loads the port")
            judged.append(say("pass", "within-bounds", why))
    return judged


def _port_bound(case: Case, criterion: Criterion, one: Seen) -> Bound:
    fabric = case.fabric
    wanted = f"ACTIVE, LinkUp, link layer {fabric.link_layer}"
    rate = f"{fabric.line_rate_gbps:g} Gbit/s"
    lines = [f"{fabric.name} is {fabric.link_layer} ({fabric.sources.transport})"]
    if case.virtual:
        lines.append(f"rehearsal: the rate of a virtual port is a constant of its driver, {rate} on hardware")
    else:
        wanted += f", {rate}"
    if fabric.link_layer == "Ethernet":
        wanted += f", a RoCE v2 GID of {one.port.address}"
    return Bound(metric="rdma_port", unit="", equal=wanted, derivation=tuple(lines), source=criterion.source)


def _late(case: Case, criterion: Criterion, one: Seen, bound: Bound) -> Judgement | None:
    """A not-measured judgement where a reading that was planned has no usable result, else None."""
    gone = unusable(case, criterion, one.subject, one.ids, bound)
    if gone is not None or len(one.ids) == 1 or one.after is not None:
        return gone
    why = f"{one.ids[-1]} has a result, but no facts in it"
    return judgement(criterion, one.subject, "not-measured", "missing-metric", why, one.ids, bound=bound)


def _port_text(one: Seen) -> str:
    port = one.first
    if port is None:
        return "not looked at"
    rate = port.rate_gbps if port.rate_gbps is not None else "?"
    return f"{port.device}: {port.state}, {port.physical_state}, {port.link_layer}, {rate} Gbit/s"


def _port_faults(case: Case, one: Seen) -> tuple[list[str], list[str]]:
    """What is wrong with a port, and what of it is not known."""
    name, fabric, first = one.port.interface, case.fabric, one.first
    if first is None:
        return [], [f"the probe did not look at {name}"]
    if not first.device:
        there = f"{name} is {first.operstate or 'of unknown state'}" if first.present else f"no {name}"
        return [f"no RDMA device on {name} ({there})"], []
    wrong = _down(first, "")
    unknown: list[str] = []
    readings = [(first, "")]
    if one.after is not None:
        last = one.last
        if last is None or not last.device:
            wrong.append(f"{one.device} is gone at the end of the run")
        else:
            wrong += _down(last, " at the end of the run") if not wrong else []
            if last.device != one.device:
                unknown.append(f"its device is {last.device} at the end of the run, {one.device} before")
            readings.append((last, " at the end of the run"))
    for port, when in readings:
        if port.link_layer != fabric.link_layer:
            wrong.append(f"link layer of {name} is {port.link_layer}{when}, {fabric.link_layer} wanted")
            break
        if case.virtual or port.rate_gbps == fabric.line_rate_gbps:
            continue
        if port.rate_gbps is not None:
            wrong.append(f"{one.device} runs at {port.rate_gbps:g} Gbit/s{when}, {fabric.line_rate_gbps:g} wanted")
            break
        unknown.append(f"the rate of {one.device}{when} is not known")
    down = bool(_down(first, ""))  # where it is, no GID is left
    for port, when in readings if fabric.link_layer == "Ethernet" and not down else []:
        if port.link_layer == "Ethernet" and not _down(port, "") and not _has_gid(one.port.address, port):
            wrong.append(f"{one.device} has no RoCE v2 GID of {one.port.address}{when}")
            break
    if len(one.ids) == 1 and len(case.plan.suites) > 1:
        unknown.append("no second reading was planned")
    grown = one.growth(counters.of_links)
    wrong += [f"link errors during the run: {', '.join(map(str, grown))}"] if grown else []
    return wrong, unknown + one.gaps({"link errors": counters.of_links})


def _down(port: RdmaPort, when: str) -> list[str]:
    if (port.state, port.physical_state) == UP:
        return []
    return [f"{port.device} is {port.state}, {port.physical_state}{when} ({port.interface} {port.operstate})"]


def _has_gid(address: str, port: RdmaPort) -> bool:
    """True where the GID table has that IPv4 address as a RoCE v2 GID (InfiniBand specification, A17)."""
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        return False  # what is no address has no GID
    return any(g.type == "RoCE v2" and wanted in (g.gid, g.gid.ipv4_mapped) for g in port.gids)


@method("lossless", "what RoCE ports say of their settings, and their counters")
def judge_lossless(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every RoCE port: its settings are those provisioned, or NVIDIA's guidance; nothing was lost during the run."""
    judged = []
    for one in seen(case, criterion):
        if isinstance(one, Judgement):
            judged.append(one)
            continue
        policy = one.facts.policy
        wanted = {key: _wanted(policy, key) for key in NAMES}
        source = "the policy that was provisioned" if policy else "NVIDIA RoCE configuration guidance: no policy here"
        bound = Bound(
            metric="roce_settings",
            unit="",
            equal="; ".join(f"{NAMES[key]} {_show(value)}" for key, value in wanted.items()),
            derivation=(source, f"counters that must not grow during the run: {MUST_NOT_GROW}"),
            source=criterion.source,
        )
        judged.append(_lossless(case, criterion, one, wanted, bound))
    return judged


def _wanted(policy: Policy | None, key: str) -> object:
    found = getattr(policy, key) if policy is not None else None
    return getattr(GUIDANCE, key) if found is None else found


def _show(value: object) -> str:
    if isinstance(value, dict):
        value = tuple(f"{dscp}:{prio}" for dscp, prio in sorted(value.items()))
    return (", ".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)


def _fits(found: object, wanted: object) -> bool:
    """A DSCP map may hold more than what is wanted; everything else is equal."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return wanted.items() <= found.items()
    return found == wanted


def _lossless(case: Case, criterion: Criterion, one: Seen, wanted: dict[str, object], bound: Bound) -> Judgement:
    def say(verdict: VerdictName, code: ReasonCode, why: str) -> Judgement:
        return judgement(criterion, one.subject, verdict, code, why, one.ids, text=text or None, bound=bound)

    qos = one.first.qos if one.first is not None else None
    have = {key: getattr(qos, key, None) for key in wanted}
    text = "; ".join(f"{NAMES[key]} {_show(value)}" for key, value in have.items() if value is not None)
    if not one.device:
        return say("not-measured", "missing-metric", f"no RDMA device on {one.port.interface}, so it has no settings")
    wrong = [
        f"{NAMES[key]} is {_show(have[key])}, {_show(value)} wanted"
        for key, value in wanted.items()
        if have[key] is not None and not _fits(have[key], value)
    ]
    if qos is not None:
        if qos.pfc is not None and qos.pause is not None and (qos.pause.rx or qos.pause.tx):
            wrong.append(f"global pause is {qos.pause}, off wanted")
        if qos.ecn is False:
            wrong.append("ECN of RoCE is off")
        if qos.traffic_class not in (None, 0, wanted["tos"]):
            wrong.append(f"traffic class is {qos.traffic_class}, {wanted['tos']} wanted")
    lost = one.growth(lambda name: counters.of_loss(name) or counters.of_storms(name))
    grown = ", ".join(map(str, lost))
    if lost and not case.virtual:
        wrong.append(f"lost packets or jams during the run: {grown}")
    if wrong:
        return say("fail", "not-equal", "; ".join(wrong))
    gaps = one.gaps({"lost packets": counters.of_loss})
    reasons = list(qos.unread) if qos is not None else ["its RoCE settings were not read"]
    if one.facts.memlock is None:
        reasons.append("nothing says whether a policy was provisioned")
    if not reasons and qos is not None:
        there = {**{NAMES[key]: value for key, value in have.items()}, **{w: getattr(qos, k) for k, w in MORE.items()}}
        reasons = [f"{words} cannot be read" for words, value in there.items() if value is None]
    if lost:
        reasons.append(f"during the run {grown}, which a virtual switch without flow control allows")
    if not gaps:  # what no card has cannot be asked of a virtual one
        reasons += one.gaps({"pause storms": counters.of_storms})
    if gaps or reasons:
        fine = f"as wanted: {text}; " if text else ""
        code = "missing-metric" if gaps else _missing(case)
        return say("not-measured", code, f"{fine}not judged because {'; '.join([*reasons, *gaps])}")
    if len(one.ids) < 2:
        return say(
            "not-measured", "not-selected", f"settings as wanted; lost packets: no suite loads the port ({text})"
        )
    late = _late(case, criterion, one, bound)
    why = f"as wanted, this end only (the switch must agree): {text}; none lost"
    told = one.growth(lambda name: name == counters.HOST_QUEUES)
    why += f"; reported, not judged: {told[0]}, for which the host's own TCP queues had no room" if told else ""
    return late or say("pass", "within-bounds", why)


@method("memlock", "how much memory a new session may lock")
def judge_memlock(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node with RDMA: a new session of an ordinary user may lock memory without a limit."""
    bound = Bound(
        metric="memlock", unit="", equal="unlimited", derivation=(criterion.bound.words,), source=criterion.source
    )
    judged = []
    for measurement in case.serving(criterion):
        if measurement.params.get("brief"):
            continue
        node, evidence = measurement.nodes[0], (measurement.id,)
        facts = facts_for(case, criterion, node, measurement.id, RdmaPortsFacts, bound)
        if isinstance(facts, Judgement):
            judged.append(facts)
            continue
        lock = facts.memlock or Memlock(bytes=None, user="an ordinary user", unread="it was not looked at")
        limit, user = lock.bytes, lock.user
        text = f"{user}: {'unlimited' if limit == UNLIMITED else number_of(limit, 'byte')}"
        verdict: VerdictName = "pass"
        code: ReasonCode = "within-bounds"
        why = f"a new session of {user} may lock memory without a limit"
        if lock.unread or limit is None:
            verdict, code = "not-measured", "missing-metric"
            why = f"the limit of lockable memory is not known: {lock.unread or 'the probe gives none'}"
        elif limit != UNLIMITED:
            verdict, code = "fail", "not-equal"
            why = f"a new session of {user} may lock {number_of(limit, 'byte')} of memory, unlimited wanted"
        judged.append(judgement(criterion, node, verdict, code, why, evidence, text=text, bound=bound))
    return judged
