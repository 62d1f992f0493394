"""As built: do the nodes hold what site.yml was to give them, and would it change anything on them?"""

from __future__ import annotations

from validation.measures.asbuilt.checks import checks_of
from validation.model import Measurement, Node
from validation.plan.request import Part, Request, Suite, on_one_node

AT_A_TIME = 8
"""Nodes that are checked at the same time: each takes a process of the controller. Project default."""
CHECK_S = 0.5
"""Estimated seconds of a check: a connection and a command or two."""
CONVERGED_S = 90.0
"""Estimated seconds of site.yml in check mode, which looks at all nodes at the same time."""
CONVERGED_NODE_S = 60.0
"""By how much every node extends the deadline of it: Ansible takes as many at a time as ansible.cfg says."""


def plan(request: Request) -> Part:
    """The checks of each node, a few nodes at a time, then site.yml in check mode over all of them."""
    part = Part()
    nodes = request.topology.nodes
    serving = request.serving("as-built")
    each = [checks(node, serving) for node in nodes if serving]
    part.rounds += [each[start : start + AT_A_TIME] for start in range(0, len(each), AT_A_TIME)]
    converged, names = request.serving("converged"), tuple(node.name for node in nodes)
    if converged and nodes:
        part.rounds.append(
            [
                Measurement(
                    id="converged.site",
                    suite="as-built",
                    kind="converged",
                    nodes=names,
                    params={"nodes": names},
                    criteria=converged,
                    estimated_s=CONVERGED_S,
                    timeout_s=1800.0 + CONVERGED_NODE_S * len(nodes),
                )
            ]
        )
    return part


def checks(node: Node, criteria: tuple[str, ...]) -> Measurement:
    """The as-built checks that concern a node."""
    names = checks_of(node.groups)
    return on_one_node(
        node,
        "as-built",
        "as-built",
        criteria,
        estimated_s=round(CHECK_S * len(names), 1),
        timeout_s=60.0 + 20 * CHECK_S * len(names),
        params={"checks": names},
    )


SUITE = Suite("as-built", 20, plan)
