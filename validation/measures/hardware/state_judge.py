"""Judging power, the log of hardware events and the BMC itself."""

from __future__ import annotations

import ipaddress

from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.measures.hardware.facts import BmcFacts, BmcNode
from validation.measures.hardware.seen import Findings, Seen, first_readings, on_each_bmc, said
from validation.model import Bound, Judgement
from validation.rules.criterion import Criterion

LIMIT_SHARE = 0.99
"""A GPU whose power limit is below this share of its model's is capped: drivers round to whole watts."""


@method("bmc-power", "power supplies and limits by the BMC, and limits of GPUs by the node")
def judge_power(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node with a BMC: all power supplies work, they are redundant, and nothing is capped."""
    return on_each_bmc(case, criterion, "every power supply OK, redundancy OK, no power limit", _power)


def _power(seen: Seen, found: Findings) -> None:
    power, supplies = seen.bmc.power, seen.bmc.of("psu")
    found.unknown += seen.bmc.unread("power")
    for one in supplies:
        if one.health not in (None, "OK"):
            found.wrong.append(f"power supply {one.slot}: {one.health}")
    if power.redundancy_health not in (None, "OK"):
        found.wrong.append(f"power supplies are not redundant: {power.redundancy_health}")
    elif len(supplies) == 1:
        found.wrong.append("one power supply: nothing is redundant")
    elif supplies and power.redundancy is None:
        found.unknown.append("the BMC does not say whether the power supplies are redundant")
    if power.limit_w:
        found.wrong.append(f"the server's power is limited to {power.limit_w:g} W")
    host = seen.facts.parts if seen.facts is not None else None
    capped = [
        f"GPU {gpu.slot} is limited to {gpu.limit_w:g} of {gpu.default_limit_w:g} W"
        for gpu in (host.gpus or () if host is not None else ())
        if gpu.limit_w and gpu.default_limit_w and gpu.limit_w < LIMIT_SHARE * gpu.default_limit_w
    ]
    found.wrong += capped
    if supplies:
        draw = f", {power.draw_w:g} W drawn" if power.draw_w is not None else ""
        found.right.append(f"{number_of(len(supplies), 'power supply', 'power supplies')} OK, {power.redundancy}{draw}")
    elif not found.unknown:
        found.unknown.append("the BMC lists no power supply")


@method("bmc-events", "the log of hardware events by the BMC, before the other suites and after them")
def judge_events(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node with a BMC: no hardware event came during the run."""
    bound = Bound(
        metric=criterion.metric or criterion.id,
        unit="count",
        maximum=0,
        derivation=("entries of the log after the run that were not there before, other than OK",),
        source=criterion.source,
    )
    judged = []
    readings = first_readings(case, criterion)
    after = [m for m in case.serving(criterion) if m not in readings]
    for measurement in readings:
        later = next((m for m in after if set(measurement.nodes) <= set(m.nodes)), None)
        for name in measurement.nodes:
            ids = [measurement.id, *([later.id] if later else [])]
            before = facts_for(case, criterion, name, measurement.id, BmcFacts, bound)
            if isinstance(before, Judgement):
                judged.append(before)
                continue
            if later is None:
                why = "the log was not read a second time: suite preflight alone puts no load on the server"
                judged.append(judgement(criterion, name, "not-measured", "missing-result", why, ids, bound=bound))
                continue
            then = facts_for(case, criterion, name, later.id, BmcFacts, bound)
            if isinstance(then, Judgement):
                judged.append(then)
                continue
            found = Findings.none()
            _events(before.node(name), then.node(name), found)
            verdict, code, why = found.verdict()
            mine = before.node(name)
            why += " (an emulated BMC)" if mine is not None and mine.emulated else ""
            judged.append(judgement(criterion, name, verdict, code, why, ids, bound=bound))
    return judged


def _events(before: BmcNode | None, after: BmcNode | None, found: Findings) -> None:
    for one, when in ((before, "before"), (after, "after")):
        if one is None or one.error or one.events is None:
            why = one.error or said(one.unread("event log")) if one is not None else "was not asked"
            found.unknown.append(f"{when} the run the log was not read: {why}")
    if found.unknown or before is None or after is None or before.events is None or after.events is None:
        return
    if before.server.service_tag != after.server.service_tag:
        found.wrong.append(f"the BMC is another server's after the run: {after.server.service_tag}")
    old = {(event.id, event.at, event.message) for event in before.events}
    new = {(event.id, event.at, event.message): event for event in after.events}
    fresh = [event for key, event in new.items() if key not in old]
    bad = [event for event in fresh if event.severity != "OK"]
    gone = [key for key in old if key not in new]
    found.wrong += [f"event during the run: {event}" for event in bad]
    if gone and not fresh and len(after.events) < len(before.events):
        found.wrong.append("the log was cleared during the run")
    known = sum(event.severity == "Critical" for event in before.events)
    found.right.append(
        f"{number_of(len(fresh), 'new entry', 'new entries')}, none of a fault; {known} critical before the run"
    )


@method("bmc-itself", "how the BMC is reached: TLS, password, IPMI, network")
def judge_bmc(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node with a BMC: reached by verified TLS, no default password, no IPMI, a network of its own."""
    fabric = [
        ipaddress.ip_interface(f"{port.address}/{port.prefix}").network
        for node in case.topology.nodes
        for port in node.ports
    ]

    def itself(seen: Seen, found: Findings) -> None:
        bmc = seen.bmc
        if bmc.default_password:
            found.wrong.append("the password of its user is one that BMCs are delivered with")
        if bmc.manager is None:
            found.unknown += bmc.unread("Managers")
        elif bmc.manager.ipmi:
            found.wrong.append("IPMI over LAN is on")
        elif bmc.manager.ipmi is None:
            found.unknown.append("the BMC does not say whether IPMI over LAN is on")
        port = bmc.manager.port if bmc.manager else None
        if port is not None and port != "Dedicated":
            found.wrong.append(f"it shares network port {port} with the server")
        elif port is None and bmc.manager is not None:
            found.unknown.append("the BMC does not say whether its network port is its own")
        try:
            address = ipaddress.ip_address(bmc.address)
        except ValueError:
            address = None
            found.unknown.append(f"its address {bmc.address} is a name, so its network is not known")
        if address is not None and any(address in network for network in fabric):
            found.wrong.append(f"its address {bmc.address} is in a network of the fabric")
        found.right.append(f"{bmc.tls} with a verified certificate, IPMI off, a port of its own")

    return on_each_bmc(case, criterion, "TLS verified, no default password, IPMI off, a network of its own", itself)
