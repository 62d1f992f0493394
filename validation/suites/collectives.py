"""Collective operations of suite training: inside each GPU server, across two, and across all of them."""

from __future__ import annotations

from collections.abc import Sequence

from validation.model import Measurement, Node
from validation.suites.common import Part, Request, transport_of

KIND = "collectives"
SIZES = tuple(8192 * 4**step for step in range(11))
"""8 KiB to 8 GiB, of which the largest is judged: published floors are of 8 GiB and more."""
TCP_SIZES = SIZES[:9]  # to 512 MiB: over TCP a larger one takes longer and is no faster
VIRTUAL_SIZES = (4096, 65536, 1048576)
REPEATS = 6  # blocks; the least number whose median has an interval of 95 %
ITERATIONS = 5
VIRTUAL_ITERATIONS = 2
BUDGET_S, VIRTUAL_BUDGET_S = 1.0, 0.3
INSIDE_S, ACROSS_S, VIRTUAL_S = 40.0, 80.0, 12.0  # only estimates of the plan


def plan(request: Request, part: Part, head: Node, servers: Sequence[Node], host: str | None) -> None:
    """One round inside all servers, one across the first two, one across all where these are more.

    Virtual servers take one rank on each of two: what processors of one host tell each other says little. `host`: that
    of all servers, where these are virtual machines of one.
    """
    criteria = request.serving(KIND)
    if not criteria:
        return
    virtual = request.topology.virtual
    inside = [n for n in servers if n.slots >= 2 and not virtual]
    if virtual:
        part.leave_out("collective operations inside a node: a rehearsal takes one rank of each of two nodes")
    elif len(inside) < len(servers):
        bare = ", ".join(n.name for n in servers if n.slots < 2)
        part.leave_out(f"collective operations inside a node: {bare} has one slot")
    if inside:
        part.rounds.append([_job(request, f"inside.{n.name}", n, [n], n.slots, criteria) for n in inside])
    if len(servers) < 2:
        part.leave_out("collective operations across nodes: only one GPU server", *(() if inside else criteria))
        return
    if host is not None:
        words = f"collective operations across nodes: all GPU servers are virtual machines of {host}"
        part.leave_out(words, *(() if inside else criteria))
        return
    each = 1 if virtual else min(n.slots for n in servers)
    part.rounds.append([_job(request, "two", head, servers[:2], each, criteria)])
    if len(servers) > 2 and not virtual:
        part.rounds.append([_job(request, "all", head, servers, each, criteria)])


def _job(
    request: Request, label: str, launcher: Node, hosts: Sequence[Node], each: int, criteria: tuple[str, ...]
) -> Measurement:
    names, transport, virtual = [n.name for n in hosts], transport_of(request, hosts), request.topology.virtual
    real = TCP_SIZES if transport == "tcp" and len(hosts) > 1 else SIZES
    estimated = VIRTUAL_S if virtual else INSIDE_S if len(hosts) == 1 else ACROSS_S
    return Measurement(
        id=f"{KIND}.{label}",
        suite="training",
        kind=KIND,
        nodes=tuple(dict.fromkeys((launcher.name, *names))),
        params={
            "label": label.partition(".")[0],
            "ranks": each * len(hosts),
            "ranks_per_node": each,
            "hosts": tuple(names),
            "sizes": tuple(str(size) for size in (VIRTUAL_SIZES if virtual else real)),
            "iterations": VIRTUAL_ITERATIONS if virtual else ITERATIONS,
            "repeats": REPEATS,
            "budget_s": VIRTUAL_BUDGET_S if virtual else BUDGET_S,
            "transport": transport,
        },
        criteria=criteria,
        estimated_s=estimated,
        timeout_s=10 * estimated + 60,
    )
