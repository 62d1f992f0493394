"""Collective operations of suite training: inside each GPU server, across two, and across all of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from validation.model import Measurement, Node, Param
from validation.plan.request import Part, Request, transport_of

KIND = "collectives"
SIZES = tuple(8192 * 2**step for step in range(22))
"""8 KiB to 16 GiB, of which the largest is judged: published floors are of 8 GiB and more. Each twice the one before,
so that all sizes are there by which figures are published: 1, 64 and 256 MiB, 1 and 8 GiB (Microsoft's guide to its
H100, H200 and GB200), 16 GiB (NVIDIA Cluster Readiness Engine)."""
TCP_SIZES = SIZES[:17:2]  # to 512 MiB: over TCP a larger one takes longer and is no faster
VIRTUAL_SIZES = (4096, 65536, 1048576)
REPEATS = 6  # blocks; the least number whose median has an interval of 95 %
ITERATIONS = 5
VIRTUAL_ITERATIONS = 2
BUDGET_S, VIRTUAL_BUDGET_S = 1.0, 0.3
INSIDE_S, ACROSS_S, VIRTUAL_S, VARIANT_S = 40.0, 80.0, 12.0, 30.0  # only estimates of the plan
VARIANT_SIZES = SIZES[14:19:2]  # 128 MiB to 2 GiB: jobs with something switched off are compared, and need no curve
VARIANTS: dict[str, tuple[str, ...]] = {
    "nvls-off": ("NCCL_NVLS_ENABLE=0",),
    "isolated": ("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_MNNVL_ENABLE=0", "NCCL_NVLS_ENABLE=0"),
    "rail": (),
}
"""What NCCL is told in jobs that follow the usual ones: all-reduce alone, of the same GPUs."""
NVLS_MODEL = re.compile(r"\b(GB|GH|H|B)[1-9]\d\d\b")
"""GPUs, as inventories name them, whose NVSwitches may add up; NCCL's log tells whether they do."""
METHODS = {"nvls-off": "nccl-nvls", "isolated": "nccl-isolated", "rail": "nccl-rails"}
"""By which method of judging each is judged."""


def plan(request: Request, part: Part, head: Node, servers: Sequence[Node], host: str | None) -> None:
    """One round inside all servers, one across the first two, one across all where these are more.

    Virtual servers take one rank on each of two: what processors of one host tell each other says little. `host`: that
    of all servers, where these are virtual machines of one.
    """
    mine = [c for c in request.criteria if c.kind == KIND]
    criteria = tuple(c.id for c in mine if c.method not in METHODS.values())
    variants = {name: tuple(c.id for c in mine if c.method == method) for name, method in METHODS.items()}
    if criteria:
        _usual(request, part, head, servers, host, criteria)
    _variants(request, part, head, servers, host, {name: ids for name, ids in variants.items() if ids})


def _usual(
    request: Request, part: Part, head: Node, servers: Sequence[Node], host: str | None, criteria: tuple[str, ...]
) -> None:
    """Every operation as NCCL takes it."""
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


def _variants(
    request: Request,
    part: Part,
    head: Node,
    servers: Sequence[Node],
    host: str | None,
    criteria: Mapping[str, tuple[str, ...]],
) -> None:
    """NVLS off in each node, the network alone in each node and across two, each rail alone across two."""
    every = [id_ for ids in criteria.values() for id_ in ids]
    if not every:
        return
    if request.topology.virtual or request.options.get("quick"):
        why = "a rehearsal has no NCCL" if request.topology.virtual else "only where the run is not to be quick"
        part.leave_out(f"NVLS on and off, isolated runs and rails of NCCL: {why}", *every)
        return
    inside = [n for n in servers if n.slots >= 2]
    adding = [n for n in inside if NVLS_MODEL.search(n.bom.gpu_model or "")]
    rdma = request.fabric.transport != "tcp"
    for name in ("nvls-off", "isolated"):
        nodes = adding if name == "nvls-off" else inside if rdma else []
        if name in criteria and nodes:
            part.rounds.append(
                [_job(request, f"{name}.{n.name}", n, [n], n.slots, criteria[name], name) for n in nodes]
            )
    pair = servers[:2] if len(servers) > 1 and host is None and rdma else ()
    rails = [tuple(p for p in n.ports if p.rdma) for n in pair]
    each = min((n.slots for n in pair), default=0)
    if pair and "isolated" in criteria:
        part.rounds.append([_job(request, "isolated", head, pair, each, criteria["isolated"], "isolated")])
    if len({len(ports) for ports in rails}) == 1 and len(rails[0]) > 1 and "rail" in criteria:
        for number, port in enumerate(rails[0]):
            job = _job(request, f"rail.{port.interface}", head, pair, each, criteria["rail"], "rail")
            part.rounds.append([job.model_copy(update={"params": {**job.params, "rail": number}})])
    planned = {id_ for one in part.rounds for m in one for id_ in m.criteria}
    for name, why in (
        ("nvls-off", "no GPU server is declared with two GPUs or more whose NVSwitches add up (H100 and later)"),
        ("isolated", "the network is not RDMA, or no GPU server has two GPUs"),
        ("rail", "not two GPU servers with the same number of RDMA ports, two or more"),
    ):
        ids = [id_ for id_ in criteria.get(name, ()) if id_ not in planned]
        if ids:
            part.leave_out(f"NCCL, {name}: {why}", *ids)


def _job(
    request: Request,
    label: str,
    launcher: Node,
    hosts: Sequence[Node],
    each: int,
    criteria: tuple[str, ...],
    variant: str = "",
) -> Measurement:
    names, transport, virtual = [n.name for n in hosts], transport_of(request, hosts), request.topology.virtual
    real = TCP_SIZES if transport == "tcp" and len(hosts) > 1 else SIZES
    estimated = VIRTUAL_S if virtual else INSIDE_S if len(hosts) == 1 else ACROSS_S
    more: dict[str, Param] = {}
    if variant:
        estimated, real = VARIANT_S, VARIANT_SIZES
        more = {"variant": variant, "ops": ("all_reduce",), "variables": VARIANTS[variant]}
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
            **more,
        },
        criteria=criteria,
        estimated_s=estimated,
        timeout_s=10 * estimated + 60,
    )
