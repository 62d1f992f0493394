"""Suite witness: one measurement for each test of the built-in list and of the site's own."""

from __future__ import annotations

from validation.model import Measurement, Topology
from validation.model.witness import WitnessTest
from validation.plan.request import Part, Request, Suite
from validation.rules.witness import built_in

OWN_S = 60.0
"""Estimated seconds of a test beside what it waits for: somebody walks to the rack."""
LIMIT_S = 4 * 86400.0


def plan(request: Request) -> Part:
    """The list, in its order."""
    part, criteria = Part(), request.serving("witness")
    topology = request.topology
    if not criteria:
        return part
    bare = not any(node.ports for node in topology.nodes)
    for test in (*built_in(), *topology.witness):
        if bare and set(test.seen_by) == {"link"}:
            part.leave_out(f"witnessed test {test.id}: no node has a fabric port", *criteria)
        else:
            part.rounds.append([measurement(test, topology, criteria)])
    return part


def measurement(test: WitnessTest, topology: Topology, criteria: tuple[str, ...]) -> Measurement:
    """A test of a site: its words are those of its node."""
    servers = [node.name for node in topology.nodes if "gpu_servers" in node.groups]
    first = (servers or [node.name for node in topology.nodes])[0]
    node = "" if test.of == "site" else test.node or first
    said = {key: getattr(test, key).replace("{node}", node) for key in ("title", "do", "undo")}
    return Measurement(
        id=f"witness.{test.id}",
        suite="witness",
        kind="witness",
        nodes=tuple(n.name for n in topology.nodes),
        params={
            "test": test.id,
            "node": node,
            **said,
            "loses": test.loses,
            "seen_by": test.seen_by,
            "seen_within_s": test.seen_within_s,
            "back_within_s": test.back_within_s,
        },
        criteria=criteria,
        estimated_s=OWN_S,
        timeout_s=LIMIT_S,
    )


SUITE = Suite("witness", 90, plan)
