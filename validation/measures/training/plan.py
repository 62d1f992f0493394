"""Training: the short test of the whitepaper, on one rank, on all of a node, and across nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from validation.measures.collectives import plan as collectives_plan
from validation.measures.training import decoder_plan, long_plan, plan_here, tf_plan, turns_plan
from validation.model import Measurement, Node
from validation.plan import training_choice
from validation.plan.offered import TORCH
from validation.plan.request import Part, PlanError, Request, Suite, on_one_host, transport_of
from validation.plan.training_choice import Config
from validation.probes.train_networks import tells_hours

WARMUP_STEPS = 10  # Dell whitepaper 2019, section 4.1.1
MEASURED_STEPS = 100

SECONDS_PER_STEP = 0.05  # only an estimate of the plan; what is measured does not depend on it
START_SECONDS = 3.0  # mpirun, framework import, first step
SECONDS_PER_GPU_STEP = 0.3
GPU_START_SECONDS = 30.0  # CUDA's contexts and the choice of algorithms on every rank


def plan(request: Request) -> Part:
    """Three jobs of each network, each a round of its own: `1` rank, `intra` (all slots of a node), `inter` (all GPU
    servers), or of the numbers of ranks that were asked for.

    The jobs are launched from the head (first node of the group), or from the first GPU server where no head exists.
    """
    if request.topology.here is not None:
        return plan_here.plan(request, request.topology.here)
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
    all_of_it = tuple(c for kind in ("training-short", "training-turns", "collectives") for c in request.serving(kind))
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
    host = on_one_host(servers, request.fabric)
    across = _servers_across(part, servers, host)
    each = min(n.slots for n in servers)
    if long_plan.alone(request):
        long_plan.plan(request, part, head, servers, across)
        part.leave_out("a long training was asked for, and nothing beside it", *all_of_it)
        return part
    batch = {"batches": str(request.options["batch"])} if "batch" in request.options else {}
    choice = training_choice.read({**batch, **request.words})
    chosen = training_choice.places(choice, servers, each)
    configs = choice.configs(servers)
    for config in configs:
        _plan_config(request, part, config, head, servers, across, chosen)
    if "tn.hours" in request.serving("training-short") and not any(map(tells_hours, {c.model for c in configs})):
        part.leave_out("hours of the long test (tn.hours): no network of the document is trained", "tn.hours")
    counts = {1: 1, **(dict(chosen) or _whole(servers, across))}
    counts = {ranks: nodes for ranks, nodes in counts.items() if nodes == 1 or across}
    if "tn.comm" in request.serving("training-short") and max(counts) < 2:
        part.leave_out("share of the all-reduce (tn.comm): no job has several ranks", "tn.comm")
    decoder_plan.plan(request, part, head, servers, across)
    tf_plan.plan(request, part, configs, head, servers, counts, _steps(request))
    images = request.words.get("images", "")
    if images and not images.startswith("/"):
        raise PlanError(f"--images {images}: the whole path is wanted, as the nodes' training containers see it")
    if choice.framework == TORCH:
        turns_plan.plan(request, part, choice, head, servers, across, images)
    else:
        why = f"training in turns: {choice.framework} was asked for, and torch alone trains in turns"
        part.leave_out(why, *request.serving(turns_plan.KIND))
    collectives_plan.plan(request, part, head, servers, host)
    if long_plan.asked(request):
        long_plan.plan(request, part, head, servers, across)
    else:
        long_plan.rehearse(request, part, choice, head, servers, across)
    return part


def _servers_across(part: Part, servers: Sequence[Node], host: str | None) -> bool:
    """Whether jobs across nodes can be planned; why not, is said."""
    if len(servers) >= 2 and host is not None:
        part.leave_out(f"training across nodes (tn.inter): all GPU servers are virtual machines of {host}", "tn.inter")
        return False
    if len(servers) < 2:
        part.leave_out("training across nodes (tn.inter): only one GPU server", "tn.inter")
        return False
    if len({n.slots for n in servers}) > 1:
        each = min(n.slots for n in servers)
        part.leave_out(f"training across nodes: {each} slots of each GPU server, their numbers differ")
    return True


def _plan_config(
    request: Request,
    part: Part,
    config: Config,
    head: Node,
    servers: Sequence[Node],
    across: bool,
    chosen: Mapping[int, int],
) -> None:
    """One rank, all slots of a node, all GPU servers; or the numbers of ranks that were asked for, one always."""
    first, each = servers[0], min(n.slots for n in servers)
    counts = dict(chosen) or _whole(servers, across)
    part.rounds.append([_job(request, config, "1", head, [first], 1)])
    if first.slots < 2:
        part.leave_out(f"training inside a node (tn.intra): {first.name} has one slot", "tn.intra")
    for ranks, nodes in sorted(counts.items(), key=lambda item: (item[1], item[0])):
        if ranks == 1 or (nodes > 1 and not across):
            continue
        whole = {(first.slots, 1): "intra", (each * len(servers), len(servers)): "inter"}
        label = whole.get((ranks, nodes), str(ranks))
        part.rounds.append([_job(request, config, label, head, servers[:nodes], ranks // nodes)])
        if label == "intra" and training_choice.on_gpus(servers):
            part.rounds += _peers(request, config, servers)


def _whole(servers: Sequence[Node], across: bool) -> dict[int, int]:
    """All slots of a node, and of all nodes: numbers of ranks -> servers."""
    each = min(n.slots for n in servers)
    return {servers[0].slots: 1, **({each * len(servers): len(servers)} if across else {})}


def _steps(request: Request) -> tuple[int, int]:
    return request.options.get("warmup", WARMUP_STEPS), request.options.get("steps", MEASURED_STEPS)


def _peers(request: Request, config: Config, servers: Sequence[Node]) -> list[list[Measurement]]:
    """The job of all slots on every other server with as many, all at the same time, each launched where it runs."""
    alike = [n for n in servers[1:] if n.slots == servers[0].slots]
    jobs = [_job(request, config, "intra", n, [n], n.slots, f".{n.name}") for n in alike]
    return [jobs] if jobs else []


def _job(
    request: Request,
    config: Config,
    label: str,
    head: Node,
    hosts: Sequence[Node],
    ranks_per_node: int,
    of: str = "",
) -> Measurement:
    warmup, steps = _steps(request)
    several = ("tn.inter", "tn.comm") if len(hosts) > 1 else ("tn.intra", "tn.comm")
    served = ("tn.intra", "tn.inter") if ranks_per_node * len(hosts) == 1 else several
    criteria: tuple[str, ...] = ("tn.short", "tn.rate", "tn.clocks", *served)
    if tells_hours(config.model):
        criteria = (*criteria, "tn.hours")
    names, transport = [n.name for n in hosts], transport_of(request, hosts)
    if len(hosts) > 1 and transport != "tcp":
        criteria = (*criteria, "tn.path")
    gpus = training_choice.on_gpus(hosts)
    device = "gpu" if gpus else "cpu" if all(n.virtual for n in hosts) else "any"
    begins, step = (GPU_START_SECONDS, SECONDS_PER_GPU_STEP) if gpus else (START_SECONDS, SECONDS_PER_STEP)
    estimated = begins + (warmup + steps) * step
    return Measurement(
        id=f"training-short.{config.prefix}{label}{of}",
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
            "batch": config.batch,
            "transport": transport,
            "model": config.model,
            "precision": config.precision,
            "device": device,
            **({"framework": config.framework} if config.framework != TORCH else {}),
        },
        criteria=tuple(c for c in criteria if c in request.serving("training-short")),
        estimated_s=estimated,
        timeout_s=10 * estimated + 120,
    )


SUITE = Suite(
    "training",
    60,
    plan,
    numbers={
        "warmup": "warm-up steps of a training measurement",
        "steps": "measured steps of a training measurement",
        "batch": "images per rank and step",
        **long_plan.NUMBERS,
    },
    words={**training_choice.OPTIONS, **long_plan.WORDS},
)
