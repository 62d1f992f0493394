"""A switch's configuration for lossless RoCE, from the hosts' own variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolkit.errors import UsageFault
from toolkit.switches.check import FRAME_BYTES
from toolkit.switches.keys import NAMES, RANGES, OutOfRange, System, known
from toolkit.switches.wanted import HostPort, Site, Values
from validation.model.cables import Cable, plain_port

NAME = "ELASTIC_AI"
THRESHOLDS: dict[System, tuple[int, int, int]] = {"sonic": (2048, 12480, 15), "os10": (500, 1500, 20)}
"""Where ECN begins and ends to mark, in KB, and the chance there in percent: of published examples, a Z9664F at 400
Gbit/s and a Z9332F. They depend on the switch's buffer and on the length of the way, so each site tunes them."""
#: Traffic class, queue and priority of everything else.
OTHER = 0
MTU = RANGES["mtu"][1]


def render(site: Site, switch: str, system: System) -> str:
    """The lines for a switch's ports in the map, each of them in the table of keys; UsageFault where they cannot be."""
    ends = _ends(site, switch)
    values = {host.values for _, host in ends}
    if len(values) > 1:
        names = ", ".join(sorted({host.node for _, host in ends}))
        raise UsageFault(f"{switch}: its hosts ({names}) differ in their RoCE variables; a switch has one policy")
    roce = values.pop()
    _refuse(switch, roce)
    largest = max(host.mtu for _, host in ends) + FRAME_BYTES[system]
    if largest > MTU:
        raise UsageFault(f"{switch}: its hosts need an MTU of {largest} bytes, and the switch's largest is {MTU}")
    blocks = (_sonic if system == "sonic" else _os10)(roce)
    channels = _channels(ends)
    blocks += _bundles(channels, system)
    blocks += [_port(cable, host, system, roce, channels.get((host.node, host.bond or ""))) for cable, host in ends]
    _known(system, blocks)
    head = [
        f"! {switch}, {NAMES[system]}: lossless RoCE as the hosts have it. Made by toolkit switch render.",
        "! The thresholds of ECN are those of a published example: tune them to the switch's buffer.",
    ]
    return "\n".join([*head, "!", *(line for block in blocks for line in [*block, "!"])]) + "\n"


def _ends(site: Site, switch: str) -> list[tuple[Cable, HostPort]]:
    mine = [cable for cable in site.cables if cable.switch == switch]
    if not mine:
        known_ones = sorted({cable.switch for cable in site.cables})
        there = f"there are: {', '.join(known_ones)}" if known_ones else "give it the variable cables"
        raise UsageFault(f"the inventory's map of cables has no port of {switch}; {there}")
    ends = []
    for cable in sorted(mine, key=lambda one: _natural(one.switch_port)):
        host = site.by_cable.get((cable.node, cable.port))
        if host is None:
            raise UsageFault(f"{cable} is in the map of cables, and the inventory has no such Ethernet fabric port")
        ends.append((cable, host))
    return ends


def _natural(name: str) -> list[int]:
    return [int(part) for part in "".join(sign if sign.isdigit() else " " for sign in name).split()]


def _refuse(switch: str, roce: Values) -> None:
    if not roce.roce_enabled:
        raise UsageFault(f"{switch}: roce_enabled is false on its hosts, so the switch needs no lossless configuration")
    taken = {OTHER, roce.roce_priority, roce.roce_cnp_priority}
    if len(taken) < 3 or roce.roce_dscp == roce.roce_cnp_dscp:
        names = "roce_priority, roce_cnp_priority, roce_dscp and roce_cnp_dscp"
        raise UsageFault(f"{switch}: RoCE, notifications and all else need a priority and a DSCP each; see {names}")


def _known(system: System, blocks: Sequence[Sequence[str]]) -> None:
    """Every line is one of the table, its values within their ranges."""
    for block in blocks:
        path: list[str] = []
        for line in block:
            if line.strip() == "!":
                continue
            depth = len(line) - len(line.lstrip())
            path = [*path[:depth], line.strip()]
            try:
                known(system, tuple(path))
            except OutOfRange as fault:
                raise UsageFault(f"{path[-1]}: {fault}") from None


def _rest(taken: set[int], highest: int) -> str:
    """The numbers from 0 to the highest but those taken, as 0-25,27-47."""
    parts, begin = [], None
    for number in range(highest + 2):
        free = number <= highest and number not in taken
        if free and begin is None:
            begin = number
        elif not free and begin is not None:
            parts.append(f"{begin}-{number - 1}" if number - 1 > begin else f"{begin}")
            begin = None
    return ",".join(parts)


def _sonic(roce: Values) -> list[list[str]]:
    data, note = roce.roce_priority, roce.roce_cnp_priority
    least, most, chance = THRESHOLDS["sonic"]
    dscps = [
        (_rest({roce.roce_dscp, roce.roce_cnp_dscp}, 63), OTHER),
        (roce.roce_dscp, data),
        (roce.roce_cnp_dscp, note),
    ]
    return [
        [f"qos wred-policy {NAME}",
         f" green minimum-threshold {least} maximum-threshold {most} drop-probability {chance}", " ecn green"],
        [f"qos scheduler-policy {NAME}",
         " !", f" queue {OTHER}", "  type dwrr", f"  weight {100 - roce.roce_bandwidth_percent}",
         " !", f" queue {data}", "  type dwrr", f"  weight {roce.roce_bandwidth_percent}",
         " !", f" queue {note}", "  type strict"],
        [f"qos map dscp-tc {NAME}", *(f" dscp {dscp} traffic-class {group}" for dscp, group in dscps)],
        [f"qos map tc-queue {NAME}", *(f" traffic-class {n} queue {n}" for n in range(8))],
        [f"qos map tc-pg {NAME}", f" traffic-class {_rest({data}, 7)} priority-group {_other_group(data)}",
         f" traffic-class {data} priority-group {data}"],
        [f"qos map pfc-priority-queue {NAME}", *(f" pfc-priority {n} queue {n}" for n in range(8))],
        [f"qos map pfc-priority-pg {NAME}", *(f" pfc-priority {n} pg {n}" for n in range(8))],
    ]  # fmt: skip


def _other_group(data: int) -> int:
    """The priority group of all traffic that may be lost."""
    return 7 if data != 7 else 0


def _os10(roce: Values) -> list[list[str]]:
    data, note = roce.roce_priority, roce.roce_cnp_priority
    least, most, chance = THRESHOLDS["os10"]
    return [
        [f"wred {NAME}",
         f" random-detect color green minimum-threshold {least} maximum-threshold {most} drop-probability {chance}",
         " random-detect ecn"],
        [f"class-map type network-qos {NAME}_PFC", f" match qos-group {data}"],
        *([f"class-map type queuing {NAME}_Q{queue}", f" match queue {queue}"] for queue in (OTHER, data, note)),
        [f"trust dscp-map {NAME}", f" qos-group {OTHER} dscp {_rest({roce.roce_dscp, roce.roce_cnp_dscp}, 63)}",
         f" qos-group {data} dscp {roce.roce_dscp}", f" qos-group {note} dscp {roce.roce_cnp_dscp}"],
        [f"qos-map traffic-class {NAME}", f" queue {OTHER} qos-group {_rest({data, note}, 7)}",
         f" queue {data} qos-group {data}", f" queue {note} qos-group {note}"],
        [f"policy-map type network-qos {NAME}", " !", f" class {NAME}_PFC", "  pause", f"  pfc-cos {data}"],
        [f"policy-map type queuing {NAME}",
         " !", f" class {NAME}_Q{OTHER}", f"  bandwidth percent {100 - roce.roce_bandwidth_percent}",
         " !", f" class {NAME}_Q{data}", f"  bandwidth percent {roce.roce_bandwidth_percent}",
         f"  random-detect {NAME}",
         " !", f" class {NAME}_Q{note}", "  priority"],
        ["system qos", f" trust-map dscp {NAME}", " ets mode on"],
    ]  # fmt: skip


def _channels(ends: Sequence[tuple[Cable, HostPort]]) -> dict[tuple[str, str], int]:
    """(node, bond) -> its channel group, counted by their first ports."""
    made: dict[tuple[str, str], int] = {}
    for _, host in ends:
        if host.lacp and host.bond:
            made.setdefault((host.node, host.bond), len(made) + 1)
    return made


def _bundles(channels: Mapping[tuple[str, str], int], system: System) -> list[list[str]]:
    name = "PortChannel" if system == "sonic" else "port-channel"
    return [
        [f"interface {name}{number}", f" description {node} {bond}", f" mtu {MTU}", " no shutdown"]
        for (node, bond), number in channels.items()
    ]


def _port(cable: Cable, host: HostPort, system: System, roce: Values, channel: int | None) -> list[str]:
    """A port's lines. A member of a bundle has the bundle's MTU."""
    data, name = roce.roce_priority, plain_port(cable.switch_port)
    face = name.replace("eth", "ethernet" if system == "os10" else "Eth", 1)
    lines = [f"interface {face}", f" description {host.node} {host.port}"]
    if channel is None:
        lines.append(f" mtu {MTU}")
    else:
        lines.append(f" channel-group {channel}{' mode active' if system == 'os10' else ''}")
    if system == "sonic":
        maps = ("dscp-tc", "tc-queue", "tc-pg", "pfc-priority-queue", "pfc-priority-pg")
        lines += [f" queue {data} wred-policy {NAME}", f" scheduler-policy {NAME}",
                  *(f" qos-map {one} {NAME}" for one in maps), f" priority-flow-control priority {data}"]  # fmt: skip
    else:
        lines += [" flowcontrol receive off", " flowcontrol transmit off", " priority-flow-control mode on",
                  f" service-policy input type network-qos {NAME}", f" service-policy output type queuing {NAME}",
                  " ets mode on", f" qos-map traffic-class {NAME}", f" trust-map dscp {NAME}"]  # fmt: skip
    return [*lines, " no shutdown"]
