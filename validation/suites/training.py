"""Training: the short test of the whitepaper, on one rank, on all of a node, and across nodes."""

from __future__ import annotations

from validation.model import Measurement, Node
from validation.suites import collectives
from validation.suites.common import Part, Request, on_one_host, transport_of

WARMUP_STEPS = 10  # Dell whitepaper 2019, section 4.1.1
MEASURED_STEPS = 100
BATCH = 16  # images per rank and step of the small CNN

SECONDS_PER_STEP = 0.05  # only an estimate of the plan; what is measured does not depend on it
START_SECONDS = 3.0  # mpirun, framework import, first step


def plan(request: Request) -> Part:
    """Three jobs, each a round of its own: `1` rank, `intra` (all slots of a node), `inter` (all GPU servers).

    The jobs are launched from the head (first node of the group), or from the first GPU server where no head exists.
    """
    part = Part()
    servers = [n for n in request.topology.nodes if "gpu_servers" in n.groups]
    if not servers:
        part.leave_out("training: no node in group gpu_servers")
        return part
    portless = [n.name for n in servers if not n.ports]
    if portless:
        part.leave_out(f"training: without a fabric port: {', '.join(portless)}")
        servers = [n for n in servers if n.ports]
        if not servers:
            return part
    all_of_it = (*request.serving("training-short"), *request.serving("collectives"))
    slow = [n.name for n in servers if n.emulated]
    if slow:
        part.leave_out(
            f"training (tn.short, tn.intra, tn.inter): the processors of {', '.join(slow)} are emulated, and what they "
            "train at says nothing",
            *all_of_it,
        )
        part.excused = True
        return part
    without = [n.name for n in servers if not n.trains]
    servers = [n for n in servers if n.trains]
    if without:
        why = f"training: the inventory leaves it out of {', '.join(without)} (horovod_state: absent)"
        part.leave_out(why, *(() if servers else all_of_it))
    if not servers:
        part.excused = True
        return part
    if request.fabric.needs_rdma and transport_of(request, servers) == "tcp":
        bare = ", ".join(n.name for n in servers if not n.ports[0].rdma)
        part.leave_out(f"training over RDMA (tn.path): the first fabric port of {bare} is TCP-only", "tn.path")
    head = next((n for n in request.topology.nodes if "heads" in n.groups), servers[0])
    first = servers[0]
    part.rounds.append([_job(request, "1", head, [first], 1)])
    if first.slots >= 2:
        part.rounds.append([_job(request, "intra", head, [first], first.slots)])
    else:
        part.leave_out(f"training inside a node (tn.intra): {first.name} has one slot", "tn.intra")
    host = on_one_host(servers, request.fabric)
    if len(servers) >= 2 and host is not None:
        part.leave_out(f"training across nodes (tn.inter): all GPU servers are virtual machines of {host}", "tn.inter")
    elif len(servers) >= 2:
        each = min(n.slots for n in servers)
        if len({n.slots for n in servers}) > 1:
            part.leave_out(f"training across nodes: {each} slots of each GPU server, their numbers differ")
        part.rounds.append([_job(request, "inter", head, servers, each)])
    else:
        part.leave_out("training across nodes (tn.inter): only one GPU server", "tn.inter")
    collectives.plan(request, part, head, servers, host)
    return part


def _job(request: Request, label: str, head: Node, hosts: list[Node], ranks_per_node: int) -> Measurement:
    warmup = request.options.get("warmup", WARMUP_STEPS)
    steps = request.options.get("steps", MEASURED_STEPS)
    criteria = {"1": ("tn.short", "tn.intra", "tn.inter"), "intra": ("tn.short", "tn.intra")}.get(
        label, ("tn.short", "tn.inter")
    )
    names, transport = [n.name for n in hosts], transport_of(request, hosts)
    if len(hosts) > 1 and transport != "tcp":
        criteria = (*criteria, "tn.path")
    estimated = START_SECONDS + (warmup + steps) * SECONDS_PER_STEP
    return Measurement(
        id=f"training-short.{label}",
        suite="training",
        kind="training-short",
        nodes=tuple(dict.fromkeys((head.name, *names))),
        params={
            "label": label,
            "ranks": ranks_per_node * len(hosts),
            "ranks_per_node": ranks_per_node,
            "hosts": tuple(names),
            "warmup": warmup,
            "steps": steps,
            "batch": request.options.get("batch", BATCH),
            "transport": transport,
        },
        criteria=tuple(c for c in criteria if c in request.serving("training-short")),
        estimated_s=estimated,
        timeout_s=10 * estimated + 120,
    )
