"""Judging RDMA ports: up and of the right kind, lossless RoCE as provisioned, memory to register. Pure.

Each port is read before anything runs and again after the suites that load it; only growth between the two counts as
an error of this run, for drivers count from their start.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from validation.criterion import Criterion
from validation.judging.case import Case, judgement, unusable
from validation.model import Bound, Judgement, Measurement, Node, Port, ReasonCode, Result, VerdictName

BEFORE, AFTER = "rdma-ports", "rdma-ports-after"
UP = ("ACTIVE", "LinkUp")
UNLIMITED = -1

LINK_ERRORS = frozenset(
    {
        *("symbol_error", "link_error_recovery", "link_downed", "local_link_integrity_errors", "port_rcv_errors"),
        *("port_rcv_remote_physical_errors", "port_rcv_constraint_errors", "port_xmit_constraint_errors"),
        *("excessive_buffer_overrun_errors", "rx_icrc_encapsulated"),
    }
)
"""Counters of a bad cable, transceiver or port: InfiniBand specification, volume 1, 16.1.3.5, as sysfs names them, and
mlx5's broken invariant checksums."""

LOSS = frozenset(
    {
        *("out_of_sequence", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err"),  # mlx5
        *("out_of_seq_request", "rcvd_seq_err"),  # rxe
        *("tx_pause_storm_warning_events", "tx_pause_storm_error_events"),  # ethtool -S of mlx5
    }
)
"""Counters that grow where a fabric loses packets, or where its flow control jams."""

GUIDANCE = {"roce_mode": "RoCE v2", "tos": 106, "trust": "dscp", "dscp_prio": ["26:3", "48:6"], "pfc": ["3"]}
"""What RoCE ports have where no policy was provisioned: NVIDIA RoCE configuration guidance, DSCP 26 and ECN-capable
(26 x 4 + 2), priority 3, notifications DSCP 48 on priority 6."""

NAMES = {
    "roce_mode": "default RoCE version of RDMA-CM",
    "tos": "type of service of RDMA-CM",
    "trust": "trust",
    "dscp_prio": "DSCP map",
    "pfc": "PFC priorities",
}


@dataclass(frozen=True)
class Seen:
    """A port and both readings of its node, None where the plan has none; `ids` of those that were planned."""

    node: Node
    port: Port
    before: Result | None
    after: Result | None
    ids: tuple[str, ...]

    @property
    def subject(self) -> str:
        """`gpu1/fab0`."""
        return f"{self.node.name}/{self.port.interface}"

    def fact(self, key: str, result: Result | None = None) -> object:
        """A fact of the port, from the first reading unless another is given; None where it is not there."""
        result = result or self.before
        return result.facts.get(f"{self.port.interface}.{key}") if result is not None else None

    @property
    def device(self) -> str:
        """`rxe_fab0`, "" without one."""
        return str(self.fact("device") or "")

    def growth(self, names: Iterable[str] | None = None) -> list[str]:
        """Counters that grew during the run, `link_downed +1`; one that fell was reset, which is told as such."""
        first, last = _counters(self.fact("counters")), _counters(self.fact("counters", self.after))
        found = []
        for name in sorted(set(first) & set(last) & set(first if names is None else names)):
            change = last[name] - first[name]
            if change:
                found.append(f"{name} {change:+d}" + (" (reset in between)" if change < 0 else ""))
        return found


def _counters(fact: object) -> dict[str, int]:
    if not isinstance(fact, list):
        return {}
    return {name: int(value) for name, _, value in (str(line).partition(" ") for line in fact)}


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
            gone = unusable(case, criterion, f"{node.name}/{port.interface}", (measurement.id,), None)
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
        wrong = _port_faults(case, one)
        text = _port_text(one)
        if wrong:
            judged.append(
                judgement(
                    criterion, one.subject, "fail", "not-equal", "; ".join(wrong), one.ids, text=text, bound=bound
                )
            )
            continue
        late = unusable(case, criterion, one.subject, one.ids, bound)
        if late is not None:
            judged.append(late)
            continue
        why = text + ("" if len(one.ids) > 1 else "; read once: no suite of this run loads the port")
        judged.append(judgement(criterion, one.subject, "pass", "within-bounds", why, one.ids, text=text, bound=bound))
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


def _port_faults(case: Case, one: Seen) -> list[str]:
    name, fabric = one.port.interface, case.fabric
    if not one.device:
        there = f"{name} is {one.fact('operstate') or 'of unknown state'}" if one.fact("present") else f"no {name}"
        return [f"no RDMA device on {name} ({there})"]
    wrong = _down(one, one.before, "")
    if one.after is not None:
        if not one.fact("device", one.after):
            wrong.append(f"{one.device} is gone at the end of the run")
        elif not wrong:
            wrong += _down(one, one.after, " at the end of the run")
    if one.fact("link_layer") != fabric.link_layer:
        wrong.append(f"link layer of {name} is {one.fact('link_layer')}, {fabric.link_layer} wanted")
    elif fabric.link_layer == "Ethernet" and not _down(one, one.before, "") and not _has_gid(one):  # down: none left
        wrong.append(f"{one.device} has no RoCE v2 GID of {one.port.address}")
    if not case.virtual and one.fact("rate_gbps") != fabric.line_rate_gbps:
        wrong.append(f"{one.device} runs at {one.fact('rate_gbps')} Gbit/s, {fabric.line_rate_gbps:g} wanted")
    grown = [words for words in one.growth(LINK_ERRORS) if "reset" not in words]
    return wrong + ([f"link errors during the run: {', '.join(grown)}"] if grown else [])


def _down(one: Seen, result: Result | None, when: str) -> list[str]:
    found = (one.fact("state", result), one.fact("physical_state", result))
    if found == UP:
        return []
    return [f"{one.device} is {found[0]}, {found[1]}{when} ({one.port.interface} {one.fact('operstate', result)})"]


def _has_gid(one: Seen) -> bool:
    """True where the GID table has the port's own IPv4 address as a RoCE v2 GID (InfiniBand specification, A17)."""
    wanted = ipaddress.ip_address(one.port.address)
    gids = one.fact("gids")
    for line in gids if isinstance(gids, list) else []:
        index, _, rest = str(line).partition(" ")
        if not rest.startswith("RoCE v2 "):
            continue
        gid = ipaddress.IPv6Address(rest.removeprefix("RoCE v2 ").split()[0])
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
            derivation=(source, f"counters that must not grow during the run: {', '.join(sorted(LOSS))}"),
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
    lost = [words for words in one.growth(LOSS) if "reset" not in words]
    if lost and not case.virtual:
        wrong.append(f"lost packets or jams during the run: {', '.join(lost)}")
    if wrong:
        return say("fail", "not-equal", "; ".join(wrong))
    unread = one.fact("unread")
    reasons = [str(reason) for reason in unread] if isinstance(unread, list) else []
    reasons += [f"{NAMES[key]} cannot be read" for key, value in have.items() if value is None and not reasons]
    if lost:
        reasons.append(f"during the run {', '.join(lost)}, which a virtual switch without flow control allows")
    if reasons:
        fine = f"as wanted: {text}; " if text else ""
        return say("not-measured", _missing(case), f"{fine}not judged because {'; '.join(reasons)}")
    if len(one.ids) < 2:
        return say(
            "not-measured", "not-selected", f"settings as wanted; lost packets: no suite loads the port ({text})"
        )
    late = unusable(case, criterion, one.subject, one.ids, bound)
    return late or say("pass", "within-bounds", f"as wanted, this end only (the switch must agree): {text}; none lost")


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
        if limit is None:
            verdict, code = "not-measured", "missing-metric"
            why = f"the limit of lockable memory cannot be told: {result.facts.get('memlock_unread')}"
        elif limit != UNLIMITED:
            verdict, code = "fail", "not-equal"
            why = f"a new session of {user} may lock {limit} bytes of memory, unlimited wanted"
        judged.append(judgement(criterion, node, verdict, code, why, evidence, text=text, bound=bound))
    return judged
