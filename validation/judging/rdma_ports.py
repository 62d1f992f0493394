"""Judging RDMA ports: up and of the right kind, lossless RoCE as provisioned, memory to register. Pure.

Each port is read before anything runs and again after the suites that load it; only growth between the two counts as
an error of this run, for drivers count from their start. What a reading lacks is not known, and never fine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass

from validation.criterion import Criterion
from validation.judging import counters
from validation.judging.case import Case, judgement, unusable
from validation.model import (
    Bound,
    Endpoint,
    Judgement,
    Measurement,
    Node,
    Port,
    ReasonCode,
    Result,
    Subject,
    VerdictName,
)

BEFORE, AFTER = "rdma-ports", "rdma-ports-after"
UP = ("ACTIVE", "LinkUp")
UNLIMITED = -1

GUIDANCE = {"roce_mode": "RoCE v2", "tos": 106, "trust": "dscp", "dscp_prio": ["26:3", "48:6"], "pfc": ["3"]}
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
    before: Result | None
    after: Result | None
    ids: tuple[str, ...]

    @property
    def subject(self) -> Subject:
        """`gpu1/fab0`."""
        return Subject.port(Endpoint(node=self.node.name, port=self.port.interface))

    def fact(self, key: str, result: Result | None = None) -> object:
        """A fact of the port, from the first reading unless another is given; None where it is not there."""
        result = result or self.before
        return result.facts.get(f"{self.port.interface}.{key}") if result is not None else None

    @property
    def device(self) -> str:
        """`rxe_fab0`, "" without one."""
        return str(self.fact("device") or "")

    @property
    def looked_at(self) -> bool:
        """True where the probe looked for this port at all."""
        ports = self.before.facts.get("ports") if self.before is not None else None
        return isinstance(ports, list) and self.port.interface in ports

    @property
    def readings(self) -> tuple[counters.Reading, counters.Reading]:
        """The port's counters, before and after."""
        return counters.reading(self.fact("counters")), counters.reading(self.fact("counters", self.after))

    def growth(self, judged: Callable[[str], bool]) -> list[str]:
        """Judged counters that grew during the run, `link_downed +1`."""
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
            gone = unusable(case, criterion, about, (measurement.id,), None)
            after = case.usable(last.id) if last else None
            found.append(gone or Seen(node, port, case.usable(measurement.id), after, ids))
    return found


def _planned(case: Case, id_: str) -> Measurement | None:
    return next((m for m in case.plan.measurements if m.id == id_), None)


def _missing(case: Case) -> ReasonCode:
    return "virtual" if case.virtual else "missing-metric"


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
        late = unusable(case, criterion, one.subject, one.ids, bound)
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


def _port_text(one: Seen) -> str:
    rate = one.fact("rate_gbps")
    return (
        f"{one.device}: {one.fact('state')}, {one.fact('physical_state')}, {one.fact('link_layer')}, "
        f"{rate if rate is not None else '?'} Gbit/s"
    )


def _port_faults(case: Case, one: Seen) -> tuple[list[str], list[str]]:
    """What is wrong with a port, and what of it is not known."""
    name, fabric = one.port.interface, case.fabric
    if not one.looked_at:
        return [], [f"the probe did not look at {name}"]
    if not one.device:
        there = f"{name} is {one.fact('operstate') or 'of unknown state'}" if one.fact("present") else f"no {name}"
        return [f"no RDMA device on {name} ({there})"], []
    wrong = _down(one, one.before, "")
    unknown: list[str] = []
    readings: list[tuple[Result | None, str]] = [(one.before, "")]
    if one.after is not None:
        last = one.fact("device", one.after)
        if not last:
            wrong.append(f"{one.device} is gone at the end of the run")
        else:
            wrong += _down(one, one.after, " at the end of the run") if not wrong else []
            unknown += [f"its device is {last} at the end of the run, {one.device} before"] * (last != one.device)
            readings.append((one.after, " at the end of the run"))
    for result, when in readings:
        if one.fact("link_layer", result) != fabric.link_layer:
            wrong.append(f"link layer of {name} is {one.fact('link_layer', result)}{when}, {fabric.link_layer} wanted")
            break
        rate = one.fact("rate_gbps", result)
        if case.virtual or rate == fabric.line_rate_gbps:
            continue
        if isinstance(rate, (int, float)) and not isinstance(rate, bool):
            wrong.append(f"{one.device} runs at {rate:g} Gbit/s{when}, {fabric.line_rate_gbps:g} wanted")
            break
        else:
            unknown.append(f"the rate of {one.device}{when} is not known")
    down = bool(_down(one, one.before, ""))  # where it is, no GID is left
    for result, when in readings if fabric.link_layer == "Ethernet" and not down else []:
        if one.fact("link_layer", result) == "Ethernet" and not _down(one, result, "") and not _has_gid(one, result):
            wrong.append(f"{one.device} has no RoCE v2 GID of {one.port.address}{when}")
            break
    if len(one.ids) == 1 and len(case.plan.suites) > 1:
        unknown.append("no second reading was planned")
    grown = one.growth(counters.of_links)
    wrong += [f"link errors during the run: {', '.join(grown)}"] if grown else []
    return wrong, unknown + one.gaps({"link errors": counters.of_links})


def _down(one: Seen, result: Result | None, when: str) -> list[str]:
    found = (one.fact("state", result), one.fact("physical_state", result))
    if found == UP:
        return []
    return [f"{one.device} is {found[0]}, {found[1]}{when} ({one.port.interface} {one.fact('operstate', result)})"]


def _has_gid(one: Seen, result: Result | None) -> bool:
    """True where the GID table has the port's own IPv4 address as a RoCE v2 GID (InfiniBand specification, A17)."""
    try:
        wanted = ipaddress.ip_address(one.port.address)
    except ValueError:
        return False  # what is no address has no GID
    gids = one.fact("gids", result)
    for line in gids if isinstance(gids, list) else []:
        index, _, rest = str(line).partition(" ")
        if not rest.startswith("RoCE v2 "):
            continue
        try:
            gid = ipaddress.IPv6Address(rest.removeprefix("RoCE v2 ").partition(" ")[0])
        except ValueError:
            continue  # no address, so not this port's
        if index and wanted in (gid, gid.ipv4_mapped):
            return True
    return False


def judge_lossless(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every RoCE port: its settings are those provisioned, or NVIDIA's guidance; nothing was lost during the run."""
    judged = []
    for one in seen(case, criterion):
        if isinstance(one, Judgement):
            judged.append(one)
            continue
        policy = one.before is not None and one.before.facts.get("policy") is True
        wanted = {key: _wanted(one, key, policy) for key in GUIDANCE}
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


def _wanted(one: Seen, key: str, policy: bool) -> object:
    found = one.before.facts.get(f"policy.{key}") if policy and one.before is not None else None
    return GUIDANCE[key] if found is None else found


def _show(value: object) -> str:
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)


def _fits(key: str, found: object, wanted: object) -> bool:
    """A DSCP map may hold more than what is wanted; everything else is equal."""
    if key == "dscp_prio" and isinstance(found, list) and isinstance(wanted, list):
        return set(wanted) <= set(found)
    return found == wanted


def _lossless(case: Case, criterion: Criterion, one: Seen, wanted: dict[str, object], bound: Bound) -> Judgement:
    def say(verdict: VerdictName, code: ReasonCode, why: str) -> Judgement:
        return judgement(criterion, one.subject, verdict, code, why, one.ids, text=text or None, bound=bound)

    have = {key: one.fact(key) for key in wanted}
    text = "; ".join(f"{NAMES[key]} {_show(value)}" for key, value in have.items() if value is not None)
    if not one.device:
        return say("not-measured", "missing-metric", f"no RDMA device on {one.port.interface}, so it has no settings")
    wrong = [
        f"{NAMES[key]} is {_show(have[key])}, {_show(value)} wanted"
        for key, value in wanted.items()
        if have[key] is not None and not _fits(key, have[key], value)
    ]
    if have["pfc"] is not None and one.fact("pause") not in (None, "rx off tx off"):
        wrong.append(f"global pause is {one.fact('pause')}, off wanted")
    if one.fact("ecn") is False:
        wrong.append("ECN of RoCE is off")
    if one.fact("traffic_class") not in (None, 0, wanted["tos"]):
        wrong.append(f"traffic class is {one.fact('traffic_class')}, {wanted['tos']} wanted")
    lost = one.growth(lambda name: counters.of_loss(name) or counters.of_storms(name))
    if lost and not case.virtual:
        wrong.append(f"lost packets or jams during the run: {', '.join(lost)}")
    if wrong:
        return say("fail", "not-equal", "; ".join(wrong))
    gaps = one.gaps({"lost packets": counters.of_loss})
    unread = one.fact("unread")
    reasons = [str(reason) for reason in unread] if isinstance(unread, list) else ["nothing says what was not read"]
    if not isinstance(one.before.facts.get("policy") if one.before is not None else None, bool):
        reasons.append("nothing says whether a policy was provisioned")
    if not reasons:
        there = {**{NAMES[key]: value for key, value in have.items()}, **{w: one.fact(k) for k, w in MORE.items()}}
        reasons = [f"{words} cannot be read" for words, value in there.items() if value is None]
        if one.fact("ecn") not in (None, True) or type(one.fact("ecn")) is int:
            reasons.append(f"ECN of RoCE is {one.fact('ecn')!r}, neither on nor off")
    if lost:
        reasons.append(f"during the run {', '.join(lost)}, which a virtual switch without flow control allows")
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
    late = unusable(case, criterion, one.subject, one.ids, bound)
    why = f"as wanted, this end only (the switch must agree): {text}; none lost"
    told = one.growth(lambda name: name == counters.HOST_QUEUES)
    why += f"; told, not judged: {told[0]}, for which the host's own TCP queues had no room" if told else ""
    return late or say("pass", "within-bounds", why)


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
        gone = unusable(case, criterion, node, evidence, bound)
        result = case.usable(measurement.id)
        if gone is not None or result is None:
            judged += [gone] if gone else []
            continue
        limit, user = result.facts.get("memlock_bytes"), result.facts.get("memlock_user")
        text = f"{user}: {'unlimited' if limit == UNLIMITED else f'{limit} bytes'}"
        verdict: VerdictName = "pass"
        code: ReasonCode = "within-bounds"
        why = f"a new session of {user} may lock memory without a limit"
        unread = result.facts.get("memlock_unread")
        if unread or isinstance(limit, bool) or not isinstance(limit, int):
            verdict, code = "not-measured", "missing-metric"
            why = f"the limit of lockable memory cannot be told: {unread or f'{limit!r} bytes are no limit'}"
        elif limit != UNLIMITED:
            verdict, code = "fail", "not-equal"
            why = f"a new session of {user} may lock {limit} bytes of memory, unlimited wanted"
        judged.append(judgement(criterion, node, verdict, code, why, evidence, text=text, bound=bound))
    return judged
