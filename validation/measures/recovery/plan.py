"""Suite recovery: every GPU server is rebooted, and one dies under a job. Planned only where `reboots` allows it."""

from __future__ import annotations

from validation.model import Measurement, Node, Param
from validation.plan.request import Part, Request, Suite, on_one_node

MOST_REBOOTS = 20
MOST_NAMED = 4
BOOT_S, READY_S, OWN_S = 120.0, 3600.0, 600.0
"""Estimated seconds of a boot; how long one may take; what is done beside boots."""
UNALLOWED = (
    "recovery: it reboots every GPU server and the head, and lets a server die under a job; --reboots N allows it, "
    "N times each server"
)
_OF = {"reboots": ("rc.reboot",), "cycles": ("rc.power",), "dead": ("rc.dead", "rc.back"), "head": ("rc.head",)}


def plan(request: Request) -> Part:
    """One node after the other."""
    part, times, cycles = Part(), request.options.get("reboots", 0), request.options.get("power_cycles", 0)
    criteria, topology = request.serving("recovery"), request.topology
    every = [node for node in topology.nodes if "gpu_servers" in node.groups]
    servers = [node for node in every if node.recovery_allowed]
    if not criteria or not every:
        part.excused = True
        return part
    if not times and not cycles:
        part.excused = True
        part.leave_out(UNALLOWED, *criteria)
        return part
    if withheld := [node.name for node in topology.nodes if not node.recovery_allowed]:
        named = ", ".join(withheld[:MOST_NAMED])
        lost = () if servers else [id_ for id_ in criteria if id_ != "rc.head"]
        part.leave_out(f"recovery: the inventory withholds it (recovery_allowed: false) of {named}", *lost)
    for what, count in (("reboots", times), ("cycles", cycles)):
        able = [node for node in servers if what == "reboots" or node.bmc is not None]
        for node in able if count else ():
            takes = (count * BOOT_S, count * READY_S + OWN_S)
            part.rounds.append([_one(node, what, criteria, {"times": count}, *takes)])
    _say_of_power(part, servers, cycles)
    if not times:
        part.leave_out("recovery: reboots are allowed by --reboots N", *(id_ for id_ in criteria if id_ != "rc.power"))
        return part
    if head := next((node for node in topology.nodes if "heads" in node.groups), None):
        if servers:
            part.rounds.append([_one(servers[-1], "dead", criteria, {}, 240.0, READY_S + OWN_S)])
        if head.recovery_allowed:
            part.rounds.append([_one(head, "head", criteria, {}, BOOT_S, 2 * READY_S + OWN_S)])
        else:
            part.leave_out("recovery: the inventory withholds it of the head (recovery_allowed: false)", "rc.head")
    else:
        missing = "recovery: no head, and so no Slurm that could find a dead node"
        part.leave_out(missing, "rc.dead", "rc.back", "rc.head")
    return part


def _say_of_power(part: Part, servers: list[Node], cycles: int) -> None:
    """Whose power is not switched, and why."""
    none = [node.name for node in servers if node.bmc is None]
    if not cycles:
        part.leave_out("recovery: power is switched by BMCs where --power-cycles N allows it", "rc.power")
    elif none:
        why = f"recovery: the inventory declares no BMC (host variable bmc) of {', '.join(none[:MOST_NAMED])}"
        part.leave_out(why, *(["rc.power"] if len(none) == len(servers) else []))


def _one(
    node: Node, what: str, criteria: tuple[str, ...], params: dict[str, Param], takes_s: float, limit_s: float
) -> Measurement:
    mine = tuple(id_ for id_ in criteria if id_ in _OF[what])
    return on_one_node(
        node, "recovery", "recovery", mine, estimated_s=takes_s, timeout_s=limit_s, params={"what": what, **params},
        suffix=f"-{what}",
    )  # fmt: skip


SUITE = Suite(
    "recovery",
    85,
    plan,
    numbers={
        "reboots": "how often suite recovery reboots each GPU server (the head once); consent to that",
        "power_cycles": "how often suite recovery switches each GPU server off and on by its BMC; consent to that",
    },
    most=dict.fromkeys(("reboots", "power_cycles"), (MOST_REBOOTS, "what a handover waits for")),
)
